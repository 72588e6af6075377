/**
 * The numbers of the ZAP format, version 1. All multi-byte values on the wire are little-endian.
 *
 * Header (16 bytes): magic `5A 41 50 00` at 0, `u16` version at 4, `u16` flags at 6 (message type in the upper 8 bits),
 * `u32` root offset at 8 (absolute, 0 = null root), `u32` total size at 12. Source of the format: github.com/luxfi/zap.
 */

/** Length of the header, bytes. No object, list, text or bytes lies before this offset. */
export const HEADER_BYTES = 16;

/** The first four bytes of every message, `5A 41 50 00`, read as a little-endian `u32`. */
export const MAGIC = 0x0050415a;

/** The version that this library writes, and the only one it takes unless told otherwise. */
export const VERSION = 1;

/** Objects and lists start at a multiple of this, bytes. */
export const ALIGNMENT_BYTES = 8;

/** A nested object in a fixed section: `i32` offset, relative to where it stands. 0 is null. */
export const POINTER_BYTES = 4;

/** Text, bytes or a list in a fixed section: `i32` offset, relative to where it stands, then `u32` length. 0, 0 is null. */
export const SLOT_BYTES = 8;

/** The body is compressed. The library carries this flag and does not act on it. */
export const FLAG_COMPRESSED = 1;
/** The body is encrypted. The library carries this flag and does not act on it. */
export const FLAG_ENCRYPTED = 2;
/** The message carries a signature. The library carries this flag and does not act on it. */
export const FLAG_SIGNED = 4;
/** `flags >> TYPE_SHIFT` is the message type, 0 to 255. */
export const TYPE_SHIFT = 8;

/** An EVM address, inline in the fixed section, bytes. */
export const ADDRESS_BYTES = 20;
/** A 32-byte hash, inline in the fixed section, bytes. */
export const HASH_BYTES = 32;
/** An ECDSA signature (r 32, s 32, v 1), inline in the fixed section, bytes. */
export const SIGNATURE_BYTES = 65;

/** The largest message that the size field can state, bytes. */
export const MESSAGE_BYTES_MAX = 0xffff_ffff;

/** The longest text, bytes of UTF-8. What is longer may not fit a string: it is read as `bytes` only. */
export const TEXT_BYTES_MAX = 512 * 1024 * 1024;
