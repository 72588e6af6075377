#include "verify.h"

#include "sha512.c"

#include "scalar.c"

#include "group.c"

static uint8_t zap_ed25519_verify(const uint8_t *key, const uint8_t *signature, const uint8_t *message, uint32_t length) {
  uint32_t s[8], k[8], r[8], digest[16];
  zap_words_load(s, signature + 32);
  if (!zap_scalar_is_canonical(s)) return ZAP_CODE_SIGNATURE_ENCODING;
  zap_point point, sum;
  if (!zap_point_decode(&point, key)) return ZAP_CODE_SIGNATURE;
  /* The bytes of R and of the key as they are, whatever they encode. */
  zap_sha512(digest, signature, key, message, length);
  zap_scalar_reduce(k, digest);
  /* R = [s]B - [k]A, without the cofactor: what is compared is R's bytes, so only its one encoding will do. */
  zap_point_combine(&sum, s, k, &point);
  zap_point_encode(r, &sum);
  uint32_t differs = 0;
  for (int at = 0; at < 8; at++) differs |= r[at] ^ zap_word_load(signature + 4 * at);
  return differs == 0 ? ZAP_CODE_VALID : ZAP_CODE_SIGNATURE;
}

static int lies_within(uint32_t offset, uint32_t length, uint64_t size) { return (uint64_t)offset + length <= size; }

static uint8_t zap_ed25519_item(const uint8_t *bytes, uint64_t size, const uint32_t row[ZAP_TABLE_STRIDE]) {
  uint32_t key = row[0], key_length = row[1], message = row[2], length = row[3], signature = row[4], signature_length = row[5];
  if (!lies_within(key, key_length, size) || !lies_within(message, length, size) || !lies_within(signature, signature_length, size))
    return ZAP_CODE_ITEM;
  if (key_length != 32) return ZAP_CODE_KEY_LENGTH;
  /* No backend takes a longer one: docs/verify.md. */
  if (length > 0x7fffffffu) return ZAP_CODE_MESSAGE_LENGTH;
  if (signature_length != 64) return ZAP_CODE_SIGNATURE_LENGTH;
  return zap_ed25519_verify(bytes + key, bytes + signature, bytes + message, length);
}
