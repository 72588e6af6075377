/** Shared libraries of macOS. Format: Apple's `mach-o/loader.h` (64 bits, little-endian). */
import { cutOff, type Image } from "./image-bytes.ts";
import type { Platform } from "./platform.ts";

const MAGIC_64 = 0xfeedfacf;
/** A file that holds one library for each of several architectures; big-endian. */
const MAGIC_UNIVERSAL = 0xcafebabe;
const CPU_TYPES: Readonly<Record<string, number>> = { x64: 0x01000007, arm64: 0x0100000c };
const MH_DYLIB = 6;
const HEADER_BYTES = 32;
const LC_SEGMENT_64 = 0x19;
const SEGMENT_BYTES = 72;

/** See `imageFault`. What no segment holds (there is nothing such in a library) is not looked at. */
export function machoFault(image: Image, { arch }: Platform): string | null {
  const magic = image.read(0, 4);
  if (magic?.getUint32(0) === MAGIC_UNIVERSAL)
    return `is a universal library; needed is one for ${arch} alone`;
  if (magic?.getUint32(0, true) !== MAGIC_64) return "is no Mach-O library of 64 bits";
  const header = image.read(0, HEADER_BYTES);
  if (header === null) return cutOff(image, HEADER_BYTES);
  const type = header.getUint32(4, true);
  if (CPU_TYPES[arch] !== undefined && type !== CPU_TYPES[arch]) {
    return `is built for ${architecture(type)}, not ${arch}`;
  }
  if (header.getUint32(12, true) !== MH_DYLIB) return "is a Mach-O file, but no shared library";
  return commandsFault(image, header.getUint32(16, true), header.getUint32(20, true));
}

function commandsFault(image: Image, count: number, bytes: number): string | null {
  const commands = image.read(HEADER_BYTES, bytes);
  if (commands === null) return cutOff(image, HEADER_BYTES + bytes);
  let segments = 0;
  for (let left = count, at = 0; left > 0; left--) {
    const length = at + 8 <= bytes ? commands.getUint32(at + 4, true) : 0;
    if (length < 8 || at + length > bytes) return "has load commands that make no sense";
    if (commands.getUint32(at, true) === LC_SEGMENT_64 && length >= SEGMENT_BYTES) {
      segments++;
      const end = Number(commands.getBigUint64(at + 40, true)) + Number(commands.getBigUint64(at + 48, true));
      if (end > image.bytes) return cutOff(image, end);
    }
    at += length;
  }
  return segments === 0 ? "is a Mach-O file without segments" : null;
}

function architecture(type: number): string {
  const known = Object.entries(CPU_TYPES).find(([, each]) => each === type);
  return known ? known[0] : `CPU type ${type}`;
}
