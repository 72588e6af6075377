/** The bytes of a library, to look at before anything loads it. */
import { closeSync, constants, fstatSync, openSync, readFileSync, readSync } from "node:fs";

/** The bytes of a library, wherever they lie. */
export interface Image {
  readonly bytes: number;
  /** `length` bytes from `at`, or null where the file has fewer. */
  read(at: number, length: number): DataView | null;
}

export interface OpenImage extends Image {
  readonly isFile: boolean;
  close(): void;
}

/** Throws what `node:fs` throws. To be closed. */
export function openImage(path: string): OpenImage {
  let file: number;
  try {
    // Without waiting, should the name belong to a pipe.
    file = openSync(path, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0));
  } catch (error) {
    // Files inside a compiled executable can be read as a whole only.
    if (!isCompiledIn(path)) throw error;
    const bytes = readFileSync(path);
    const read = (at: number, length: number): DataView | null =>
      at + length <= bytes.length ? new DataView(bytes.buffer, bytes.byteOffset + at, length) : null;
    return { isFile: true, bytes: bytes.length, read, close: () => {} };
  }
  try {
    const stats = fstatSync(file);
    const read = (at: number, length: number): DataView | null => {
      // A length that a damaged header made up must not become an allocation.
      if (at + length > stats.size) return null;
      const bytes = new Uint8Array(length);
      return readSync(file, bytes, 0, length, at) === length ? new DataView(bytes.buffer) : null;
    };
    return { isFile: stats.isFile(), bytes: stats.size, read, close: () => closeSync(file) };
  } catch (error) {
    closeSync(file);
    throw error;
  }
}

/** Whether `path` belongs to the folder that a compiled executable carries inside, which no disk has. */
export function isCompiledIn(path: string): boolean {
  return path.startsWith("/$bunfs/") || path.includes("~BUN");
}

/** What is wrong with a file that should have `needed` bytes and has not. */
export function cutOff(image: Image, needed: number): string {
  return `is cut off: ${image.bytes} bytes of at least ${needed}`;
}
