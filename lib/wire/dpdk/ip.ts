/** IP addresses, prefixes and MAC addresses as bytes. IPv4 as `::ffff:a.b.c.d` wherever 16 bytes are asked for. */
import { isIPv4, isIPv6 } from "node:net";

const MAPPED = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

/** 16 bytes, or null for anything that is no IP address (a host name, one with a zone). */
export function ipBytes(text: string): Uint8Array | null {
  if (isIPv4(text)) return Uint8Array.from([...MAPPED, ...text.split(".").map(Number)]);
  if (!isIPv6(text) || text.includes("%")) return null;
  let groups = text;
  const dotted = /^(.*:)(\d+)\.(\d+)\.(\d+)\.(\d+)$/.exec(text);
  if (dotted !== null) {
    const [a = 0, b = 0, c = 0, d = 0] = dotted.slice(2).map(Number);
    groups = `${dotted[1]}${((a << 8) | b).toString(16)}:${((c << 8) | d).toString(16)}`;
  }
  const [before = "", after] = groups.split("::");
  const words = (part: string): number[] =>
    part === "" ? [] : part.split(":").map((word) => parseInt(word, 16));
  const front = words(before);
  const back = after === undefined ? [] : words(after);
  const all = [...front, ...new Array<number>(8 - front.length - back.length).fill(0), ...back];
  return Uint8Array.from(all.flatMap((word) => [word >> 8, word & 0xff]));
}

export function isMapped(ip: Uint8Array): boolean {
  return MAPPED.every((byte, at) => ip[at] === byte);
}

/** The usual text of 16 bytes: the longest run of zeros is left out (RFC 5952). */
export function ipText(ip: Uint8Array): string {
  if (isMapped(ip)) return ip.subarray(12, 16).join(".");
  const words = Array.from({ length: 8 }, (_, at) => (ip[2 * at]! << 8) | ip[2 * at + 1]!);
  let [start, length] = [-1, 1];
  for (let from = 0; from < 8; from++) {
    let to = from;
    while (to < 8 && words[to] === 0) to++;
    if (to - from > length) [start, length] = [from, to - from];
  }
  const hex = (part: number[]): string => part.map((word) => word.toString(16)).join(":");
  if (start < 0) return hex(words);
  return `${hex(words.slice(0, start))}::${hex(words.slice(start + length))}`;
}

export function sameIp(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, at) => byte === b[at]);
}

/** `::` or `0.0.0.0`. */
export function isUnspecified(ip: Uint8Array): boolean {
  return ip.every((byte) => byte === 0) || (isMapped(ip) && ip.subarray(12).every((byte) => byte === 0));
}

/** Of a group of hosts, or of all of them. */
export function isGroup(ip: Uint8Array): boolean {
  return isMapped(ip) ? ip[12]! >= 224 : ip[0] === 0xff;
}

/** 6 bytes of `02:00:00:00:00:01`, or null. */
export function macBytes(text: string): Uint8Array | null {
  if (!/^[0-9a-f]{2}(:[0-9a-f]{2}){5}$/i.test(text)) return null;
  return Uint8Array.from(text.split(":").map((byte) => parseInt(byte, 16)));
}

export function macText(mac: Uint8Array): string {
  return Array.from(mac, (byte) => byte.toString(16).padStart(2, "0")).join(":");
}
