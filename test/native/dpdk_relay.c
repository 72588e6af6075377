/*
 * A bad link: takes frames from one net_memif port and gives them to another, both ways, and loses, repeats, delays, overtakes and damages
 * some of them. Words: the paths of two sockets (it is the server of both), a seed, and how many of 1,000 frames to lose, repeat,
 * hold back and damage, and how long to delay each, in microseconds. Says "ready" and runs until its standard input ends.
 */
#include <poll.h>
#include <sched.h>

#include <rte_config.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include "dpdk_kit.h"

#define HELD 8192
#define FRAME 2048

struct held {
  uint64_t due, order;
  uint32_t length;
  int to;
  uint8_t bytes[FRAME];
};

static struct held held[HELD];
static uint32_t heap[HELD], heap_count, spare[HELD], spares;
static uint64_t state, order, passed, lost, repeated, late, damaged, overrun;

/* xorshift64*: the same frames for the same seed, as far as the sender sends the same. */
static uint32_t draw(uint32_t below) {
  state ^= state >> 12;
  state ^= state << 25;
  state ^= state >> 27;
  return (uint32_t)((state * UINT64_C(0x2545f4914f6cdd1d) >> 33) % below);
}

static bool sooner(uint32_t a, uint32_t b) {
  return held[a].due != held[b].due ? held[a].due < held[b].due : held[a].order < held[b].order;
}

static void push(uint32_t index) {
  uint32_t at = heap_count++;
  for (; at > 0 && sooner(index, heap[(at - 1) / 2]); at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
  heap[at] = index;
}

static uint32_t pop(void) {
  uint32_t first = heap[0], last = heap[--heap_count], at = 0;
  for (;;) {
    uint32_t child = 2 * at + 1;
    if (child >= heap_count) break;
    if (child + 1 < heap_count && sooner(heap[child + 1], heap[child])) child++;
    if (!sooner(heap[child], last)) break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = last;
  return first;
}

static uint32_t per_mille[4], delay_us;
enum { LOSE, REPEAT, HOLD, DAMAGE };

static void keep(const uint8_t *bytes, uint32_t length, int to, uint64_t now) {
  if (spares == 0 || length > FRAME) {
    overrun++;
    return;
  }
  uint32_t index = spare[--spares];
  struct held *frame = &held[index];
  memcpy(frame->bytes, bytes, length);
  frame->length = length;
  frame->to = to;
  frame->order = order++;
  frame->due = now + delay_us * 1000ull;
  if (draw(1000) < per_mille[HOLD]) {
    frame->due += draw(2000) * 1000ull;
    late++;
  }
  if (draw(1000) < per_mille[DAMAGE]) {
    frame->bytes[draw(length)] ^= (uint8_t)(1 + draw(255));
    damaged++;
  }
  push(index);
}

static void take(struct zap_port *from, int to, uint64_t now) {
  struct rte_mbuf *burst[32];
  uint16_t got = rte_eth_rx_burst(from->id, 0, burst, 32);
  for (uint16_t i = 0; i < got; i++) {
    const uint8_t *bytes = rte_pktmbuf_mtod(burst[i], const uint8_t *);
    if (draw(1000) < per_mille[LOSE]) lost++;
    else keep(bytes, burst[i]->data_len, to, now);
    if (draw(1000) < per_mille[REPEAT]) {
      repeated++;
      keep(bytes, burst[i]->data_len, to, now);
    }
    rte_pktmbuf_free(burst[i]);
  }
}

static void give(struct zap_port *const ports[2], uint64_t now) {
  while (heap_count > 0 && held[heap[0]].due <= now) {
    uint32_t index = pop();
    const struct held *frame = &held[index];
    spare[spares++] = index;
    struct rte_mbuf *buffer = rte_pktmbuf_alloc(ports[frame->to]->pool);
    char *at = buffer == NULL ? NULL : rte_pktmbuf_append(buffer, (uint16_t)frame->length);
    if (at != NULL) memcpy(at, frame->bytes, frame->length);
    if (at != NULL && rte_eth_tx_burst(ports[frame->to]->id, 0, &buffer, 1) == 1) {
      passed++;
      continue;
    }
    rte_pktmbuf_free(buffer);
    overrun++;
  }
}

int main(int count, char **words) {
  if (count < 9) return 2;
  /* However long the others take. */
  (void)alarm(0);
  struct zap_port *ports[2];
  struct zap_eal_settings settings = kit_eal();
  MUST(zap_eal_start(&settings));
  for (int i = 0; i < 2; i++) {
    char device[256];
    (void)snprintf(device, sizeof device, "net_memif%d,role=server,id=0,socket=%s,socket-abstract=no", i, words[1 + i]);
    struct zap_port_settings port = kit_port(device, (uint8_t)(100 + i), NULL, 0);
    MUST(zap_port_open(&port, &ports[i]));
  }
  state = strtoull(words[3], NULL, 10) * 2 + 1;
  for (int i = 0; i < 4; i++) per_mille[i] = (uint32_t)strtoul(words[4 + i], NULL, 10);
  delay_us = (uint32_t)strtoul(words[8], NULL, 10);
  for (uint32_t i = 0; i < HELD; i++) spare[spares++] = i;
  printf("ready\n");
  (void)fflush(stdout);
  struct pollfd input = {.fd = 0, .events = POLLIN};
  for (uint64_t looked = 0, now = zap_now();; now = zap_now()) {
    take(ports[0], 1, now);
    take(ports[1], 0, now);
    give(ports, now);
    if (now - looked > 10000000) {
      looked = now;
      char byte;
      if (poll(&input, 1, 0) > 0 && read(0, &byte, 1) <= 0) break;
    }
    (void)sched_yield();
  }
  for (int i = 0; i < 2; i++) MUST(zap_port_close(ports[i], NULL));
  printf("passed %llu, lost %llu, repeated %llu, held back %llu, damaged %llu, overrun %llu\n", (unsigned long long)passed,
         (unsigned long long)lost, (unsigned long long)repeated, (unsigned long long)late, (unsigned long long)damaged,
         (unsigned long long)overrun);
  return 0;
}
