/** As taken-away.test.ts, without sockets: at every place where the writing may have come to a stop. */
import { expect, test } from "bun:test";
import { MessageError } from "../../lib/errors/index.ts";
import type { Settle } from "../../lib/wire/common/settle.ts";
import { Outbox, OutboxPool } from "../../lib/wire/sockets/outbox.ts";
import { messageOf } from "../support/messages.ts";

const KIB = 1024;
const ERROR = new Error("given up");
/** The first message and its length: what precedes the faulty one. */
const FIRST_FRAME = 1_100;
/** Bytes taken before it happens: nothing, into the block that holds the first bytes of the faulty message, into the rest. */
const STOPS = [0, 1_000, 1_100, 1_102, 1_104, 1_106, 10_000, 17_483, 17_484, 17_485, 200_000];

class Call implements Settle {
  dones = 0;
  failures = 0;
  done(): void {
    this.dones++;
  }
  failed(): void {
    this.failures++;
  }
}

class Sink {
  taken: Uint8Array[] = [];
  budget = 0;
  write(bytes: Uint8Array, offset: number, length: number): number {
    const count = Math.min(this.budget, length);
    this.budget -= count;
    this.taken.push(bytes.slice(offset, offset + count));
    return count;
  }
}

const ignore = (): void => {};

function abort(outbox: Outbox, faulty: Call): void {
  if (outbox.retract(faulty)) faulty.failed();
  else outbox.detach(faulty);
}

/** What may happen to the outbox next. With `next`, it goes on with a fresh connection afterwards. */
const ACTS: Record<string, { next: boolean; run(outbox: Outbox, faulty: Call): void }> = {
  "is written on": { next: false, run: ignore },
  "is rewound": { next: true, run: (outbox) => outbox.rewind(ignore) },
  "is rewound twice": { next: true, run: (outbox) => (outbox.rewind(ignore), outbox.rewind(ignore)) },
  "is cut": { next: true, run: (outbox) => void outbox.cut(ignore) },
  "has its send aborted": { next: false, run: abort },
  "has its send aborted, and is rewound": {
    next: true,
    run: (outbox, faulty) => (abort(outbox, faulty), outbox.rewind(ignore)),
  },
  "has its send aborted, and is cut": {
    next: true,
    run: (outbox, faulty) => (abort(outbox, faulty), void outbox.cut(ignore)),
  },
};

function numbersIn(bytes: Buffer, from: number): number[] {
  const numbers: number[] = [];
  for (let at = from; at + 24 <= bytes.length; at += 4 + bytes.readUInt32LE(at))
    numbers.push(bytes.readUInt32LE(at + 20));
  return numbers;
}

/** Small, faulty, small, large, small, large: numbered from 1. */
function filled(outbox: Outbox) {
  const [faulty, ...others] = [new Call(), new Call(), new Call()] as const;
  const message = messageOf(300 * KIB, 2);
  outbox.append(messageOf(FIRST_FRAME - 4, 1));
  outbox.appendDirect(message, faulty);
  for (const [n, other] of others.entries()) {
    outbox.append(messageOf(500, 3 + 2 * n));
    outbox.appendDirect(messageOf(200 * KIB, 4 + 2 * n), other);
  }
  return { message, faulty, others };
}

/** An outbox of which `stop` bytes were taken before the memory of its second message went away. */
function stopped(stop: number) {
  const pool = new OutboxPool();
  const outbox = new Outbox(pool);
  const sink = new Sink();
  const { message, faulty, others } = filled(outbox);
  sink.budget = stop;
  outbox.write(sink, ignore);
  (message.buffer as ArrayBuffer).transfer();
  sink.taken = [];
  sink.budget = Infinity;
  return { pool, outbox, sink, faulty, others };
}

for (const [what, { next, run }] of Object.entries(ACTS)) {
  test(`an outbox with a message taken away that ${what} fails it once, and loses no other`, () => {
    for (const stop of STOPS) {
      const { pool, outbox, sink, faulty, others } = stopped(stop);
      let fresh = next;
      try {
        run(outbox, faulty);
        outbox.write(sink, ignore);
      } catch (thrown) {
        // The one thing that it may say: this connection cannot go on.
        if (!(thrown instanceof MessageError)) throw thrown;
        fresh = true;
        sink.taken = [];
        outbox.rewind(ignore);
        outbox.write(sink, ignore);
      }
      const { bytes, messages } = outbox;
      const { dones, failures } = faulty;
      expect({ stop, dones, failures }).toEqual({ stop, dones: 0, failures: 1 });
      expect({ stop, bytes, messages, pool: pool.queuedBytes }).toEqual({
        stop,
        bytes: 0,
        messages: 0,
        pool: 0,
      });
      for (const other of others) expect([stop, other.dones, other.failures]).toEqual([stop, 1, 0]);
      // A connection that goes on begins with the rest of the frame that it was in.
      const from = fresh || stop >= FIRST_FRAME ? 0 : (FIRST_FRAME - stop) % FIRST_FRAME;
      expect([stop, ...numbersIn(Buffer.concat(sink.taken), from).slice(-4)]).toEqual([stop, 3, 4, 5, 6]);
    }
  });
}

test("an outbox with a message taken away that is emptied fails it once, and counts the others", () => {
  for (const stop of STOPS) {
    const { pool, outbox, faulty, others } = stopped(stop);
    outbox.rewind(ignore);
    // Two small messages had been handed over behind it, and the first one where it is not out.
    expect([stop, outbox.clear(ERROR)]).toEqual([stop, stop < FIRST_FRAME ? 3 : 2]);
    expect([stop, faulty.dones, faulty.failures]).toEqual([stop, 0, 1]);
    for (const { dones, failures } of others) expect([stop, dones, failures]).toEqual([stop, 0, 1]);
    expect([stop, outbox.bytes, outbox.messages, pool.queuedBytes]).toEqual([stop, 0, 0, 0]);
  }
});
