#include "scalar.h"

static const uint32_t order[8] = {0x5cf5d3ed, 0x5812631a, 0xa2f79cd6, 0x14def9de, 0x00000000, 0x00000000, 0x00000000, 0x10000000};

/* floor(2^512 / L), for Barrett's reduction. */
static const uint32_t order_inverse[9] = {0x0a2c131b, 0xed9ce5a3, 0x086329a7, 0x2106215d, 0xffffffeb,
                                          0xffffffff, 0xffffffff, 0xffffffff, 0x0000000f};

static int zap_scalar_is_canonical(const uint32_t words[8]) {
  uint32_t borrow = 0;
  for (int at = 0; at < 8; at++) borrow = (uint32_t)(((uint64_t)words[at] - order[at] - borrow) >> 63);
  return borrow != 0;
}

/*
 * Barrett's reduction (Menezes, van Oorschot, Vanstone: Handbook of Applied Cryptography, algorithm 14.42) with words of 32 bits and
 * k = 8: the quotient is guessed from the upper words, at most 2 too small.
 */
ZAP_ONCE void zap_scalar_reduce(uint32_t out[8], const uint32_t wide[16]) {
  /* The upper nine words times the inverse; of that again the upper nine. */
  uint32_t product[18] = {0};
  for (int i = 0; i < 9; i++) {
    uint64_t carry = 0;
    for (int j = 0; j < 9; j++) {
      carry += (uint64_t)wide[7 + i] * order_inverse[j] + product[i + j];
      product[i + j] = (uint32_t)carry;
      carry >>= 32;
    }
    product[i + 9] = (uint32_t)carry;
  }
  /* The lower nine words of quotient * L. */
  uint32_t multiple[9] = {0};
  for (int i = 0; i < 9; i++) {
    uint64_t carry = 0;
    for (int j = 0; j < 8 && i + j < 9; j++) {
      carry += (uint64_t)product[9 + i] * order[j] + multiple[i + j];
      multiple[i + j] = (uint32_t)carry;
      carry >>= 32;
    }
    if (i == 0) multiple[8] = (uint32_t)carry;
  }
  uint32_t rest[9], borrow = 0;
  for (int at = 0; at < 9; at++) {
    uint64_t difference = (uint64_t)wide[at] - multiple[at] - borrow;
    rest[at] = (uint32_t)difference;
    borrow = (uint32_t)(difference >> 63);
  }
  /* Below 3 L, which is below 2^254, so nothing is left in the last word. */
  for (int round = 0; round < 2; round++) {
    uint32_t less[8];
    borrow = 0;
    for (int at = 0; at < 8; at++) {
      uint64_t difference = (uint64_t)rest[at] - order[at] - borrow;
      less[at] = (uint32_t)difference;
      borrow = (uint32_t)(difference >> 63);
    }
    for (int at = 0; at < 8; at++) rest[at] = borrow != 0 ? rest[at] : less[at];
  }
  for (int at = 0; at < 8; at++) out[at] = rest[at];
}

static void zap_scalar_bias(uint32_t words[8], uint32_t pattern) {
  uint64_t carry = 0;
  for (int at = 0; at < 8; at++) {
    carry += (uint64_t)words[at] + pattern;
    words[at] = (uint32_t)carry;
    carry >>= 32;
  }
}
