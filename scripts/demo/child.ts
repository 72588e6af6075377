/** One of the two processes, as seen by the one that started it. */
import { isCompiled } from "./contents.ts";
import type { Devices } from "./devices.ts";
import { linesOf } from "./lines.ts";
import type { NodeName, Order, Report, Wishes } from "./node.ts";
import type { Received, Sent } from "./verdict.ts";

/** Time for an account, and for an orderly end. */
export const GRACE_MILLIS = 3_000;
/** Of what a process complains of, the beginning tells most. */
const FAULTS_KEPT_MAX = 5;

export interface Account {
  readonly sent: readonly Sent[];
  readonly received: readonly Received[];
}

export class Child {
  received = 0;
  bytes = 0;
  complete = false;
  transport = "no transport";
  readonly faults: string[] = [];
  readonly opened: Promise<Extract<Report, { type: "open" }>>;
  private readonly process: Bun.Subprocess<"pipe", "pipe", "inherit">;
  private readonly open = Promise.withResolvers<Extract<Report, { type: "open" }>>();
  private readonly accounts = Promise.withResolvers<Account>();
  private readonly onChange: () => void;
  private ending = false;

  constructor(
    name: NodeName,
    wishes: Wishes,
    devices: Devices,
    onChange: () => void,
    onDeath: (reason: string) => void,
  ) {
    this.onChange = onChange;
    this.opened = this.open.promise;
    this.process = Bun.spawn([...command(name, wishes), "--listen", devices.listen], {
      // The demo says by itself what was picked; it is said twice otherwise.
      env: { ...process.env, ZAP_TRANSPORT_QUIET: "1", ...devices.env[name] },
      stdin: "pipe",
      stdout: "pipe",
      stderr: "inherit",
    });
    const over = async (): Promise<void> => {
      await this.read();
      const code = await this.process.exited;
      this.accounts.resolve({ sent: [], received: [] });
      if (!this.ending) onDeath(`${name} ended early, with exit status ${code}`);
    };
    over().catch((error: unknown) => onDeath(`${name}: ${String(error)}`));
  }

  order(order: Order): void {
    try {
      this.process.stdin.write(`${JSON.stringify(order)}\n`);
      this.process.stdin.flush();
    } catch {
      // It has ended, which is noticed where that is waited for.
    }
  }

  /** What this process sent and got; nothing where it cannot say any more. */
  account(): Promise<Account> {
    this.order({ type: "account" });
    const timer = setTimeout(() => this.accounts.resolve({ sent: [], received: [] }), GRACE_MILLIS);
    return this.accounts.promise.finally(() => clearTimeout(timer));
  }

  /** Lets it end in good order, and sees to it that it does. */
  async end(): Promise<void> {
    this.ending = true;
    const timer = setTimeout(() => this.process.kill("SIGKILL"), GRACE_MILLIS);
    this.process.stdin.end();
    await this.process.exited;
    clearTimeout(timer);
  }

  private async read(): Promise<void> {
    for await (const line of linesOf(this.process.stdout)) this.hear(JSON.parse(line) as Report);
  }

  private hear(report: Report): void {
    switch (report.type) {
      case "open":
        this.transport = report.transport;
        this.open.resolve(report);
        return;
      case "progress":
        [this.received, this.bytes] = [report.received, report.bytes];
        break;
      case "complete":
        this.complete = true;
        break;
      case "account":
        this.accounts.resolve(report);
        return;
      case "fault":
        if (!this.ending && this.faults.length < FAULTS_KEPT_MAX) this.faults.push(report.text);
        return;
    }
    this.onChange();
  }
}

/** This very program once more: the executable itself where it is compiled, else the script under the same Bun. */
function command(name: NodeName, { messages, seed }: Wishes): string[] {
  const program = isCompiled ? [process.execPath] : [process.execPath, Bun.main];
  return [...program, "--node", name, "--messages", String(messages), "--seed", String(seed)];
}
