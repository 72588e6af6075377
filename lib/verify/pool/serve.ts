/** The worker's side of the pool: takes ranges, batch by batch in turn, until there are none. */
import type { PackedBatch, SchemeVerifier } from "../contract.ts";
import {
  DONE,
  FINISHED,
  FLAG,
  FREE,
  HINT,
  PROTOCOL,
  QUIET,
  STATES,
  STOP,
  type FromWorker,
  type SliceMessage,
  type ToWorker,
} from "./protocol.ts";

/** Gives the verifier of a scheme; asked once for each scheme. */
export type Load = (scheme: string) => Promise<SchemeVerifier>;

/** This thread, as far as it is needed here. */
interface Port {
  onmessage: ((event: MessageEvent<ToWorker>) => void) | null;
  postMessage(message: FromWorker): void;
}

/** Makes the thread that calls it a worker of the pool. Called once, by the worker's entry. */
export function serve(load: Load): void {
  const port = globalThis as unknown as Port;
  const verifiers = new Map<string, SchemeVerifier>();
  /** The slices of each batch. The batch that is served moves to the end. */
  const batches = new Map<number, SliceMessage[]>();
  let id = 0;
  let busy = false;

  async function verifierOf(scheme: string): Promise<SchemeVerifier> {
    let verifier = verifiers.get(scheme);
    if (verifier === undefined) {
      verifier = await load(scheme);
      verifiers.set(scheme, verifier);
    }
    return verifier;
  }

  async function work(): Promise<void> {
    for (;;) {
      const [first] = batches;
      if (first === undefined) return;
      const [batch, slices] = first;
      const slice = slices[0]!;
      // Taken before anything can fail: a range that nobody can verify is known by who had it last.
      const range = take(slice, id);
      batches.delete(batch);
      if (range === null) slices.shift();
      if (slices.length > 0) batches.set(batch, slices);
      if (range === null) continue;
      if (Atomics.load(slice.control, FLAG) !== STOP) {
        await verifyRange(await verifierOf(slice.scheme), slice, range);
      }
      if (giveBack(slice, range)) port.postMessage({ slice: slice.slice });
      // Lets messages in: another batch must not wait until this one is through.
      await new Promise((resume) => setImmediate(resume));
    }
  }

  async function run(): Promise<void> {
    busy = true;
    try {
      await work();
      busy = false;
    } catch (error) {
      // Still busy, for good: the pool ends this thread.
      port.postMessage({ failed: error instanceof Error ? error.message : String(error) });
    }
  }

  port.onmessage = ({ data }) => {
    if ("id" in data) {
      id = data.id;
      return;
    }
    const slices = batches.get(data.batch);
    if (slices === undefined) batches.set(data.batch, [data]);
    else slices.push(data);
    if (!busy) void run();
  };
  port.postMessage({ ready: PROTOCOL });
}

/** Takes a free range for the worker `id`; null where there is none, or none is to be taken. */
function take({ control }: SliceMessage, id: number): number | null {
  if (Atomics.load(control, FLAG) === STOP) return null;
  const hint = Atomics.load(control, HINT);
  const ranges = control.length - STATES;
  for (let looked = 0; looked < ranges; looked++) {
    const range = hint + looked < ranges ? hint + looked : hint + looked - ranges;
    if (Atomics.compareExchange(control, STATES + range, FREE, id) !== FREE) continue;
    Atomics.store(control, HINT, range + 1);
    return range;
  }
  return null;
}

async function verifyRange(verifier: SchemeVerifier, slice: SliceMessage, range: number): Promise<void> {
  const from = slice.starts[range]!;
  const to = slice.starts[range + 1]!;
  const batch: PackedBatch = { bytes: slice.bytes, table: slice.table, count: slice.count };
  const codes = slice.codes.subarray(from, to);
  const later = verifier.later?.(batch, from, to, slice.params, codes) ?? null;
  if (later === null) verifier.verify(batch, from, to, slice.params, codes);
  else await later;
}

/** The range is done. Returns whether the pool wants to know. */
function giveBack({ control }: SliceMessage, range: number): boolean {
  Atomics.store(control, STATES + range, DONE);
  const finished = Atomics.add(control, FINISHED, 1) + 1;
  return finished === control.length - STATES || Atomics.load(control, FLAG) !== QUIET;
}
