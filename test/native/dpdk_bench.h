/* A port of net_null or net_ring with a hand-off ring behind it: what the benchmarks of packets measure, in C and in Bun. */
#ifndef ZAP_DPDK_BENCH_H
#define ZAP_DPDK_BENCH_H

#include "dpdk_kit.h"

#define SLOTS 4096u

enum bench_device {
  BENCH_NULL = 0, /* net_null, whose buffers hold ready frames */
  BENCH_RING = 1, /* net_ring, and a sender: a burst in every turn */
  BENCH_IDLE = 2, /* net_ring, and nobody sends */
};

struct bench_sender {
  struct zap_ip to;
  uint32_t length;
  uint8_t payload[1500];
};

struct bench {
  struct zap_port *port;
  zap_ring *out, *back;
  struct zap_handoff handoff;
  struct bench_sender sender;
};

static inline zap_ring *new_ring(void) {
  zap_ring *ring = aligned_alloc(128, ZAP_RING_HEAD_BYTES + SLOTS * ZAP_RING_ENTRY_BYTES);
  if (ring == NULL || !zap_ring_init(ring, SLOTS)) exit(1);
  return ring;
}

/* A frame of `size` bytes, with its check sequence, in every buffer of the region: net_null touches none. */
static inline void fill_frames(const struct zap_port *port, uint8_t *region, uint32_t size) {
  uint8_t payload[2048], frame[2100];
  struct zap_station from = kit_station(2);
  uint32_t length = size - 4 - ZAP_HEADERS4;
  kit_payload(payload, length, 1);
  uint32_t bytes = kit_frame(frame, &from, &port->station, true, payload, length);
  for (uint32_t i = 0; i < port->buffers; i++) memcpy(region + (size_t)i * port->buffer_bytes + 128, frame, bytes);
}

static inline void bench_open(struct bench *bench, enum bench_device device, uint8_t *region, size_t page, uint32_t size) {
  char name[64];
  if (device == BENCH_NULL) (void)snprintf(name, sizeof name, "net_null0,size=%u,copy=0", size - 4);
  else (void)snprintf(name, sizeof name, "net_ring0");
  struct zap_port_settings settings = kit_port(name, 1, region, page);
  MUST(zap_port_open(&settings, &bench->port));
  if (device == BENCH_NULL) fill_frames(bench->port, region, size);
  bench->sender.to = kit_ip4(1);
  bench->sender.length = size - 4 - ZAP_HEADERS4;
  kit_payload(bench->sender.payload, bench->sender.length, 1);
  CHECK(zap_neighbours_set(&bench->port->neighbours, &bench->sender.to, bench->port->station.mac));
  bench->out = new_ring();
  bench->back = new_ring();
  MUST(zap_handoff_init(&bench->handoff, bench->out, bench->back));
}

static inline bool send_burst(void *context, struct zap_queue *queue, uint64_t now) {
  struct bench *bench = context;
  const struct bench_sender *sender = &bench->sender;
  struct zap_outbound datagram = {.ip = sender->to, .port = KIT_PORT, .payload = sender->payload, .payload_length = sender->length};
  for (int i = 0; i < 32; i++)
    if (zap_queue_send(queue, &datagram, now) != ZAP_SENT) break;
  return true;
}

/* For a queue that fills the ring. */
static inline struct zap_queue_settings bench_queue(struct bench *bench, enum bench_device device) {
  return (struct zap_queue_settings){.cpu = -1,
                                     .idle = ZAP_IDLE_SPIN,
                                     .handoff = &bench->handoff,
                                     .turn = device == BENCH_RING ? send_burst : NULL,
                                     .context = bench};
}

/* Nanoseconds that this thread has run: what one core can do, also where others want it too. */
static inline uint64_t bench_cpu(void) {
  struct timespec at;
  (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
  return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}

static inline void bench_close(struct bench *bench) {
  zap_handoff_destroy(&bench->handoff);
  free(bench->out);
  free(bench->back);
  MUST(zap_port_close(bench->port, NULL));
}

#endif
