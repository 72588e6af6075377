/** What a port's driver counts beside completions: what was sent again, and receives that were missing. Linux shows it in sysfs. */
import { readFileSync } from "node:fs";

/**
 * Under ports/N/hw_counters; each driver has names of its own, and those of one that has others are not told. In this order mlx5, rxe and
 * bnxt_re (their `hw_counters.c`).
 */
const NAMES = {
  retries: [
    "local_ack_timeout_err",
    "packet_seq_err",
    "completer_retry_err",
    "to_retransmits",
    "seq_err_naks_rcvd",
  ],
  rnrEvents: ["rnr_nak_retry_err", "rcvd_rnr_err", "rnr_naks_rcvd"],
} as const;

type Counter = keyof typeof NAMES;

export class PortCounters {
  private readonly folder: string;
  private readonly before: Readonly<Record<Counter, number | null>>;

  constructor(device: string, port: number, root = "/sys/class/infiniband") {
    this.folder = `${root}/${device}/ports/${port}/hw_counters`;
    this.before = { retries: this.sum("retries"), rnrEvents: this.sum("rnrEvents") };
  }

  /** Of all users of the port, since this was made; null where its driver does not tell. */
  read(counter: Counter): number | null {
    const before = this.before[counter];
    const now = before === null ? null : this.sum(counter);
    return before === null || now === null ? null : Math.max(0, now - before);
  }

  private sum(counter: Counter): number | null {
    const seen = NAMES[counter].map((name) => this.count(name)).filter((count) => count !== null);
    return seen.length === 0 ? null : seen.reduce((all, count) => all + count, 0);
  }

  private count(name: string): number | null {
    try {
      const text = readFileSync(`${this.folder}/${name}`, "utf8").trim();
      return /^\d+$/.test(text) ? Number(text) : null;
    } catch {
      return null;
    }
  }
}
