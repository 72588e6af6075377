/*
 * What a packet costs from the burst to the ring, on one core: nanoseconds, by net_null (whose buffers hold ready frames) and by net_ring. Prints
 * lines of JSON. Words: seconds for each.
 */
#include <sched.h>

#include "dpdk_kit.h"

#define SLOTS 4096u

struct result {
  uint64_t packets, good, full, nanos; /* handed over, seen by the consumer, dropped as the ring was full */
};

static zap_ring *new_ring(void) {
  zap_ring *ring = aligned_alloc(128, ZAP_RING_HEAD_BYTES + SLOTS * ZAP_RING_ENTRY_BYTES);
  if (ring == NULL || !zap_ring_init(ring, SLOTS)) exit(1);
  return ring;
}

struct consumer {
  struct zap_ring_end out, back;
  atomic_bool stop;
  uint64_t taken, bytes;
};

/* Takes every entry, looks at its first bytes and gives it back. */
static uint32_t consume(struct consumer *consumer) {
  uint32_t ready = zap_ring_ready(&consumer->out);
  if (ready == 0) return 0;
  for (uint32_t i = 0; i < ready; i++) {
    const zap_ring_entry *entry = zap_ring_read(&consumer->out);
    consumer->bytes += entry->length + *(const uint8_t *)(uintptr_t)entry->address;
    zap_ring_write(&consumer->back)->token = entry->token;
  }
  consumer->taken += ready;
  (void)zap_ring_publish(&consumer->back);
  zap_ring_consumed(&consumer->out);
  return ready;
}

static void *consume_all(void *context) {
  struct consumer *consumer = context;
  while (!atomic_load_explicit(&consumer->stop, memory_order_relaxed)) (void)consume(consumer);
  return NULL;
}

static void print(const char *what, const char *device, uint32_t size, const char *how, struct result result) {
  printf("{\"what\":\"%s\",\"device\":\"%s\",\"bytes\":%u,\"cores\":\"%s\",\"packets\":%llu,\"good\":%llu,\"full\":%llu,\"nanos\":%.2f,\"mpps\":%.2f}\n", what,
         device, size, how, (unsigned long long)result.packets, (unsigned long long)result.good, (unsigned long long)result.full,
         (double)result.nanos / (double)(result.packets == 0 ? 1 : result.packets), (double)result.packets * 1000 / (double)result.nanos);
}

static bool nothing(void *context, struct zap_queue *queue, const struct zap_packet *packet, void *buffer, uint64_t now) {
  (void)queue;
  (void)buffer;
  (void)now;
  *(uint64_t *)context += packet->length;
  return false;
}

/* A frame of `size` bytes, with its check sequence, in every buffer of the region: net_null touches none. */
static void fill(struct zap_port *port, uint8_t *region, uint32_t size) {
  uint8_t payload[2048], frame[2100];
  struct zap_station from = kit_station(2);
  uint32_t length = size - 4 - ZAP_HEADERS4;
  kit_payload(payload, length, 1);
  uint32_t bytes = kit_frame(frame, &from, &port->station, true, payload, length);
  for (uint32_t i = 0; i < port->buffers; i++) memcpy(region + (size_t)i * port->buffer_bytes + 128, frame, bytes);
}

