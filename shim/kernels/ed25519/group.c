#include "group.h"

#include "field.c"

/* d = -121665 / 121666, twice that, and a square root of -1: 2^((p - 1) / 4). */
static const uint32_t edwards_d[8] = {0x135978a3, 0x75eb4dca, 0x4141d8ab, 0x00700a4d, 0x7779e898, 0x8cc74079, 0x2b6ffe73, 0x52036cee};
static const uint32_t edwards_2d[8] = {0x26b2f159, 0xebd69b94, 0x8283b156, 0x00e0149a, 0xeef3d130, 0x198e80f2, 0x56dffce7, 0x2406d9dc};
static const uint32_t root_of_minus_one[8] = {0x4a0ea0b0, 0xc4ee1b27, 0xad2fe478, 0x2f431806,
                                              0x3dfbd7a7, 0x2b4d0099, 0x4fc1df0b, 0x2b832480};

/* What an addition needs of a point that is added many times. */
typedef struct zap_addend {
  zap_field sum, difference, t2d; /* Y + X, Y - X, 2 d T; of 2, 2 and 1 units */
  zap_field z2;                   /* 2 Z, of 2 units; unused in those of the base point, whose Z is 1 */
} zap_addend;

#include "base_table.h"

ZAP_ONCE int zap_point_decode(zap_point *out, const uint8_t bytes[32]) {
  uint32_t words[8];
  zap_field constant, one, y2, u, v, power, check;
  zap_words_load(words, bytes);
  zap_field_load(&out->y, words);
  zap_field_small(&one, 1);
  zap_field_small(&out->z, 1);
  /* x^2 = u / v with u = y^2 - 1 and v = d y^2 + 1, which is never 0. */
  zap_field_product(&y2, &out->y, &out->y);
  zap_field_sub(&u, &y2, &one);
  zap_field_load(&constant, edwards_d);
  zap_field_product(&v, &y2, &constant);
  zap_field_add(&v, &v, &one);
  /* x = u v^3 (u v^7)^((p - 5) / 8), or that times a root of -1. */
  zap_field_product(&power, &v, &v);
  zap_field_product(&power, &power, &v);
  zap_field_product(&out->x, &u, &power);
  zap_field_product(&power, &power, &power);
  zap_field_product(&power, &power, &v);
  zap_field_product(&power, &u, &power);
  zap_field_root_power(&power, &power);
  zap_field_product(&out->x, &out->x, &power);
  zap_field_product(&check, &out->x, &out->x);
  zap_field_product(&check, &check, &v);
  if (!zap_field_equal(&check, &u)) {
    zap_field_add(&check, &check, &u);
    zap_field_small(&one, 0);
    if (!zap_field_equal(&check, &one)) return 0;
    zap_field_load(&constant, root_of_minus_one);
    zap_field_product(&out->x, &out->x, &constant);
  }
  if (zap_field_is_odd(&out->x) != words[7] >> 31) {
    /* Through a product, as a negated element is not reduced. */
    zap_field_small(&one, 1);
    zap_field_negate(&out->x, &out->x);
    zap_field_product(&out->x, &out->x, &one);
  }
  zap_field_product(&out->t, &out->x, &out->y);
  return 1;
}

ZAP_ONCE void zap_point_encode(uint32_t words[8], const zap_point *point) {
  zap_field inverse, x, y;
  zap_field_invert(&inverse, &point->z);
  zap_field_product(&x, &point->x, &inverse);
  zap_field_product(&y, &point->y, &inverse);
  zap_field_store(words, &y);
  words[7] |= zap_field_is_odd(&x) << 31;
}

/* 2 * point; its T only where asked for. Hisil et al., section 3.3, with all four factors negated, which cancels out. */
ZAP_INLINE void point_double(zap_point *point, int with_t) {
  zap_field a, b, c, e, f, g, h;
  zap_field_square(&a, &point->x);
  zap_field_square(&b, &point->y);
  zap_field_square(&c, &point->z);
  zap_field_add(&c, &c, &c);
  zap_field_add(&e, &point->x, &point->y);
  zap_field_square(&e, &e);
  zap_field_add(&h, &a, &b);
  zap_field_sub(&e, &h, &e);
  zap_field_sub(&g, &a, &b);
  zap_field_add(&f, &c, &g);
  zap_field_mul(&point->x, &f, &e);
  zap_field_mul(&point->y, &g, &h);
  zap_field_mul(&point->z, &f, &g);
  if (with_t) zap_field_mul(&point->t, &h, &e);
}

