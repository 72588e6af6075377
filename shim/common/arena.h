/*
 * Where in an area of memory the next block may lie. It deals in offsets and never looks at the memory itself. Buddy blocks, of which
 * the tail that nobody asked for goes back at once: a block is at most an eighth larger than what was asked for, and a whole number of
 * KiB. Of several places it takes the lowest, so that what is seldom needed stays free in large pieces. Both calls take
 * time that grows with the logarithm of the area. One thread at a time; no global state.
 */
#ifndef ZAP_ARENA_H
#define ZAP_ARENA_H

#include <stdbool.h>
#include <stdint.h>

/* Blocks start at multiples of this. */
#define ZAP_ARENA_UNIT 1024u

struct zap_arena;

/*
 * An area of `bytes`, cut down to whole KiB: 1 KiB to 4 TiB, else ZAP_E_INVALID. Or ZAP_E_MEMORY: it keeps about a
 * quarter of a thousandth of `bytes` of its own, of which only what is used is ever touched.
 */
int32_t zap_arena_create(uint64_t bytes, struct zap_arena **arena);
/* NULL is fine. */
void zap_arena_destroy(struct zap_arena *arena);

/*
 * A block for `bytes`, at `*offset`. False for 0 bytes, and where nothing fits now: a block lies in a free place of the next power of two
 * that starts at a multiple of its own size.
 */
bool zap_arena_take(struct zap_arena *arena, uint32_t bytes, uint64_t *offset);
/* Exactly what was taken: the same offset and the same `bytes`, once. */
void zap_arena_give(struct zap_arena *arena, uint64_t offset, uint32_t bytes);

/* Bytes in blocks that are out, with what they were rounded up by. */
uint64_t zap_arena_used(const struct zap_arena *arena);
/* The most that can be taken at once while nothing is out: the area's largest power of two, or UINT32_MAX. */
uint64_t zap_arena_largest(const struct zap_arena *arena);

#endif
