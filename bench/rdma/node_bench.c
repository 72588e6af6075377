/*
 * Two processes with a node each, over their verbs and rings alone: round trips, and messages one way. No Bun here. The second process is a
 * fork, and both tell each other of their queue pairs over a pair of sockets.
 *
 *   node_bench RUNTIME DEVICE DEVICE GID MODE BYTES COUNT BURSTS IDLE WAIT CORES EAGER
 *
 * MODE roundtrip or oneway; COUNT messages in each of BURSTS bursts, behind a short one to warm up; IDLE of the nodes: spin, sleep, or drive: by the caller;
 * WAIT of the threads that use the rings: poll (they yield between two looks) or wake (they sleep until the node wakes them); CORES: one
 * for both processes, two for one each, or free; EAGER: bytes of a slab, 0 for the default. Prints one line of JSON.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../shim/common/fail.h"
#include "../../shim/common/ring.h"
#include "../../shim/common/thread.h"
#include "zap_gpudirect.h"

#define MIB (UINT64_C(1) << 20)
#define POOL (64 * MIB)
/* Messages on their way one way; as deep as perftest's queue. */
#define DEPTH 128u
#define LIMIT_NS UINT64_C(60000000000)

#define MUST(call)                                                                                 \
  do {                                                                                             \
    int32_t status_ = (call);                                                                      \
    if (status_ < 0) die("%s is %d: %s", #call, (int)status_, zap_failure());                      \
  } while (0)

struct end {
  int32_t handle;
  zap_gpudirect_node node;
  struct zap_ring_end handoff, returns, sends, dones, events;
  uint32_t flow, bytes, places, free_places;
  uint32_t free[DEPTH];
  bool wake, drive;
  uint64_t until;
};

static int other; /* the socket to the other process */

__attribute__((format(printf, 1, 2))) static void die(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fputs("node_bench: ", stderr);
  (void)vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
  _exit(1);
}

static void say(const void *bytes, size_t length) {
  if (send(other, bytes, length, MSG_NOSIGNAL) != (ssize_t)length) die("the other process is gone");
}

static void hear(void *bytes, size_t length) {
  if (recv(other, bytes, length, MSG_WAITALL) != (ssize_t)length) die("the other process is gone");
}

/* ---- one end ---- */

static void attach(struct end *end, struct zap_ring_end *ring, uint32_t offset) {
  zap_ring_attach(ring, (zap_ring *)(uintptr_t)(end->node.address + offset));
}

static void open_end(struct end *end, const zap_gpudirect_settings *settings) {
  end->handle = zap_gpudirect_open(settings);
  MUST(end->handle);
  int32_t status;
  while ((status = zap_gpudirect_opened(end->handle, &end->node)) == ZAP_E_AGAIN) (void)usleep(1000);
  MUST(status);
  attach(end, &end->handoff, end->node.handoff_offset);
  attach(end, &end->returns, end->node.returns_offset);
  attach(end, &end->sends, end->node.sends_offset);
  attach(end, &end->dones, end->node.dones_offset);
  attach(end, &end->events, end->node.events_offset);
  zap_gpudirect_offer ours, theirs;
  int32_t flow = zap_gpudirect_flow_begin(end->handle, &ours);
  MUST(flow);
  end->flow = (uint32_t)flow;
  say(&ours, sizeof ours);
  hear(&theirs, sizeof theirs);
  MUST(zap_gpudirect_flow_accept(end->handle, end->flow, &theirs));
  while (zap_ring_ready(&end->events) == 0) (void)usleep(1000);
  end->events.mine++; /* it is up, or the first thing that is done will tell */
  zap_ring_consumed(&end->events);
  /* Nothing is sent before both are there. */
  char ready = 1;
  say(&ready, 1);
  hear(&ready, 1);
}

static uint64_t place_at(const struct end *end, uint32_t place) {
  return end->node.address + end->node.pool_offset + (uint64_t)place * ((end->bytes + 63u) & ~63u);
}

/* Whole and valid messages of `bytes`, in as many places as fit. */
static void make_messages(struct end *end, uint32_t bytes) {
  end->bytes = bytes;
  uint64_t fit = POOL / ((bytes + 63u) & ~63u);
  end->places = fit < DEPTH ? (uint32_t)fit : DEPTH;
  end->free_places = 0;
  for (uint32_t place = 0; place < end->places; place++) {
    uint8_t *at = (uint8_t *)(uintptr_t)place_at(end, place);
    const uint8_t head[8] = {0x5a, 0x41, 0x50, 0, 1, 0, 7, 0};
    memset(at, 0x5b, bytes);
    memcpy(at, head, sizeof head);
    memset(at + 8, 0, 4);
    memcpy(at + 12, &bytes, 4);
    end->free[end->free_places++] = place;
  }
}

static void rouse(struct end *end, struct zap_ring_end *ring) {
  if (zap_ring_publish(ring)) MUST(zap_gpudirect_kick(end->handle));
}

static void take_dones(struct end *end) {
  uint32_t ready = zap_ring_ready(&end->dones);
  for (uint32_t i = 0; i < ready; i++) {
    const zap_ring_entry *entry = zap_ring_read(&end->dones);
    if (entry->length != 1) die("a message was not delivered");
    end->free[end->free_places++] = entry->token;
  }
  if (ready > 0) zap_ring_consumed(&end->dones);
}

/* Until there may be something in `ring`. */
static void pause_for(struct end *end, struct zap_ring_end *ring) {
  /* Under emulation looking at the clock takes longer than looking at a ring. */
  static unsigned looks;
  if (looks++ % 256 == 0 && zap_now() > end->until) {
    zap_gpudirect_stats s = {0};
    (void)zap_gpudirect_stats_read(end->handle, &s);
    die("nothing comes any more: %llu out, %llu in, %llu sends, %llu reads, %llu failures, %u flows", (unsigned long long)s.messages_out,
        (unsigned long long)s.messages_in, (unsigned long long)s.sends, (unsigned long long)s.reads, (unsigned long long)s.failures,
        s.flows);
  }
  if (zap_ring_ready(&end->events) > 0) {
    zap_gpudirect_event event;
    memcpy(&event, (const uint8_t *)end->events.ring + ZAP_RING_HEAD_BYTES, sizeof event);
    die("the queue pair ended: reason %u, status %u", event.reason, event.status);
  }
  if (!end->wake) {
    if (end->drive) MUST(zap_gpudirect_kick(end->handle));
    else (void)sched_yield();
    return;
  }
  __atomic_store_n(&ring->ring->armed, 1, __ATOMIC_SEQ_CST);
  __atomic_store_n(&end->events.ring->armed, 1, __ATOMIC_SEQ_CST);
  if (zap_ring_ready(ring) > 0 || zap_ring_ready(&end->events) > 0) return;
  struct pollfd waiting = {.fd = end->node.wake_fd, .events = POLLIN};
  (void)poll(&waiting, 1, 1000);
  char drained[64];
  while (recv(end->node.wake_fd, drained, sizeof drained, MSG_DONTWAIT) > 0) continue;
}

static void send_one(struct end *end) {
  while (end->free_places == 0) {
    take_dones(end);
    if (end->free_places == 0) pause_for(end, &end->dones);
  }
  uint32_t place = end->free[--end->free_places];
  *zap_ring_write(&end->sends) =
      (zap_ring_entry){.address = place_at(end, place), .length = end->bytes, .peer = end->flow, .token = place};
  rouse(end, &end->sends);
}

/* Takes a message and gives it back at once. */
static void take_one(struct end *end, uint32_t bytes) {
  while (zap_ring_ready(&end->handoff) == 0) pause_for(end, &end->handoff);
  take_dones(end);
  zap_ring_entry entry = *zap_ring_read(&end->handoff);
  zap_ring_consumed(&end->handoff);
  if (entry.length != bytes || memcmp((const void *)(uintptr_t)entry.address, "ZAP", 4) != 0) die("a message came damaged");
  *zap_ring_write(&end->returns) = (zap_ring_entry){.token = entry.token};
  rouse(end, &end->returns);
}

/* ---- what is measured ---- */

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double processor_micros(void) {
  struct rusage usage;
  (void)getrusage(RUSAGE_SELF, &usage);
  return 1e6 * (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) + (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

/* The first burst warms up. */
static uint32_t count_of(uint32_t count, uint32_t burst) { return burst == 0 ? count / 8 + 1 : count; }

static uint64_t count_all(uint32_t count, uint32_t bursts) { return count_of(count, 0) + (uint64_t)count * bursts; }

static void round_trips(struct end *end, uint32_t bytes, uint32_t count, uint32_t bursts, bool client) {
  make_messages(end, bytes);
  if (!client) {
    for (uint64_t i = 0; i < count_all(count, bursts); i++) {
      take_one(end, bytes);
      send_one(end);
    }
    return;
  }
  double *trips = calloc((size_t)count * bursts, sizeof *trips);
  if (trips == NULL) die("out of memory");
  size_t trip = 0;
  printf("\"micros\":[");
  for (uint32_t burst = 0; burst <= bursts; burst++) {
    uint64_t begin = zap_now(), last = begin;
    for (uint32_t i = 0; i < count_of(count, burst); i++) {
      send_one(end);
      take_one(end, bytes);
      uint64_t now = zap_now();
      if (burst > 0) trips[trip++] = (double)(now - last) / 1e3;
      last = now;
    }
    if (burst > 0) printf("%s%.2f", burst > 1 ? "," : "", (double)(last - begin) / 1e3 / count);
  }
  qsort(trips, trip, sizeof *trips, ascending);
  printf("],\"medianMicros\":%.2f,\"p99Micros\":%.2f", trips[trip / 2], trips[trip * 99 / 100]);
  free(trips);
}

/* Until the far end has said that it has them all, which is a message of 64 bytes. */
static void one_way(struct end *end, uint32_t bytes, uint32_t count, uint32_t bursts, bool client) {
  if (!client) {
    make_messages(end, 64);
    for (uint32_t burst = 0; burst <= bursts; burst++) {
      for (uint32_t i = 0; i < count_of(count, burst); i++) take_one(end, bytes);
      send_one(end);
    }
    return;
  }
  make_messages(end, bytes);
  printf("\"megabytes\":[");
  for (uint32_t burst = 0; burst <= bursts; burst++) {
    uint64_t begin = zap_now();
    for (uint32_t i = 0; i < count_of(count, burst); i++) send_one(end);
    take_one(end, 64);
    if (burst > 0) printf("%s%.3f", burst > 1 ? "," : "", (double)bytes * count * 1e3 / (double)(zap_now() - begin));
  }
  printf("]");
}

static void pin(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  if (core >= 0 && sched_setaffinity(0, sizeof set, &set) != 0) die("no core %d", core);
}

static bool is(const char *word, const char *one, const char *two) {
  if (strcmp(word, one) != 0 && strcmp(word, two) != 0) die("%s or %s is wanted, not %s", one, two, word);
  return strcmp(word, one) == 0;
}

int main(int words, char **word) {
  if (words != 13) die("twelve words are wanted");
  bool trips = is(word[5], "roundtrip", "oneway"), wake = is(word[10], "wake", "poll");
  bool drive = strcmp(word[9], "drive") == 0, spin = !drive && is(word[9], "spin", "sleep");
  bool one = strcmp(word[11], "one") == 0, two = strcmp(word[11], "two") == 0;
  uint32_t bytes = (uint32_t)atoi(word[6]), count = (uint32_t)atoi(word[7]), bursts = (uint32_t)atoi(word[8]);
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) die("no sockets");
  pid_t child = fork();
  if (child < 0) die("no second process");
  bool client = child != 0;
  other = sockets[client ? 0 : 1];
  (void)close(sockets[client ? 1 : 0]);
  (void)alarm(120);
  pin(one ? 0 : two ? (client ? 0 : 1) : -1);
  zap_gpudirect_settings settings = {.gid_index = atoi(word[4]),
                                     .flags = spin ? ZAP_GPUDIRECT_SPIN : drive ? ZAP_GPUDIRECT_DRIVEN : 0,
                                     .flows = 8,
                                     .eager_bytes = (uint32_t)atoi(word[12]),
                                     .message_area = 64 * MIB,
                                     .pool_area = POOL};
  /* As many slabs as two peers need, as the library has at least. */
  settings.eager_area = 128u * (settings.eager_bytes == 0 ? 8192u : settings.eager_bytes);
  (void)snprintf(settings.runtime, sizeof settings.runtime, "%s", word[1]);
  (void)snprintf(settings.device, sizeof settings.device, "%s", word[client ? 2 : 3]);
  struct end end = {.wake = wake, .drive = drive, .until = zap_now() + LIMIT_NS};
  open_end(&end, &settings);
  double busy = processor_micros();
  if (client) printf("{");
  if (trips) round_trips(&end, bytes, count, bursts, client);
  else one_way(&end, bytes, count, bursts, client);
  zap_gpudirect_stats s;
  MUST(zap_gpudirect_stats_read(end.handle, &s));
  busy = (processor_micros() - busy) / (double)count_all(count, bursts);
  if (client) {
    double theirs;
    hear(&theirs, sizeof theirs);
    printf(",\"cpuMicros\":%.2f,\"theirCpuMicros\":%.2f,\"sends\":%llu,\"inline\":%llu,\"reads\":%llu,", busy, theirs,
           (unsigned long long)s.sends, (unsigned long long)s.inline_sends, (unsigned long long)s.reads);
    printf("\"completions\":%llu,\"polls\":%llu,\"sleeps\":%llu,\"stalls\":%llu}\n", (unsigned long long)s.completions,
           (unsigned long long)s.polls, (unsigned long long)s.sleeps, (unsigned long long)s.stalls);
    (void)fflush(stdout);
  } else {
    say(&busy, sizeof busy);
    /* The last message is delivered before this end goes. */
    while (end.free_places < end.places) {
      take_dones(&end);
      if (end.free_places < end.places) pause_for(&end, &end.dones);
    }
  }
  char over = 1;
  if (client) say(&over, 1), hear(&over, 1);
  else hear(&over, 1), say(&over, 1);
  MUST(zap_gpudirect_close(end.handle));
  int32_t status;
  while ((status = zap_gpudirect_closed(end.handle)) == ZAP_E_AGAIN) (void)usleep(1000);
  MUST(status);
  MUST(zap_gpudirect_region_free(end.node.region));
  if (!client) return 0;
  int ended = 0;
  (void)waitpid(child, &ended, 0);
  return ended == 0 ? 0 : 1;
}
