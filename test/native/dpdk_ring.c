/* The hand-off ring, with a consumer that does no more than zap_ring.h says: it plays a kernel on a GPU. No DPDK here. */
#include <sched.h>

#include "dpdk_kit.h"
#include "../../shim/dpdk/handoff.h"

#define SLOTS 64
#define PACKETS 200000u
#define BUFFERS 96

static _Alignas(128) uint8_t out_memory[ZAP_RING_HEAD_BYTES + SLOTS * ZAP_RING_ENTRY_BYTES];
static _Alignas(128) uint8_t back_memory[ZAP_RING_HEAD_BYTES + SLOTS * ZAP_RING_ENTRY_BYTES];
static uint64_t buffers[BUFFERS][4];

/* By the words of the header alone: offsets and numbers, none of ring.h's functions. */
static void *consume(void *unused) {
  (void)unused;
  uint64_t head = 0, given = 0;
  uint64_t *tail = (void *)(out_memory + 128), *read = (void *)(out_memory + 256);
  uint64_t *back_tail = (void *)(back_memory + 128);
  zap_ring_entry held[8];
  uint32_t holds = 0;
  while (head < PACKETS) {
    uint64_t end = __atomic_load_n(tail, __ATOMIC_ACQUIRE);
    CHECK(end - head <= SLOTS);
    for (; head < end; head++) {
      zap_ring_entry entry = ((zap_ring_entry *)(void *)(out_memory + ZAP_RING_HEAD_BYTES))[head % SLOTS];
      uint64_t *bytes = (uint64_t *)(uintptr_t)(entry.address - 4096);
      if (bytes[0] != head || bytes[1] != ~head || entry.length != sizeof buffers[0] || entry.peer != (uint32_t)head % 7)
        CHECK_EQUAL(bytes[0], head);
      /* It may write, too. */
      bytes[2] = head * 3;
      held[holds++] = entry;
      if (holds < 8 && head + 1 < PACKETS) continue;
      /* Given back in another order. */
      while (holds > 0) {
        ((zap_ring_entry *)(void *)(back_memory + ZAP_RING_HEAD_BYTES))[given % SLOTS] = held[--holds];
        __atomic_store_n(back_tail, ++given, __ATOMIC_RELEASE);
      }
    }
    __atomic_store_n(read, head, __ATOMIC_RELEASE);
    /* The test's machine may have a single core. */
    (void)sched_yield();
  }
  return NULL;
}

static void test_hand_over(void) {
  struct zap_handoff handoff;
  zap_ring *out = (zap_ring *)(void *)out_memory, *back = (zap_ring *)(void *)back_memory;
  CHECK(zap_ring_init(out, SLOTS) && zap_ring_init(back, SLOTS));
  MUST(zap_handoff_init(&handoff, out, back));
  handoff.shift = 4096;
  pthread_t consumer;
  CHECK_EQUAL(pthread_create(&consumer, NULL, consume, NULL), 0);
  bool is_out[BUFFERS] = {false};
  uint32_t buffer = 0, outside = 0;
  for (uint64_t number = 0; number < PACKETS || outside > 0;) {
    void *back_here[16];
    uint32_t got = zap_handoff_take(&handoff, back_here, 16);
    for (uint32_t i = 0; i < got; i++) {
      uint64_t *each = back_here[i];
      uint32_t which = (uint32_t)((each - buffers[0]) / 4);
      CHECK(is_out[which]);
      CHECK_EQUAL(each[2], each[0] * 3);
      is_out[which] = false;
      outside--;
    }
    uint32_t room = zap_handoff_room(&handoff, 4);
    for (uint32_t i = 0; i < room && i < 4 && number < PACKETS; i++) {
      while (is_out[buffer]) buffer = (buffer + 1) % BUFFERS;
      is_out[buffer] = true;
      outside++;
      uint64_t *each = buffers[buffer];
      each[0] = number;
      each[1] = ~number;
      zap_handoff_push(&handoff, each, (const uint8_t *)each, sizeof buffers[0], (uint32_t)number % 7, 1);
      number++;
    }
    CHECK(!zap_ring_publish(&handoff.out));
    CHECK(outside <= SLOTS);
    if (got == 0 && room == 0) (void)sched_yield();
  }
  pthread_join(consumer, NULL);
  CHECK_EQUAL(handoff.nonsense, 0);
  CHECK_EQUAL(handoff.spares, SLOTS);
  zap_handoff_destroy(&handoff);
}

static void test_limits(void) {
  struct zap_handoff handoff;
  zap_ring *out = (zap_ring *)(void *)out_memory, *back = (zap_ring *)(void *)back_memory;
  CHECK(!zap_ring_init(out, 0) && !zap_ring_init(out, 3) && !zap_ring_init(out, ZAP_RING_SLOTS_MAX * 2));
  /* A return ring of 4: no more than 4 are ever out. */
  CHECK(zap_ring_init(out, 8) && zap_ring_init(back, 4));
  MUST(zap_handoff_init(&handoff, out, back));
  CHECK_EQUAL(zap_handoff_room(&handoff, 8), 4);
  for (int i = 0; i < 4; i++) zap_handoff_push(&handoff, buffers[i], (const uint8_t *)buffers[i], 1, 0, 0);
  CHECK_EQUAL(zap_handoff_room(&handoff, 1), 0);
  /* A consumer that sleeps is woken once. */
  out->armed = 1;
  CHECK(zap_ring_publish(&handoff.out));
  CHECK(!zap_ring_publish(&handoff.out));
  /* Tokens that nobody has, twice the same, and a count that cannot be. */
  struct zap_ring_end giver;
  void *taken[8];
  zap_ring_attach(&giver, back);
  zap_ring_write(&giver)->token = 2;
  zap_ring_write(&giver)->token = 2;
  zap_ring_write(&giver)->token = 77;
  (void)zap_ring_publish(&giver);
  CHECK_EQUAL(zap_handoff_take(&handoff, taken, 8), 1);
  CHECK_EQUAL(handoff.nonsense, 2);
  back->tail = UINT64_MAX / 2;
  CHECK_EQUAL(zap_handoff_take(&handoff, taken, 8), 0);
  out->head = 1000;
  CHECK(zap_ring_free(&handoff.out, 8) <= 8);
  zap_handoff_destroy(&handoff);
}

int main(void) {
  test_limits();
  test_hand_over();
  return checks_done("ring");
}
