/** Two real processes, and what becomes of files between them. */
import { describe, expect, test } from "bun:test";
import { chmodSync, readdirSync, readFileSync, statSync, symlinkSync } from "node:fs";
import { VERSION } from "../../lib/index.ts";
import { PeakMemory } from "../support/peak.ts";
import { until } from "../support/wait.ts";
import { hex, sha256, someBytes, startListen, TestFolder, ZapProcess } from "./zap-kit.ts";

const MIB = 1024 * 1024;

function digest(bytes: Uint8Array | string): string {
  return hex(sha256(bytes));
}

describe("files arrive as they were", () => {
  test("of every size, several in one call", async () => {
    using folder = new TestFolder();
    const sizes = [0, 1, MIB - 1, MIB, MIB + 1, 2 * MIB, 20 * MIB];
    const files = new Map(sizes.map((size) => [`file-${size}.bin`, someBytes(size)]));
    for (const [name, bytes] of files) await folder.write(name, bytes);
    using listener = startListen(folder, "--once", "--id", "bob");
    const names = [...files.keys()];
    using sender = new ZapProcess(["send", await listener.address, ...names, "--id", "alice"], {
      cwd: folder.path,
    });
    expect(await sender.end()).toBe(0);
    expect(await listener.end()).toBe(0);
    expect(sender.stderr + listener.stderr).toBe("");

    expect(readdirSync(folder.at("in")).sort()).toEqual([...names].sort());
    const said = listener.stdout.trimEnd().split("\n").slice(2);
    const told = sender.stdout.trimEnd().split("\n");
    expect(told.shift()).toBe(`sending to bob at ${await listener.address} over default`);
    for (const [at, [name, bytes]] of [...files].entries()) {
      expect(digest(readFileSync(folder.at("in", name)))).toBe(digest(bytes));
      const words = bytes.length === 1 ? "1 byte" : `${bytes.length.toLocaleString("en-US")} bytes`;
      expect(said[at]).toStartWith(`✓ ${name}  ${words} from alice in `);
      expect(said[at]).toMatch(/ from alice in [\d.]+ m?s, [\d.]+ [KMGi]*B\/s {2}sha256 [0-9a-f]{64}$/);
      expect(said[at]).toEndWith(`sha256 ${digest(bytes)}`);
      expect(told[at]).toStartWith(`✓ ${name}  ${words} in `);
      expect(told[at]).toEndWith(`sha256 ${digest(bytes)}`);
    }
    expect(said).toHaveLength(files.size);
  });

  test("with the memory of neither side growing with the file", async () => {
    using folder = new TestFolder();
    const block = someBytes(4 * MIB);
    const writer = Bun.file(folder.at("big.bin")).writer();
    for (let i = 0; i < 75; i++) {
      writer.write(block);
      await writer.flush();
    }
    await writer.end();
    using listener = startListen(folder, "--once");
    using sender = new ZapProcess(["send", await listener.address, folder.at("big.bin")]);
    const peaks = [sender, listener].map(({ process }) => new PeakMemory(process));
    expect(await sender.end()).toBe(0);
    expect(await listener.end()).toBe(0);
    expect(statSync(folder.at("in", "big.bin")).size).toBe(300 * MIB);
    // Far from the file's 300 MiB. A bare Bun with a socket takes about 50, and more on a busy machine, where its collector comes late.
    for (const peak of peaks) {
      expect(peak.bytes()).toBeGreaterThan(10 * MIB);
      expect(peak.bytes()).toBeLessThan(180 * MIB);
    }
  }, 60_000);

  test("keep their permission bits, within our umask", async () => {
    using folder = new TestFolder();
    for (const [name, mode] of [
      ["plain", 0o644],
      ["secret", 0o600],
      ["program", 0o755],
      ["set", 0o4755],
    ] as const)
      chmodSync(await folder.write(name, name), mode);
    using listener = startListen(folder, "--once");
    const paths = ["plain", "secret", "program", "set"].map((name) => folder.at(name));
    using sender = new ZapProcess(["send", await listener.address, ...paths]);
    expect(await sender.end()).toBe(0);
    await listener.end();
    const modeOf = (name: string) => statSync(folder.at("in", name)).mode & 0o7777;
    const mask = ~process.umask();
    expect(["plain", "secret", "program", "set"].map(modeOf)).toEqual([
      ...[0o644 & mask, 0o600, 0o755 & mask, 0o755 & mask],
    ]);
  });

  test("over a unix socket and over IPv6", async () => {
    using folder = new TestFolder();
    const file = await folder.write("f", "content");
    for (const address of [`unix:${folder.at("socket")}`, "[::1]:0"]) {
      using listener = new ZapProcess(["listen", "--once", "--address", address, "--out", folder.at("in")]);
      using sender = new ZapProcess(["send", await listener.address, file]);
      expect(await sender.end()).toBe(0);
      expect(await listener.end()).toBe(0);
    }
    expect(readdirSync(folder.at("in")).sort()).toEqual(["f", "f (2)"]);
  });

  test("from several senders at once", async () => {
    using folder = new TestFolder();
    using listener = startListen(folder);
    const address = await listener.address;
    const names = ["a", "b", "c", "d"];
    const senders: ZapProcess[] = [];
    for (const [at, name] of names.entries()) {
      await folder.write(name, someBytes(3 * MIB + at));
      senders.push(new ZapProcess(["send", address, name, "--id", `sender-${name}`], { cwd: folder.path }));
    }
    expect(await Promise.all(senders.map((each) => each.end()))).toEqual([0, 0, 0, 0]);
    listener.process.kill("SIGINT");
    expect(await listener.end()).toBe(0);
    for (const [at, name] of names.entries()) {
      expect(digest(readFileSync(folder.at("in", name)))).toBe(digest(someBytes(3 * MIB + at)));
      expect(listener.stdout).toMatch(new RegExp(`^✓ ${name}  .* from sender-${name} `, "m"));
    }
  });
});

