import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import type { ZapError } from "../../lib/errors/index.ts";
import { FrameReader, type FrameSink } from "../../lib/wire/sockets/frames.ts";
import { frameOf, joined, messageOf, u32 } from "../support/messages.ts";
import { chunksOf, diceOf, runs } from "../support/properties.ts";
import { chunkSizes, expectOutcomes, FRAME_BYTES_MAX, stream, type Outcome } from "./frame-stream.ts";

const STAGE_BYTES = 64 * 1024;

/** Notes down what it is told; refuses memory and stops as `dice` says. */
class Sink implements FrameSink {
  readonly outcomes: Outcome[] = [];
  readonly reader: FrameReader;
  stopped = false;
  readonly elsewhere = false;
  stopAfterHello = false;
  refusals = 0;
  granted = 0;
  /** Memory that the reader was given, and has neither handed on nor given back. */
  readonly lent = new Set<Uint8Array>();
  private readonly dice: () => boolean;

  constructor(dice: () => boolean = () => false, versions?: readonly number[]) {
    this.dice = dice;
    this.reader = new FrameReader(this, FRAME_BYTES_MAX, versions);
  }

  hello(bytes: Uint8Array): void {
    this.outcomes.push(["hello", bytes]);
    this.stopped = this.stopAfterHello;
  }
  batch(chunk: Uint8Array, from: number, messages: number, bytes: number): void {
    const view = new DataView(chunk.buffer, chunk.byteOffset, chunk.byteLength);
    let at = from;
    for (let i = 0; i < messages; i++) {
      const start = at + 4;
      at = start + view.getUint32(at, true);
      // Kept uncopied: the reader must not touch it again.
      this.outcomes.push(["message", chunk.subarray(start, at)]);
    }
    ensure(messages > 0 && at - from === bytes + 4 * messages, "a batch counts its messages and their bytes");
  }
  assembled(message: Uint8Array): void {
    this.outcomes.push(["message", message]);
    ensure(this.lent.delete(message), "it hands on memory that it was given");
    this.granted -= this.reader.reserved;
  }
  memory(bytes: number): Uint8Array {
    const memory = new Uint8Array(bytes).fill(0xee);
    this.lent.add(memory);
    return memory;
  }
  recycle(memory: Uint8Array): void {
    ensure(this.lent.delete(memory), "it gives back memory that it was given");
    memory.fill(0xdd);
  }
  control(bytes: Uint8Array): void {
    this.outcomes.push(["control", bytes.slice()]);
  }
  dropped(reason: string): void {
    this.outcomes.push(["dropped", reason]);
  }
  fatal(error: ZapError): void {
    this.outcomes.push(["fatal", error.code]);
  }
  reserve(bytes: number): boolean {
    if (this.dice()) {
      this.refusals++;
      return false;
    }
    this.granted += bytes;
    return true;
  }

  /** Bytes that the reader holds for a frame that has not come whole. */
  get held(): number {
    return [...this.lent].reduce((sum, memory) => sum + memory.length, 0);
  }
}

/** `expect` for loops that run a million times. */
function ensure(holds: boolean, what: string): void {
  if (!holds) throw new Error(`not so: ${what}`);
}

describe("a stream of frames", () => {
  test("gives the same messages, in order, however it is cut into chunks", () => {
    fc.assert(
      fc.property(stream, chunkSizes, (parts, sizes) => {
        const sink = new Sink();
        const bytes = joined(...parts.map((part) => part.bytes));
        for (const chunk of chunksOf(bytes, sizes)) {
          ensure(sink.reader.consume(chunk) === chunk.length, "all of the chunk is taken");
        }
        expectOutcomes(
          sink.outcomes,
          parts.map((part) => part.outcome),
        );
        expect([sink.granted, sink.held]).toEqual([0, 0]);
      }),
      runs(200),
    );
  });

  test("survives refusals of memory and stops at any time", () => {
    const chance = fc.record({
      seed: fc.nat(),
      odds: fc.constantFrom(0, 0.3, 0.8),
      stops: fc.constantFrom(0, 0.3, 0.8),
    });
    fc.assert(
      fc.property(stream, chunkSizes, chance, fc.boolean(), (parts, sizes, { seed, odds, stops }, held) => {
        const [refusing, stopping] = [diceOf(seed), diceOf(seed + 1)];
        const sink = new Sink(() => refusing() < odds);
        sink.stopAfterHello = held;
        for (let chunk of chunksOf(joined(...parts.map((part) => part.bytes)), sizes)) {
          while (chunk.length > 0) {
            sink.stopped = sink.stopAfterHello && sink.outcomes.length === 0 ? false : stopping() < stops;
            const before = { refusals: sink.refusals, outcomes: sink.outcomes.length, stopped: sink.stopped };
            const taken = sink.reader.consume(chunk);
            if (taken < chunk.length) {
              // Only ever for a reason that the sink itself gave.
              ensure(sink.refusals > before.refusals || sink.stopped, "it stops only when told to");
            }
            if (before.stopped && before.outcomes > 0) {
              // It may end the frame that had begun, and nothing after it.
              ensure(sink.outcomes.length - before.outcomes <= 1, "it stops at the frame boundary");
            }
            chunk = chunk.subarray(taken);
          }
        }
        expectOutcomes(
          sink.outcomes,
          parts.map((part) => part.outcome),
        );
        expect([sink.granted, sink.held]).toEqual([0, 0]);
      }),
      runs(200),
    );
  });

  test("is known to be between frames or inside one, and counted", () => {
    fc.assert(
      fc.property(stream, chunkSizes, (parts, sizes) => {
        const sink = new Sink();
        const whole = parts.filter((part) => part.outcome?.[0] !== "fatal");
        const ends = new Set<number>([0]);
        let end = 0;
        for (const part of whole) ends.add((end += part.bytes.length));
        let at = 0;
        for (const chunk of chunksOf(joined(...whole.map((part) => part.bytes)), sizes)) {
          sink.reader.consume(chunk);
          at += chunk.length;
          ensure(sink.reader.midFrame === !ends.has(at), `midFrame at ${at}`);
        }
        expect(sink.reader.frames).toBe(whole.length);
      }),
      runs(60),
    );
  });

  test("makes the reader hold 64 KiB for a frame until that much of it has come", () => {
    fc.assert(
      fc.property(fc.integer({ min: STAGE_BYTES + 1, max: FRAME_BYTES_MAX }), chunkSizes, (length, sizes) => {
        const sink = new Sink();
        sink.reader.consume(frameOf(new Uint8Array(16)));
        const granted: number[] = [];
        let at = 0;
        sink.reserve = (bytes) => (granted.push(bytes), true);
        for (const chunk of chunksOf(frameOf(messageOf(length)), sizes)) {
          sink.reader.consume(chunk);
          at += chunk.length;
          if (at < STAGE_BYTES) {
            ensure(sink.held <= STAGE_BYTES, "it holds 64 KiB at most");
            ensure(granted.length === 0, "it asks for no more");
          }
        }
        // A frame that came in one piece is handed on where it lies, and needs none.
        expect(granted).toEqual(at > (sizes[0] ?? 0) ? [length] : []);
      }),
      runs(60),
    );
  });
});

