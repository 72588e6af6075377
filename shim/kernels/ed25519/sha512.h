/* SHA-512 (FIPS 180-4, sections 4.1.3, 5.1.2, 5.3.5 and 6.4) of what Ed25519 hashes. */
#ifndef ZAP_ED25519_SHA512_H
#define ZAP_ED25519_SHA512_H

#include "words.h"

/*
 * SHA-512 of 32 bytes of `first`, 32 of `second` and `length` of `message`, one after the other (RFC 8032, section 5.1.7, step 2). The
 * digest as sixteen words of a little-endian number, lowest first.
 */
static void zap_sha512(uint32_t digest[16], const uint8_t *first, const uint8_t *second, const uint8_t *message, uint32_t length);

#endif
