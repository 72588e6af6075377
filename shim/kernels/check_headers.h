/*
 * The check of a ZAP header, in the common part of C11 and the Metal Shading Language: the CPU, CUDA and Metal compile this
 * one text. The order of the checks is that of lib/message/header.ts, and the root offset after them.
 *
 * Spans start at any address, so everything is read byte by byte; a wrapper may know better.
 */
#ifndef ZAP_CHECK_HEADERS_H
#define ZAP_CHECK_HEADERS_H

#if defined(__METAL_VERSION__)
#define ZAP_DEVICE device
#elif defined(__NVPTX__)
/* There are no headers for that target. */
#define ZAP_DEVICE
typedef __UINT8_TYPE__ uint8_t;
typedef __UINT32_TYPE__ uint32_t;
typedef __UINT64_TYPE__ uint64_t;
#else
#include <stdint.h>
#define ZAP_DEVICE
#endif

#define ZAP_HEADER_BYTES 16u

/* One byte for each span. */
#define ZAP_VERDICT_OK 0
#define ZAP_VERDICT_SHORT 1   /* fewer than 16 bytes */
#define ZAP_VERDICT_MAGIC 2   /* does not start with 5a 41 50 00 */
#define ZAP_VERDICT_VERSION 3 /* not one of those asked for */
#define ZAP_VERDICT_SIZE 4    /* the size field is below 16 or above the span's length */
#define ZAP_VERDICT_ROOT 5    /* the root offset is neither 0 nor in 16..size */

/* What a kernel gets for each span. 16 bytes; the address is the device's own (the CPU's, where it runs there). */
struct zap_target {
#ifdef __METAL_VERSION__
  device const uint8_t *address;
#else
  uint64_t address;
#endif
  uint32_t length;
  uint32_t reserved;
};

/* The header as four words, as a little-endian machine reads them. */
struct zap_header {
  uint32_t magic, version, root, size; /* `version` has the flags in its upper half */
};

static inline uint32_t zap_load32(ZAP_DEVICE const uint8_t *at) {
  return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* All at once: a device that reads the host's memory over a bus waits for it once, not once for each check. */
static inline struct zap_header zap_load_header(ZAP_DEVICE const uint8_t *at) {
  struct zap_header header;
  header.magic = zap_load32(at);
  header.version = zap_load32(at + 4);
  header.root = zap_load32(at + 8);
  header.size = zap_load32(at + 12);
  return header;
}

/*
 * For a span of `length` bytes, 16 or more. `versions`: four of 16 bits, lowest first; 0 is none, so a message of version 0 is
 * never taken.
 */
static inline uint8_t zap_judge_header(struct zap_header header, uint32_t length, uint64_t versions) {
  if (header.magic != 0x0050415au) return ZAP_VERDICT_MAGIC;
  uint32_t version = header.version & 0xffffu;
  uint32_t known = 0;
  for (uint32_t shift = 0; shift < 64; shift += 16) known |= (uint32_t)(versions >> shift & 0xffffu) == version;
  if (version == 0 || known == 0) return ZAP_VERDICT_VERSION;
  if (header.size < ZAP_HEADER_BYTES || header.size > length) return ZAP_VERDICT_SIZE;
  if (header.root != 0 && (header.root < ZAP_HEADER_BYTES || header.root > header.size)) return ZAP_VERDICT_ROOT;
  return ZAP_VERDICT_OK;
}

static inline uint8_t zap_check_header(ZAP_DEVICE const uint8_t *bytes, uint32_t length, uint64_t versions) {
  if (length < ZAP_HEADER_BYTES) return ZAP_VERDICT_SHORT;
  return zap_judge_header(zap_load_header(bytes), length, versions);
}

#if !defined(__METAL_VERSION__) && !defined(__NVPTX__)
/* The whole batch on the CPU. Addresses are the CPU's. */
void zap_check_headers_host(const struct zap_target *targets, uint64_t versions, uint8_t *verdicts, uint32_t count);
#endif

#endif
