/** Who decides how long to send, and who counts: the same for every contender in TypeScript. */
import { DATA, END, START, checkMessage, getSent, makeMessage, setSent } from "./message.ts";
import type { Next, Take } from "./peer.ts";

/** What the receiver of a throughput run reports. */
export interface Throughput {
  readonly messages: number;
  /** From the arrival of START to the arrival of END. */
  readonly millis: number;
}

/** What the sender of a round-trip run reports. */
export interface RoundTrip {
  readonly samples: number;
  readonly medianMicros: number;
  readonly p99Micros: number;
}

/** DATA for `warmMillis`, START, DATA for `runMillis`, END. */
export function floodSchedule(size: number, warmMillis: number, runMillis: number): Next {
  const data = makeMessage(size, DATA);
  const start = makeMessage(size, START);
  const end = makeMessage(size, END);
  // Reading the clock for every small message would be a part of what is measured.
  const batch = Math.max(1, Math.min(64, Math.floor(65_536 / size)));
  let stage: "warm" | "run" | "over" = "warm";
  let until = performance.now() + warmMillis;
  let left = 0;
  let sent = 0;
  return () => {
    if (left > 0) {
      left -= 1;
      return data;
    }
    if (stage !== "over" && performance.now() < until) {
      left = batch - 1;
      sent += batch;
      return data;
    }
    if (stage === "warm") {
      stage = "run";
      sent = 0;
      until = performance.now() + runMillis;
      return start;
    }
    if (stage === "run") {
      stage = "over";
      setSent(end, sent);
      return end;
    }
    return null;
  };
}

/** Counts what arrives between START and END and checks each message; `done` is called once, `fail` on the first bad one. */
export function tally(
  size: number,
  done: (result: Throughput) => void,
  fail: (error: unknown) => void,
): Take {
  let messages = 0;
  let startedAt = 0;
  return (message) => {
    try {
      const type = checkMessage(message, size);
      if (type === DATA) {
        messages += 1;
        return;
      }
      const now = performance.now();
      if (type === START) {
        messages = 0;
        startedAt = now;
      } else if (type === END) {
        const sent = getSent(message);
        if (sent !== messages) throw new Error(`${sent} messages were sent, ${messages} arrived`);
        done({ messages, millis: now - startedAt });
      } else {
        throw new Error(`a message of type ${type} arrived`);
      }
    } catch (error) {
      fail(error);
    }
  };
}

/** Checks each message and nothing else: the receiver of a ping-pong. */
export function checked(size: number, fail: (error: unknown) => void): Take {
  return (message) => {
    try {
      checkMessage(message, size);
    } catch (error) {
      fail(error);
    }
  };
}

/** The stop-watch of a ping-pong: `next` starts it, `back` reads it. */
export function pingPongSchedule(
  size: number,
  warmMillis: number,
  runMillis: number,
  fail: (error: unknown) => void,
): { next: Next; back: Take; result(): RoundTrip } {
  const data = makeMessage(size, DATA);
  const micros: number[] = [];
  const check = checked(size, fail);
  const warmUntil = performance.now() + warmMillis;
  const until = warmUntil + runMillis;
  let sentAt = 0;
  return {
    next() {
      sentAt = performance.now();
      return sentAt < until ? data : null;
    },
    back(message) {
      const now = performance.now();
      check(message);
      if (sentAt >= warmUntil) micros.push((now - sentAt) * 1_000);
    },
    result() {
      const sorted = Float64Array.from(micros).sort();
      if (sorted.length === 0) throw new Error("no round trip was finished in time");
      const at = (part: number): number =>
        sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))]!;
      return { samples: sorted.length, medianMicros: at(0.5), p99Micros: at(0.99) };
    },
  };
}
