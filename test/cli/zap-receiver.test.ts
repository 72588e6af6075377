/** `zap listen` against senders that are not what they should be, made by hand with the library. */
import { describe, expect, test } from "bun:test";
import { mkdirSync, readdirSync, readFileSync } from "node:fs";
import {
  chunkMessage,
  encodeCancel,
  encodeEnd,
  encodeReceipt,
  encodeStart,
  STATUS,
  TRANSFER_VERSION,
  type FileReceipt,
} from "../../lib/cli/transfer/messages.ts";
import { MessageBuilder } from "../../lib/index.ts";
import { until } from "../support/wait.ts";
import { HandMade, hex, sha256, startListen, TestFolder, type ZapProcess } from "./zap-kit.ts";

/** A sender that says exactly what it is told to. */
class Sender {
  readonly node: HandMade;
  readonly peer: string;

  private constructor(node: HandMade, peer: string) {
    this.node = node;
    this.peer = peer;
  }

  static async dial(listener: ZapProcess, nodeId = "stranger"): Promise<Sender> {
    const node = await HandMade.open({ nodeId });
    return new Sender(node, await node.connect(await listener.address));
  }

  say(message: Uint8Array): Promise<void> {
    return this.node.transport.send(this.peer, message);
  }

  async start(name: string, size: number, more: { id?: bigint; mode?: number; version?: number } = {}) {
    await this.say(encodeStart({ id: 1n, mode: 0, version: TRANSFER_VERSION, ...more, name, size }));
    return this.node.receipt();
  }

  data(offset: number, text: string, id = 1n): Promise<void> {
    const chunk = chunkMessage(id, text.length);
    chunk.bytes.set(Buffer.from(text));
    chunk.setOffset(offset);
    return this.say(chunk.message);
  }

  async end(
    text: string,
    more: { id?: bigint; size?: number; hash?: Uint8Array } = {},
  ): Promise<FileReceipt> {
    await this.say(encodeEnd({ id: 1n, size: text.length, hash: sha256(text), ...more }));
    return this.node.receipt();
  }

  /** A whole file in one chunk. */
  async file(name: string, text: string, id = 1n): Promise<FileReceipt> {
    const ready = await this.start(name, text.length, { id });
    if (ready.status !== STATUS.ready) return ready;
    await this.data(0, text, id);
    return this.end(text, { id });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.node[Symbol.asyncDispose]();
  }
}

function saved(folder: TestFolder): string[] {
  return readdirSync(folder.at("in")).sort();
}

describe("names that come over the network", () => {
  const hostile: readonly (readonly [sent: string, saved: string])[] = [
    ["plain.txt", "plain.txt"],
    ["../../escape", "escape"],
    ["/etc/passwd", "passwd"],
    ["..\\..\\windows", "windows"],
    ["folder/", "folder"],
    ["..", "unnamed"],
    [".", "unnamed (2)"],
    ["", "unnamed (3)"],
    ["/", "unnamed (4)"],
    [" \n ", "unnamed (5)"],
    [".bashrc", "_bashrc"],
    ["...hidden", "___hidden"],
    ["red\x1b[31m\x07\n.txt", "red_[31m__.txt"],
    ["c1\u009b31m", "c1_31m"],
    ["gpj.\u202eexe", "gpj._exe"],
    ["nul\0byte", "nul_byte"],
    ["a".repeat(400) + ".tar", "a".repeat(196) + ".tar"],
    ["\u00e9".repeat(400), "\u00e9".repeat(100)],
    ["\u{1f600}", "\u{1f600}"],
    ["-rf", "-rf"],
  ];

  test("stay inside the folder, visible, and do not reach the terminal as they are", async () => {
    using folder = new TestFolder();
    using listener = startListen(folder, "--once");
    {
      await using sender = await Sender.dial(listener);
      for (const [at, [name]] of hostile.entries()) {
        const receipt = await sender.file(name, `content ${at}`, BigInt(at + 1));
        expect(receipt.status).toBe(STATUS.saved);
      }
    }
    expect(await listener.end()).toBe(0);
    for (const [at, [, name]] of hostile.entries())
      expect(readFileSync(folder.at("in", name), "utf8")).toBe(`content ${at}`);
    expect(saved(folder)).toEqual(hostile.map(([, name]) => name).sort());
    expect(readdirSync(folder.path)).toEqual(["in"]);
    expect(listener.stdout + listener.stderr).not.toMatch(/[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]/);
  });

  test("do not overwrite or enter a folder of that name", async () => {
    using folder = new TestFolder();
    mkdirSync(folder.at("in", "taken"), { recursive: true });
    using listener = startListen(folder, "--once");
    {
      await using sender = await Sender.dial(listener);
      expect((await sender.file("taken", "x")).status).toBe(STATUS.saved);
    }
    expect(await listener.end()).toBe(0);
    expect(saved(folder)).toEqual(["taken", "taken (2)"]);
    expect(readdirSync(folder.at("in", "taken"))).toEqual([]);
  });
});

