/** What the demo sends: random bytes of many sizes, and real files. */
import { join } from "node:path";

export const BYTES_MIN = 64;
export const BYTES_MAX = 4 * 1024 * 1024;
const POOL_BYTES = 2 * BYTES_MAX;
/** Of so many messages, one holds a file. */
const FILE_EVERY = 4;
const FOLDERS = ["lib", "docs", "scripts", "test"];

/** Inside an executable that `bun build --compile` made, modules lie in a file system of its own. */
export const isCompiled =
  import.meta.path.startsWith("/$bunfs/") || /^[A-Z]:[\\/]~BUN[\\/]/.test(import.meta.path);

export class Contents {
  private readonly random: Random;
  private readonly pool: Uint8Array;
  private readonly files: readonly string[];
  private count = 0;

  private constructor(seed: number, files: readonly string[]) {
    this.random = new Random(seed);
    this.pool = this.random.bytes(POOL_BYTES);
    this.files = files;
  }

  /** Contents that depend on the seed and on the repository's files alone. */
  static async open(seed: number): Promise<Contents> {
    return new Contents(seed, isCompiled ? [] : await repositoryFiles());
  }

  /** 64 bytes to 4 MiB. A view, which is never written to. */
  async next(): Promise<Uint8Array> {
    const at = this.count++;
    if (at % FILE_EVERY === FILE_EVERY - 1) return this.file();
    return this.slice(at === 0 ? BYTES_MIN : at === 1 ? BYTES_MAX : this.size());
  }

  /** A whole file of the repository; a part of this very executable where that is all there is. */
  private async file(): Promise<Uint8Array> {
    const path = this.files[this.random.below(this.files.length || 1)];
    if (path !== undefined) return clip(await Bun.file(path).bytes());
    const own = Bun.file(process.execPath);
    const size = this.size();
    const start = this.random.below(Math.max(1, own.size - size));
    return own.slice(start, start + size).bytes();
  }

  /** Every power of two is as likely as any other. */
  private size(): number {
    return Math.floor(BYTES_MIN * (BYTES_MAX / BYTES_MIN) ** this.random.fraction());
  }

  private slice(size: number): Uint8Array {
    const start = this.random.below(POOL_BYTES - size + 1);
    return this.pool.subarray(start, start + size);
  }
}

function clip(bytes: Uint8Array): Uint8Array {
  return bytes.subarray(0, BYTES_MAX);
}

async function repositoryFiles(): Promise<string[]> {
  const root = join(import.meta.dir, "..", "..");
  const files: string[] = [];
  for (const folder of FOLDERS) {
    const found = new Bun.Glob(`${folder}/**/*`).scan({ cwd: root, absolute: true, onlyFiles: true });
    for await (const path of found) if (Bun.file(path).size >= BYTES_MIN) files.push(path);
  }
  return files.sort();
}

/** Marsaglia's xorshift with 32 bits of state: the same numbers for the same seed everywhere. */
class Random {
  private state: number;

  constructor(seed: number) {
    // The state must not be 0, and small seeds must not give similar beginnings.
    this.state = Math.imul(seed + 1, 0x9e3779b1) | 1;
    for (let i = 0; i < 16; i++) this.next();
  }

  private next(): number {
    let { state } = this;
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    this.state = state;
    return state >>> 0;
  }

  /** 0 to below 1. */
  fraction(): number {
    return this.next() / 2 ** 32;
  }

  /** An integer from 0 to below `limit`. */
  below(limit: number): number {
    return Math.floor(this.fraction() * limit);
  }

  bytes(length: number): Uint8Array {
    const words = new Uint32Array(length / 4);
    for (let i = 0; i < words.length; i++) words[i] = this.next();
    return new Uint8Array(words.buffer);
  }
}
