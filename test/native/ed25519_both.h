/*
 * The Ed25519 kernel in both of its representations, as functions that a test can call: with five limbs as the CPU has it, with ten as a
 * GPU. Compiled as a shared library these are what `test/verify/ed25519-kernel.test.ts` calls.
 */
#ifndef ZAP_TEST_ED25519_BOTH_H
#define ZAP_TEST_ED25519_BOTH_H

#include <stdint.h>

/* The codes of a packed batch of `size` bytes. */
void ed25519_five(const uint8_t *bytes, uint64_t size, const uint32_t *table, uint8_t *codes, uint32_t count);
void ed25519_ten(const uint8_t *bytes, uint64_t size, const uint32_t *table, uint8_t *codes, uint32_t count);

#endif