describe("a file that is not what was promised is refused, and nothing of it is left", () => {
  const cases: readonly {
    readonly what: string;
    readonly status: number;
    readonly reason: string;
    readonly act: (sender: Sender) => Promise<FileReceipt>;
  }[] = [
    {
      what: "another hash",
      status: STATUS.hash,
      reason: `the SHA-256 of what came is ${hex(sha256("hello"))}, not that of the sender`,
      act: async (sender) => {
        await sender.start("f", 5);
        await sender.data(0, "hello");
        return sender.end("hello", { hash: sha256("hellO") });
      },
    },
    {
      what: "less than announced",
      status: STATUS.size,
      reason: "4 bytes came; 5 were announced, 4 at the end",
      act: async (sender) => {
        await sender.start("f", 5);
        await sender.data(0, "hell");
        return sender.end("hell");
      },
    },
    {
      what: "another size at the end",
      status: STATUS.size,
      reason: "5 bytes came; 5 were announced, 6 at the end",
      act: async (sender) => {
        await sender.start("f", 5);
        await sender.data(0, "hello");
        return sender.end("hello", { size: 6 });
      },
    },
    {
      what: "more than announced",
      status: STATUS.size,
      reason: "more came than the 5 bytes announced",
      act: async (sender) => {
        await sender.start("f", 5);
        await sender.data(0, "hello");
        await sender.data(5, "!");
        return sender.node.receipt();
      },
    },
    {
      what: "a gap",
      status: STATUS.protocol,
      reason: "a chunk for offset 3 came at 2",
      act: async (sender) => {
        await sender.start("f", 5);
        await sender.data(0, "he");
        await sender.data(3, "lo");
        return sender.node.receipt();
      },
    },
    {
      what: "a chunk twice",
      status: STATUS.protocol,
      reason: "a chunk for offset 0 came at 2",
      act: async (sender) => {
        await sender.start("f", 5);
        await sender.data(0, "he");
        await sender.data(0, "he");
        return sender.node.receipt();
      },
    },
    {
      what: "an unknown version",
      status: STATUS.protocol,
      reason: "version 2 of the transfer is not known here, only 1 is",
      act: (sender) => sender.start("f", 5, { version: 2 }),
    },
    {
      what: "a size beyond what is exact",
      status: STATUS.size,
      reason: "it has 8.0 PiB; at most 8.0 PiB are taken",
      act: async (sender) => {
        const start = new MessageBuilder();
        start
          .startObject(32)
          .setUint64(0, 1n)
          .setUint64(8, 2n ** 53n)
          .setUint32(20, 1)
          .finishAsRoot();
        await sender.say(start.finish({ type: 0xf1 }));
        return sender.node.receipt();
      },
    },
  ];

  for (const { what, status, reason, act } of cases) {
    test(what, async () => {
      using folder = new TestFolder();
      using listener = startListen(folder, "--once");
      {
        await using sender = await Sender.dial(listener);
        const receipt = await act(sender);
        expect({ status: receipt.status, reason: receipt.reason }).toEqual({ status, reason });
        expect(saved(folder)).toEqual([]);
        // The connection lives on, and so does the listener.
        expect((await sender.file("after", "fine", 9n)).status).toBe(STATUS.saved);
      }
      expect(await listener.end()).toBe(1);
      expect(saved(folder)).toEqual(["after"]);
      expect(listener.stderr).toMatch(/^✗ (f|unnamed) from stranger: .+\n$/);
      expect(listener.stderr).toContain(reason);
    });
  }

  test("what comes for it afterwards is passed over", async () => {
    using folder = new TestFolder();
    using listener = startListen(folder, "--once");
    {
      await using sender = await Sender.dial(listener);
      await sender.start("f", 4);
      await sender.data(1, "x");
      expect((await sender.node.receipt()).status).toBe(STATUS.protocol);
      await sender.data(2, "y");
      const receipt = await sender.end("zzzz");
      expect(receipt.status).toBe(STATUS.protocol);
      expect(receipt.reason).toBe("no such transfer is open");
    }
    expect(await listener.end()).toBe(1);
    expect(saved(folder)).toEqual([]);
  });

  test("an id that is in use refuses both", async () => {
    using folder = new TestFolder();
    using listener = startListen(folder, "--once");
    {
      await using sender = await Sender.dial(listener);
      expect((await sender.start("first", 3)).status).toBe(STATUS.ready);
      expect((await sender.start("second", 3)).reason).toBe("its transfer was started a second time");
      expect((await sender.node.receipt()).reason).toBe("a transfer with this id was open already");
    }
    expect(await listener.end()).toBe(1);
    expect(saved(folder)).toEqual([]);
  });
});

