/*
 * A driver for what libFuzzer drives elsewhere: `PROGRAM SECONDS CORPUS...` runs each file of the corpus and then random changes of them,
 * others for each FUZZ_SEED; `PROGRAM 0 FILE` runs one input; with FUZZ_TRACE=FILE each input is written there before it runs, so that the
 * one that crashed is left; `PROGRAM --seed FOLDER` writes the corpus anew.
 */
#include "fuzz_driver.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define INPUTS 64

static uint64_t state = 88172645463325252u;
uint32_t fuzz_dice(uint32_t bound) {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return bound == 0 ? 0 : (uint32_t)((state >> 20) % bound);
}

static uint8_t inputs[INPUTS][FUZZ_MOST];
static uint32_t lengths[INPUTS], count;

static uint32_t mutate(uint8_t *to) {
  uint32_t from = fuzz_dice(count), length = lengths[from];
  memcpy(to, inputs[from], length);
  for (uint32_t changes = 1 + fuzz_dice(12); changes > 0 && length > 0; changes--) {
    uint32_t at = fuzz_dice(length), span = 1 + fuzz_dice(64);
    switch (fuzz_dice(6)) {
      case 0: to[at] ^= (uint8_t)(1 << fuzz_dice(8)); break;
      case 1: to[at] = (uint8_t)fuzz_dice(256); break;
      case 2: length -= span < length - at ? span : 0; break;
      case 3: { /* a piece of another */
        uint32_t other = fuzz_dice(count), where = fuzz_dice(lengths[other]);
        if (span > lengths[other] - where) span = lengths[other] - where;
        if (span > FUZZ_MOST - at) span = FUZZ_MOST - at;
        memcpy(to + at, inputs[other] + where, span);
        if (at + span > length) length = at + span;
        break;
      }
      case 4: /* a hole, or twice */
        if (length + span > FUZZ_MOST) break;
        memmove(to + at + span, to + at, length - at);
        length += span;
        break;
      default: to[at] = (uint8_t)(fuzz_dice(2) ? 0xff : 0); break;
    }
  }
  return length;
}

static bool write_file(const char *path, const uint8_t *bytes, uint32_t length) {
  FILE *file = fopen(path, "wb");
  if (file == NULL) return false;
  bool whole = fwrite(bytes, 1, length, file) == length;
  return fclose(file) == 0 && whole;
}

static int write_corpus(const char *folder) {
  char path[4096], name[64];
  uint32_t length;
  for (uint32_t i = 0; fuzz_example(i, name, inputs[0], &length); i++) {
    if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, name) >= sizeof path || !write_file(path, inputs[0], length)) return 1;
  }
  return 0;
}

int main(int words, char **word) {
  if (words == 3 && strcmp(word[1], "--seed") == 0) return write_corpus(word[2]);
  for (int i = 2; i < words && count < INPUTS; i++) {
    FILE *file = fopen(word[i], "rb");
    if (file == NULL) return 1;
    lengths[count] = (uint32_t)fread(inputs[count], 1, FUZZ_MOST, file);
    (void)fclose(file);
    (void)LLVMFuzzerTestOneInput(inputs[count], lengths[count]);
    if (lengths[count] > 0) count++;
  }
  if (count == 0) return 1;
  static uint8_t input[FUZZ_MOST];
  time_t end = time(NULL) + (words > 1 ? atoi(word[1]) : 0);
  uint64_t runs = count;
  const char *seed = getenv("FUZZ_SEED"), *trace = getenv("FUZZ_TRACE");
  if (seed != NULL) state ^= strtoull(seed, NULL, 10) << 20;
  for (; time(NULL) < end; runs++) {
    uint32_t length = mutate(input);
    if (trace != NULL) (void)write_file(trace, input, length);
    (void)LLVMFuzzerTestOneInput(input, length);
  }
  printf("%llu inputs: ok\n", (unsigned long long)runs);
  return 0;
}
