/** `zap` with TLS: who may send to whom. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import type { TlsOptions } from "../../lib/index.ts";
import { Authority } from "../support/certificates.ts";
import { startListen, TestFolder, ZapProcess } from "./zap-kit.ts";

const folder = new TestFolder();

async function save(name: string, { cert, key, ca }: TlsOptions): Promise<void> {
  await folder.write(`${name}.pem`, String(cert));
  await folder.write(`${name}.key`, String(key));
  await folder.write(`${name}.ca.pem`, String(ca));
}

/** The TLS options of somebody. */
function as(name: string): string[] {
  const [cert, key, ca] = [folder.at(`${name}.pem`), folder.at(`${name}.key`), folder.at(`${name}.ca.pem`)];
  return ["--tls-cert", cert, "--tls-key", key, "--tls-ca", ca];
}

beforeAll(async () => {
  const [ours, theirs] = [await Authority.make("Ours"), await Authority.make("Theirs")];
  await save("alice", await ours.issue({ cn: "alice" }));
  await save("bob", await ours.issue({ cn: "bob" }));
  await save("nameless", await ours.issue({ dns: ["carol.example"] }));
  await save("mallory", await theirs.issue({ cn: "alice" }));
  await save("trusting-mallory", await theirs.issue({ cn: "alice" }, ours));
  await folder.write("file", "content");
});
afterAll(() => folder[Symbol.dispose]());

test("both are who their certificates say, and the listener warns of nothing", async () => {
  using inbox = new TestFolder();
  using listener = new ZapProcess([
    ...["listen", "--once", "--address", "0.0.0.0:0", "--out", inbox.at("in"), ...as("bob")],
  ]);
  const address = (await listener.address).replace("0.0.0.0", "127.0.0.1");
  using sender = new ZapProcess(["send", address, folder.at("file"), ...as("alice")]);
  expect(await sender.end()).toBe(0);
  expect(await listener.end()).toBe(0);
  expect(sender.stdout).toStartWith(`sending to bob at ${address} over default\n`);
  expect(listener.stdout).toContain("✓ file  7 bytes from alice in ");
  expect(sender.stderr + listener.stderr).toBe("");
  expect(readFileSync(inbox.at("in", "file"), "utf8")).toBe("content");
});

test("a certificate without a common name needs --id, which must stand in it", async () => {
  using inbox = new TestFolder();
  using listener = startListen(inbox, ...as("bob"));
  const send = ["send", await listener.address, folder.at("file"), ...as("nameless")];
  using silent = new ZapProcess(send);
  expect(await silent.end()).toBe(1);
  expect(silent.stderr).toStartWith("zap: --tls-cert: the certificate has no common name");
  using wrong = new ZapProcess([...send, "--id", "alice"]);
  expect(await wrong.end()).toBe(1);
  using right = new ZapProcess([...send, "--id", "carol.example"]);
  expect(await right.end()).toBe(0);
  listener.process.kill("SIGINT");
  expect(await listener.end()).toBe(0);
  expect(listener.stderr).toContain("calls itself alice, but its certificate is for carol.example");
  expect(listener.stdout).toContain("from carol.example in ");
});

test("strangers, and those without TLS, deliver nothing, and hear that something is wrong", async () => {
  using inbox = new TestFolder();
  using listener = startListen(inbox, ...as("bob"));
  const send = ["send", await listener.address, folder.at("file")];
  const strangers = [as("mallory"), as("trusting-mallory"), ["--id", "alice"]];
  for (const options of strangers) {
    using stranger = new ZapProcess([...send, ...options]);
    expect(await stranger.end()).toBe(1);
    expect(stranger.stderr).toStartWith("zap: ");
    expect(stranger.stdout).toBe("");
  }
  listener.process.kill("SIGINT");
  expect(await listener.end()).toBe(0);
  expect(listener.stdout.split("\n")).toHaveLength(3);
});
