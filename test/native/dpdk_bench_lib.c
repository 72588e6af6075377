/*
 * The rig of dpdk_bench.c as a library, for a process whose JavaScript consumes the ring: one rig at a time. What goes wrong ends the
 * process: it is a measurement, and nothing else.
 */
#include <sys/socket.h>

#include "dpdk_bench.h"
#include "zap_shim.h"

/* Addresses of the rings and of the region, and what becomes readable when a ring that was armed is filled. */
struct view {
  uint64_t out, back, region, region_bytes;
  int32_t wake_fd;
  int32_t reserved;
};

ZAP_EXPORT void zap_bench_open(uint32_t device, uint32_t size, struct view *view);
ZAP_EXPORT void zap_bench_attach(void);
ZAP_EXPORT void zap_bench_poll(uint32_t times);
ZAP_EXPORT void zap_bench_start(uint32_t idle, int32_t cpu);
ZAP_EXPORT void zap_bench_counts(uint64_t *counts);
ZAP_EXPORT double zap_bench_cpu(void);
ZAP_EXPORT void zap_bench_close(void);

static struct bench rig;
static struct zap_queue *queue;
static enum bench_device device_now;
static bool own_thread;
static uint8_t *region;
static size_t page;
static int wake_fds[2] = {-1, -1};

static void wake(void *context) {
  (void)context;
  (void)send(wake_fds[1], "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* enum bench_device; frames of `size` bytes. */
void zap_bench_open(uint32_t device, uint32_t size, struct view *view) {
  if (region == NULL) {
    region = kit_region(&page);
    struct zap_eal_settings settings = kit_eal();
    MUST(zap_eal_start(&settings));
  }
  device_now = (enum bench_device)device;
  bench_open(&rig, device_now, region, page, size);
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, wake_fds) != 0) exit(1);
  *view = (struct view){.out = (uint64_t)(uintptr_t)rig.out,
                        .back = (uint64_t)(uintptr_t)rig.back,
                        .region = (uint64_t)(uintptr_t)region,
                        .region_bytes = KIT_REGION,
                        .wake_fd = wake_fds[0]};
}

/* From now on this thread polls, by zap_bench_poll. */
void zap_bench_attach(void) {
  struct zap_queue_settings settings = bench_queue(&rig, device_now);
  MUST(zap_queue_attach(rig.port, 0, &settings, &queue));
  own_thread = false;
}

void zap_bench_poll(uint32_t times) {
  for (uint32_t i = 0; i < times; i++) (void)zap_queue_poll(queue);
}

/* From now on a thread of its own polls: enum zap_idle, a CPU or -1. */
void zap_bench_start(uint32_t idle, int32_t cpu) {
  struct zap_queue_settings settings = bench_queue(&rig, device_now);
  settings.idle = (enum zap_idle)idle;
  settings.cpu = cpu;
  settings.wake = wake;
  MUST(zap_queue_start(rig.port, 0, &settings, &queue));
  own_thread = true;
}

/* Packets that went to the ring, and those that found it full. */
void zap_bench_counts(uint64_t *counts) {
  struct zap_queue_stats stats;
  zap_queue_stats(queue, &stats);
  counts[0] = stats.verdict[ZAP_PACKET_GOOD];
  counts[1] = stats.verdict[ZAP_PACKET_RING];
}

double zap_bench_cpu(void) { return (double)bench_cpu(); }

/* The file that wakes is its reader's to close. */
void zap_bench_close(void) {
  if (own_thread) MUST(zap_queue_stop(queue, 5000));
  else zap_queue_detach(queue);
  (void)close(wake_fds[1]);
  bench_close(&rig);
}
