/*
 * Part of field.c: ten limbs, limb i for 2^ceil(25.5 i), of 26 bits where i is even and 25 where it is odd; of either sign. A reduced one
 * has limbs of at most 2^25 and 2^24 in magnitude, but for a little in limb 1 (Bernstein, Curve25519, PKC 2006, has the radix).
 *
 * Bounds of `mul`: its right side times 19 has to be an int32_t, so limbs there are below 2^26.75: 3.3 units. With 5 units on its left
 * each column is below 2^62.
 */
#ifndef ZAP_ED25519_FIELD_10_H
#define ZAP_ED25519_FIELD_10_H

#include "field.h"

/* Bits of limb `at`, and where it starts. */
#define LIMB_BITS(at) (26 - ((at) & 1))
#define LIMB_START(at) (((at) * 51 + 1) / 2)

/* Right shifts of negative numbers are arithmetic with every compiler that we use; C leaves it to them. */
_Static_assert((int64_t)-3 >> 1 == -2, "an arithmetic shift to the right");

ZAP_INLINE void zap_field_load(zap_field *out, const uint32_t words[8]) {
  ZAP_UNROLL
  for (int at = 0; at < 10; at++) {
    int word = LIMB_START(at) / 32, bit = LIMB_START(at) % 32;
    uint64_t both = words[word] | (word < 7 ? (uint64_t)words[word + 1] << 32 : 0);
    out->limb[at] = (int32_t)((uint32_t)(both >> bit) & ((1u << LIMB_BITS(at)) - 1));
  }
  /* From 0..2^26 - 1 to a reduced element: the upper half counts from below. */
  int32_t carry = 0;
  ZAP_UNROLL
  for (int at = 0; at < 10; at++) {
    int32_t value = out->limb[at] + carry;
    carry = (value + (1 << (LIMB_BITS(at) - 1))) >> LIMB_BITS(at);
    out->limb[at] = value - carry * (1 << LIMB_BITS(at));
  }
  out->limb[0] += 19 * carry;
}

ZAP_ONCE void zap_field_store(uint32_t words[8], const zap_field *from) {
  int32_t h[10], less[10], carry;
  for (int at = 0; at < 10; at++) h[at] = from->limb[at];
  /* Limbs from 0 on. Afterwards the number is from -19 * 4 to 2^255 + 19 * 4, and the second time from 0 to 2^255 - 1. */
  for (int round = 0; round < 2; round++) {
    carry = 0;
    for (int at = 0; at < 10; at++) {
      h[at] += carry;
      carry = h[at] >> LIMB_BITS(at);
      h[at] &= (1 << LIMB_BITS(at)) - 1;
    }
    h[0] += 19 * carry;
  }
  /* h - p = h + 19 - 2^255, where that is not negative. */
  carry = 19;
  for (int at = 0; at < 10; at++) {
    less[at] = h[at] + carry;
    carry = less[at] >> LIMB_BITS(at);
    less[at] &= (1 << LIMB_BITS(at)) - 1;
  }
  uint64_t bits = 0;
  int word = 0, held = 0;
  for (int at = 0; at < 10; at++) {
    bits |= (uint64_t)(uint32_t)(carry != 0 ? less[at] : h[at]) << held;
    held += LIMB_BITS(at);
    if (held < 32) continue;
    words[word++] = (uint32_t)bits;
    bits >>= 32;
    held -= 32;
  }
  words[7] = (uint32_t)bits;
}

ZAP_INLINE void zap_field_add(zap_field *out, const zap_field *one, const zap_field *other) {
  ZAP_UNROLL
  for (int at = 0; at < 10; at++) out->limb[at] = one->limb[at] + other->limb[at];
}

ZAP_INLINE void zap_field_sub(zap_field *out, const zap_field *one, const zap_field *other) {
  ZAP_UNROLL
  for (int at = 0; at < 10; at++) out->limb[at] = one->limb[at] - other->limb[at];
}

ZAP_INLINE void carry_columns(zap_field *out, int64_t column[10]) {
  int64_t carry = 0;
  ZAP_UNROLL
  for (int at = 0; at < 10; at++) {
    column[at] += carry;
    carry = (column[at] + ((int64_t)1 << (LIMB_BITS(at) - 1))) >> LIMB_BITS(at);
    column[at] -= carry * ((int64_t)1 << LIMB_BITS(at));
  }
  column[0] += 19 * carry;
  carry = (column[0] + (1 << 25)) >> 26;
  column[0] -= carry * (1 << 26);
  column[1] += carry;
  ZAP_UNROLL
  for (int at = 0; at < 10; at++) out->limb[at] = (int32_t)column[at];
}

/*
 * Limbs i and j meet in column i + j, or 19 times in i + j - 10; and twice where both are odd, as 25.5 i and 25.5 j were both rounded up
 * and their sum was not.
 */
ZAP_INLINE void zap_field_mul(zap_field *out, const zap_field *one, const zap_field *other) {
  int32_t wrapped[10];
  ZAP_UNROLL
  for (int at = 0; at < 10; at++) wrapped[at] = 19 * other->limb[at];
  int64_t column[10];
  ZAP_UNROLL
  for (int at = 0; at < 10; at++) {
    column[at] = 0;
    ZAP_UNROLL
    for (int i = 0; i < 10; i++) {
      int j = at - i;
      int32_t left = one->limb[i], right = j < 0 ? wrapped[j + 10] : other->limb[j];
      if ((i & 1) != 0 && (j & 1) != 0) left *= 2;
      column[at] += (int64_t)left * right;
    }
  }
  carry_columns(out, column);
}

ZAP_INLINE void zap_field_square(zap_field *out, const zap_field *one) {
  int32_t wrapped[10];
  ZAP_UNROLL
  for (int at = 0; at < 10; at++) wrapped[at] = 19 * one->limb[at];
  int64_t column[10];
  ZAP_UNROLL
  for (int at = 0; at < 10; at++) {
    column[at] = 0;
    ZAP_UNROLL
    for (int i = 0; i < 10; i++) {
      int j = at - i, wraps = j < 0;
      if (wraps) j += 10;
      if (j < i) continue;
      int32_t left = one->limb[i], right = wraps ? wrapped[j] : one->limb[j];
      if ((i & 1) != 0 && (j & 1) != 0) left *= 2;
      if (i != j) left *= 2;
      column[at] += (int64_t)left * right;
    }
  }
  carry_columns(out, column);
}

#endif
