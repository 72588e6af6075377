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
const SHT_STRTAB = 3;
const SHT_NOBITS = 8;
const DYNAMIC_BYTES = 16;
const DT_NEEDED = 1;
const DT_STRTAB = 5;
const DT_SYMTAB = 6;

/** How faults begin that no cut explains. */
const DAMAGED = "is damaged";

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
  return sectionFault(image, header) ?? dynamicFault(image, segments) ?? libcFault(image, segments, musl);
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
  if (at === 0) return null;
  if (count === 0 || header.getUint16(58, true) !== SECTION_BYTES)
    return "has a section table of unknown form";
  const table = image.read(at, count * SECTION_BYTES);
  if (table === null) return cutOff(image, at + count * SECTION_BYTES);
  for (let start = 0; start < table.byteLength; start += SECTION_BYTES) {
    if (table.getUint32(start + 4, true) === SHT_NOBITS) continue;
    const end = long(table, start + 24) + long(table, start + 32);
    if (end > image.bytes) return cutOff(image, end);
  }
  return hasSectionNames(image, table, header.getUint16(62, true))
    ? null
    : `${DAMAGED}: no names of sections`;
}

/**
 * Whether the section `index` holds the names of all, as every section table has one. Linkers write both last: of a file that has its
 * whole length but zeros from somewhere on, as a copy that broke off leaves it, they are not there.
 */
function hasSectionNames(image: Image, table: DataView, index: number): boolean {
  const start = index * SECTION_BYTES;
  if (start + SECTION_BYTES > table.byteLength || table.getUint32(start + 4, true) !== SHT_STRTAB)
    return false;
  const names = image.read(long(table, start + 24), long(table, start + 32));
  if (names === null || names.byteLength === 0 || names.getUint8(0) !== 0) return false;
  return new Uint8Array(names.buffer, names.byteOffset, names.byteLength).some((byte) => byte !== 0);
}

/** The loader takes what a dynamic section says for granted, and zeros there for addresses; that there is none it says itself. */
function dynamicFault(image: Image, segments: readonly Segment[]): string | null {
  if (!segments.some(({ type }) => type === PT_DYNAMIC)) return null;
  const dynamic = readDynamic(image, segments);
  for (const [tag, what] of [
    [DT_STRTAB, "names"],
    [DT_SYMTAB, "symbols"],
  ] as const) {
    const address = dynamic.get(tag)?.[0];
    if (address === undefined || fileOffset(segments, address) === null)
      return `${DAMAGED}: its dynamic section leads to no ${what}`;
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

/** The names in `DT_NEEDED`. */
function neededLibraries(image: Image, segments: readonly Segment[]): string[] {
  const dynamic = readDynamic(image, segments);
  const strings = dynamic.get(DT_STRTAB)?.[0];
  const start = strings === undefined ? null : fileOffset(segments, strings);
  if (start === null) return [];
  return (dynamic.get(DT_NEEDED) ?? []).map((offset) => text(image, start + offset));
}

/** The values of each tag of the dynamic section; empty where there is no such section. */
function readDynamic(image: Image, segments: readonly Segment[]): Map<number, number[]> {
  const values = new Map<number, number[]>();
  const dynamic = segments.find(({ type }) => type === PT_DYNAMIC);
  const table = dynamic && image.read(dynamic.at, dynamic.bytes);
  if (!table) return values;
  for (let start = 0; start + DYNAMIC_BYTES <= table.byteLength; start += DYNAMIC_BYTES) {
    const tag = long(table, start);
    if (tag === 0) break;
    values.set(tag, [...(values.get(tag) ?? []), long(table, start + 8)]);
  }
  return values;
}

/** Where in the file that is what will be mapped at `address`; null where no segment holds it. */
function fileOffset(segments: readonly Segment[], address: number): number | null {
  const home = segments.find(
    (each) => each.type === PT_LOAD && address >= each.address && address < each.address + each.bytes,
  );
  return home === undefined ? null : home.at + address - home.address;
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
