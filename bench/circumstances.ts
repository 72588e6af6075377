/** What a figure means little without. */
import { cpus, loadavg } from "node:os";

export function circumstances() {
  return {
    bun: Bun.version,
    system: `${process.platform} ${process.arch}`,
    cores: cpus().length,
    processor: cpus()[0]?.model.trim() ?? "unknown",
    load: Number(loadavg()[0]!.toFixed(2)),
  };
}

/** The first line of what people read. */
export function headLine(head: object): string {
  return Object.entries(head)
    .map(([name, value]) => `${name} ${value}`)
    .join(" · ");
}
