/*
 * Fuzzing of the Ed25519 kernel: a batch of one item, both representations of the field, which have to agree. How to run it is said in
 * fuzz_driver.c; what the verdict has to be, test/verify/ed25519-kernel.test.ts asks another implementation.
 *
 * An input is six bytes that say how the item's row is spoilt, then key, signature and message.
 */
#include <stdlib.h>
#include <string.h>

#include "ed25519_both.h"
#include "ed25519_vectors.h"
#include "fuzz_driver.h"

#define HEAD 6u

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size) {
  if (size < HEAD + 96) return 0;
  /* Of its own size, so that a read behind its end is seen. */
  uint32_t length = (uint32_t)(size - HEAD);
  uint8_t *bytes = malloc(length);
  if (bytes == NULL) abort();
  memcpy(bytes, input + HEAD, length);
  uint32_t row[6] = {0, 32, 96, length - 96, 32, 64};
  for (int at = 0; at < 6; at++) {
    /* Most are left alone; others off by a little, or far away. */
    if (input[at] < 0xf0) continue;
    row[at] = input[at] == 0xff ? 0xffffffffu : row[at] + (uint32_t)input[at] - 0xf8;
  }
  uint8_t five = 0xee, ten = 0xee;
  ed25519_five(bytes, length, row, &five, 1);
  ed25519_ten(bytes, length, row, &ten, 1);
  if (five != ten || five > 7) abort();
  free(bytes);
  return 0;
}

#ifndef FUZZ_LIBFUZZER
/* The vectors as they are, with each part of the row spoilt, and with all bits of the key or of R set. */
bool fuzz_example(uint32_t number, char name[64], uint8_t *to, uint32_t *length) {
  enum { WAYS = 10 };
  if (number >= ED25519_VECTORS * WAYS) return false;
  const struct ed25519_vector *vector = &ed25519_vectors[number / WAYS];
  uint32_t way = number % WAYS;
  (void)snprintf(name, 64, "seed-%02u", number);
  memset(to, 0, HEAD);
  ed25519_bytes(vector->key, to + HEAD);
  ed25519_bytes(vector->signature, to + HEAD + 32);
  *length = HEAD + 96 + ed25519_bytes(vector->message, to + HEAD + 96);
  if (way < HEAD) to[way] = number % 2 == 0 ? 0xf9 : 0xff;
  if (way == 7) memset(to + HEAD, 0xff, 32);
  if (way == 8) memset(to + HEAD + 32, 0xff, 32);
  if (way == 9) memset(to + HEAD + 64, 0xff, 31);
  return true;
}
#endif
