#include "arena.h"

#include <stdlib.h>

#include "fail.h"

#define MOST_BYTES (UINT64_C(1) << 42)
/* Blocks of 2^0 to 2^32 units. */
#define ORDERS 33
/* Levels of words with 64 bits each, for 2^32 bits. */
#define LEVELS 6

/*
 * The free blocks of one size, a bit for each place that such a block can have. Above the words lies a bit for each of them that is not 0,
 * and so on up to a single word: the lowest free block is found by going down from there.
 */
struct order {
  uint64_t places;
  uint32_t levels;
  uint64_t *level[LEVELS];
};

struct zap_arena {
  uint64_t units, used;
  uint64_t any; /* a bit for each order with a free block */
  struct order orders[ORDERS];
};

static uint32_t log_down(uint64_t value) { return 63 - (uint32_t)__builtin_clzll(value); }
static uint32_t log_up(uint64_t value) { return value == 1 ? 0 : log_down(value - 1) + 1; }

static void free_block(struct zap_arena *arena, uint32_t order, uint64_t place) {
  struct order *o = &arena->orders[order];
  arena->any |= UINT64_C(1) << order;
  for (uint32_t i = 0; i < o->levels; i++, place >>= 6) {
    uint64_t *word = &o->level[i][place >> 6], before = *word;
    *word |= UINT64_C(1) << (place & 63);
    if (before != 0) return;
  }
}

static void use_block(struct zap_arena *arena, uint32_t order, uint64_t place) {
  struct order *o = &arena->orders[order];
  for (uint32_t i = 0; i < o->levels; i++, place >>= 6) {
    uint64_t *word = &o->level[i][place >> 6];
    *word &= ~(UINT64_C(1) << (place & 63));
    if (*word != 0) return;
  }
  arena->any &= ~(UINT64_C(1) << order);
}

static bool is_free(const struct order *o, uint64_t place) {
  return place < o->places && (o->level[0][place >> 6] >> (place & 63) & 1) != 0;
}

static uint64_t lowest(const struct order *o) {
  uint64_t place = 0;
  for (uint32_t i = o->levels; i > 0; i--) place = place << 6 | (uint64_t)__builtin_ctzll(o->level[i - 1][place]);
  return place;
}

/* Frees units that lie inside one aligned block, with the largest blocks that there are. */
static void free_units(struct zap_arena *arena, uint64_t from, uint64_t to) {
  while (from < to) {
    uint32_t order = log_down(to - from);
    if (from != 0 && (uint32_t)__builtin_ctzll(from) < order) order = (uint32_t)__builtin_ctzll(from);
    uint64_t place = from >> order;
    from += UINT64_C(1) << order;
    /* Together with its other half it is a block of the next size. */
    while (order + 1 < ORDERS && is_free(&arena->orders[order], place ^ 1)) {
      use_block(arena, order, place ^ 1);
      place >>= 1;
      order++;
    }
    free_block(arena, order, place);
  }
}

/* Units of a block for so many bytes: four bits of the number are kept, so that a tail never falls into many pieces. */
static uint64_t units_for(uint32_t bytes) {
  uint64_t units = ((uint64_t)bytes + ZAP_ARENA_UNIT - 1) / ZAP_ARENA_UNIT;
  uint32_t log = log_down(units);
  uint64_t step = log < 3 ? 1 : UINT64_C(1) << (log - 3);
  return (units + step - 1) / step * step;
}

/* How many words an order's levels have; sets them into `words` unless that is NULL. */
static uint64_t shape(struct order *o, uint64_t *words) {
  uint64_t count = 0, bits = o->places;
  o->levels = 0;
  while (bits > 0) {
    uint64_t here = (bits + 63) / 64;
    if (words != NULL) o->level[o->levels] = words + count;
    o->levels++;
    count += here;
    bits = here > 1 ? here : 0;
  }
  return count;
}

int32_t zap_arena_create(uint64_t bytes, struct zap_arena **arena) {
  uint64_t units = bytes / ZAP_ARENA_UNIT;
  if (units == 0 || bytes > MOST_BYTES) {
    return zap_fail(ZAP_E_INVALID, "an area for messages has 1 KiB to 4 TiB, not %llu bytes", (unsigned long long)bytes);
  }
  uint64_t words = 0;
  for (uint32_t i = 0; i < ORDERS; i++) {
    struct order measured = {.places = units >> i};
    words += shape(&measured, NULL);
  }
  /* From calloc, so that pages for what is never used stay untouched. */
  struct zap_arena *made = calloc(1, sizeof *made + words * sizeof(uint64_t));
  if (made == NULL) {
    return zap_fail(ZAP_E_MEMORY, "out of memory for the book of an area of %llu MiB", (unsigned long long)(bytes >> 20));
  }
  made->units = units;
  uint64_t *at = (uint64_t *)(made + 1);
  for (uint32_t i = 0; i < ORDERS; i++) {
    made->orders[i].places = units >> i;
    at += shape(&made->orders[i], at);
  }
  free_units(made, 0, units);
  *arena = made;
  return ZAP_OK;
}

void zap_arena_destroy(struct zap_arena *arena) { free(arena); }

bool zap_arena_take(struct zap_arena *arena, uint32_t bytes, uint64_t *offset) {
  if (bytes == 0) return false;
  uint64_t units = units_for(bytes), large = arena->any >> log_up(units);
  if (large == 0) return false;
  uint32_t order = log_up(units) + (uint32_t)__builtin_ctzll(large);
  uint64_t place = lowest(&arena->orders[order]), from = place << order;
  use_block(arena, order, place);
  free_units(arena, from + units, from + (UINT64_C(1) << order));
  arena->used += units;
  *offset = from * ZAP_ARENA_UNIT;
  return true;
}

void zap_arena_give(struct zap_arena *arena, uint64_t offset, uint32_t bytes) {
  uint64_t from = offset / ZAP_ARENA_UNIT, units = units_for(bytes);
  arena->used -= units;
  free_units(arena, from, from + units);
}

uint64_t zap_arena_used(const struct zap_arena *arena) { return arena->used * ZAP_ARENA_UNIT; }

uint64_t zap_arena_largest(const struct zap_arena *arena) {
  uint64_t bytes = (uint64_t)ZAP_ARENA_UNIT << log_down(arena->units);
  return bytes < UINT32_MAX ? bytes : UINT32_MAX;
}
