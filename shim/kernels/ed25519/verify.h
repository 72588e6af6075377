/*
 * Ed25519 (RFC 8032, pure), by the rules of Go's crypto/ed25519, which BoringSSL has too: docs/verify.md says what they are.
 *
 * One signature is one call, without state: a thread of a GPU, or a turn of a loop.
 */
#ifndef ZAP_ED25519_VERIFY_H
#define ZAP_ED25519_VERIFY_H

#include "codes.h"
#include "words.h"

/* The code for one signature. `key` is 32 bytes, `signature` 64; of a message of no bytes the address does not matter. */
static uint8_t zap_ed25519_verify(const uint8_t *key, const uint8_t *signature, const uint8_t *message, uint32_t length);

/* The code for one item of a packed batch of `size` bytes. */
static uint8_t zap_ed25519_item(const uint8_t *bytes, uint64_t size, const uint32_t row[ZAP_TABLE_STRIDE]);

#endif
