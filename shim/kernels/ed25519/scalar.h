/* Scalars: integers modulo L = 2^252 + 27742317777372353535851937790883648493, the order of the base point (RFC 8032, section 5.1). */
#ifndef ZAP_ED25519_SCALAR_H
#define ZAP_ED25519_SCALAR_H

#include "words.h"

/* Whether the little-endian number is below L. */
static int zap_scalar_is_canonical(const uint32_t words[8]);

/* The remainder modulo L of a little-endian number of sixteen words. */
ZAP_ONCE void zap_scalar_reduce(uint32_t out[8], const uint32_t wide[16]);

/*
 * Adds `digit` to each of the scalar's digits, so that they can be taken one by one from either end, each in its signed form: digits of 4
 * bits with 8 added are -8 to 7, digits of 8 bits with 128 added are -128 to 127. `pattern` is the added digit, in every place of a word.
 * A scalar below 2^253 stays below 2^256.
 */
static void zap_scalar_bias(uint32_t words[8], uint32_t pattern);

#endif
