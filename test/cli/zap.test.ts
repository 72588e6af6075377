import { describe, expect, test } from "bun:test";
import { chmodSync, mkdirSync, readdirSync } from "node:fs";
import type { Io } from "../../lib/cli/transfer/io.ts";
import { main } from "../../lib/cli/zap.ts";
import { VERSION } from "../../lib/index.ts";
import { TestFolder, ZapProcess } from "./zap-kit.ts";

async function run(
  argv: string[],
  env: Record<string, string> = {},
): Promise<{ code: number; stdout: string; stderr: string }> {
  const text = { stdout: "", stderr: "" };
  const output = (name: keyof typeof text) => ({ write: (chunk: string) => (text[name] += chunk) });
  const io: Io = {
    stdout: output("stdout"),
    stderr: output("stderr"),
    env: { ...env },
    signal: AbortSignal.timeout(5_000),
  };
  return { code: await main(argv, io), ...text };
}

describe("help and version", () => {
  for (const argv of [
    ["--help"],
    ["-h"],
    ["listen", "--help"],
    ["send", "-h"],
    ["send", "x", "y", "--help"],
  ]) {
    test(`zap ${argv.join(" ")}`, async () => {
      const { code, stdout, stderr } = await run(argv);
      expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
      expect(stdout).toStartWith("Usage: zap ");
      expect(stdout.split("\n").every((line) => line.length <= 80)).toBe(true);
    });
  }

  test("each help names every option", async () => {
    const shared = [
      "--id",
      "--allow",
      "--tls-cert",
      "--tls-key",
      "--tls-ca",
      "--transport",
      "--timeout",
      "--help",
    ];
    const listen = (await run(["listen", "--help"])).stdout;
    for (const option of [...shared, "--address", "--out", "--once", "--max-bytes", "--json"])
      expect(listen).toContain(option);
    const send = (await run(["send", "--help"])).stdout;
    for (const option of shared) expect(send).toContain(option);
  });

  test("--version", async () => {
    expect(await run(["--version"])).toEqual({ code: 0, stdout: `${VERSION}\n`, stderr: "" });
    expect(await run(["-V"])).toEqual({ code: 0, stdout: `${VERSION}\n`, stderr: "" });
  });

  test("info is zap-info", async () => {
    const { code, stdout } = await run(["info", "--check", "default"]);
    expect({ code, stdout }).toEqual({ code: 0, stdout: "default is usable here: sockets over heap\n" });
    expect((await run(["info", "--bogus"])).code).toBe(2);
  });
});

describe("a wrong command line answers 2, with the usage on stderr", () => {
  for (const [argv, text] of [
    [[], "a command is needed"],
    [["frob"], 'there is no command "frob"'],
    [["constructor"], "there is no command"],
    [["--bogus"], "there is no command"],
    [["listen", "--bogus"], "--bogus"],
    [["listen", "extra"], "extra"],
    [["listen", "--address"], "--address"],
    [["listen", "--max-bytes", "many"], "--max-bytes: a positive integer is needed"],
    [["listen", "--max-bytes", "1.5"], "--max-bytes: a positive integer is needed"],
    [["listen", "--max-bytes", "0"], "--max-bytes: a positive integer is needed"],
    [["listen", "--timeout", "soon"], "--timeout: a positive number is needed"],
    [["listen", "--tls-cert", "a.pem"], "TLS needs all of --tls-cert, --tls-key and --tls-ca"],
    [["listen", "--transport", "pigeon"], "--transport: no transport is named"],
    [["send"], "a peer and at least one file are needed"],
    [["send", "127.0.0.1:1"], "at least one file is needed"],
    [["send", "127.0.0.1:1", "x", "--once"], "--once"],
    [["send", "127.0.0.1:1", import.meta.path, "--tls-ca", "a", "--tls-key", "b"], "TLS needs all of"],
  ] as const) {
    test(`zap ${argv.join(" ")}`, async () => {
      const { code, stdout, stderr } = await run([...argv]);
      expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
      expect(stderr).toContain(text);
      expect(stderr).toContain("Usage: zap");
    });
  }
});

describe("a value that cannot be read is a wrong command line", () => {
  for (const [argv, text] of [
    [["listen", "--address", "nowhere"], 'address "nowhere": host:port'],
    [["listen", "--address", "127.0.0.1:99999"], "a port is at most 65535"],
    [["listen", "--id", "x".repeat(61)], "--id: a node id has at most 60 bytes"],
    [["listen", "--id", ""], "--id: a node id is needed"],
    [["send", "nowhere", import.meta.path], 'address "nowhere": host:port'],
  ] as const) {
    test(`zap ${argv.join(" ").replace(import.meta.path, "FILE")}`, async () => {
      const { code, stdout, stderr } = await run([...argv]);
      expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
      expect(stderr).toContain(text);
      expect(stderr).toContain("Usage: zap");
    });
  }
});

