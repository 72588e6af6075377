/*
 * The hand-off ring: what a poll-mode thread gives to whoever consumes it, by pointer. Plain memory that one side writes and
 * the other polls, so a kernel on a GPU can consume it as well as a thread: this page is all that either needs to know.
 *
 * There are two rings of this layout. In the hand-off ring the poll-mode thread produces: an entry says that `length` bytes at
 * `address`, from `peer`, are the consumer's now, to read and to write. In the return ring the consumer produces: it gives `token`
 * back (the other members of the entry do not matter), in any order, and from then on must not touch those bytes. No more entries are
 * ever out than the return ring has slots: a consumer never finds it full.
 *
 * Each ring has one producer and one consumer. `tail` counts entries ever produced, `head` entries ever consumed; entry number n
 * is slot n % slots, and slots is a power of two. All numbers are in the host's byte order.
 *
 *   Consuming: read `tail` (acquire, system scope); entries head..tail-1 may be read; then write `head` (release, system scope).
 *   Producing: read `head` (acquire); where tail - head < slots, write entry tail % slots; then write `tail` (release).
 *
 * On a GPU: `ld.acquire.sys` and `st.release.sys`, or volatile with `fence.acq_rel.sys`; one thread of a block polls `tail`, and the
 * others read the entries after a barrier. The ring may lie in page-locked or managed memory; `address` is what the consumer can use.
 *
 * The memory: 512 bytes of head, then the slots. It begins at a multiple of 128.
 */
#ifndef ZAP_RING_H
#define ZAP_RING_H

#include <stdint.h>

#define ZAP_RING_MAGIC 0x474e5250u /* "PRNG" */
#define ZAP_RING_VERSION 1u
#define ZAP_RING_HEAD_BYTES 512u
#define ZAP_RING_ENTRY_BYTES 32u
#define ZAP_RING_SLOTS_MAX (1u << 20)

/* 32 bytes. */
typedef struct zap_ring_entry {
  uint64_t address;
  uint32_t length; /* bytes */
  uint32_t peer;
  uint64_t stamp; /* nanoseconds of the monotonic clock at which the packet was taken from the port, or its message was whole */
  uint32_t token;
  uint32_t reserved;
} zap_ring_entry;

/* Each side's own numbers have 128 bytes to themselves: no cache line is written by both. */
typedef struct zap_ring {
  uint32_t magic, version, slots, entry_bytes; /* never change */
  uint8_t fill0[112];
  uint64_t tail; /* the producer writes it */
  uint8_t fill1[120];
  uint64_t head; /* the consumer writes it */
  uint8_t fill2[120];
  /*
   * A consumer that sleeps sets this to 1, looks at `tail` once more (both sequentially consistent), and then sleeps; a producer that
   * has moved `tail` sets it back to 0 and wakes it, however that is done. A consumer that polls leaves it 0.
   */
  uint32_t armed;
  uint8_t fill3[124];
} zap_ring;

#endif
