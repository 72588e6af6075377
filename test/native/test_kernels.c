/* The check of headers: every fault, in order, against a second reading of the format, at every alignment. */
#include <stdbool.h>
#include <stdlib.h>

#include "../../shim/kernels/check_headers.h"
#include "check.h"

static uint32_t seed = 12345;

static uint32_t random32(void) {
  seed ^= seed << 13;
  seed ^= seed >> 17;
  seed ^= seed << 5;
  return seed;
}

static void put(uint8_t *at, uint64_t value, int bytes) {
  for (int each = 0; each < bytes; each++) at[each] = (uint8_t)(value >> 8 * each);
}

static void message(uint8_t *at, uint16_t version, uint32_t root, uint32_t size) {
  memcpy(at, "ZAP\0", 4);
  put(at + 4, version, 2);
  put(at + 6, random32(), 2);
  put(at + 8, root, 4);
  put(at + 12, size, 4);
}

/* Written from the format's description, not from the kernel. */
static uint8_t expected(const uint8_t *bytes, uint32_t length, const uint16_t versions[4]) {
  if (length < 16) return 1;
  if (bytes[0] != 0x5a || bytes[1] != 0x41 || bytes[2] != 0x50 || bytes[3] != 0) return 2;
  uint16_t version = (uint16_t)(bytes[4] + 256 * bytes[5]);
  bool known = false;
  for (int at = 0; at < 4; at++) known = known || (versions[at] != 0 && versions[at] == version);
  if (!known) return 3;
  uint64_t size = 0, root = 0;
  for (int at = 3; at >= 0; at--) {
    root = root * 256 + bytes[8 + at];
    size = size * 256 + bytes[12 + at];
  }
  if (size < 16 || size > length) return 4;
  return root == 0 || (root >= 16 && root <= size) ? 0 : 5;
}

static uint8_t verdict(const uint8_t *bytes, uint32_t length, uint64_t versions) {
  uint8_t out = 0xee;
  struct zap_target target = {.address = (uint64_t)(uintptr_t)bytes, .length = length};
  zap_check_headers_host(&target, versions, &out, 1);
  return out;
}

static void each_fault(void) {
  uint8_t bytes[64] = {0};
  message(bytes, 1, 16, 64);
  CHECK_EQUAL(verdict(bytes, 64, 1), ZAP_VERDICT_OK);
  CHECK_EQUAL(verdict(bytes, 15, 1), ZAP_VERDICT_SHORT);
  CHECK_EQUAL(verdict(bytes, 0, 1), ZAP_VERDICT_SHORT);
  CHECK_EQUAL(verdict(bytes, 63, 1), ZAP_VERDICT_SIZE);
  CHECK_EQUAL(verdict(bytes, 64, 0), ZAP_VERDICT_VERSION);
  CHECK_EQUAL(verdict(bytes, 64, 2), ZAP_VERDICT_VERSION);
  for (int shift = 0; shift < 64; shift += 16) CHECK_EQUAL(verdict(bytes, 64, UINT64_C(1) << shift), ZAP_VERDICT_OK);
  for (int at = 0; at < 4; at++) {
    bytes[at] ^= 1;
    CHECK_EQUAL(verdict(bytes, 64, 1), ZAP_VERDICT_MAGIC);
    bytes[at] ^= 1;
  }
  message(bytes, 0, 16, 64);
  CHECK_EQUAL(verdict(bytes, 64, 1), ZAP_VERDICT_VERSION);
  CHECK_EQUAL(verdict(bytes, 64, 0), ZAP_VERDICT_VERSION);
  const struct {
    uint32_t root, size, length, wanted;
  } cases[] = {{0, 16, 16, 0},           {0, 15, 64, 4},  {0, 0, 64, 4},           {16, 16, 16, 0},
               {17, 16, 16, 5},          {15, 64, 64, 5}, {1, 64, 64, 5},          {64, 64, 64, 0},
               {65, 64, 64, 5},          {0, 65, 64, 4},  {0xffffffff, 64, 64, 5}, {0, 0xffffffff, 64, 4},
               {99, 0xffffffff, 64, 4}};
  for (size_t at = 0; at < sizeof cases / sizeof cases[0]; at++) {
    message(bytes, 1, cases[at].root, cases[at].size);
    CHECK_EQUAL(verdict(bytes, cases[at].length, 1), cases[at].wanted);
  }
}

/* Each span in its own block of just its length, so that one byte too many is seen by the sanitizer. */
static void random_spans(void) {
  enum { COUNT = 20000 };
  struct zap_target *targets = calloc(COUNT, sizeof *targets);
  uint8_t *verdicts = malloc(COUNT);
  uint8_t **blocks = calloc(COUNT, sizeof *blocks);
  if (targets == NULL || verdicts == NULL || blocks == NULL) abort();
  const uint16_t versions[4] = {1, 0, 7, 0x8001};
  uint64_t packed = 0;
  for (int at = 0; at < 4; at++) packed |= (uint64_t)versions[at] << 16 * at;
  int seen[6] = {0};
  for (int at = 0; at < COUNT; at++) {
    uint32_t skip = random32() % 16, length = random32() % 8 == 0 ? random32() % 20 : 16 + random32() % 100;
    uint8_t *block = malloc(skip + length + 1);
    if (block == NULL) abort();
    uint8_t *start = block + skip + 1;
    for (uint32_t each = 0; each < length; each++) start[each] = (uint8_t)random32();
    if (length >= 16 && random32() % 8 != 0) {
      uint16_t version = random32() % 8 == 0 ? (uint16_t)random32() : versions[random32() % 4];
      uint32_t size = random32() % 4 == 0 ? random32() % 140 : length - random32() % 3;
      uint32_t root = random32() % 3 == 0 ? 0 : random32() % 140;
      message(start, version, root, size);
      if (random32() % 16 == 0) start[random32() % 16] ^= (uint8_t)(1u << random32() % 8);
    }
    blocks[at] = block;
    targets[at] = (struct zap_target){.address = (uint64_t)(uintptr_t)start, .length = length};
  }
  zap_check_headers_host(targets, packed, verdicts, COUNT);
  for (int at = 0; at < COUNT; at++) {
    uint8_t wanted = expected((const uint8_t *)(uintptr_t)targets[at].address, targets[at].length, versions);
    CHECK_EQUAL(verdicts[at], wanted);
    seen[wanted]++;
    free(blocks[at]);
  }
  for (int each = 0; each < 6; each++) CHECK(seen[each] > 50);
  free(targets);
  free(verdicts);
  free(blocks);
}

int main(void) {
  CHECK_EQUAL(sizeof(struct zap_target), 16);
  each_fault();
  random_spans();
  return checks_done("kernels");
}
