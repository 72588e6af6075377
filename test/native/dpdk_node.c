/*
 * Nodes by their verbs and rings: two in one process over net_memif. Words: the path of the socket.
 */
#include <sched.h>

#include "dpdk_sides.h"

static struct side left, right_side;

static void bad_sends(void) {
  zap_dpdk_stats before, after;
  MUST(zap_dpdk_stats_read(left.handle, &before));
  left.failed = 0;
  uint32_t flow = left.flow;
  send_message(&left, (uint32_t)left.node.pool_bytes, 64, 1); /* beyond the region */
  send_message(&left, 0, 64, ZAP_DPDK_MESSAGES);              /* no number */
  left.flow = flow + (1u << 16);
  send_message(&left, 0, 64, 2); /* no flow */
  left.flow = flow;
  give_back(&left, 5); /* was never out */
  give_back(&left, UINT32_MAX);
  WAIT_UNTIL((hear(&left), left.failed == 2));
  WAIT_UNTIL((zap_dpdk_stats_read(left.handle, &after), after.unusable_sends == before.unusable_sends + 4));
}

/* What is no ZAP message is dropped at the far end and counted, and the flow lives on. */
static void bad_messages(void) {
  uint8_t *at = left.base + left.node.pool_offset;
  left.done = 0;
  memset(at, 0, 64);
  send_message(&left, 0, 64, 1);
  fill(at + 64, 64, 0);
  at[64 + 4] = 9;
  send_message(&left, 64, 64, 2);
  fill(at + 128, 64, 0);
  at[128 + 12] = 65;
  send_message(&left, 128, 64, 3);
  send_message(&left, 128, 8, 4);
  WAIT_UNTIL((hear(&left), left.done == 4));
  zap_dpdk_stats stats;
  MUST(zap_dpdk_stats_read(right_side.handle, &stats));
  CHECK_EQUAL(stats.message_drops[1], 1);
  CHECK_EQUAL(stats.message_drops[2], 1);
  CHECK_EQUAL(stats.message_drops[3], 1);
  CHECK_EQUAL(stats.message_drops[4], 1);
  exchange(&left, &right_side, 12, 1);
}

/* Nobody takes anything: what is queued stays within the limit, and all of it arrives once somebody does. */
static void back_pressure(void) {
  enum { COUNT = 600, BYTES = 16384 };
  uint8_t *at = left.base + left.node.pool_offset;
  left.done = 0;
  memset(at, 0, BYTES);
  fill(at, BYTES, 9);
  for (uint32_t i = 0; i < COUNT; i++) send_message(&left, 0, BYTES, i);
  zap_dpdk_stats stats;
  WAIT_UNTIL((zap_dpdk_stats_read(right_side.handle, &stats), stats.queued_bytes >= 3u << 20));
  pause_millis(100);
  MUST(zap_dpdk_stats_read(right_side.handle, &stats));
  CHECK(stats.queued_bytes <= 4u << 20);
  CHECK_EQUAL(stats.queued_messages, stats.queued_bytes / BYTES);
  uint32_t seen = 0;
  uint64_t until = zap_now() + 30000000000ull;
  while (seen < COUNT && zap_now() < until) {
    hear(&left);
    while (zap_ring_ready(&right_side.handoff) > 0) {
      zap_ring_entry entry = *zap_ring_read(&right_side.handoff);
      CHECK(memcmp((const void *)(uintptr_t)entry.address, at, BYTES) == 0);
      zap_ring_consumed(&right_side.handoff);
      give_back(&right_side, entry.token);
      seen++;
      right_side.received++;
    }
  }
  CHECK_EQUAL(seen, COUNT);
  WAIT_UNTIL((hear(&left), left.done == COUNT));
  WAIT_UNTIL((zap_dpdk_stats_read(right_side.handle, &stats), stats.held_bytes == 0));
}

