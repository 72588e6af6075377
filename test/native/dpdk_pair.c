/*
 * Two nodes over net_memif, driven from C by their verbs and rings: what a transport in JavaScript would cost without JavaScript. Takes
 * the words of bench/child.ts and prints its lines:
 *
 *   ROLE MODE SIZE WARM_MILLIS RUN_MILLIS LIMIT_SECONDS ADDRESS
 *
 * ROLE is receive or send, MODE throughput or roundtrip. The environment: ZAP_BENCH_FOLDER for the sockets, ZAP_BENCH_IDLE. Like an event
 * loop, the caller's thread sleeps where there is nothing to do, and is woken. Like `send`, it copies each message once.
 */
#include <poll.h>

#include "dpdk_clock.h"
#include "dpdk_sides.h"

enum { DATA = 1, START = 2, END = 3 };
#define WINDOW_BYTES (4u << 20)
#define WINDOW_MOST 1024u

static struct side node;
static struct trips trips;
static uint32_t size, room;
static uint32_t window;
static uint32_t spare[WINDOW_MOST], spares;
static uint8_t *message;
static uint64_t messages, began;

static void die(const char *what) {
  fprintf(stderr, "pair: %s\n", what);
  exit(1);
}

static void make_message(uint8_t type) {
  const uint8_t head[8] = {0x5a, 0x41, 0x50, 0, 1, 0, 0, type};
  memset(message, 0xa5, size);
  memcpy(message, head, 8);
  memset(message + 8, 0, 4);
  memcpy(message + 12, &size, 4);
}

static bool arm(struct zap_ring_end *end) {
  __atomic_store_n(&end->ring->armed, 1, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&end->ring->tail, __ATOMIC_SEQ_CST) == end->mine) return true;
  __atomic_store_n(&end->ring->armed, 0, __ATOMIC_SEQ_CST);
  return false;
}

static void sleep_until_woken(void) {
  struct pollfd waits = {.fd = node.node.wake_fd, .events = POLLIN};
  char bytes[64];
  (void)poll(&waits, 1, 1000);
  (void)!read(node.node.wake_fd, bytes, sizeof bytes);
}

/* Slots of the pool whose messages were acknowledged. */
static void take_dones(void) {
  uint32_t ready = zap_ring_ready(&node.dones);
  for (uint32_t i = 0; i < ready; i++) {
    const zap_ring_entry *entry = zap_ring_read(&node.dones);
    if (entry->length != 1) die("a message was not delivered");
    spare[spares++] = entry->token;
  }
  if (ready > 0) zap_ring_consumed(&node.dones);
}

static void post(void) {
  while (spares == 0) {
    take_dones();
    if (spares == 0 && arm(&node.dones)) sleep_until_woken();
  }
  uint32_t slot = spare[--spares];
  memcpy(node.base + node.node.pool_offset + (size_t)slot * room, message, size);
  send_message(&node, slot * room, size, slot);
  if (spares < window / 2) take_dones();
}

/* Takes messages until `wants` has enough. */
static void read_messages(bool (*wants)(const uint8_t *bytes)) {
  for (bool enough = false; !enough;) {
    uint32_t ready = zap_ring_ready(&node.handoff);
    if (ready == 0) {
      if (arm(&node.handoff)) sleep_until_woken();
      continue;
    }
    for (uint32_t i = 0; i < ready && !enough; i++) {
      zap_ring_entry entry = *zap_ring_read(&node.handoff);
      zap_ring_consumed(&node.handoff);
      const uint8_t *bytes = (const uint8_t *)(uintptr_t)entry.address;
      if (entry.length != size || memcmp(bytes, "ZAP", 4) != 0) die("a wrong message");
      enough = wants(bytes);
      give_back(&node, entry.token);
    }
  }
}

static bool count_message(const uint8_t *bytes) {
  if (bytes[7] == DATA) {
    messages++;
    return false;
  }
  uint64_t now = zap_now(), sent;
  if (bytes[7] == START) {
    messages = 0;
    began = now;
    return false;
  }
  memcpy(&sent, bytes + 16, sizeof sent);
  if (sent != messages) die("messages were lost");
  printf("{\"result\":{\"messages\":%llu,\"millis\":%.3f}}\n", (unsigned long long)messages, (double)(now - began) / 1e6);
  (void)fflush(stdout);
  return true;
}

