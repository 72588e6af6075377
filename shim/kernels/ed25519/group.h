/*
 * The group of edwards25519: -x^2 + y^2 = 1 + d x^2 y^2 (RFC 8032, section 5.1), in extended coordinates.
 *
 * Formulas: Hisil, Wong, Carter, Dawson, "Twisted Edwards Curves Revisited" (ASIACRYPT 2008), sections 3.1 to 3.3, for a = -1. They are
 * complete on this curve (-1 is a square and d is none), so no point is a special case: not the neutral one, nor those of small order.
 */
#ifndef ZAP_ED25519_GROUP_H
#define ZAP_ED25519_GROUP_H

#include "field.h"

/* x = X / Z, y = Y / Z, x y = T / Z. All reduced. */
typedef struct zap_point {
  zap_field x, y, z, t;
} zap_point;

/*
 * Decodes a point as Go's crypto/ed25519 and BoringSSL do: the lower 255 bits are y modulo p, whether or not they are below p; where x is
 * 0 its sign does not matter. (RFC 8032, section 5.1.3, refuses both.) False where no point has that y.
 */
ZAP_ONCE int zap_point_decode(zap_point *out, const uint8_t bytes[32]);

/* The one encoding (RFC 8032, section 5.1.2), as little-endian words. */
ZAP_ONCE void zap_point_encode(uint32_t words[8], const zap_point *point);

/* [s]B - [k]A. Both scalars are below 2^253, and are used up. */
ZAP_ONCE void zap_point_combine(zap_point *out, uint32_t s[8], uint32_t k[8], const zap_point *a);

#endif