static void wake(void) {
  char bytes[64];
  while (read(right_side.node.wake_fd, bytes, sizeof bytes) > 0) continue;
  __atomic_store_n(&right_side.handoff.ring->armed, 1, __ATOMIC_SEQ_CST);
  fill(left.base + left.node.pool_offset, length_of(0), 0);
  right_side.expected = 0;
  left.done = 0;
  send_message(&left, 0, length_of(0), 7);
  ssize_t woken = -1;
  for (int i = 0; i < 10000 && (woken = read(right_side.node.wake_fd, bytes, sizeof bytes)) < 0; i++) pause_millis(1);
  CHECK_EQUAL(woken, 1);
  CHECK_EQUAL(right_side.handoff.ring->armed, 0);
  take(&right_side);
  CHECK_EQUAL(right_side.expected, 1);
  WAIT_UNTIL((hear(&left), left.done == 1));
}

/* ---- a consumer that plays a GPU: it knows zap_ring.h, and polls the same memory ---- */

struct kernel {
  zap_ring *handoff, *returns;
  atomic_bool stop;
  uint64_t taken, sum;
};

static void *play_gpu(void *context) {
  struct kernel *kernel = context;
  uint64_t head = kernel->handoff->head, tail = kernel->returns->tail;
  while (!atomic_load(&kernel->stop)) {
    uint64_t until = __atomic_load_n(&kernel->handoff->tail, __ATOMIC_ACQUIRE);
    if (head == until) {
      (void)sched_yield();
      continue;
    }
    for (; head != until; head++) {
      zap_ring_entry entry = *zap_ring_slot(kernel->handoff, kernel->handoff->slots, head);
      uint8_t *bytes = (uint8_t *)(uintptr_t)entry.address;
      /* The memory is the consumer's now, to write as well. */
      for (uint32_t i = 16; i < entry.length; i++) kernel->sum += bytes[i];
      memset(bytes, 0xee, entry.length);
      kernel->taken++;
      __atomic_store_n(&kernel->handoff->head, head + 1, __ATOMIC_RELEASE);
      zap_ring_slot(kernel->returns, kernel->returns->slots, tail)->token = entry.token;
      __atomic_store_n(&kernel->returns->tail, ++tail, __ATOMIC_RELEASE);
    }
  }
  return NULL;
}

static void other_consumer(void) {
  enum { COUNT = 3000, PLACES = 64, BYTES = 65536 };
  struct kernel kernel = {.handoff = right_side.handoff.ring, .returns = right_side.returns.ring};
  uint64_t sum = 0;
  pthread_t thread;
  CHECK_EQUAL(pthread_create(&thread, NULL, play_gpu, &kernel), 0);
  left.done = 0;
  for (uint32_t sent = 0; sent < COUNT; hear(&left)) {
    if (sent - left.done >= PLACES) continue;
    uint32_t length = 16 + sent * 977 % (sent % 16 == 0 ? BYTES - 16 : 2000), offset = sent % PLACES * BYTES;
    uint8_t *at = left.base + left.node.pool_offset + offset;
    fill(at, length, sent);
    for (uint32_t i = 16; i < length; i++) sum += at[i];
    send_message(&left, offset, length, sent);
    sent++;
  }
  WAIT_UNTIL((hear(&left), left.done == COUNT));
  WAIT_UNTIL(__atomic_load_n(&kernel.handoff->head, __ATOMIC_ACQUIRE) == __atomic_load_n(&kernel.handoff->tail, __ATOMIC_ACQUIRE));
  pause_millis(5);
  atomic_store(&kernel.stop, true);
  (void)pthread_join(thread, NULL);
  CHECK_EQUAL(kernel.taken, COUNT);
  CHECK_EQUAL(kernel.sum, sum);
  /* Our own ends go on where it left off. */
  right_side.handoff.mine = right_side.handoff.seen = kernel.handoff->head;
  right_side.returns.mine = kernel.returns->tail;
  right_side.received += COUNT;
  zap_dpdk_stats stats;
  WAIT_UNTIL((zap_dpdk_stats_read(right_side.handle, &stats), stats.held_bytes == 0 && stats.queued_messages == 0));
}