static bool echo_message(const uint8_t *bytes) {
  memcpy(message, bytes, size);
  post();
  return false;
}

static bool one_message(const uint8_t *bytes) {
  (void)bytes;
  return true;
}

static uint64_t post_for(double millis) {
  uint32_t batch = 65536 / size < 1 ? 1 : 65536 / size > 64 ? 64 : 65536 / size;
  uint64_t sent = 0;
  for (uint64_t until = zap_now() + (uint64_t)(millis * 1e6); zap_now() < until; sent += batch)
    for (uint32_t i = 0; i < batch; i++) post();
  return sent;
}

static void flood(double warm_millis, double run_millis) {
  (void)post_for(warm_millis);
  make_message(START);
  post();
  make_message(DATA);
  uint64_t sent = post_for(run_millis);
  make_message(END);
  memcpy(message + 16, &sent, sizeof sent);
  post();
}

static void ping_pong(double warm_millis, double run_millis) {
  trips_begin(&trips, warm_millis, run_millis);
  for (uint64_t now = zap_now(); !trips_over(&trips, now); now = zap_now()) {
    post();
    read_messages(one_message);
    trip_made(&trips, now, zap_now());
  }
  trips_print(&trips);
}

static void open_node(const char *role, const char *path, uint8_t last, uint32_t flags) {
  char device[256];
  (void)snprintf(device, sizeof device, "net_memif0,role=%s,id=0,socket=%s,socket-abstract=no", role, path);
  zap_dpdk_settings settings;
  settings_of(&settings, device, last, flags);
  const char *idle = getenv("ZAP_BENCH_IDLE");
  settings.idle = idle_named(idle == NULL ? "sleep" : idle);
  settings.packet_area = 32u << 20;
  settings.message_area = 64u << 20;
  settings.pool_area = 2 * WINDOW_BYTES + WINDOW_MOST * 64;
  settings.message_bytes = 10u << 20;
  open_side(&node, &settings);
}

static void opened(void) {
  MUST(wait_open(node.handle, &node.node));
  attach(&node);
  window = WINDOW_BYTES / size < 1 ? 1 : WINDOW_BYTES / size > WINDOW_MOST ? WINDOW_MOST : WINDOW_BYTES / size;
  room = (size + 63) & ~63u;
  for (uint32_t i = 0; i < window; i++) spare[spares++] = window - 1 - i;
}

static void wait_up(void) {
  for (int i = 0; i < 10000 && (hear(&node), node.ups == 0); i++) pause_millis(1);
  if (node.ups == 0) die("no peer came up");
}

int main(int count, char **words) {
  if (count < 8) return 2;
  bool receive = strcmp(words[1], "receive") == 0, throughput = strcmp(words[2], "throughput") == 0;
  size = (uint32_t)strtoul(words[3], NULL, 10);
  if (size < 24 || size > WINDOW_BYTES) die("SIZE");
  (void)alarm((unsigned)atoi(words[6]));
  message = malloc(size);
  if (message == NULL) die("out of memory");
  make_message(DATA);
  if (receive) {
    char path[128];
    const char *folder = getenv("ZAP_BENCH_FOLDER");
    (void)snprintf(path, sizeof path, "%s/%d", folder == NULL ? "/tmp" : folder, (int)getpid());
    open_node("server", path, 1, ZAP_DPDK_LISTEN | ZAP_DPDK_STRANGERS);
    opened();
    printf("{\"address\":\"%s\"}\n", path);
    (void)fflush(stdout);
    wait_up();
    read_messages(throughput ? count_message : echo_message);
  } else {
    open_node("client", words[7], 2, ZAP_DPDK_STRANGERS);
    opened();
    dial(&node, 1, 1);
    wait_up();
    if (throughput) flood(atof(words[4]), atof(words[5]));
    else ping_pong(atof(words[4]), atof(words[5]));
  }
  return stay();
}
