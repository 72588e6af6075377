/** Settings that cannot be used: every call says so, whether or not this host and this batch need them. */
import { expect, test } from "bun:test";
import { join } from "node:path";

const LIB = join(import.meta.dir, "..", "..", "lib", "index.ts");
const PROGRAM = `
  import { batchVerify, verifyBackends } from ${JSON.stringify(LIB)};
  const said = await batchVerify("ed25519", []).then((answer) => String(answer.length), (error) => error.code + " " + error.message);
  console.log(said);
  console.log(verifyBackends().length);
`;

async function run(env: Record<string, string>): Promise<string[]> {
  const child = Bun.spawn([process.execPath, "-e", PROGRAM], {
    env: { ...process.env, ...env },
    stdin: "ignore",
    stdout: "pipe",
    stderr: "inherit",
  });
  return (await child.stdout.text()).trim().split("\n");
}

test("good ones are passed over", async () => {
  expect(await run({ ZAP_VERIFY_WORKERS: "1", ZAP_VERIFY_BLS_KEYS: "0" })).toEqual(["0", "2"]);
});

test.each([
  ["ZAP_VERIFY_BACKEND", "gpu"],
  ["ZAP_VERIFY_WORKERS", "many"],
  ["ZAP_VERIFY_POOL_BYTES", "1"],
  ["ZAP_VERIFY_IDLE_MILLIS", "0"],
  ["ZAP_VERIFY_BLS_KEYS", "-1"],
  ["ZAP_VERIFY_GPU_LEAST", "0"],
  ["ZAP_VERIFY_GPU_BYTES", "4294967296"],
])("%s=%s is named", async (name, value) => {
  const [said, backends] = await run({ [name]: value });
  expect(said).toStartWith(`ERR_ZAP_CONFIG ${name} is ${JSON.stringify(value)}`);
  // Whoever only asks what there is is answered.
  expect(backends).toBe("2");
});
