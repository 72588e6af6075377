import { describe, expect, test } from "bun:test";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isMessage, messageOf, sameBytes } from "../support/messages.ts";
import { Net } from "../support/nodes.ts";
import { failureOf } from "../support/wait.ts";

const KIB = 1024;
const MIB = 1024 * KIB;

describe("a message", () => {
  const sizes = [16, 17, 20, 255, 4 * KIB, 64 * KIB - 4, 64 * KIB, 64 * KIB + 1, 128 * KIB, 128 * KIB + 1];
  test("of any size up to the limit arrives whole, both ways", async () => {
    await using net = new Net();
    const [a, b] = await net.pair();
    for (const bytes of [...sizes, 512 * KIB, MIB + 3, 10 * MIB]) {
      for (const [from, to] of [
        [a, b],
        [b, a],
      ] as const) {
        const sent = messageOf(bytes, 9);
        const [, got] = await Promise.all([from.send(to.id, sent), to.recv()]);
        expect(got.peer).toBe(from.id);
        expect(sameBytes(got.message, sent)).toBe(true);
      }
    }
    expect([...a.troubles, ...b.troubles]).toEqual([]);
  });

  test("may be reused by its sender as soon as send resolves", async () => {
    await using net = new Net();
    const [a, b] = await net.pair();
    for (const bytes of [64, 64 * KIB, 200 * KIB, 3 * MIB]) {
      const message = messageOf(bytes, 3);
      const receiving = b.recv();
      await a.send("b", message);
      message.fill(0);
      expect(isMessage((await receiving).message, 3)).toBe(true);
    }
  });

  test("may be a part of a larger buffer, and carry bytes behind its size", async () => {
    await using net = new Net();
    const [a, b] = await net.pair();
    const large = new Uint8Array(1_000);
    large.set(messageOf(100, 1, { size: 90 }), 500);
    await a.send("b", large.subarray(500, 600));
    expect(sameBytes((await b.recv()).message, messageOf(100, 1, { size: 90 }))).toBe(true);
  });

  test("cannot be anything but a ZAP message, and no larger than the limit", async () => {
    await using net = new Net({ limits: { frameBytes: 1_000 } });
    const [a, b] = await net.pair();
    const bad: [unknown, string][] = [
      [new Uint8Array(0), "ERR_ZAP_MESSAGE_SHORT"],
      [messageOf(16).subarray(0, 15), "ERR_ZAP_MESSAGE_SHORT"],
      ["text", "ERR_ZAP_MESSAGE_SHORT"],
      [undefined, "ERR_ZAP_MESSAGE_SHORT"],
      [new Uint8Array(100), "ERR_ZAP_MESSAGE_MAGIC"],
      [messageOf(100, 0, { version: 2 }), "ERR_ZAP_MESSAGE_VERSION"],
      [messageOf(100, 0, { size: 101 }), "ERR_ZAP_MESSAGE_SIZE"],
      [messageOf(100, 0, { size: 15 }), "ERR_ZAP_MESSAGE_SIZE"],
      [messageOf(1_001), "ERR_ZAP_FRAME_TOO_LARGE"],
    ];
    for (const [message, code] of bad) {
      expect((await failureOf(a.transport.send("b", message as Uint8Array))).code).toBe(code);
    }
    await a.send("b", messageOf(1_000));
    expect((await b.recv()).message.length).toBe(1_000);
    expect(a.transport.stats().messagesOut).toBe(1);
  });

  test("of version 2 passes where both sides take it", async () => {
    await using net = new Net({ versions: [1, 2] });
    const [a, b] = await net.pair();
    for (const version of [2, 1]) {
      await a.send("b", messageOf(100, 0, { version }));
      expect(sameBytes((await b.recv()).message, messageOf(100, 0, { version }))).toBe(true);
    }
  });

  test("to this node itself, or to nobody known, is refused", async () => {
    await using net = new Net();
    const a = await net.node("a");
    for (const peer of ["a", "nobody", ""]) {
      const error = await failureOf(a.transport.send(peer, messageOf(64)));
      expect([error.code, error.message]).toEqual([
        "ERR_ZAP_UNKNOWN_PEER",
        expect.stringContaining(JSON.stringify(peer)),
      ]);
    }
  });
});

