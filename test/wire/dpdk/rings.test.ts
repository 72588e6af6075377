import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { ShimError } from "../../../lib/errors/index.ts";
import { RING, RING_ENTRY, RING_MAGIC, RING_VERSION } from "../../../lib/ffi/index.ts";
import { ENTRY_TOKEN, RingConsumer, RingProducer } from "../../../lib/wire/native/rings.ts";
import { runs } from "../../support/properties.ts";

function ringAt(startAt: bigint, slots = 8): { memory: ArrayBuffer; view: DataView } {
  const memory = new ArrayBuffer(RING.bytes + slots * RING_ENTRY.bytes);
  const view = new DataView(memory);
  view.setUint32(RING.at.magic, RING_MAGIC, true);
  view.setUint32(RING.at.version, RING_VERSION, true);
  view.setUint32(RING.at.slots, slots, true);
  view.setUint32(RING.at.entry_bytes, RING_ENTRY.bytes, true);
  view.setBigUint64(RING.at.head, startAt, true);
  view.setBigUint64(RING.at.tail, startAt, true);
  return { memory, view };
}

/** Where counts of 32 bits, signed or not, come to their ends. */
const EDGES = [0n, 2n ** 31n - 3n, 2n ** 32n - 3n, 2n ** 33n - 5n, 2n ** 52n - 5n];

describe("the ends of a ring", () => {
  test("pass entries in order, with whole counts in memory, wherever the counts are", () => {
    const step = fc.record({ produce: fc.nat(8), consume: fc.nat(8) });
    fc.assert(
      fc.property(fc.constantFrom(...EDGES), fc.array(step, { maxLength: 20 }), (startAt, steps) => {
        const { memory, view } = ringAt(startAt);
        const producer = new RingProducer(memory, 0);
        const consumer = new RingConsumer(memory, 0);
        let [made, taken] = [0, 0];
        for (const { produce, consume } of steps) {
          for (let i = 0; i < produce && producer.room > 0; i++) {
            producer.words[producer.at(0) + ENTRY_TOKEN] = made++;
            producer.publish();
          }
          expect(producer.room).toBe(8 - (made - taken));
          expect(consumer.available).toBe(made - taken);
          expect(view.getBigUint64(RING.at.tail, true)).toBe(startAt + BigInt(made));
          const now = Math.min(consume, consumer.available);
          for (let i = 0; i < now; i++) expect(consumer.words[consumer.at(i) + ENTRY_TOKEN]).toBe(taken + i);
          consumer.consume(now);
          taken += now;
          expect(view.getBigUint64(RING.at.head, true)).toBe(startAt + BigInt(taken));
          expect(consumer.count).toBe(Number(startAt) + taken);
        }
      }),
      runs(200),
    );
  });

  test("a consumer that arms is asleep only where nothing has come", () => {
    const { memory, view } = ringAt(2n ** 32n - 1n);
    const consumer = new RingConsumer(memory, 0);
    expect(consumer.arm()).toBe(true);
    expect(view.getUint32(RING.at.armed, true)).toBe(1);
    new RingProducer(memory, 0).publish();
    expect(consumer.arm()).toBe(false);
    expect(view.getUint32(RING.at.armed, true)).toBe(0);
  });

  test("refuse memory that is no such ring", () => {
    for (const spoil of [
      (view: DataView) => view.setUint32(RING.at.magic, 1, true),
      (view: DataView) => view.setUint32(RING.at.version, 9, true),
      (view: DataView) => view.setUint32(RING.at.slots, 6, true),
      (view: DataView) => view.setUint32(RING.at.entry_bytes, 64, true),
    ]) {
      const { memory, view } = ringAt(0n);
      spoil(view);
      expect(() => new RingConsumer(memory, 0)).toThrow(ShimError);
    }
  });
});
