/* The area of messages: random takes and gives against a map of what is out. No DPDK here. */
#include <stdlib.h>

#include "../../shim/common/fail.h"
#include "../../shim/common/arena.h"
#include "check.h"

#define KIB 1024u
#define MIB (1024u * KIB)
#define BLOCKS 4096

static uint64_t state = 88172645463325252u;
static uint32_t dice(uint32_t bound) {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return (uint32_t)((state >> 20) % bound);
}

/* By what arena.h promises: whole KiB, and at most an eighth more. */
static uint64_t most_units(uint32_t bytes) {
  uint64_t units = (bytes + UINT64_C(1023)) / KIB;
  return units + units / 8;
}

static uint64_t power_above(uint64_t units) {
  uint64_t power = 1;
  while (power < units) power *= 2;
  return power;
}

struct block {
  uint64_t offset, units;
  uint32_t bytes;
};

struct model {
  struct zap_arena *arena;
  uint8_t *map; /* of each KiB */
  uint64_t units, out;
  struct block blocks[BLOCKS];
  uint32_t count;
};

/* How badly it may fall into pieces: a refusal is right only where each place for the next power of two has something in it. */
static void check_refusal(const struct model *m, uint32_t bytes) {
  uint64_t wanted = (bytes + UINT64_C(1023)) / KIB, power = power_above(wanted);
  uint64_t places = m->units / power;
  for (uint64_t i = 0; i < places; i++) {
    bool free = true;
    for (uint64_t unit = i * power; unit < (i + 1) * power && free; unit++) free = m->map[unit] == 0;
    CHECK(!free);
  }
}

static bool take(struct model *m, uint32_t bytes) {
  uint64_t offset = 1, before = zap_arena_used(m->arena);
  if (!zap_arena_take(m->arena, bytes, &offset)) {
    CHECK_EQUAL(zap_arena_used(m->arena), before);
    check_refusal(m, bytes);
    return false;
  }
  uint64_t size = zap_arena_used(m->arena) - before, at = offset / KIB;
  struct block block = {offset, size / KIB, bytes};
  CHECK(size >= bytes && size % KIB == 0 && block.units <= most_units(bytes));
  CHECK(offset % KIB == 0 && at + block.units <= m->units);
  for (uint64_t i = at; i < at + block.units && i < m->units; i++) {
    CHECK_EQUAL(m->map[i], 0);
    m->map[i] = 1;
  }
  m->blocks[m->count++] = block;
  m->out += size;
  return true;
}

static void give(struct model *m, uint32_t index) {
  struct block block = m->blocks[index];
  m->blocks[index] = m->blocks[--m->count];
  memset(m->map + block.offset / KIB, 0, block.units);
  m->out -= block.units * KIB;
  zap_arena_give(m->arena, block.offset, block.bytes);
  CHECK_EQUAL(zap_arena_used(m->arena), m->out);
}

/* When nothing is out all is in one piece again, or in as few as its length allows. */
static void check_merged(struct model *m) {
  CHECK_EQUAL(m->count, 0);
  CHECK_EQUAL(zap_arena_used(m->arena), 0);
  uint64_t left = m->units;
  for (uint64_t power = power_above(m->units); power > 0; power /= 2) {
    if (power > left) continue;
    CHECK(take(m, (uint32_t)(power * KIB)));
    left -= power;
  }
  CHECK_EQUAL(zap_arena_used(m->arena), m->units * KIB);
  CHECK(!take(m, 1));
  while (m->count > 0) give(m, m->count - 1);
}

static uint32_t any_size(const struct model *m) {
  switch (dice(4)) {
    case 0: return 1 + dice(4 * KIB);
    case 1: return 1 + dice(64 * KIB);
    case 2: return KIB << dice(12);
    default: return 1 + dice((uint32_t)(m->units * KIB));
  }
}

static void play(uint64_t bytes, int rounds) {
  static struct model m;
  m = (struct model){.units = bytes / KIB};
  CHECK_EQUAL(zap_arena_create(bytes, &m.arena), ZAP_OK);
  m.map = calloc(m.units, 1);
  CHECK(zap_arena_largest(m.arena) <= bytes && zap_arena_largest(m.arena) * 2 > bytes - bytes % KIB);
  for (int round = 0; round < rounds; round++) {
    /* Mostly takes, then mostly gives. */
    uint32_t takes = 20 + dice(70);
    for (int step = 0; step < 300; step++) {
      if (m.count < BLOCKS - 64 && dice(100) < takes) (void)take(&m, any_size(&m));
      else if (m.count > 0) give(&m, dice(m.count));
    }
    if (round % 4 != 0) continue;
    while (m.count > 0) give(&m, dice(m.count));
    check_merged(&m);
  }
  while (m.count > 0) give(&m, dice(m.count));
  check_merged(&m);
  zap_arena_destroy(m.arena);
  free(m.map);
}

