/**
 * Plays a scenario in the guest, `SCENARIO`: one node over `gpudirect` here, the far sides in processes of their own (far.ts), the kit of both in
 * kit.ts. Prints `ok: SCENARIO` where all was as it should be.
 */
import { killed, port } from "./broken.ts";
import { lossy, many, peers, sizes } from "./calm.ts";
import { children, opened } from "./kit.ts";

const scenarios: Record<string, () => Promise<void>> = { sizes, many, lossy, peers, killed, port };
const HANG_MILLIS = Number(process.env["ZAP_TEST_HANG_MILLIS"] ?? 100_000);

const [name = ""] = process.argv.slice(2);
setTimeout(() => {
  console.log(`${name} hangs: ${JSON.stringify(opened.map((transport) => transport.stats()))}`);
  for (const child of children) child.kill("SIGUSR1");
  setTimeout(() => process.exit(1), 2_000);
}, HANG_MILLIS).unref();
try {
  await scenarios[name]!();
  console.log(`ok: ${name}`);
} finally {
  for (const child of children) child.kill("SIGKILL");
}
process.exit(0);
