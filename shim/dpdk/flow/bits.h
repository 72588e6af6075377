/* Bitmaps that are rings: bit n is the one of segment n, modulo a size that is a power of two and at least 64. */
#ifndef ZAP_FLOW_BITS_H
#define ZAP_FLOW_BITS_H

#include <stdbool.h>
#include <stdint.h>

static inline bool bit_get(const uint64_t *bits, uint32_t mask, uint32_t n) { return bits[(n & mask) >> 6] >> (n & 63) & 1; }
static inline void bit_set(uint64_t *bits, uint32_t mask, uint32_t n) { bits[(n & mask) >> 6] |= UINT64_C(1) << (n & 63); }
static inline void bit_clear(uint64_t *bits, uint32_t mask, uint32_t n) { bits[(n & mask) >> 6] &= ~(UINT64_C(1) << (n & 63)); }

/* The 64 bits from n on: bit 0 of the result is n's. */
static inline uint64_t bits_from(const uint64_t *bits, uint32_t mask, uint32_t n) {
  uint32_t word = (n & mask) >> 6, shift = n & 63;
  if (shift == 0) return bits[word];
  return bits[word] >> shift | bits[(word + 1) & (mask >> 6)] << (64 - shift);
}

static inline uint32_t bits_lowest(uint64_t word) { return (uint32_t)__builtin_ctzll(word); }

#endif
