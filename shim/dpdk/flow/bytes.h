/* Little-endian numbers at any alignment, and serial numbers (RFC 1982). */
#ifndef ZAP_FLOW_BYTES_H
#define ZAP_FLOW_BYTES_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t get32(const uint8_t *at) {
  return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static inline uint64_t get64(const uint8_t *at) { return (uint64_t)get32(at) | (uint64_t)get32(at + 4) << 32; }

static inline void put16(uint8_t *at, uint16_t value) {
  at[0] = (uint8_t)value;
  at[1] = (uint8_t)(value >> 8);
}

static inline void put32(uint8_t *at, uint32_t value) {
  put16(at, (uint16_t)value);
  put16(at + 2, (uint16_t)(value >> 16));
}

static inline void put64(uint8_t *at, uint64_t value) {
  put32(at, (uint32_t)value);
  put32(at + 4, (uint32_t)(value >> 32));
}

/* Whether a comes before b, where both are within 2^31 of each other. */
static inline bool before(uint32_t a, uint32_t b) { return (int32_t)(a - b) < 0; }

#endif