static void test_tails(void) {
  struct zap_arena *arena;
  uint64_t offset, ten;
  CHECK_EQUAL(zap_arena_create(16 * MIB, &arena), ZAP_OK);
  CHECK(zap_arena_take(arena, 10 * MIB, &ten));
  CHECK_EQUAL(zap_arena_used(arena), 10 * MIB);
  CHECK(zap_arena_take(arena, 4 * MIB, &offset));
  CHECK(zap_arena_take(arena, 2 * MIB, &offset));
  CHECK_EQUAL(zap_arena_used(arena), 16 * MIB);
  CHECK(!zap_arena_take(arena, 1, &offset));
  zap_arena_give(arena, ten, 10 * MIB);
  CHECK(zap_arena_take(arena, 7 * MIB + MIB / 4, &offset));
  CHECK_EQUAL(offset, ten);
  CHECK_EQUAL(zap_arena_used(arena), 6 * MIB + 7 * MIB + MIB / 2);
  zap_arena_destroy(arena);

  /* Every second KiB is out: half is free, and nothing but single ones. */
  CHECK_EQUAL(zap_arena_create(MIB, &arena), ZAP_OK);
  for (uint64_t i = 0; i < 1024; i++) CHECK(zap_arena_take(arena, KIB, &offset) && offset == i * KIB);
  for (uint64_t i = 0; i < 1024; i += 2) zap_arena_give(arena, i * KIB, KIB);
  CHECK(!zap_arena_take(arena, KIB + 1, &offset));
  zap_arena_give(arena, KIB, KIB);
  CHECK(zap_arena_take(arena, KIB + 1, &offset));
  CHECK_EQUAL(offset, 0);
  zap_arena_destroy(arena);
}

static void test_limits(void) {
  struct zap_arena *arena = NULL;
  uint64_t offset;
  CHECK_EQUAL(zap_arena_create(0, &arena), ZAP_E_INVALID);
  CHECK_EQUAL(zap_arena_create(1023, &arena), ZAP_E_INVALID);
  CHECK_CONTAINS(zap_failure(), "1023 bytes");
  CHECK_EQUAL(zap_arena_create((UINT64_C(1) << 42) + 1, &arena), ZAP_E_INVALID);
  CHECK(arena == NULL);
  zap_arena_destroy(NULL);
  CHECK_EQUAL(zap_arena_create(1999, &arena), ZAP_OK);
  CHECK_EQUAL(zap_arena_largest(arena), KIB);
  CHECK(!zap_arena_take(arena, 0, &offset) && !zap_arena_take(arena, KIB + 1, &offset) && !zap_arena_take(arena, UINT32_MAX, &offset));
  CHECK(zap_arena_take(arena, KIB, &offset));
  zap_arena_destroy(arena);
  /* The largest: the last block ends where it does. */
  CHECK_EQUAL(zap_arena_create(UINT64_C(1) << 42, &arena), ZAP_OK);
  CHECK_EQUAL(zap_arena_largest(arena), UINT32_MAX);
  for (uint64_t i = 0; i < 1024; i++) CHECK(zap_arena_take(arena, UINT32_MAX, &offset) && offset == i << 32);
  CHECK_EQUAL(zap_arena_used(arena), UINT64_C(1) << 42);
  CHECK(!zap_arena_take(arena, 1, &offset));
  for (uint64_t i = 1024; i > 0; i--) zap_arena_give(arena, (i - 1) << 32, UINT32_MAX);
  CHECK_EQUAL(zap_arena_used(arena), 0);
  zap_arena_destroy(arena);
}

int main(void) {
  test_tails();
  test_limits();
  static const uint64_t sizes[] = {1, 2, 3, 64, 65, 1000, 4096, 4133, 10 * 1024, 16 * 1024 + 1};
  for (uint32_t i = 0; i < sizeof sizes / sizeof *sizes; i++) play(sizes[i] * KIB + dice(KIB), 40);
  return checks_done("arena");
}