describe("names that are taken", () => {
  test("are left alone, and the next free one is used", async () => {
    using folder = new TestFolder();
    await folder.write("in/report.tar", "first");
    symlinkSync("/nonexistent/target", folder.at("in", "report (2).tar"));
    const file = await folder.write("report.tar", "new");
    using listener = startListen(folder, "--once");
    using sender = new ZapProcess(["send", await listener.address, file, file]);
    expect(await sender.end()).toBe(0);
    expect(await listener.end()).toBe(0);
    const texts = ["report.tar", "report (3).tar", "report (4).tar"].map((name) =>
      readFileSync(folder.at("in", name), "utf8"),
    );
    expect(texts).toEqual(["first", "new", "new"]);
    expect(readdirSync(folder.at("in"))).toHaveLength(4);
    expect(listener.stdout).toContain("✓ report (3).tar  3 bytes");
  });
});

describe("zap listen", () => {
  test("--max-bytes refuses what is larger and takes the rest", async () => {
    using folder = new TestFolder();
    const [small, large] = [await folder.write("small", "12345"), await folder.write("large", "123456")];
    using listener = startListen(folder, "--once", "--max-bytes", "5");
    using sender = new ZapProcess(["send", await listener.address, large, small]);
    expect(await sender.end()).toBe(1);
    expect(await listener.end()).toBe(1);
    expect(readdirSync(folder.at("in"))).toEqual(["small"]);
    const reason = "it has 6 B; at most 5 B are taken";
    expect(sender.stderr).toBe(
      `✗ ${large}: the receiver did not take it: ${reason}\nzap: 1 of 2 files not confirmed\n`,
    );
    expect(listener.stderr).toMatch(new RegExp(`^✗ large from \\S+: ${reason}\n$`));
  });

  test("--json prints one object a line", async () => {
    using folder = new TestFolder();
    const [good, large] = [await folder.write("good", "12345"), await folder.write("large", "123456")];
    using listener = startListen(folder, "--once", "--json", "--max-bytes", "5", "--id", "bob");
    await until(() => listener.stdout.includes("\n"), "the first line");
    const [address] = JSON.parse(listener.stdout).addresses;
    using sender = new ZapProcess(["send", address, good, large, "--id", "alice"]);
    await sender.end();
    expect(await listener.end()).toBe(1);
    const lines = listener.stdout
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line));
    expect(lines).toEqual([
      {
        event: "listening",
        addresses: [address],
        nodeId: "bob",
        transport: "default",
        folder: folder.at("in"),
      },
      {
        event: "saved",
        name: "good",
        bytes: 5,
        sha256: digest("12345"),
        peer: "alice",
        millis: expect.any(Number),
      },
      { event: "failed", name: "large", peer: "alice", reason: "it has 6 B; at most 5 B are taken" },
    ]);
  });

  test("--allow turns others away", async () => {
    using folder = new TestFolder();
    const file = await folder.write("f", "x");
    using listener = startListen(folder, "--allow", "alice", "--allow", "carol");
    const address = await listener.address;
    using mallory = new ZapProcess(["send", address, file, "--id", "mallory"]);
    expect(await mallory.end()).toBe(1);
    expect(mallory.stderr).toContain("it does not allow this node");
    using carol = new ZapProcess(["send", address, file, "--id", "carol"]);
    expect(await carol.end()).toBe(0);
    listener.process.kill("SIGINT");
    expect(await listener.end()).toBe(0);
    expect(listener.stderr).toContain("calls itself mallory, which is not on the allow-list");
    expect(readdirSync(folder.at("in"))).toEqual(["f"]);
  });
});

