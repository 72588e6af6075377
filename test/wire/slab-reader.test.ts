import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import type { ZapError } from "../../lib/errors/index.ts";
import { heapKind, SlabPool, type SlabBuffer } from "../../lib/memory/index.ts";
import { SlabReader, type SlabLender, type SlabSink } from "../../lib/wire/sockets/slabs/reader.ts";
import type { SlabShare } from "../../lib/wire/sockets/slabs/share.ts";
import { ChunkSource } from "../../lib/wire/sockets/slabs/source.ts";
import { StreamSlab } from "../../lib/wire/sockets/slabs/stream.ts";
import { frameOf, joined, messageOf, sameBytes, u32 } from "../support/messages.ts";
import { chunksOf, diceOf, runs } from "../support/properties.ts";
import { chunkSizes, expectOutcomes, FRAME_BYTES_MAX, stream, type Outcome } from "./frame-stream.ts";

const MIB = 1024 * 1024;
const STAGE_BYTES = 64 * 1024;

interface Dice {
  reserve(): boolean;
  slab(): boolean;
}
const KIND: Dice = { reserve: () => false, slab: () => false };

/** One connection of a wire: notes down what it is told, and keeps or releases the messages as a consumer would. */
class Sink implements SlabSink, SlabLender {
  readonly outcomes: Outcome[] = [];
  readonly reader: SlabReader;
  readonly source = new ChunkSource();
  paused = false;
  refusals = 0;
  granted = 0;
  private readonly pool: SlabPool;
  private readonly dice: Dice;
  private readonly kept: [SlabShare, Uint8Array, Uint8Array][] = [];

  constructor(pool: SlabPool, streamSlab: StreamSlab, dice: Dice = KIND) {
    this.pool = pool;
    this.dice = dice;
    this.reader = new SlabReader(this, this, streamSlab, FRAME_BYTES_MAX, undefined);
  }

  slabFrames(share: SlabShare, from: number, messages: number, bytes: number): void {
    const view = new DataView(share.bytes.buffer, share.bytes.byteOffset, share.bytes.byteLength);
    let at = from;
    for (let i = 0; i < messages; i++) {
      const start = at + 4;
      at = start + view.getUint32(at, true);
      this.keep(share, share.bytes.subarray(start, at));
    }
    if (messages === 0 || at - from !== bytes + 4 * messages) throw new Error("a batch counts its messages");
  }
  slabMessage(share: SlabShare, bytes: number): void {
    this.granted -= this.reader.reserved;
    this.keep(share, share.bytes.subarray(0, bytes));
  }
  private keep(share: SlabShare, message: Uint8Array): void {
    this.outcomes.push(["message", message.slice()]);
    this.kept.push([share, message, message.slice()]);
  }
  /** Releases all but the last `count` messages, after a look whether somebody has written over them. */
  release(count = 0): void {
    while (this.kept.length > count) {
      const [share, message, was] = this.kept.shift()!;
      if (!sameBytes(message, was)) throw new Error("a message was written over while it was held");
      share.letGo();
    }
  }
  control(bytes: Uint8Array): void {
    this.outcomes.push(["control", bytes]);
  }
  dropped(reason: string): void {
    this.outcomes.push(["dropped", reason]);
  }
  fatal(error: ZapError): void {
    this.outcomes.push(["fatal", error.code]);
  }
  reserve(bytes: number): boolean {
    if (this.dice.reserve()) {
      this.refusals++;
      return false;
    }
    this.granted += bytes;
    return true;
  }
  slab(bytes: number): SlabBuffer | null {
    const slab = this.dice.slab() ? null : this.pool.tryAlloc(bytes);
    if (slab === null) this.refusals++;
    return slab;
  }
}

/** Reads all that was pushed; a turn that stops for want of memory is begun again. */
function readAll(sink: Sink, budget = Infinity): string {
  for (let turns = 0; turns < 100_000; turns++) {
    const end = sink.reader.turn(sink.source, budget);
    if (end !== "budget" && end !== "paused") return end;
  }
  throw new Error("the reader never got to the end");
}

