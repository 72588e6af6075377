/*
 * What a packet costs from the burst to the ring, on one core: nanoseconds, by net_null (whose buffers hold ready frames) and by
 * net_ring. Prints lines of JSON. Times are those that the thread has run, but for the consumer beside. Words: seconds for each.
 */
#include "dpdk_bench.h"

struct result {
  uint64_t packets, good, full, nanos; /* handed over, seen by the consumer, dropped as the ring was full */
};

struct consumer {
  struct zap_ring_end out, back;
  atomic_bool stop;
  uint64_t taken, bytes;
};

static void attach_consumer(struct consumer *consumer, struct bench *bench) {
  *consumer = (struct consumer){.taken = 0};
  zap_ring_attach(&consumer->out, bench->out);
  zap_ring_attach(&consumer->back, bench->back);
}

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
  printf("{\"what\":\"%s\",\"device\":\"%s\",\"bytes\":%u,\"cores\":\"%s\",", what, device, size, how);
  double packets = (double)(result.packets == 0 ? 1 : result.packets), nanos = (double)result.nanos;
  printf("\"packets\":%llu,\"good\":%llu,\"full\":%llu,", (unsigned long long)result.packets, (unsigned long long)result.good,
         (unsigned long long)result.full);
  printf("\"nanos\":%.2f,\"mpps\":%.2f}\n", nanos / packets, packets * 1000 / nanos);
}

#define WAITS 65536u

/* How long after its burst a packet has passed all checks: the last one of a full burst, who waits for 31 others. */
struct passed {
  uint64_t burst, place;
  uint32_t waits;
  uint32_t waited[WAITS];
};

static int by_value(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return (x > y) - (x < y);
}

static bool checked(void *context, struct zap_queue *queue, const struct zap_packet *packet, void *buffer, uint64_t now) {
  (void)queue;
  (void)packet;
  (void)buffer;
  struct passed *passed = context;
  passed->place = passed->burst == now ? passed->place + 1 : 1;
  passed->burst = now;
  if (passed->place == 32 && passed->waits < WAITS) passed->waited[passed->waits++] = (uint32_t)(zap_now() - now);
  return false;
}

static void poll_for(struct zap_queue *queue, struct consumer *consumer, bool alone, uint64_t span, struct result *result) {
  uint64_t begin = zap_now(), cpu = bench_cpu(), before = consumer == NULL ? 0 : consumer->taken;
  struct zap_queue_stats stats;
  while (zap_now() - begin < span) {
    for (int i = 0; i < 256; i++) {
      (void)zap_queue_poll(queue);
      if (consumer != NULL) (void)consume(consumer);
    }
  }
  result->nanos = alone ? bench_cpu() - cpu : zap_now() - begin;
  zap_queue_stats(queue, &stats);
  result->packets = stats.verdict[ZAP_PACKET_GOOD];
  result->full = stats.verdict[ZAP_PACKET_RING];
  result->good = consumer == NULL ? result->packets : consumer->taken - before;
}

static void null_device(uint8_t *region, size_t page, uint32_t size, uint64_t span) {
  struct bench bench;
  struct zap_queue *queue;
  struct consumer consumer;
  struct result result;
  bench_open(&bench, BENCH_NULL, region, page, size);
  /* Burst, checks and the buffers' way back, without the ring. */
  static struct passed passed;
  passed.waits = 0;
  struct zap_queue_settings alone = {.cpu = -1, .idle = ZAP_IDLE_SPIN, .packet = checked, .context = &passed};
  MUST(zap_queue_attach(bench.port, 0, &alone, &queue));
  poll_for(queue, NULL, true, span, &result);
  zap_queue_detach(queue);
  print("burst and checks", "net_null", size, "1", result);
  qsort(passed.waited, passed.waits, sizeof *passed.waited, by_value);
  print("until the last of 32 is checked", "net_null", size, "1", (struct result){1, passed.waits, 0, passed.waited[passed.waits / 2]});
  /* To the ring, and a consumer in turn with it on the same core. */
  struct zap_queue_settings ring = bench_queue(&bench, BENCH_NULL);
  attach_consumer(&consumer, &bench);
  MUST(zap_queue_attach(bench.port, 0, &ring, &queue));
  poll_for(queue, &consumer, true, span, &result);
  zap_queue_detach(queue);
  print("burst to ring, consumer in turn", "net_null", size, "1", result);
  /* To the ring, and a consumer on another core. */
  MUST(zap_queue_attach(bench.port, 0, &ring, &queue));
  pthread_t thread;
  uint64_t before = consumer.taken;
  (void)pthread_create(&thread, NULL, consume_all, &consumer);
  poll_for(queue, NULL, false, span, &result);
  pause_millis(20);
  atomic_store(&consumer.stop, true);
  (void)pthread_join(thread, NULL);
  result.good = consumer.taken - before;
  print("burst to ring, consumer beside", "net_null", size, "2", result);
  zap_queue_detach(queue);
  bench_close(&bench);
}

/* Headers, checksum and copy of what is sent, net_ring, burst, checks, ring, consumer: all on one core. */
static void ring_device(uint8_t *region, size_t page, uint32_t size, uint64_t span) {
  struct bench bench;
  struct zap_queue *queue;
  struct consumer consumer;
  struct result result;
  bench_open(&bench, BENCH_RING, region, page, size);
  attach_consumer(&consumer, &bench);
  struct zap_queue_settings ring = bench_queue(&bench, BENCH_RING);
  MUST(zap_queue_attach(bench.port, 0, &ring, &queue));
  poll_for(queue, &consumer, true, span, &result);
  print("sent, burst to ring, consumer in turn", "net_ring", size, "1", result);
  zap_queue_detach(queue);
  bench_close(&bench);
}

int main(int count, char **words) {
  uint64_t span = (uint64_t)((count > 1 ? atof(words[1]) : 1) * 1e9);
  size_t page;
  uint8_t *region = kit_region(&page);
  struct zap_eal_settings settings = kit_eal();
  MUST(zap_eal_start(&settings));
  for (int i = 0; i < 2; i++) {
    uint32_t size = i == 0 ? 64 : 1500;
    null_device(region, page, size, span);
    ring_device(region, page, size, span);
  }
  return atomic_load(&checks_failed) == 0 ? 0 : 1;
}
