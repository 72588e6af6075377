/**
 * Runs a command in a Linux guest that has two RDMA devices. `runInGuest` is all that tests need; `packages.ts` fetches what the guest is
 * made of, `image.ts` makes its root, `init.sh` is its first process, `boot.ts` runs QEMU. See docs/rdma-guest.md.
 */
import { randomBytes } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { boot, BUN_NAME } from "./boot.ts";
import { GuestError } from "./error.ts";
import { writeImage } from "./image.ts";
import { parts } from "./packages.ts";

export { GuestError, type GuestFault } from "./error.ts";
export { hostFault } from "./packages.ts";

interface CommonJob {
  /** For people: what the errors call it. */
  readonly name: string;
  /**
   * Executables and shared libraries of the host. They come to /job/bin, which is on the PATH, under their own file name, and the libraries
   * that they load come along.
   */
  readonly programs?: readonly string[];
  /** For the job, once it has started. Default: 60,000. */
  readonly timeoutMillis?: number;
  /** For everything else: building, booting and leaving. Default: 120,000. */
  readonly bootMillis?: number;
  /** Added to the environment that docs/rdma-guest.md lists. */
  readonly env?: Readonly<Record<string, string>>;
  /** Of both ends of the link, 1,280 to 65,535 bytes. Default: 1,500, which makes RDMA packets of 1,024; from 4,200 on they have 4,096. */
  readonly mtu?: number;
  /** Whether the connection manager's modules are loaded (/dev/infiniband/rdma_cm). Default: no. */
  readonly connectionManager?: boolean;
  /** Default: 1,024. */
  readonly memoryMiB?: number;
}

/** Either a command and its arguments, or the text of a shell script (dash). Both run as root, in the project's folder. */
export type GuestJob = CommonJob &
  (
    | { readonly command: readonly [string, ...string[]]; readonly script?: never }
    | { readonly script: string; readonly command?: never }
  );

export interface GuestResult {
  readonly ok: true;
  /** All that the job wrote to standard output and standard error, in the order in which it did. */
  readonly output: string;
  /** From the call to the guest's end, download and all. */
  readonly seconds: number;
}

/**
 * Boots a guest, runs the job in it and waits until both have ended.
 * @throws GuestError unless the job ended with 0 and the guest said so; its message shows the end of the job's output and of the console.
 */
export async function runInGuest(job: GuestJob): Promise<GuestResult> {
  const start = performance.now();
  const seconds = wholeSeconds(job.timeoutMillis ?? 60_000);
  const nonce = randomBytes(8).toString("hex");
  const folder = mkdtempSync(join(tmpdir(), "zap-guest-job-"));
  try {
    const guest = parts();
    const image = join(folder, "image");
    writeImage(guest, { programs: job.programs ?? [], files: filesOf(job, nonce, seconds) }, image);
    const output = await boot({
      kernel: guest.kernel,
      image,
      nonce,
      memoryMiB: job.memoryMiB ?? 1_024,
      limitMillis: seconds * 1_000 + (job.bootMillis ?? 120_000),
    });
    return { ok: true, output, seconds: (performance.now() - start) / 1_000 };
  } catch (error) {
    if (error instanceof GuestError) error.message = `${job.name}: ${error.message}`;
    throw error;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function filesOf(job: GuestJob, nonce: string, seconds: number): Record<string, string> {
  const mtu = job.mtu ?? 1_500;
  if (!Number.isInteger(mtu) || mtu < 1_280 || mtu > 65_535)
    throw new GuestError("host", `mtu is ${mtu}, not 1,280 to 65,535`);
  const settings = {
    NONCE: nonce,
    SECONDS_LIMIT: String(seconds),
    MTU: String(mtu),
    CM: job.connectionManager === true ? "1" : "0",
    BUN: BUN_NAME,
  };
  return {
    "job/settings": assignments(settings),
    "job/env": assignments(job.env ?? {}),
    "job/run": job.script ?? `exec ${job.command.map(quoted).join(" ")}\n`,
  };
}

function wholeSeconds(millis: number): number {
  if (!(millis > 0 && millis <= 3_600_000))
    throw new GuestError("host", `timeoutMillis is ${millis}, not 1 to 3,600,000`);
  return Math.ceil(millis / 1_000);
}

function assignments(values: Readonly<Record<string, string>>): string {
  return Object.entries(values)
    .map(([name, value]) => {
      if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name))
        throw new GuestError("host", `no name for a variable: ${JSON.stringify(name)}`);
      return `${name}=${quoted(value)}\n`;
    })
    .join("");
}

/** As one word of a shell. */
function quoted(word: string): string {
  return `'${word.replaceAll("'", "'\\''")}'`;
}
