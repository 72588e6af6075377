import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const ROOT = join(import.meta.dir, "..", "..");
const WORKER = "node_modules/@luxfi/zap/lib/verify/pool/worker.ts";

/** Verifies enough for the workers, with schemes of every kind of library, and says who there was to do it. */
const PROGRAM = `
  import { generateKeyPairSync, sign } from "node:crypto";
  import { batchVerify, pack } from "@luxfi/zap";
  import { CpuBackend } from "./node_modules/@luxfi/zap/lib/verify/backends/cpu.ts";
  import { DEFAULT_PARAMS } from "./node_modules/@luxfi/zap/lib/verify/contract.ts";
  const { publicKey, privateKey } = generateKeyPairSync("ed25519");
  const key = Buffer.from(publicKey.export({ format: "jwk" }).x, "base64url");
  const item = (message, good) => {
    const signature = sign(null, message, privateKey);
    return { publicKey: key, message: good ? message : Buffer.from("another"), signature };
  };
  const items = Array.from({ length: 200 }, (_, at) => item(Buffer.from("message " + at), at % 3 !== 0));
  const answers = await batchVerify("ed25519", items);
  const right = answers.every((answer, at) => answer === (at % 3 !== 0));
  const backend = new CpuBackend();
  const codes = new Uint8Array(200);
  await backend.run({ scheme: "ed25519", batch: pack(items), params: DEFAULT_PARAMS, codes, signal: undefined });
  const others = {};
  for (const [scheme, length] of [["secp256k1", 64], ["bls12-381", 96], ["slh-dsa-sha2-128f", 17088]]) {
    const keyLength = { "secp256k1": 33, "bls12-381": 48 }[scheme] ?? 32;
    const bad = { publicKey: new Uint8Array(keyLength).fill(2), message: new Uint8Array(32), signature: new Uint8Array(length).fill(1) };
    others[scheme] = [...new Set((await batchVerify(scheme, Array(20).fill(bad), { reasons: true })).map(({ reason }) => reason))];
  }
  console.log(JSON.stringify({ right, same: codes.every((code, at) => (code === 1) === answers[at]), workers: backend.workers(), others }));
`;

const OTHERS = {
  secp256k1: ["signature"],
  "bls12-381": ["signature-encoding"],
  "slh-dsa-sha2-128f": ["signature"],
};

interface Said {
  readonly right: boolean;
  readonly same: boolean;
  readonly workers: { most: number; running: number } | { none: string };
  readonly others: Record<string, string[]>;
  /** What it warned of. */
  readonly warned: string | null;
}

let folder = "";
let project = "";

/** A project with the package as it would be installed, and everything that it depends on. */
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "zap-pool-"));
  project = join(folder, "project");
  const own = join(project, "node_modules", "@luxfi", "zap");
  mkdirSync(own, { recursive: true });
  for (const part of ["lib", "package.json"]) cpSync(join(ROOT, part), join(own, part), { recursive: true });
  for (const name of readdirSync(join(ROOT, "node_modules"))) {
    if (name.startsWith(".") || name === "@luxfi") continue;
    symlinkSync(join(ROOT, "node_modules", name), join(project, "node_modules", name));
  }
  writeFileSync(join(project, "program.ts"), PROGRAM);
});

afterAll(() => rmSync(folder, { recursive: true, force: true }));

async function succeed(command: readonly string[], cwd: string): Promise<{ stdout: string; stderr: string }> {
  const env = { ...process.env, TMPDIR: folder, ZAP_VERIFY_WORKERS: "2" };
  const child = Bun.spawn([...command], { cwd, env, stdin: "ignore", stdout: "pipe", stderr: "pipe" });
  const [stdout, stderr, code] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited]);
  if (code !== 0) throw new Error(`${command.join(" ")} ended with ${code}\n${stdout}\n${stderr}`);
  return { stdout, stderr };
}

async function said(command: readonly string[], cwd: string): Promise<Said> {
  const { stdout, stderr } = await succeed(command, cwd);
  const warned = stderr.match(/verify: the calling thread verifies everything: .*/)?.[0] ?? null;
  return { ...(JSON.parse(stdout) as Said), warned };
}

async function build(name: string, ...given: readonly string[]): Promise<string> {
  await succeed([process.execPath, "build", "program.ts", ...given], project);
  const elsewhere = mkdtempSync(join(folder, "elsewhere-"));
  renameSync(join(project, name), join(elsewhere, name));
  return elsewhere;
}

describe("the workers", () => {
  const right = { right: true, same: true, others: OTHERS };
  const most = { workers: { most: 2, running: 2 }, warned: null };
  const none = {
    workers: { none: expect.stringContaining(WORKER) },
    warned: expect.stringContaining(`bun build --compile YOUR-PROGRAM.ts ${WORKER}`),
  };

  test("of the installed package", async () => {
    expect(await said([process.execPath, "program.ts"], project)).toEqual({ ...right, ...most });
  }, 60_000);

  test("in an executable that was compiled with their code", async () => {
    const at = await build("with", WORKER, "--compile", "--outfile", "with");
    expect(await said([join(at, "with")], at)).toEqual({ ...right, ...most });
  }, 60_000);

  test("in an executable without it: the calling thread does the work", async () => {
    const at = await build("without", "--compile", "--outfile", "without");
    expect(await said([join(at, "without")], at)).toEqual({ ...right, ...none });
  }, 60_000);

  test("in a bundle with their code, and in one without", async () => {
    const at = await build("out", WORKER, "--target=bun", "--outdir", "out");
    expect(await said([process.execPath, "out/program.js"], at)).toEqual({ ...right, ...most });
    rmSync(join(at, "out", "node_modules"), { recursive: true });
    expect(await said([process.execPath, "out/program.js"], at)).toEqual({ ...right, ...none });
  }, 60_000);
});
