/** Runs QEMU with an image, and judges what came of it. */
import { mkdtempSync, readFileSync, realpathSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { GuestError } from "./error.ts";
import { ROOT } from "./packages.ts";

export interface BootOptions {
  readonly kernel: string;
  /** The archives of `image.ts`. */
  readonly image: string;
  /** In the guest's marker lines, so that no job's output is taken for one. */
  readonly nonce: string;
  readonly memoryMiB: number;
  /** For the guest as a whole, from QEMU's start on. */
  readonly limitMillis: number;
}

/** What the init script writes to the debug port when the job ended with 0 is 16; QEMU makes 33 of it. */
const PASSED = 33;

/** The file name of the Bun that runs this, in the folder that the guest has at /bun. */
export const BUN_NAME: string = basename(realpathSync(process.execPath));

/**
 * Resolves to what the job wrote, when it ended with 0.
 * @throws GuestError in every other case.
 */
export async function boot(options: BootOptions): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), "zap-guest-"));
  try {
    const job = join(folder, "job");
    const start = performance.now();
    const child = Bun.spawn([...command(options, job)], { stdin: "ignore", stdout: "pipe", stderr: "pipe" });
    const [text, complaint] = await Promise.all([child.stdout.text(), child.stderr.text()]);
    await child.exited;
    const output = textOf(job);
    const said = { output, console: text + complaint };
    // `timeout` kills itself with the signal that it sends.
    const late = child.exitCode === null && performance.now() - start >= options.limitMillis;
    const ended = `QEMU ended with ${child.exitCode ?? child.signalCode}`;
    const fault = judge({ passed: child.exitCode === PASSED, late, ended, console: said.console }, options);
    if (fault !== null) throw new GuestError(fault.fault, fault.what, said);
    return output;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** `timeout` and not a timer here: it also ends a QEMU whose parent was killed. */
function command({ kernel, image, memoryMiB, limitMillis }: BootOptions, job: string): readonly string[] {
  const share = (tag: string, path: string): string[] => {
    // QEMU wants commas doubled.
    const place = path.replaceAll(",", ",,");
    return [
      "-virtfs",
      `local,path=${place},mount_tag=${tag},security_model=none,readonly=on,multidevs=remap`,
    ];
  };
  return [
    ...["timeout", "-s", "KILL", String(Math.ceil(limitMillis / 1_000))],
    ...[
      "qemu-system-x86_64",
      "-accel",
      "tcg",
      "-machine",
      "q35",
      "-cpu",
      "max",
      "-smp",
      "2",
      "-m",
      `${memoryMiB}M`,
    ],
    ...["-display", "none", "-monitor", "none", "-no-reboot", "-nodefaults"],
    ...["-serial", "stdio", "-serial", `file:${job}`],
    ...["-kernel", kernel, "-initrd", image],
    ...["-append", "console=ttyS0 quiet panic=-1 oops=panic mitigations=off tsc=reliable clocksource=tsc"],
    ...["-device", "isa-debug-exit,iobase=0xf4,iosize=0x04"],
    ...share("project", ROOT),
    ...share("bun", dirname(realpathSync(process.execPath))),
  ];
}

function textOf(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}

type Judgement = { readonly fault: GuestError["fault"]; readonly what: string } | null;

interface End {
  /** Whether QEMU says so. */
  readonly passed: boolean;
  /** Whether QEMU was killed for it. */
  readonly late: boolean;
  /** How QEMU ended, for people. */
  readonly ended: string;
  readonly console: string;
}

/** Both must be there for a pass: QEMU's code, which a panic does not give, and the line, which a broken QEMU does not. */
function judge({ passed, late, ended, console }: End, { nonce, limitMillis }: BootOptions): Judgement {
  const marker = `zap-guest ${nonce} `;
  const lines = console.split(/\r?\n/).filter((line) => line.startsWith(marker));
  const verdict = lines.at(-1)?.slice(marker.length).trim() ?? "";
  if (passed && verdict === "exit 0") return null;
  const panic = /Kernel panic[^\r\n]*/.exec(console)?.[0];
  if (panic !== undefined) return { fault: "panic", what: `the guest's kernel gave up (${ended}): ${panic}` };
  if (late) {
    const where = verdict === "" ? "while it booted" : `after it had said "${verdict}"`;
    return { fault: "time", what: `the guest did not end within ${limitMillis} ms and was killed, ${where}` };
  }
  if (verdict === "late")
    return { fault: "time", what: "the job did not end within its time limit and was killed" };
  if (/^exit [1-9]\d*$/.test(verdict))
    return { fault: "exit", what: `the job ended with ${verdict.slice("exit ".length)}` };
  if (verdict.startsWith("broken")) return { fault: "boot", what: `the guest did not come up: ${verdict}` };
  if (verdict === "") return { fault: "boot", what: `the guest never got as far as the job (${ended})` };
  return { fault: "verdict", what: `the guest's last word was "${verdict}", and ${ended}, not ${PASSED}` };
}