describe("what cannot be done answers 1 and says why, in one line", () => {
  for (const [argv, text] of [
    [["listen", "--out", import.meta.path], "it is not a folder"],
    [["listen", "--out", `${import.meta.path}/in`], "not a folder"],
    [
      ["send", "127.0.0.1:1", import.meta.path],
      'ECONNREFUSED: Failed to connect; does a "zap listen" run there?',
    ],
    [["send", "unix:/nonexistent/zap", import.meta.path], "unix:/nonexistent/zap"],
  ] as const) {
    test(`zap ${argv.join(" ").replace(import.meta.path, "FILE")}`, async () => {
      const { code, stdout, stderr } = await run([...argv]);
      expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
      expect(stderr).toStartWith("zap: ");
      expect(stderr).toContain(text);
      expect(stderr.trim().split("\n")).toHaveLength(1);
    });
  }

  test("a TLS file that is not there, or is no certificate, is named", async () => {
    using folder = new TestFolder();
    const nonsense = await folder.write("nonsense.pem", "nonsense");
    const files = (cert: string) => ["--tls-cert", cert, "--tls-key", nonsense, "--tls-ca", nonsense];
    const missing = await run(["listen", ...files("/nonexistent/cert.pem")]);
    expect(missing.code).toBe(1);
    expect(missing.stderr).toBe("zap: --tls-cert /nonexistent/cert.pem: there is no such file or folder\n");
    const broken = await run(["listen", ...files(nonsense)]);
    expect(broken.code).toBe(1);
    expect(broken.stderr).toBe("zap: --tls-cert: no certificate can be read from it\n");
  });

  test("a transport that the environment asks for strictly and that is not there", async () => {
    const env = { ZAP_TRANSPORT: "gpudirect", ZAP_TRANSPORT_STRICT: "1" };
    const { code, stderr } = await run(["listen", "--address", "127.0.0.1:0"], env);
    expect(code).toBe(1);
    expect(stderr).toContain("zap: gpudirect was asked for by ZAP_TRANSPORT and is not usable here");
  });
});

describe("files that cannot be sent", () => {
  test("are all named, and then nothing is sent", async () => {
    using folder = new TestFolder();
    mkdirSync(folder.at("folder"));
    const good = await folder.write("good", "x");
    const { code, stdout, stderr } = await run([
      ...["send", "127.0.0.1:1", good, folder.at("folder"), folder.at("missing"), "/dev/null"],
      folder.at("with\x1b[31mcolour"),
    ]);
    expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
    expect(stderr.split("\n")).toEqual([
      `zap: ${folder.at("folder")}: it is a folder; only files can be sent`,
      `zap: ${folder.at("missing")}: there is no such file or folder`,
      "zap: /dev/null: it is not a regular file",
      `zap: ${folder.at("with\ufffd[31mcolour")}: there is no such file or folder`,
      "zap: nothing was sent",
      "",
    ]);
  });

  test("an unreadable file is named", async () => {
    using folder = new TestFolder();
    const secret = await folder.write("secret", "x");
    chmodSync(secret, 0);
    // Root may read everything: be somebody else for the moment.
    const isRoot = process.getuid?.() === 0;
    if (isRoot) process.seteuid?.(65_534);
    try {
      const { code, stderr } = await run(["send", "127.0.0.1:1", secret]);
      expect(code).toBe(1);
      expect(stderr).toContain(`zap: ${secret}: permission denied`);
    } finally {
      if (isRoot) process.seteuid?.(0);
    }
  });
});

describe("zap listen", () => {
  test("says first where it listens, makes its folder, and ends well at an interrupt", async () => {
    using folder = new TestFolder();
    using listener = new ZapProcess(["listen", "--address", "127.0.0.1:0", "--out", "a/b", "--id", "me"], {
      cwd: folder.path,
    });
    expect(await listener.address).toMatch(/^127\.0\.0\.1:[1-9]\d+$/);
    listener.process.kill("SIGINT");
    expect(await listener.end()).toBe(0);
    const [first, second, ...rest] = listener.stdout.split("\n");
    expect(first).toBe(`listening on ${await listener.address}`);
    expect(second).toBe(`as me over default; files go to ${folder.at("a", "b")}; Ctrl-C ends it`);
    expect(rest).toEqual([""]);
    expect(listener.stderr).toBe("");
    expect(readdirSync(folder.path)).toEqual(["a"]);
  });

  test("warns where others can reach it without TLS", async () => {
    using folder = new TestFolder();
    using open = new ZapProcess(["listen", "--address", "0.0.0.0:0", "--out", folder.path]);
    expect(await open.address).toStartWith("0.0.0.0:");
    open.process.kill("SIGTERM");
    expect(await open.end()).toBe(0);
    expect(open.stderr).toStartWith("warning: no TLS on 0.0.0.0:0: anyone who reaches it can send files");
  });

  test("says that its address is taken", async () => {
    using folder = new TestFolder();
    using first = new ZapProcess(["listen", "--address", "127.0.0.1:0", "--out", folder.path]);
    const { code, stderr } = await run(["listen", "--address", await first.address, "--out", folder.path]);
    expect(code).toBe(1);
    expect(stderr).toBe(`zap: cannot listen on ${await first.address}: the address is in use\n`);
  });
});
