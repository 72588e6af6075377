/**
 * Runs a command in the guest and prints what it wrote: `bun test/rdma/guest/command.ts [options] 'SCRIPT'`. Exits with 1 where the guest or the
 * script failed, with 2 for an option that it does not understand.
 */
import { parseArgs } from "node:util";
import { GuestError, runInGuest } from "./job.ts";

const USAGE = `usage: bun test/rdma/guest/command.ts [options] 'SCRIPT'
  --program PATH    an executable or shared library to take along; may be given again
  --seconds N       the script's time limit, default 60
  --mtu BYTES       of the link, default 1500
  --memory MIB      of the guest, default 1024
  --cm              with the connection manager (rdma_cm)`;

function options() {
  try {
    return parseArgs({
      allowPositionals: true,
      options: {
        program: { type: "string", multiple: true, default: [] },
        seconds: { type: "string", default: "60" },
        mtu: { type: "string", default: "1500" },
        memory: { type: "string", default: "1024" },
        cm: { type: "boolean", default: false },
      },
    });
  } catch (error) {
    return refuse(error instanceof Error ? error.message : String(error));
  }
}

function refuse(why: string): never {
  console.error(`${why}\n${USAGE}`);
  process.exit(2);
}

const { values, positionals } = options();
const [script, ...rest] = positionals;
if (script === undefined || rest.length > 0) refuse("one script is wanted, as one word");
try {
  const { output, seconds } = await runInGuest({
    name: "command",
    script,
    programs: values.program,
    timeoutMillis: Number(values.seconds) * 1_000,
    mtu: Number(values.mtu),
    memoryMiB: Number(values.memory),
    connectionManager: values.cm,
  });
  process.stdout.write(output);
  console.error(`passed; ${seconds.toFixed(1)} s in all`);
} catch (error) {
  if (!(error instanceof GuestError)) throw error;
  console.error(error.message);
  process.exit(1);
}