static void null_device(uint8_t *region, size_t page, uint32_t size, double seconds) {
  char device[64];
  (void)snprintf(device, sizeof device, "net_null0,size=%u,copy=0", size - 4);
  struct zap_port_settings settings = kit_port(device, 1, region, page);
  struct zap_port *port;
  MUST(zap_port_open(&settings, &port));
  fill(port, region, size);
  uint64_t sum = 0, span = (uint64_t)(seconds * 1e9);
  struct zap_queue_stats stats;
  struct zap_queue *queue;
  /* Burst, checks and the buffers' way back, without the ring. */
  struct zap_queue_settings alone = {.cpu = -1, .idle = ZAP_IDLE_SPIN, .packet = nothing, .context = &sum};
  MUST(zap_queue_attach(port, 0, &alone, &queue));
  uint64_t begin = zap_now();
  while (zap_now() - begin < span)
    for (int i = 0; i < 256; i++) (void)zap_queue_poll(queue);
  uint64_t end = zap_now();
  zap_queue_stats(queue, &stats);
  zap_queue_detach(queue);
  print("burst and checks", "net_null", size, "1", (struct result){stats.packets_in, stats.verdict[ZAP_PACKET_GOOD], 0, end - begin});
  /* To the ring, and a consumer in turn with it on the same core. */
  zap_ring *out = new_ring(), *back = new_ring();
  struct zap_handoff handoff;
  MUST(zap_handoff_init(&handoff, out, back));
  struct consumer consumer = {.taken = 0};
  zap_ring_attach(&consumer.out, out);
  zap_ring_attach(&consumer.back, back);
  struct zap_queue_settings ring = {.cpu = -1, .idle = ZAP_IDLE_SPIN, .handoff = &handoff};
  MUST(zap_queue_attach(port, 0, &ring, &queue));
  begin = zap_now();
  while (zap_now() - begin < span) {
    for (int i = 0; i < 256; i++) {
      (void)zap_queue_poll(queue);
      (void)consume(&consumer);
    }
  }
  end = zap_now();
  zap_queue_stats(queue, &stats);
  print("burst to ring, consumer in turn", "net_null", size, "1",
        (struct result){stats.verdict[ZAP_PACKET_GOOD], consumer.taken, stats.verdict[ZAP_PACKET_RING], end - begin});
  zap_queue_detach(queue);
  /* To the ring, and a consumer on another core. */
  MUST(zap_queue_attach(port, 0, &ring, &queue));
  pthread_t thread;
  uint64_t before = consumer.taken;
  (void)pthread_create(&thread, NULL, consume_all, &consumer);
  begin = zap_now();
  while (zap_now() - begin < span)
    for (int i = 0; i < 256; i++) (void)zap_queue_poll(queue);
  end = zap_now();
  zap_queue_stats(queue, &stats);
  pause_millis(20);
  atomic_store(&consumer.stop, true);
  (void)pthread_join(thread, NULL);
  print("burst to ring, consumer beside", "net_null", size, "2",
        (struct result){stats.verdict[ZAP_PACKET_GOOD], consumer.taken - before, stats.verdict[ZAP_PACKET_RING], end - begin});
  zap_queue_detach(queue);
  zap_handoff_destroy(&handoff);
  free(out);
  free(back);
  MUST(zap_port_close(port, NULL));
}

struct sender {
  struct zap_ip to;
  uint32_t length;
  uint8_t payload[1500];
};

static bool send_burst(void *context, struct zap_queue *queue, uint64_t now) {
  struct sender *sender = context;
  struct zap_datagram datagram = {.ip = sender->to, .port = KIT_PORT, .payload = sender->payload, .payload_length = sender->length};
  for (int i = 0; i < 32; i++)
    if (zap_queue_send(queue, &datagram, now) != ZAP_SENT) break;
  return true;
}

/* Headers, checksum and copy of what is sent, net_ring, burst, checks, ring, consumer: all on one core. */
static void ring_device(uint8_t *region, size_t page, uint32_t size, double seconds) {
  struct zap_port_settings settings = kit_port("net_ring0", 1, region, page);
  struct zap_port *port;
  struct zap_queue *queue;
  MUST(zap_port_open(&settings, &port));
  struct sender sender = {.to = kit_ip4(1), .length = size - 4 - ZAP_HEADERS4};
  kit_payload(sender.payload, sender.length, 1);
  CHECK(zap_neighbours_set(&port->neighbours, &sender.to, port->station.mac));
  zap_ring *out = new_ring(), *back = new_ring();
  struct zap_handoff handoff;
  MUST(zap_handoff_init(&handoff, out, back));
  struct consumer consumer = {.taken = 0};
  zap_ring_attach(&consumer.out, out);
  zap_ring_attach(&consumer.back, back);
  struct zap_queue_settings ring = {.cpu = -1, .idle = ZAP_IDLE_SPIN, .handoff = &handoff, .turn = send_burst, .context = &sender};
  MUST(zap_queue_attach(port, 0, &ring, &queue));
  uint64_t span = (uint64_t)(seconds * 1e9), begin = zap_now();
  while (zap_now() - begin < span) {
    for (int i = 0; i < 256; i++) {
      (void)zap_queue_poll(queue);
      (void)consume(&consumer);
    }
  }
  uint64_t end = zap_now();
  struct zap_queue_stats stats;
  zap_queue_stats(queue, &stats);
  print("sent, burst to ring, consumer in turn", "net_ring", size, "1",
        (struct result){stats.verdict[ZAP_PACKET_GOOD], consumer.taken, stats.verdict[ZAP_PACKET_RING], end - begin});
  zap_queue_detach(queue);
  zap_handoff_destroy(&handoff);
  free(out);
  free(back);
  MUST(zap_port_close(port, NULL));
}

int main(int count, char **words) {
  double seconds = count > 1 ? atof(words[1]) : 1;
  size_t page;
  uint8_t *region = kit_region(&page);
  struct zap_eal_settings settings = kit_eal();
  MUST(zap_eal_start(&settings));
  for (int i = 0; i < 2; i++) {
    uint32_t size = i == 0 ? 64 : 1500;
    null_device(region, page, size, seconds);
    ring_device(region, page, size, seconds);
  }
  return atomic_load(&checks_failed) == 0 ? 0 : 1;
}
