/* What a fuzzed program has for libFuzzer, or for fuzz_driver.c where there is none: the input to run, and the corpus to begin with. */
#ifndef ZAP_FUZZ_DRIVER_H
#define ZAP_FUZZ_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Bytes of an input. */
#define FUZZ_MOST 8192

/* libFuzzer's name for it. Returns 0. What must not be aborts. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* Example `number` of the corpus, at most FUZZ_MOST bytes, and its file's name, at most 63; false beyond the last. */
bool fuzz_example(uint32_t number, char name[64], uint8_t *to, uint32_t *length);

/* fuzz_driver.c's: a number below `bound`, the same ones each time. */
uint32_t fuzz_dice(uint32_t bound);

#endif
