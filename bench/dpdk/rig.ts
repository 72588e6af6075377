/** A port of DPDK's in this process, with a hand-off ring behind it that JavaScript consumes: `test/native/dpdk_bench_lib.c` by its verbs. */
import type { Socket } from "bun";
import { dlopen, toArrayBuffer, type Pointer } from "bun:ffi";
import {
  ENTRY_ADDRESS,
  ENTRY_LENGTH,
  ENTRY_TOKEN,
  RingConsumer,
  RingProducer,
} from "../../lib/wire/native/rings.ts";
import { RING, RING_ENTRY } from "../../lib/ffi/index.ts";

const HALF = 2 ** 32;
/** Of its rings. */
const SLOTS = 4_096;
const RING_BYTES = RING.bytes + SLOTS * RING_ENTRY.bytes;
const MAGIC = 0x0050_415a;

/** A flood of ready frames; one that is sent in every turn; and nobody who sends. */
export const DEVICES = { net_null: 0, net_ring: 1, idle: 2 } as const;
export const IDLES = { spin: 0, yield: 1, sleep: 2 } as const;
export type Idle = keyof typeof IDLES;

const VERBS = {
  zap_bench_open: { args: ["u32", "u32", "buffer"], returns: "void" },
  zap_bench_attach: { args: [], returns: "void" },
  zap_bench_poll: { args: ["u32"], returns: "void" },
  zap_bench_start: { args: ["u32", "i32"], returns: "void" },
  zap_bench_counts: { args: ["buffer"], returns: "void" },
  zap_bench_cpu: { args: [], returns: "f64" },
  zap_bench_close: { args: [], returns: "void" },
} as const;

export interface Counts {
  /** Packets that went to the ring, and those that found it full. */
  readonly packets: number;
  readonly full: number;
}

export class Rig {
  /** Packets that JavaScript has seen, and those of them that had no magic. */
  taken = 0;
  wrong = 0;
  private readonly call: ReturnType<typeof dlopen<typeof VERBS>>["symbols"];
  private readonly out: RingConsumer;
  private readonly back: RingProducer;
  private readonly region: number;
  private readonly words: Uint32Array;
  private readonly wakeFd: number;
  private socket: Socket | null = null;

  constructor(library: string, device: keyof typeof DEVICES, bytes: number) {
    this.call = dlopen(library, VERBS).symbols;
    const view = new DataView(new ArrayBuffer(40));
    this.call.zap_bench_open(DEVICES[device], bytes, view);
    const u64 = (at: number): number => Number(view.getBigUint64(at, true));
    const memory = (at: number, length: number): ArrayBuffer => toArrayBuffer(u64(at) as Pointer, 0, length);
    this.out = new RingConsumer(memory(0, RING_BYTES), 0);
    this.back = new RingProducer(memory(8, RING_BYTES), 0);
    this.region = u64(16);
    this.words = new Uint32Array(memory(16, u64(24)));
    this.wakeFd = view.getInt32(32, true);
  }

  /** From now on `poll` does what the thread would do. */
  attach(): void {
    this.call.zap_bench_attach();
  }

  poll(bursts: number): void {
    this.call.zap_bench_poll(bursts);
  }

  /** From now on a thread polls; on that CPU, or anywhere. */
  start(idle: Idle, cpu = -1): void {
    this.call.zap_bench_start(IDLES[idle], cpu);
  }

  /** Milliseconds that this thread has run. */
  cpu(): number {
    return this.call.zap_bench_cpu() / 1e6;
  }

  counts(): Counts {
    const counts = new BigUint64Array(2);
    this.call.zap_bench_counts(counts);
    return { packets: Number(counts[0]), full: Number(counts[1]) };
  }

  /** Takes all that is there, looks at the magic of each and gives it back. Says how many there were. */
  consume(): number {
    const { out, back } = this;
    const count = out.available;
    for (let i = 0; i < count; i++) {
      const from = out.at(0);
      const entry = out.words;
      const address = entry[from + ENTRY_ADDRESS]! + entry[from + ENTRY_ADDRESS + 1]! * HALF;
      const offset = address - this.region;
      // Payload lies at an even address, behind 42 bytes of headers.
      const low = this.words[offset >>> 2]!;
      const magic =
        (offset & 3) === 0 ? low : (low >>> 16) | ((this.words[(offset >>> 2) + 1]! & 0xffff) << 16);
      if (magic !== MAGIC || entry[from + ENTRY_LENGTH]! < 8) this.wrong++;
      const token = entry[from + ENTRY_TOKEN]!;
      out.consume(1);
      back.words[back.at(0) + ENTRY_TOKEN] = token;
      back.publish();
    }
    this.taken += count;
    return count;
  }

  /** False where there is something already. */
  arm(): boolean {
    return this.out.arm();
  }

  /** Calls `onWake` when a ring that was armed is filled. */
  async wake(onWake: () => void): Promise<void> {
    const options = { fd: this.wakeFd, socket: { data: onWake } } as unknown as Bun.TCPSocketConnectOptions;
    this.socket = await Bun.connect(options);
  }

  close(): void {
    this.socket?.terminate();
    this.call.zap_bench_close();
  }
}