static void run(const char *path, bool server_first) {
  char device[256];
  zap_dpdk_settings settings;
  (void)snprintf(device, sizeof device, "net_memif0,role=server,id=0,socket=%s,socket-abstract=no", path);
  settings_of(&settings, device, 1, server_first ? ZAP_DPDK_LISTEN : 0);
  open_side(&left, &settings);
  MUST(wait_open(left.handle, &left.node));
  (void)snprintf(device, sizeof device, "net_memif1,role=client,id=0,socket=%s,socket-abstract=no", path);
  settings_of(&settings, device, 2, server_first ? 0 : ZAP_DPDK_LISTEN);
  settings.message_bytes = 0;
  open_side(&right_side, &settings);
  MUST(wait_open(right_side.handle, &right_side.node));
  attach(&left);
  attach(&right_side);
  CHECK_EQUAL(left.node.mtu, 1500);
  CHECK_EQUAL(left.node.payload_bytes, 1408);
  dial(server_first ? &right_side : &left, server_first ? 1 : 2, 77);
  WAIT_UNTIL((hear(&left), hear(&right_side), left.ups == 1 && right_side.ups == 1));
  exchange(&left, &right_side, 120, 1);
  zap_dpdk_stats stats;
  MUST(zap_dpdk_stats_read(right_side.handle, &stats));
  /* Those that fit into one segment. */
  CHECK_EQUAL(stats.in_place, 70);
  CHECK_EQUAL(stats.messages_in, 120);
  bad_sends();
  bad_messages();
  back_pressure();
  wake();
  other_consumer();
  /* Nobody answers who does not listen. */
  dial(server_first ? &left : &right_side, server_first ? 2 : 1, 78);
  zap_dpdk_dial nobody = {.number = 79, .port = KIT_PORT, .ip = {[10] = 0xff, [11] = 0xff, 10, 9, 0, 77}};
  MUST(zap_dpdk_dial_begin(left.handle, &nobody));
  MUST(zap_dpdk_dial_cancel(left.handle, 79));
  MUST(zap_dpdk_flow_close(left.handle, left.flow));
  WAIT_UNTIL((hear(&left), hear(&right_side), left.downs == 1 && right_side.downs == 1));
  CHECK_EQUAL(left.undelivered + right_side.undelivered, 0);
  close_side(&right_side);
  close_side(&left);
  CHECK_EQUAL(zap_dpdk_live(), 0);
}

static void refusals(void) {
  zap_dpdk_settings settings;
  zap_dpdk_node node;
  settings_of(&settings, "net_no_such0", 1, 0);
  int32_t handle = zap_dpdk_open(&settings, NULL, 0);
  CHECK(handle > 0);
  CHECK(wait_open(handle, &node) < 0);
  CHECK(strlen(zap_failure()) > 10);
  CHECK_EQUAL(zap_dpdk_opened(handle, &node), ZAP_E_HANDLE);
  settings.udp_port = 0;
  CHECK_EQUAL(zap_dpdk_open(&settings, NULL, 0), ZAP_E_INVALID);
  settings_of(&settings, "net_null0", 1, 0);
  settings.id_length = 61;
  CHECK_EQUAL(zap_dpdk_open(&settings, NULL, 0), ZAP_E_INVALID);
  settings.id_length = 3;
  settings.packet_area = 0;
  CHECK_EQUAL(zap_dpdk_open(&settings, NULL, 0), ZAP_E_INVALID);
  CHECK_EQUAL(zap_dpdk_open(NULL, NULL, 0), ZAP_E_INVALID);
  /* Closed before it was open. */
  settings_of(&settings, "net_null0", 1, 0);
  handle = zap_dpdk_open(&settings, NULL, 0);
  CHECK(handle > 0);
  CHECK_EQUAL(zap_dpdk_close(handle), ZAP_OK);
  int32_t status = ZAP_E_AGAIN;
  for (int i = 0; i < 20000 && (status = zap_dpdk_closed(handle)) == ZAP_E_AGAIN; i++) pause_millis(1);
  CHECK_EQUAL(status, ZAP_OK);
  CHECK_EQUAL(zap_dpdk_live(), 0);
  char name[32];
  CHECK_EQUAL(zap_dpdk_name(ZAP_DPDK_REASON, 64, name, sizeof name), 4);
  CHECK(strcmp(name, "dead") == 0);
  CHECK_EQUAL(zap_dpdk_name(ZAP_DPDK_FRAME, 1000, name, sizeof name), 0);
}

int main(int count, char **words) {
  if (count < 2) return 2;
  refusals();
  run(words[1], true);
  /* The same ports again, the other way round. */
  run(words[1], false);
  return checks_done("node");
}