describe("the slab reader", () => {
  test("gives what the heap's reader gives, however the stream is cut, and no slab is lost", async () => {
    const pool = new SlabPool(heapKind(), { poolBytes: 64 * MIB });
    fc.assert(
      fc.property(
        stream,
        chunkSizes,
        fc.integer({ min: 1, max: 200_000 }),
        fc.nat(4),
        (parts, sizes, budget, held) => {
          const shared = new StreamSlab(pool, MIB);
          const sink = new Sink(pool, shared);
          // The hello is read elsewhere.
          const [, ...frames] = parts;
          for (const chunk of chunksOf(joined(...frames.map((part) => part.bytes)), sizes)) {
            sink.source.push(chunk);
            readAll(sink, budget);
            sink.release(held);
          }
          expectOutcomes(
            sink.outcomes,
            frames.map((part) => part.outcome),
          );
          sink.release();
          sink.reader.close();
          shared.close();
          expect([sink.granted, pool.stats().buffers]).toEqual([0, 0]);
        },
      ),
      runs(200),
    );
    await pool.close();
  });

  test("survives refusals of memory and pauses at any time", async () => {
    const pool = new SlabPool(heapKind(), { poolBytes: 64 * MIB });
    const chances = fc.record({ seed: fc.nat(), odds: fc.constantFrom(0, 0.3, 0.8) });
    fc.assert(
      fc.property(stream, chunkSizes, chances, (parts, sizes, { seed, odds }) => {
        const dice = diceOf(seed);
        const shared = new StreamSlab(pool, MIB);
        const sink = new Sink(pool, shared, { reserve: () => dice() < odds, slab: () => dice() < odds });
        const [, ...frames] = parts;
        for (const chunk of chunksOf(joined(...frames.map((part) => part.bytes)), sizes)) {
          sink.source.push(chunk);
          sink.paused = dice() < odds;
          const before = sink.outcomes.length;
          if (sink.paused && sink.reader.turn(sink.source, Infinity) !== "dead")
            expect(sink.outcomes.length).toBe(before);
          sink.paused = false;
          readAll(sink);
        }
        sink.release();
        expectOutcomes(
          sink.outcomes,
          frames.map((part) => part.outcome),
        );
        sink.reader.close();
        shared.close();
        expect([sink.granted, pool.stats().buffers]).toEqual([0, 0]);
      }),
      runs(200),
    );
    await pool.close();
  });

  test("connections take turns in one stream slab, and none sees the bytes of another", async () => {
    const pool = new SlabPool(heapKind(), { poolBytes: 64 * MIB });
    fc.assert(
      fc.property(
        fc.array(fc.tuple(stream, chunkSizes), { minLength: 2, maxLength: 4 }),
        fc.nat(),
        (streams, seed) => {
          const dice = diceOf(seed);
          const shared = new StreamSlab(pool, MIB);
          const all = streams.map(([[, ...frames], sizes]) => ({
            frames,
            sink: new Sink(pool, shared),
            chunks: chunksOf(joined(...frames.map((part) => part.bytes)), sizes),
          }));
          for (let left = all; left.length > 0; left = left.filter(({ chunks }) => chunks.length > 0)) {
            const { sink, chunks } = left[Math.floor(dice() * left.length)]!;
            const chunk = chunks.shift();
            if (chunk !== undefined) sink.source.push(chunk);
            readAll(sink);
            sink.release(3);
          }
          for (const { sink, frames } of all) {
            sink.release();
            sink.reader.close();
            expectOutcomes(
              sink.outcomes,
              frames.map((part) => part.outcome),
            );
          }
          shared.close();
          expect(pool.stats().buffers).toBe(0);
        },
      ),
      runs(100),
    );
    await pool.close();
  });

  test("a frame cut off at any byte gives everything back on close", async () => {
    const pool = new SlabPool(heapKind(), { poolBytes: 64 * MIB });
    const bytes = joined(frameOf(messageOf(100, 1)), frameOf(messageOf(200_000, 2)));
    for (let cut = 1; cut < bytes.length; cut += cut < 200 ? 1 : 9_973) {
      const shared = new StreamSlab(pool, MIB);
      const sink = new Sink(pool, shared);
      sink.source.push(bytes.slice(0, cut));
      sink.source.ended = true;
      expect(readAll(sink)).toBe("ended");
      expect(sink.reader.midFrame).toBe(cut !== 104);
      sink.release();
      sink.reader.close();
      shared.close();
      expect(pool.stats().buffers).toBe(0);
    }
    await pool.close();
  });
});

describe("what is copied", () => {
  /** Bytes copied between slabs, per byte received, for messages that arrive as fast as they can be read. */
  function copied(bytes: number, count: number): number {
    const pool = new SlabPool(heapKind(), { poolBytes: 64 * MIB });
    const shared = new StreamSlab(pool, MIB);
    const sink = new Sink(pool, shared);
    sink.source.push(joined(...Array.from({ length: count }, (_, n) => frameOf(messageOf(bytes, n)))));
    while (sink.reader.turn(sink.source, MIB) === "budget") sink.release();
    sink.release();
    shared.close();
    expect([sink.outcomes.length, pool.stats().buffers]).toEqual([count, 0]);
    return sink.reader.copiedBytes / (bytes * count);
  }

  test("of small messages one in a slab, of large ones their headers", () => {
    expect(copied(256, 20_000)).toBeLessThan(0.001);
    expect(copied(4_096, 2_000)).toBeLessThan(0.02);
    // The first one is a stranger's: its stage is copied. Then only headers are.
    expect(copied(65_536, 200)).toBeLessThan(0.01);
    expect(copied(200_000, 100)).toBeLessThan(0.02);
  });
});

describe("what a peer can make us hold", () => {
  test("is a stage on the heap until that much of its first large frame has come", async () => {
    const pool = new SlabPool(heapKind(), { poolBytes: 64 * MIB });
    const shared = new StreamSlab(pool, MIB);
    const sink = new Sink(pool, shared);
    sink.source.push(joined(u32(200_000), messageOf(200_000).subarray(0, 20)));
    readAll(sink);
    expect([sink.granted, pool.stats().usedBytes]).toEqual([0, MIB]);
    sink.source.push(messageOf(200_000).slice(20, STAGE_BYTES + 1));
    readAll(sink);
    // What it takes of the pool is what counts.
    expect([sink.granted, pool.stats().usedBytes]).toEqual([MIB, 2 * MIB]);
    sink.reader.close();
    shared.close();
    await pool.close();
  });
});