describe("a reader", () => {
  const greeted = (versions?: readonly number[]): Sink => {
    const sink = new Sink(undefined, versions);
    sink.reader.consume(frameOf(new Uint8Array(16)));
    sink.outcomes.length = 0;
    return sink;
  };

  for (const length of [0, 1, 15, 1_025, 65_536, 0xffff_ffff]) {
    test(`refuses a first frame of ${length} bytes before it has come`, () => {
      const sink = new Sink();
      const bytes = joined(u32(length), new Uint8Array(100));
      expect(sink.reader.consume(bytes)).toBe(bytes.length);
      expect(sink.outcomes).toEqual([["fatal", "ERR_ZAP_HANDSHAKE"]]);
      sink.reader.consume(frameOf(messageOf(64)));
      expect(sink.outcomes).toHaveLength(1);
    });
  }

  test("says what the limit was and what was announced", () => {
    const sink = greeted();
    let text = "";
    sink.fatal = (error) => void (text = error.message);
    sink.reader.consume(u32(FRAME_BYTES_MAX + 1));
    expect(text).toContain(`${FRAME_BYTES_MAX + 1} bytes`);
    expect(text).toContain(`limits.frameBytes is ${FRAME_BYTES_MAX}`);
  });

  test("takes the versions that it is told to", () => {
    const sink = greeted([2, 7]);
    for (const version of [1, 2, 7]) sink.reader.consume(frameOf(messageOf(64, version, { version })));
    for (const byte of joined(...[1, 2, 7].map((version) => frameOf(messageOf(64, version, { version }))))) {
      sink.reader.consume(Uint8Array.of(byte));
    }
    expect(sink.outcomes.map(([what]) => what)).toEqual([
      ...["dropped", "message", "message"],
      ...["dropped", "message", "message"],
    ]);
  });

  test("hands on messages that lie whole in a chunk uncopied, also from a chunk that is part of a larger buffer", () => {
    const sink = greeted();
    const all = joined(new Uint8Array(3), frameOf(messageOf(64, 1)), frameOf(messageOf(70, 2)));
    sink.reader.consume(all.subarray(3));
    const views = sink.outcomes.map(([, bytes]) => bytes as Uint8Array);
    expect(views.map((view) => view.buffer === all.buffer)).toEqual([true, true]);
    expect(views.map((view) => view.byteOffset)).toEqual([7, 7 + 64 + 4]);
  });

  test("gives back what it holds when the connection ends in the middle of a frame", () => {
    for (const cut of [30, 70_000, 199_999]) {
      const sink = greeted();
      for (const chunk of chunksOf(frameOf(messageOf(200_000)).subarray(0, cut), [1_000]))
        sink.reader.consume(chunk);
      expect(sink.held).toBeGreaterThan(0);
      sink.reader.close();
      expect(sink.held).toBe(0);
      sink.reader.consume(frameOf(messageOf(64)));
      expect(sink.outcomes).toEqual([]);
    }
  });

  test("passes over a dropped frame without holding it", () => {
    const sink = greeted();
    for (const chunk of chunksOf(frameOf(messageOf(200_000, 1, { magic: 1 })), [1_000])) {
      sink.reader.consume(chunk);
      expect(sink.held).toBe(0);
    }
    sink.reader.consume(frameOf(messageOf(20, 2)));
    expect(sink.outcomes.map(([what]) => what)).toEqual(["dropped", "message"]);
  });
});
