/** One file on its way out. */
import { constants } from "node:fs";
import { access, open, stat, type FileHandle } from "node:fs/promises";
import { basename, resolve } from "node:path";
import { CommandError, errorText, fileErrorText } from "./io.ts";
import { Watch, type Link, type Receipts } from "./link.ts";
import {
  CHUNK_BYTES,
  chunkMessage,
  encodeCancel,
  encodeEnd,
  encodeStart,
  STATUS,
  TRANSFER_VERSION,
  type ChunkMessage,
  type FileReceipt,
} from "./messages.ts";
import { printable } from "./names.ts";

/** A file that can be sent, as it was when it was looked at. */
export interface Source {
  readonly path: string;
  /** The last part of the path. */
  readonly name: string;
  readonly size: number;
  readonly mode: number;
}

/** Looks at a file without reading it. Throws `CommandError`, which names it, where it cannot be sent. */
export async function findSource(path: string): Promise<Source> {
  try {
    const facts = await stat(path);
    if (facts.isDirectory()) throw new CommandError("it is a folder; only files can be sent");
    if (!facts.isFile()) throw new CommandError("it is not a regular file");
    await access(path, constants.R_OK);
    return { path, name: basename(resolve(path)), size: facts.size, mode: facts.mode & 0o777 };
  } catch (error) {
    throw named(path, error);
  }
}

/** What the receiver has confirmed. */
export interface Confirmed {
  /** Bytes. */
  readonly size: number;
  /** The SHA-256 that both sides computed. */
  readonly hash: Uint8Array;
}

export interface SendOptions {
  /** Fires when the receiver is lost or the person wants out. */
  readonly signal: AbortSignal;
  /** How long nothing may move, milliseconds. */
  readonly patienceMillis: number;
  /** Called after each chunk. */
  readonly onProgress: (sent: number, total: number) => void;
}

/**
 * Sends one file and waits for its receipt. Rejects with `CommandError`, which names the file, where the file or the receiver
 * says no, and with the signal's reason where that fires.
 */
export async function sendFile(link: Link, source: Source, options: SendOptions): Promise<Confirmed> {
  let handle: FileHandle;
  try {
    handle = await open(source.path);
  } catch (error) {
    throw named(source.path, error);
  }
  const watch = new Watch(options.signal, options.patienceMillis);
  const id = newId();
  const receipts = link.expect(id);
  try {
    return await new Outgoing(link, id, source, handle, receipts, watch, options.onProgress).run();
  } catch (error) {
    if (options.signal.aborted) throw options.signal.reason;
    throw named(source.path, error);
  } finally {
    link.forget(id);
    watch.stop();
    await handle.close();
  }
}

class Outgoing {
  private readonly link: Link;
  private readonly id: bigint;
  private readonly source: Source;
  private readonly handle: FileHandle;
  private readonly receipts: Receipts;
  private readonly watch: Watch;
  private readonly onProgress: SendOptions["onProgress"];
  private readonly hasher = new Bun.CryptoHasher("sha256");

  constructor(
    link: Link,
    id: bigint,
    source: Source,
    handle: FileHandle,
    receipts: Receipts,
    watch: Watch,
    onProgress: SendOptions["onProgress"],
  ) {
    this.link = link;
    this.id = id;
    this.source = source;
    this.handle = handle;
    this.receipts = receipts;
    this.watch = watch;
    this.onProgress = onProgress;
  }

  async run(): Promise<Confirmed> {
    const { id, watch } = this;
    // The size now, not the one of when the file was looked at: other files may have been sent between.
    const { size } = await this.handle.stat();
    const { name, mode } = this.source;
    await this.send(encodeStart({ id, size, mode, version: TRANSFER_VERSION, name }));
    this.expect(STATUS.ready, await watch.race(this.receipts.next()));
    try {
      await this.sendBytes(size);
    } catch (error) {
      // Best effort: whoever does not hear this notices by time, or by our leaving.
      const reason = error instanceof CommandError ? error.message : "it failed at the sender";
      if (!watch.signal.aborted) this.link.send(encodeCancel({ id, reason }), watch.signal).catch(() => {});
      throw error;
    }
    const hash = new Uint8Array(this.hasher.digest());
    await this.send(encodeEnd({ id, size, hash }));
    const receipt = await watch.race(this.receipts.next());
    this.expect(STATUS.saved, receipt);
    if (Buffer.compare(receipt.hash, hash) !== 0 || receipt.size !== size) {
      throw new CommandError("the receiver confirms another file than the one sent");
    }
    return { size, hash };
  }

  /** Two messages take turns: one is being sent while the next chunk is read into the other. */
  private async sendBytes(size: number): Promise<void> {
    const full = Math.min(size, CHUNK_BYTES);
    const turns = size <= CHUNK_BYTES ? [] : [chunkMessage(this.id, full), chunkMessage(this.id, full)];
    let sending: Promise<void> = Promise.resolve();
    for (let offset = 0, turn = 0; offset < size; turn++) {
      const length = Math.min(size - offset, CHUNK_BYTES);
      const free = length === full ? turns[turn % 2] : undefined;
      const chunk = free ?? chunkMessage(this.id, length);
      await this.fill(chunk, offset);
      await sending;
      this.onProgress(offset, size);
      const early = this.receipts.poll();
      if (early !== undefined) this.expect(STATUS.ready, early);
      sending = this.send(chunk.message);
      // It is awaited above or below; should reading fail first, it must not count as unhandled.
      sending.catch(() => {});
      offset += length;
    }
    await sending;
    this.onProgress(size, size);
    if (size === 0) await this.checkEmpty();
  }

  private async fill(chunk: ChunkMessage, offset: number): Promise<void> {
    const { bytes } = chunk;
    for (let have = 0; have < bytes.length;) {
      const { bytesRead } = await this.handle.read(bytes, have, bytes.length - have, offset + have);
      if (bytesRead === 0) throw new CommandError(`it became shorter while it was read`);
      have += bytesRead;
    }
    chunk.setOffset(offset);
    this.hasher.update(bytes);
  }

  /** The files of /proc and the like say that they are empty and are not. */
  private async checkEmpty(): Promise<void> {
    const { bytesRead } = await this.handle.read(new Uint8Array(1), 0, 1, 0);
    if (bytesRead > 0) throw new CommandError("it does not say how large it is: copy it to a file first");
  }

  private async send(message: Uint8Array): Promise<void> {
    await this.watch.race(this.link.send(message, this.watch.signal));
    this.watch.touch();
  }

  private expect(status: number, receipt: FileReceipt): void {
    this.watch.touch();
    if (receipt.status === status) return;
    const why = printable(receipt.reason) || `status ${receipt.status}`;
    throw new CommandError(`the receiver did not take it: ${why}`);
  }
}

function newId(): bigint {
  for (;;) {
    const [id = 0n] = crypto.getRandomValues(new BigUint64Array(1));
    if (id !== 0n) return id;
  }
}

/** An error that begins with the file it is about. */
function named(path: string, error: unknown): CommandError {
  const text = error instanceof CommandError ? errorText(error) : fileErrorText(error);
  return new CommandError(`${printable(path)}: ${text}`, { cause: error });
}
