/*
 * Part of field.c: five limbs of 51 bits, never negative. A reduced one has limbs below 2^51 + 2^13.
 *
 * Bounds of `mul`: of two elements of 6 units each column is below 36 * (1 + 4 * 19) * 2^102.1 < 2^113.6. What it carries, and 19 times
 * what the last column (five plain products) carries, stay below 2^63.
 */
#ifndef ZAP_ED25519_FIELD_5_H
#define ZAP_ED25519_FIELD_5_H

#include "field.h"

__extension__ typedef unsigned __int128 zap_wide;

#define LOW_51 ((UINT64_C(1) << 51) - 1)

ZAP_INLINE void zap_field_load(zap_field *out, const uint32_t words[8]) {
  uint64_t w[4];
  for (int at = 0; at < 4; at++) w[at] = (uint64_t)words[2 * at] | (uint64_t)words[2 * at + 1] << 32;
  out->limb[0] = w[0] & LOW_51;
  out->limb[1] = (w[0] >> 51 | w[1] << 13) & LOW_51;
  out->limb[2] = (w[1] >> 38 | w[2] << 26) & LOW_51;
  out->limb[3] = (w[2] >> 25 | w[3] << 39) & LOW_51;
  out->limb[4] = w[3] >> 12 & LOW_51;
}

/* Limbs below 2^51 but for the lowest, which gets 19 times what is beyond 2^255. */
ZAP_INLINE void carry_round(uint64_t h[5]) {
  uint64_t carry = 0;
  for (int at = 0; at < 5; at++) {
    h[at] += carry;
    carry = h[at] >> 51;
    h[at] &= LOW_51;
  }
  h[0] += 19 * carry;
}

ZAP_ONCE void zap_field_store(uint32_t words[8], const zap_field *from) {
  uint64_t h[5], less[5], carry = 19;
  for (int at = 0; at < 5; at++) h[at] = from->limb[at];
  /* Now below 2^255 + 19 * 2^11; then below 2^255. */
  carry_round(h);
  carry_round(h);
  /* h - p = h + 19 - 2^255, where that is not negative. */
  for (int at = 0; at < 5; at++) {
    less[at] = h[at] + carry;
    carry = less[at] >> 51;
    less[at] &= LOW_51;
  }
  for (int at = 0; at < 5; at++) h[at] = carry != 0 ? less[at] : h[at];
  uint64_t w[4] = {h[0] | h[1] << 51, h[1] >> 13 | h[2] << 38, h[2] >> 26 | h[3] << 25, h[3] >> 39 | h[4] << 12};
  for (int at = 0; at < 4; at++) {
    words[2 * at] = (uint32_t)w[at];
    words[2 * at + 1] = (uint32_t)(w[at] >> 32);
  }
}

ZAP_INLINE void zap_field_add(zap_field *out, const zap_field *one, const zap_field *other) {
  for (int at = 0; at < 5; at++) out->limb[at] = one->limb[at] + other->limb[at];
}

/* With 2p on top, limb by limb. */
ZAP_INLINE void zap_field_sub(zap_field *out, const zap_field *one, const zap_field *other) {
  out->limb[0] = one->limb[0] + 2 * (LOW_51 - 18) - other->limb[0];
  for (int at = 1; at < 5; at++) out->limb[at] = one->limb[at] + 2 * LOW_51 - other->limb[at];
}

ZAP_INLINE void carry_columns(zap_field *out, zap_wide c0, zap_wide c1, zap_wide c2, zap_wide c3, zap_wide c4) {
  c1 += (uint64_t)(c0 >> 51);
  c2 += (uint64_t)(c1 >> 51);
  c3 += (uint64_t)(c2 >> 51);
  c4 += (uint64_t)(c3 >> 51);
  uint64_t low = ((uint64_t)c0 & LOW_51) + 19 * (uint64_t)(c4 >> 51);
  out->limb[0] = low & LOW_51;
  out->limb[1] = ((uint64_t)c1 & LOW_51) + (low >> 51);
  out->limb[2] = (uint64_t)c2 & LOW_51;
  out->limb[3] = (uint64_t)c3 & LOW_51;
  out->limb[4] = (uint64_t)c4 & LOW_51;
}

ZAP_INLINE void zap_field_mul(zap_field *out, const zap_field *one, const zap_field *other) {
  uint64_t a0 = one->limb[0], a1 = one->limb[1], a2 = one->limb[2], a3 = one->limb[3], a4 = one->limb[4];
  uint64_t b0 = other->limb[0], b1 = other->limb[1], b2 = other->limb[2], b3 = other->limb[3], b4 = other->limb[4];
  uint64_t d1 = 19 * b1, d2 = 19 * b2, d3 = 19 * b3, d4 = 19 * b4;
  zap_wide c0 = (zap_wide)a0 * b0 + (zap_wide)a1 * d4 + (zap_wide)a2 * d3 + (zap_wide)a3 * d2 + (zap_wide)a4 * d1;
  zap_wide c1 = (zap_wide)a0 * b1 + (zap_wide)a1 * b0 + (zap_wide)a2 * d4 + (zap_wide)a3 * d3 + (zap_wide)a4 * d2;
  zap_wide c2 = (zap_wide)a0 * b2 + (zap_wide)a1 * b1 + (zap_wide)a2 * b0 + (zap_wide)a3 * d4 + (zap_wide)a4 * d3;
  zap_wide c3 = (zap_wide)a0 * b3 + (zap_wide)a1 * b2 + (zap_wide)a2 * b1 + (zap_wide)a3 * b0 + (zap_wide)a4 * d4;
  zap_wide c4 = (zap_wide)a0 * b4 + (zap_wide)a1 * b3 + (zap_wide)a2 * b2 + (zap_wide)a3 * b1 + (zap_wide)a4 * b0;
  carry_columns(out, c0, c1, c2, c3, c4);
}

ZAP_INLINE void zap_field_square(zap_field *out, const zap_field *one) {
  uint64_t a0 = one->limb[0], a1 = one->limb[1], a2 = one->limb[2], a3 = one->limb[3], a4 = one->limb[4];
  uint64_t t0 = 2 * a0, t1 = 2 * a1, d3 = 19 * a3, d4 = 19 * a4;
  zap_wide c0 = (zap_wide)a0 * a0 + (zap_wide)t1 * d4 + (zap_wide)(2 * a2) * d3;
  zap_wide c1 = (zap_wide)t0 * a1 + (zap_wide)(2 * a2) * d4 + (zap_wide)a3 * d3;
  zap_wide c2 = (zap_wide)t0 * a2 + (zap_wide)a1 * a1 + (zap_wide)(2 * a3) * d4;
  zap_wide c3 = (zap_wide)t0 * a3 + (zap_wide)t1 * a2 + (zap_wide)a4 * d4;
  zap_wide c4 = (zap_wide)t0 * a4 + (zap_wide)t1 * a3 + (zap_wide)a2 * a2;
  carry_columns(out, c0, c1, c2, c3, c4);
}

#endif
