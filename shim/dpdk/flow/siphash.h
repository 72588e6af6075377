/* SipHash-2-4 (Aumasson and Bernstein, 2012): a keyed hash that cannot be forged without the key. No state. */
#ifndef ZAP_SIPHASH_H
#define ZAP_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

/* 64 bits of it. */
uint64_t zap_siphash(const uint8_t key[16], const uint8_t *bytes, size_t length);

/* The variant with 128 bits. */
void zap_siphash128(const uint8_t key[16], const uint8_t *bytes, size_t length, uint8_t out[16]);

#endif
