/** Shared libraries of Linux. Format: System V ABI, "Object Files" (64 bits, little-endian), as in `elf(5)`. */
import { cutOff, type Image } from "./image-bytes.ts";
import type { Platform } from "./platform.ts";

/** `e_machine`, and Debian's folder name, for each architecture. */
export const ELF_ARCHITECTURES: Readonly<Record<string, { machine: number; multiarch: string }>> = {
  x64: { machine: 62, multiarch: "x86_64-linux-gnu" },
  arm64: { machine: 183, multiarch: "aarch64-linux-gnu" },
};

export const ELF_MAGIC = 0x7f454c46;
const CLASS_64 = 2;
const LITTLE_ENDIAN = 1;
const ET_DYN = 3;

const HEADER_BYTES = 64;
const SEGMENT_BYTES = 56;
const PT_LOAD = 1;
const PT_DYNAMIC = 2;
const SECTION_BYTES = 64;
const SHT_NOBITS = 8;
const DYNAMIC_BYTES = 16;
const DT_NEEDED = 1;
const DT_STRTAB = 5;

interface Segment {
  readonly type: number;
  readonly at: number;
  readonly address: number;
  readonly bytes: number;
}

/** How much of a library has to be there: all of it, or what the loader maps (whatever else vendors do to theirs). */
export type Extent = "whole" | "mapped";

/** See `imageFault`. */
export function elfFault(image: Image, { arch, musl }: Platform, extent: Extent): string | null {
  const header = image.read(0, HEADER_BYTES);
  if (image.read(0, 4)?.getUint32(0) !== ELF_MAGIC) return "is no ELF library";
  if (header === null) return cutOff(image, HEADER_BYTES);
  if (header.getUint8(4) !== CLASS_64 || header.getUint8(5) !== LITTLE_ENDIAN) return "is not of 64 bits";
  const machine = header.getUint16(18, true);
  const wanted = ELF_ARCHITECTURES[arch]?.machine;
  if (wanted !== undefined && machine !== wanted) return `is built for ${architecture(machine)}, not ${arch}`;
  if (header.getUint16(16, true) !== ET_DYN) return "is an ELF file, but no shared library";

  const segments = readSegments(image, header);
  if (typeof segments === "string") return segments;
  for (const { at, bytes } of segments) if (at + bytes > image.bytes) return cutOff(image, at + bytes);
  if (extent === "mapped") return null;
  return sectionFault(image, header) ?? libcFault(image, segments, musl);
}

function readSegments(image: Image, header: DataView): Segment[] | string {
  const at = long(header, 32);
  const count = header.getUint16(56, true);
  if (count === 0 || header.getUint16(54, true) !== SEGMENT_BYTES) return "is an ELF file without segments";
  const table = image.read(at, count * SEGMENT_BYTES);
  if (table === null) return cutOff(image, at + count * SEGMENT_BYTES);
  return Array.from({ length: count }, (_, index) => {
    const start = index * SEGMENT_BYTES;
    return {
      type: table.getUint32(start, true),
      at: long(table, start + 8),
      address: long(table, start + 16),
      bytes: long(table, start + 32),
    };
  });
}

/** Most linkers write the section table to the very end, so that it tells of every cut. It may have been stripped. */
function sectionFault(image: Image, header: DataView): string | null {
  const at = long(header, 40);
  const count = header.getUint16(60, true);
  if (at === 0 || count === 0) return null;
  if (header.getUint16(58, true) !== SECTION_BYTES) return "has a section table of unknown form";
  const table = image.read(at, count * SECTION_BYTES);
  if (table === null) return cutOff(image, at + count * SECTION_BYTES);
  for (let start = 0; start < table.byteLength; start += SECTION_BYTES) {
    if (table.getUint32(start + 4, true) === SHT_NOBITS) continue;
    const end = long(table, start + 24) + long(table, start + 32);
    if (end > image.bytes) return cutOff(image, end);
  }
  return null;
}

/** glibc's loader reports a library for musl by the name of some other file, and the other way round. */
function libcFault(image: Image, segments: readonly Segment[], musl: boolean): string | null {
  const needed = neededLibraries(image, segments);
  const forMusl = needed.some((name) => name === "libc.so" || /^(ld-musl|libc\.musl)-/.test(name));
  const forGlibc = needed.includes("libc.so.6");
  if (forMusl && !forGlibc && !musl) return "is built for musl, and this system has glibc";
  if (forGlibc && !forMusl && musl) return "is built for glibc, and this system has musl";
  return null;
}

/** The names in `DT_NEEDED`; none where the dynamic section cannot be made out. */
function neededLibraries(image: Image, segments: readonly Segment[]): string[] {
  const dynamic = segments.find(({ type }) => type === PT_DYNAMIC);
  const table = dynamic && image.read(dynamic.at, dynamic.bytes);
  if (!table) return [];
  const names: number[] = [];
  let strings: number | null = null;
  for (let start = 0; start + DYNAMIC_BYTES <= table.byteLength; start += DYNAMIC_BYTES) {
    const tag = long(table, start);
    if (tag === 0) break;
    if (tag === DT_NEEDED) names.push(long(table, start + 8));
    if (tag === DT_STRTAB) strings = long(table, start + 8);
  }
  if (strings === null) return [];
  // The table is given by its address in memory; the segment that is mapped there says where in the file that is.
  const address = strings;
  const home = segments.find(
    (each) => each.type === PT_LOAD && address >= each.address && address < each.address + each.bytes,
  );
  if (home === undefined) return [];
  const start = home.at + address - home.address;
  return names.map((offset) => text(image, start + offset));
}

/** A name that ends in a zero byte, of at most 64 bytes; longer ones are none that we look for. */
function text(image: Image, at: number): string {
  const bytes = image.read(at, Math.max(0, Math.min(64, image.bytes - at)));
  if (bytes === null) return "";
  const view = new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const end = view.indexOf(0);
  return end === -1 ? "" : new TextDecoder().decode(view.subarray(0, end));
}

function architecture(machine: number): string {
  const known = Object.entries(ELF_ARCHITECTURES).find(([, each]) => each.machine === machine);
  return known ? known[0] : `ELF machine ${machine}`;
}

/** A number of 64 bits. Above 2^53 it is no longer exact, and far beyond the end of any file all the same. */
function long(view: DataView, at: number): number {
  return Number(view.getBigUint64(at, true));
}