describe("an address", () => {
  for (const place of ["127.0.0.1:0", "[::1]:0", "localhost:0"]) {
    test(`of the kind ${place} carries messages, and is given back with its port`, async () => {
      await using net = new Net();
      const [a, b] = [await net.node("a"), await net.node("b", { listen: place })];
      expect(b.address).toMatch(/^(127\.0\.0\.1|\[::1\]|localhost):[1-9]\d*$/);
      expect(await a.transport.connect(b.address)).toBe("b");
      await a.send("b", messageOf(64, 1));
      expect((await b.recv()).peer).toBe("a");
    });
  }

  test("without a host takes IPv4 and IPv6", async () => {
    await using net = new Net();
    const b = await net.node("b", { listen: ":0" });
    const [a, c] = [await net.node("a"), await net.node("c")];
    expect(await a.transport.connect(`127.0.0.1:${b.port}`)).toBe("b");
    expect(await c.transport.connect(`[::1]:${b.port}`)).toBe("b");
  });

  test("list makes a node reachable at each", async () => {
    await using net = new Net();
    const b = await net.node("b", { listen: ["127.0.0.1:0", "[::1]:0"] });
    expect(b.transport.addresses).toHaveLength(2);
    for (const [i, address] of b.transport.addresses.entries()) {
      const a = await net.node(`a${i}`);
      expect(await a.transport.connect(address)).toBe("b");
    }
  });

  test("that is in use cannot be listened on, and nothing is left behind", async () => {
    await using net = new Net();
    const a = await net.node("a");
    const error = await failureOf(net.node("b", { listen: ["127.0.0.1:0", a.address] }));
    expect(error.code).toBe("ERR_ZAP_ADDRESS");
    expect(error.message).toContain(a.address);
    expect(error.message).toContain("in use");
  });

  test("that is not this host's cannot be listened on", async () => {
    await using net = new Net();
    const error = await failureOf(net.node("b", { listen: "192.0.2.1:0" }));
    expect(error.code).toBe("ERR_ZAP_ADDRESS");
    expect(error.message).toContain("192.0.2.1:0");
  });
});

describe("a unix socket", () => {
  const folder = (): Disposable & { readonly path: string } => {
    const path = mkdtempSync(join(tmpdir(), "zap-"));
    return { path, [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }) };
  };

  test("carries messages of every size", async () => {
    using home = folder();
    await using net = new Net();
    const b = await net.node("b", { listen: `unix:${home.path}/b.sock` });
    const a = await net.node("a");
    expect(b.address).toBe(`unix:${home.path}/b.sock`);
    expect(await a.transport.connect(b.address)).toBe("b");
    for (const bytes of [16, 4 * KIB, 3 * MIB]) {
      const [, got] = await Promise.all([a.send("b", messageOf(bytes, 1)), b.recv()]);
      expect(sameBytes(got.message, messageOf(bytes, 1))).toBe(true);
    }
  });

  test("file that nobody listens on is replaced", async () => {
    using home = folder();
    const path = join(home.path, "left-over.sock");
    // A process that dies leaves its socket file; one that stops in good order may remove it.
    const script = `Bun.listen({unix: ${JSON.stringify(path)}, socket: {data() {}}}); process.kill(process.pid, "SIGKILL")`;
    await Bun.spawn([process.execPath, "-e", script]).exited;
    expect(existsSync(path)).toBe(true);
    await using net = new Net();
    const [a, b] = [await net.node("a"), await net.node("b", { listen: `unix:${path}` })];
    expect(await a.transport.connect(`unix:${path}`)).toBe(b.id);
  });

  test("that somebody listens on is left to them", async () => {
    using home = folder();
    await using net = new Net();
    const address = `unix:${home.path}/b.sock`;
    await net.node("b", { listen: address });
    const error = await failureOf(net.node("c", { listen: address }));
    expect(error.code).toBe("ERR_ZAP_ADDRESS");
    expect(error.message).toContain(address);
    const a = await net.node("a");
    expect(await a.transport.connect(address)).toBe("b");
  });

  test("path with something else in it is left alone", async () => {
    using home = folder();
    await using net = new Net();
    const path = join(home.path, "precious.txt");
    await Bun.write(path, "do not lose");
    const error = await failureOf(net.node("c", { listen: `unix:${path}` }));
    expect(error.code).toBe("ERR_ZAP_ADDRESS");
    expect(await Bun.file(path).text()).toBe("do not lose");
  });
});
