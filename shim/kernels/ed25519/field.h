/*
 * The field of integers modulo p = 2^255 - 19 (RFC 8032, section 5.1).
 *
 * Two representations behind one set of functions, chosen at compile time by ZAP_FIELD_LIMBS. 5: limbs of 51 bits, with products of 128;
 * the fastest where a CPU multiplies 64 by 64 bits. 10: limbs of 26 and 25 bits in turn, with products of 64, which is what GPUs multiply
 * by nature and all that Metal has. Both give the same bytes; the tests run both on the CPU.
 *
 * How large elements may grow is counted in units of a reduced one, which `load`, `mul` and `square` give. A sum has the units of both its
 * parts. So has a difference, of which the second part must be reduced; with five limbs it has one more, for which there is room. With ten
 * limbs `mul` takes 4 units on its left and 3 on its right, and `square` 3; with five limbs they take 6.
 */
#ifndef ZAP_ED25519_FIELD_H
#define ZAP_ED25519_FIELD_H

#include "words.h"

#ifndef ZAP_FIELD_LIMBS
#if defined(__SIZEOF_INT128__) && !defined(__NVPTX__)
#define ZAP_FIELD_LIMBS 5
#else
#define ZAP_FIELD_LIMBS 10
#endif
#endif

#if ZAP_FIELD_LIMBS == 5
typedef uint64_t zap_limb;
#else
typedef int32_t zap_limb;
#endif

typedef struct zap_field {
  zap_limb limb[ZAP_FIELD_LIMBS];
} zap_field;

/* ---- by representation; any of the arguments may be the same ---- */

/* From a little-endian number of which bit 255 is passed over; p and more are taken modulo p. */
ZAP_INLINE void zap_field_load(zap_field *out, const uint32_t words[8]);
/* The one number below p, little-endian. Takes up to 4 units. */
ZAP_ONCE void zap_field_store(uint32_t words[8], const zap_field *from);
ZAP_INLINE void zap_field_add(zap_field *out, const zap_field *one, const zap_field *other);
ZAP_INLINE void zap_field_sub(zap_field *out, const zap_field *one, const zap_field *other);
ZAP_INLINE void zap_field_mul(zap_field *out, const zap_field *one, const zap_field *other);
ZAP_INLINE void zap_field_square(zap_field *out, const zap_field *one);

/* ---- for both ---- */

/* `mul`, but as a call: for what is done once for each signature. */
ZAP_ONCE void zap_field_product(zap_field *out, const zap_field *one, const zap_field *other);

ZAP_INLINE void zap_field_small(zap_field *out, uint32_t value);
ZAP_INLINE void zap_field_negate(zap_field *out, const zap_field *one);
ZAP_ONCE int zap_field_equal(const zap_field *one, const zap_field *other);
/* The lowest bit of the number below p: the sign of an x coordinate (RFC 8032, section 5.1.2). */
ZAP_ONCE uint32_t zap_field_is_odd(const zap_field *one);
/* one^(p - 2): 1 / one, and 0 of 0. */
ZAP_ONCE void zap_field_invert(zap_field *out, const zap_field *one);
/* one^((p - 5) / 8), of which a square root is made (RFC 8032, section 5.1.3). */
ZAP_ONCE void zap_field_root_power(zap_field *out, const zap_field *one);

#endif