describe("an end in the middle", () => {
  /** A file that takes long enough to be interrupted: sparse, so that it costs nothing to make. */
  async function largeFile(folder: TestFolder): Promise<string> {
    const path = await folder.write("large.bin", "");
    const { truncate } = await import("node:fs/promises");
    await truncate(path, 16 * 1024 * MIB);
    return path;
  }

  /** A transfer that has got somewhere. */
  async function underWay(folder: TestFolder) {
    const file = await largeFile(folder);
    const listener = startListen(folder, "--once");
    const sender = new ZapProcess(["send", await listener.address, file, file]);
    const some = () => {
      const [name] = readdirSync(folder.at("in"));
      return name !== undefined && statSync(folder.at("in", name)).size >= 2 * MIB;
    };
    await until(some, "the first chunks", 10_000);
    const end = (): void => {
      sender[Symbol.dispose]();
      listener[Symbol.dispose]();
    };
    return { listener, sender, [Symbol.dispose]: end };
  }

  test("by a receiver that is killed: the sender fails, says so, and does not hang", async () => {
    using folder = new TestFolder();
    using both = await underWay(folder);
    const { listener, sender } = both;
    listener.process.kill("SIGKILL");
    expect(await sender.end()).toBe(1);
    expect(sender.stderr).toMatch(/^✗ the receiver .*\nzap: 2 of 2 files not confirmed\n$/);
  }, 30_000);

  test("by a sender that is killed: nothing of the file is left", async () => {
    using folder = new TestFolder();
    using both = await underWay(folder);
    const { listener, sender } = both;
    sender.process.kill("SIGKILL");
    expect(await listener.end()).toBe(1);
    expect(readdirSync(folder.at("in"))).toEqual([]);
    expect(listener.stderr).toMatch(/^✗ large\.bin from \S+: .+\n$/);
  }, 30_000);

  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    test(`by ${signal} at the sender: 130, and nothing of the file is left`, async () => {
      using folder = new TestFolder();
      using both = await underWay(folder);
      const { listener, sender } = both;
      sender.process.kill(signal);
      expect(await sender.end()).toBe(130);
      expect(sender.stderr).toBe("zap: interrupted; 2 of 2 files not sent\n");
      expect(await listener.end()).toBe(1);
      expect(readdirSync(folder.at("in"))).toEqual([]);
    }, 30_000);
  }

  test("by an interrupt at the receiver: the sender hears why, and nothing of the file is left", async () => {
    using folder = new TestFolder();
    using both = await underWay(folder);
    const { listener, sender } = both;
    listener.process.kill("SIGINT");
    expect(await listener.end()).toBe(1);
    expect(readdirSync(folder.at("in"))).toEqual([]);
    expect(listener.stderr).toMatch(/^✗ large\.bin from \S+: the receiver was stopped\n$/);
    expect(await sender.end()).toBe(1);
    expect(sender.stderr).toContain("zap: 2 of 2 files not confirmed");
  }, 30_000);

  test("by a file that becomes shorter: it alone fails", async () => {
    using folder = new TestFolder();
    const file = await largeFile(folder);
    const small = await folder.write("small", "x");
    using listener = startListen(folder, "--once");
    using sender = new ZapProcess(["send", await listener.address, file, small]);
    await until(
      () => readdirSync(folder.path).includes("in") && readdirSync(folder.at("in")).length > 0,
      "a start",
    );
    const { truncate } = await import("node:fs/promises");
    await truncate(file, 0);
    expect(await sender.end()).toBe(1);
    expect(sender.stderr).toContain(`✗ ${file}: it became shorter while it was read`);
    expect(sender.stdout).toContain("✓ small");
    expect(await listener.end()).toBe(1);
    expect(listener.stderr).toContain("the sender gave up: it became shorter while it was read");
    expect(readdirSync(folder.at("in"))).toEqual(["small"]);
  }, 30_000);
});

test.skipIf(process.platform !== "linux")(
  "a file that hides its size is refused, not sent empty",
  async () => {
    using folder = new TestFolder();
    using listener = startListen(folder, "--once");
    using sender = new ZapProcess(["send", await listener.address, "/proc/self/status"]);
    expect(await sender.end()).toBe(1);
    expect(sender.stderr).toContain("✗ /proc/self/status: it does not say how large it is");
    expect(await listener.end()).toBe(1);
    expect(readdirSync(folder.at("in"))).toEqual([]);
  },
);

test("a single executable does all of it", async () => {
  using folder = new TestFolder();
  const program = folder.at("zap");
  const entry = `${import.meta.dir}/../../lib/cli/zap.ts`;
  const build = Bun.spawnSync([process.execPath, "build", "--compile", entry, "--outfile", program], {
    cwd: folder.path,
  });
  expect(build.exitCode).toBe(0);
  const version = Bun.spawnSync([program, "--version"]);
  expect(version.stdout.toString()).toBe(`${VERSION}\n`);
  using listener = startListen(folder, "--once");
  const file = await folder.write("f", "content");
  const sent = Bun.spawnSync([program, "send", await listener.address, file]);
  expect(sent.exitCode).toBe(0);
  expect(await listener.end()).toBe(0);
  expect(readFileSync(folder.at("in", "f"), "utf8")).toBe("content");
}, 60_000);