describe("limits", () => {
  test("one peer has at most 8 transfers open", async () => {
    using folder = new TestFolder();
    using listener = startListen(folder, "--once");
    {
      await using sender = await Sender.dial(listener);
      for (let id = 1n; id <= 8n; id++) {
        const receipt = await sender.start(`f${id}`, 1, { id });
        expect(receipt.status).toBe(STATUS.ready);
      }
      const ninth = await sender.start("f9", 1, { id: 9n });
      expect(ninth.status).toBe(STATUS.busy);
      expect(ninth.reason).toBe("too many transfers are open");
      await sender.data(0, "x", 5n);
      expect((await sender.end("x", { id: 5n })).status).toBe(STATUS.saved);
      expect((await sender.start("f10", 1, { id: 10n })).status).toBe(STATUS.ready);
      expect(saved(folder).filter((name) => name.endsWith(".part"))).toHaveLength(8);
    }
    expect(await listener.end()).toBe(1);
    expect(saved(folder)).toEqual(["f5"]);
  });

  test("a transfer in which nothing moves is given up", async () => {
    using folder = new TestFolder();
    using listener = startListen(folder, "--timeout", "0.3");
    await using sender = await Sender.dial(listener);
    await sender.start("f", 5);
    await sender.data(0, "he");
    const receipt = await sender.node.receipt();
    expect(receipt.status).toBe(STATUS.stopped);
    expect(receipt.reason).toBe("nothing came for 0.3 s");
    expect(saved(folder)).toEqual([]);
  });

  test("a flood of refusals does not flood the terminal, and unread receipts do not stop others", async () => {
    using folder = new TestFolder();
    using listener = startListen(folder, "--max-bytes", "10");
    await using flood = await Sender.dial(listener, "flood");
    const start = encodeStart({
      id: 1n,
      mode: 0,
      version: TRANSFER_VERSION,
      name: "n".repeat(200),
      size: 11,
    });
    for (let i = 0; i < 20_000; i++) await flood.say(start);
    await using other = await Sender.dial(listener, "other");
    expect((await other.file("mine", "x")).status).toBe(STATUS.saved);
    listener.process.kill("SIGINT");
    expect(await listener.end()).toBe(0);
    expect(listener.stderr.split("\n").length).toBeLessThan(500);
    expect(saved(folder)).toEqual(["mine"]);
  });
});

describe("other messages", () => {
  test("are passed over and mentioned", async () => {
    using folder = new TestFolder();
    using listener = startListen(folder);
    await using sender = await Sender.dial(listener, "str\u202eange");
    const hash = sha256("");
    await sender.say(new MessageBuilder().finish({ type: 7 }));
    await sender.say(encodeReceipt({ id: 1n, status: STATUS.saved, size: 0, hash, reason: "" }));
    await sender.say(encodeCancel({ id: 1n, reason: "" }));
    await sender.say(encodeEnd({ id: 0n, size: 0, hash }));
    expect((await sender.file("f", "x")).status).toBe(STATUS.saved);
    listener.process.kill("SIGINT");
    expect(await listener.end()).toBe(0);
    expect(listener.stderr.split("\n")).toEqual([
      "zap: str\ufffdange: ignored a message of type 7",
      "zap: str\ufffdange: ignored a receipt",
      "zap: str\ufffdange: ignored a message of type 243",
      "",
    ]);
    expect(listener.stdout).toContain("✓ f  1 byte from str\ufffdange in ");
  });

  test("a cancel removes what came, with the reason made fit to print", async () => {
    using folder = new TestFolder();
    using listener = startListen(folder);
    await using sender = await Sender.dial(listener);
    await sender.start("f", 5);
    await sender.data(0, "he");
    await sender.say(encodeCancel({ id: 1n, reason: "no \x1b[31mmore" }));
    await until(() => listener.stderr.includes("\n"), "a line");
    expect(listener.stderr).toBe("✗ f from stranger: the sender gave up: no \ufffd[31mmore\n");
    expect(saved(folder)).toEqual([]);
  });

  test("everything sent before a sender leaves still counts, also what is read after that", async () => {
    using folder = new TestFolder();
    using listener = startListen(folder, "--once");
    {
      await using sender = await Sender.dial(listener);
      for (let id = 1n; id <= 200n; id++) {
        await sender.say(encodeStart({ id, mode: 0, version: 1, name: `f${id}`, size: 3 }));
        await sender.data(0, "abc", id);
        await sender.say(encodeEnd({ id, size: 3, hash: sha256("abc") }));
      }
    }
    expect(await listener.end()).toBe(0);
    expect(saved(folder)).toHaveLength(200);
  });
});
