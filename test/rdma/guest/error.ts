/** What went wrong with a guest, and the last that was heard of it. */

/**
 * `host`: this machine cannot build or start the guest. `boot`: the guest did not get as far as the job. `panic`: its kernel
 * gave up. `exit`: the job ended with another code than 0. `time`: the job, or the guest as a whole, took too long. `verdict`: QEMU ended as
 * if all were well, or not at all as it should, and the guest never said so.
 */
export type GuestFault = "host" | "boot" | "panic" | "exit" | "time" | "verdict";

/** The message holds the end of the job's output and of the console, so that a test's report shows them. */
export class GuestError extends Error {
  readonly fault: GuestFault;
  /** All that the job wrote. */
  readonly output: string;
  /** All that the kernel and the init script wrote. */
  readonly console: string;

  constructor(fault: GuestFault, what: string, said: { output?: string; console?: string } = {}) {
    super([what, tail("the job's output", said.output), tail("the console", said.console)].join(""));
    this.name = "GuestError";
    this.fault = fault;
    this.output = said.output ?? "";
    this.console = said.console ?? "";
  }
}

const TAIL_LINES = 40;

function tail(title: string, text: string | undefined): string {
  if (text === undefined) return "";
  const lines = text.trimEnd().split(/\r?\n/);
  if (lines.join("") === "") return `\n--- ${title}: nothing`;
  const cut = lines.length > TAIL_LINES ? `, the last ${TAIL_LINES} of ${lines.length} lines` : "";
  return `\n--- ${title}${cut}:\n${lines.slice(-TAIL_LINES).join("\n")}`;
}