/*
 * point += addend, or -= where `negative`, which swaps two of its members and the sign of the third. Hisil et al., section 3.1. The sum's
 * T only where asked for. One function for both tables: the loop's code should fit into a GPU's cache.
 */
ZAP_ONCE void point_add(zap_point *point, const zap_addend *addend, int is_affine, int negative, int with_t) {
  zap_field a, b, c, d, e, f, g, h;
  zap_field_sub(&a, &point->y, &point->x);
  zap_field_add(&b, &point->y, &point->x);
  ZAP_UNROLL
  for (int at = 0; at < ZAP_FIELD_LIMBS; at++) {
    zap_limb sum = addend->sum.limb[at], difference = addend->difference.limb[at];
    e.limb[at] = negative ? sum : difference;
    f.limb[at] = negative ? difference : sum;
  }
  zap_field_mul(&a, &a, &e);
  zap_field_mul(&b, &b, &f);
  zap_field_mul(&c, &addend->t2d, &point->t);
  if (is_affine) zap_field_add(&d, &point->z, &point->z);
  else zap_field_mul(&d, &point->z, &addend->z2);
  zap_field_sub(&e, &b, &a);
  zap_field_add(&h, &b, &a);
  zap_field_sub(&f, &d, &c);
  zap_field_add(&g, &d, &c);
  ZAP_UNROLL
  for (int at = 0; at < ZAP_FIELD_LIMBS; at++) {
    zap_limb less = f.limb[at], more = g.limb[at];
    f.limb[at] = negative ? more : less;
    g.limb[at] = negative ? less : more;
  }
  zap_field_mul(&point->x, &e, &f);
  zap_field_mul(&point->y, &g, &h);
  zap_field_mul(&point->z, &f, &g);
  if (with_t) zap_field_mul(&point->t, &e, &h);
}

ZAP_ONCE void addend_of(zap_addend *out, const zap_point *point) {
  zap_field constant;
  zap_field_load(&constant, edwards_2d);
  zap_field_add(&out->sum, &point->y, &point->x);
  zap_field_sub(&out->difference, &point->y, &point->x);
  zap_field_add(&out->z2, &point->z, &point->z);
  zap_field_product(&out->t2d, &point->t, &constant);
}

ZAP_ONCE void double_four_times(zap_point *point) {
  for (int at = 0; at < 4; at++) point_double(point, at == 3);
}

static void add_multiple(zap_point *point, const zap_addend multiples[8], int digit, int with_t) {
  if (digit != 0) point_add(point, &multiples[(digit < 0 ? -digit : digit) - 1], 0, digit < 0, with_t);
}

/* [1]A to [8]A */
ZAP_ONCE void fill_multiples(zap_addend multiples[8], const zap_point *a) {
  zap_point sum = *a;
  for (int at = 0; at < 8; at++) {
    if (at > 0) add_multiple(&sum, multiples, 1, 1);
    addend_of(&multiples[at], &sum);
  }
}

/* Its T is not there afterwards. */
static void add_base_multiple(zap_point *point, int digit) {
  if (digit == 0) return;
  zap_addend addend;
  const uint32_t *words = base_multiples[(digit < 0 ? -digit : digit) - 1];
  zap_field_load(&addend.sum, words);
  zap_field_load(&addend.difference, words + 8);
  zap_field_load(&addend.t2d, words + 16);
  point_add(point, &addend, 1, digit < 0, 0);
}

/*
 * Both scalars at once, sharing the doublings (Straus 1964): signed digits of 4 bits for A, and of 8 bits for B, whose multiples are a
 * table. Windows are fixed, so that all threads of a GPU do the same thing at the same time.
 */
ZAP_ONCE void zap_point_combine(zap_point *out, uint32_t s[8], uint32_t k[8], const zap_point *a) {
  zap_addend multiples[8];
  fill_multiples(multiples, a);
  zap_scalar_bias(k, 0x88888888u);
  zap_scalar_bias(s, 0x80808080u);
  zap_field_small(&out->x, 0);
  zap_field_small(&out->y, 1);
  zap_field_small(&out->z, 1);
  zap_field_small(&out->t, 0);
  for (int at = 63; at >= 0; at--) {
    if (at < 63) double_four_times(out);
    int with_base = at % 2 == 0;
    add_multiple(out, multiples, 8 - (int)(k[at / 8] >> at % 8 * 4 & 15), with_base);
    if (with_base) add_base_multiple(out, (int)(s[at / 8] >> at % 8 * 4 & 255) - 128);
  }
}
