/** Counters of a port as its driver shows them, from folders made here. */
import { afterAll, describe, expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PortCounters } from "../../../lib/wire/verbs/port-counters.ts";

const root = mkdtempSync(join(tmpdir(), "zap-counters-"));
afterAll(() => rmSync(root, { recursive: true, force: true }));

function write(device: string, counters: Readonly<Record<string, string>>): void {
  const folder = join(root, device, "ports", "1", "hw_counters");
  mkdirSync(folder, { recursive: true });
  for (const [name, text] of Object.entries(counters)) writeFileSync(join(folder, name), text);
}

describe("counters of a port", () => {
  test("count from the beginning on, by the names of each driver", () => {
    write("mlx5_0", { local_ack_timeout_err: "5\n", packet_seq_err: "2\n", rnr_nak_retry_err: "1\n" });
    write("rxe0", { completer_retry_err: "0\n", rcvd_rnr_err: "7\n" });
    const [card, soft] = [new PortCounters("mlx5_0", 1, root), new PortCounters("rxe0", 1, root)];
    expect([card.read("retries"), card.read("rnrEvents")]).toEqual([0, 0]);
    write("mlx5_0", { local_ack_timeout_err: "6\n", packet_seq_err: "4\n" });
    write("rxe0", { completer_retry_err: "9\n", rcvd_rnr_err: "8\n" });
    expect([card.read("retries"), card.read("rnrEvents")]).toEqual([3, 0]);
    expect([soft.read("retries"), soft.read("rnrEvents")]).toEqual([9, 1]);
  });

  test("one that starts again is not below 0", () => {
    write("mlx5_1", { rnr_nak_retry_err: "100\n" });
    const counters = new PortCounters("mlx5_1", 1, root);
    write("mlx5_1", { rnr_nak_retry_err: "3\n" });
    expect(counters.read("rnrEvents")).toBe(0);
  });

  test("a driver that does not tell is null, and not 0", () => {
    write("other0", { lifespan: "12\n", completer_retry_err: "what?\n" });
    expect(new PortCounters("other0", 1, root).read("retries")).toBeNull();
    expect(new PortCounters("none0", 1, root).read("rnrEvents")).toBeNull();
  });
});
