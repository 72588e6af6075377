/** One file on its way in: written under a temporary name, hashed on the way, renamed when it is whole and right. */
import { randomBytes } from "node:crypto";
import { fchmodSync, unlinkSync } from "node:fs";
import { link, open, rename, unlink, type FileHandle } from "node:fs/promises";
import { join } from "node:path";
import { fileErrorText } from "./io.ts";
import { STATUS, type FileData, type FileEnd, type FileStart } from "./messages.ts";
import { numbered, printable, safeName } from "./names.ts";

const NUMBER_MAX = 9_999;

/** Why a file is not taken: what the receipt says. */
export class Refusal extends Error {
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

export class Incoming {
  readonly id: bigint;
  readonly peer: string;
  /** What the sender calls it; printable. */
  readonly label: string;
  /** Bytes announced. */
  readonly size: number;
  received = 0;
  /** Milliseconds of `performance.now()`. */
  readonly startedAt = performance.now();
  touchedAt = this.startedAt;
  private readonly folder: string;
  private readonly name: string;
  private readonly mode: number;
  private readonly handle: FileHandle;
  private readonly temporary: string;
  private readonly hasher = new Bun.CryptoHasher("sha256");
  /** The temporary file has its final name, or is gone. */
  private over = false;
  /** `finish` is at work: too late to give up, and too early to know. */
  finishing = false;
  private writing: Promise<void> = Promise.resolve();

  private constructor(folder: string, peer: string, start: FileStart, temporary: string, handle: FileHandle) {
    this.folder = folder;
    this.peer = peer;
    this.id = start.id;
    this.size = start.size;
    this.mode = start.mode;
    this.name = safeName(start.name);
    this.label = printable(this.name);
    this.temporary = temporary;
    this.handle = handle;
  }

  /** Opens the temporary file. Throws `Refusal` where the folder does not take one. */
  static async open(folder: string, peer: string, start: FileStart): Promise<Incoming> {
    const temporary = join(folder, `.zap-${randomBytes(8).toString("hex")}.part`);
    try {
      return new Incoming(folder, peer, start, temporary, await open(temporary, "wx", 0o600));
    } catch (error) {
      throw cannotWrite(error);
    }
  }

  /** Takes the next chunk. Throws `Refusal` for one that does not follow on the last, and where it cannot be written. */
  async write({ offset, bytes }: FileData): Promise<void> {
    if (offset !== this.received) {
      throw new Refusal(STATUS.protocol, `a chunk for offset ${offset} came at ${this.received}`);
    }
    if (bytes.length > this.size - offset) {
      throw new Refusal(STATUS.size, `more came than the ${this.size} bytes announced`);
    }
    this.writing = this.store(bytes, offset);
    this.hasher.update(bytes);
    await this.writing;
    this.received += bytes.length;
    this.touchedAt = performance.now();
  }

  private async store(bytes: Uint8Array, position: number): Promise<void> {
    try {
      for (let done = 0; done < bytes.length;) {
        done += (await this.handle.write(bytes, done, bytes.length - done, position + done)).bytesWritten;
      }
    } catch (error) {
      throw cannotWrite(error);
    }
  }

  /**
   * Checks size and hash and gives the file its name, a free one: nothing is ever overwritten. Throws `Refusal` where something
   * is wrong; `discard` it then.
   */
  async finish(end: FileEnd): Promise<{ savedAs: string; hash: Uint8Array }> {
    if (this.received !== this.size || end.size !== this.size) {
      const text = `${this.received} bytes came; ${this.size} were announced, ${end.size} at the end`;
      throw new Refusal(STATUS.size, text);
    }
    const hash = new Uint8Array(this.hasher.digest());
    if (Buffer.compare(hash, end.hash) !== 0) {
      const text = `the SHA-256 of what came is ${Buffer.from(hash).toString("hex")}, not that of the sender`;
      throw new Refusal(STATUS.hash, text);
    }
    this.finishing = true;
    try {
      const wanted = this.mode === 0 ? 0o666 : (this.mode & 0o777) | 0o600;
      fchmodSync(this.handle.fd, wanted & ~process.umask());
      // Some file systems tell only here that they could not keep what they took.
      await this.handle.close();
      const savedAs = await this.place();
      this.over = true;
      return { savedAs, hash };
    } catch (error) {
      throw error instanceof Refusal ? error : cannotWrite(error);
    } finally {
      this.finishing = false;
    }
  }

  private async place(): Promise<string> {
    for (let attempt = 1; attempt <= NUMBER_MAX; attempt++) {
      const name = numbered(this.name, attempt);
      if (await moveUnlessTaken(this.temporary, join(this.folder, name))) return name;
    }
    throw new Refusal(STATUS.disk, `no free name for ${this.label} is left`);
  }

  /** Removes what came so far, at once. A second call does nothing, and neither does one after `finish`. */
  discard(): void {
    if (this.over) return;
    this.over = true;
    try {
      unlinkSync(this.temporary);
    } catch {
      // Somebody else was faster; there is nothing left to do, and nobody to tell.
    }
    const close = (): Promise<void> => this.handle.close().catch(() => {});
    this.writing.then(close, close);
  }
}

function cannotWrite(error: unknown): Refusal {
  return new Refusal(STATUS.disk, `it cannot be written: ${fileErrorText(error)}`);
}

/** Renames in one step that fails where the new name is taken; false then. */
async function moveUnlessTaken(from: string, to: string): Promise<boolean> {
  try {
    await link(from, to);
    await unlink(from).catch(() => {});
    return true;
  } catch (error) {
    const { code } = error as { code?: string };
    if (code === "EEXIST") return false;
    if (!["EPERM", "ENOTSUP", "EOPNOTSUPP", "ENOSYS", "EMLINK"].includes(code ?? "")) throw error;
    return moveOverPlaceholder(from, to);
  }
}

/** For file systems without hard links: an empty file takes the name, and is replaced. */
async function moveOverPlaceholder(from: string, to: string): Promise<boolean> {
  try {
    await (await open(to, "wx")).close();
  } catch (error) {
    if ((error as { code?: string }).code === "EEXIST") return false;
    throw error;
  }
  try {
    await rename(from, to);
  } catch (error) {
    await unlink(to).catch(() => {});
    throw error;
  }
  return true;
}
