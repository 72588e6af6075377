/* Nodes by their verbs and rings: two in one process, each with one of the guest's devices. Words: libibverbs, two devices, GID index, flags. */
#include "sides.h"

static struct side left, right_side;

static void ended(uint32_t reason) {
  WAIT_UNTIL((hear(&left), take(&right_side), left.downs == 1 && right_side.downs == 1));
  CHECK_EQUAL(left.reason, reason);
  CHECK_EQUAL(right_side.reason, reason);
}

/* What is no ZAP message is dropped at the far end and counted, and the queue pair lives on. */
static void bad_messages(void) {
  uint8_t *at = left.base + left.node.pool_offset;
  zap_gpudirect_stats before, after;
  MUST(zap_gpudirect_stats_read(right_side.handle, &before));
  left.done = 0;
  memset(at, 0, 64);
  send_message(&left, 0, 64, 1);
  fill(at + 64, 64, 0);
  at[64 + 4] = 9;
  send_message(&left, 64, 64, 2);
  memset(at + 4096, 0, 20000);
  send_message(&left, 4096, 20000, 3);
  WAIT_UNTIL((hear(&left), left.done == 3));
  WAIT_UNTIL((zap_gpudirect_stats_read(right_side.handle, &after),
              after.message_drops[2] == before.message_drops[2] + 2 && after.message_drops[3] == before.message_drops[3] + 1));
  CHECK_EQUAL(after.held_bytes, 0);
}

static void bad_sends(void) {
  uint32_t flow = left.flow;
  zap_gpudirect_stats before, after;
  MUST(zap_gpudirect_stats_read(left.handle, &before));
  left.failed = 0;
  send_message(&left, (uint32_t)left.node.pool_bytes, 64, 1); /* beyond the region */
  send_message(&left, 0, 64, ZAP_GPUDIRECT_MESSAGES);         /* no number */
  left.flow = flow + (1u << 16);
  send_message(&left, 0, 64, 2); /* no flow */
  left.flow = flow;
  give_back(&left, 5); /* was never out */
  WAIT_UNTIL((hear(&left), left.failed == 2));
  WAIT_UNTIL((zap_gpudirect_stats_read(left.handle, &after), after.unusable == before.unusable + 3));
}

/* Nobody takes anything: what is queued stays within the limit, and all of it arrives once somebody does. */
static void back_pressure(uint32_t bytes, uint32_t count) {
  uint8_t *at = left.base + left.node.pool_offset;
  left.done = 0;
  fill(at, bytes, 9);
  for (uint32_t i = 0; i < count; i++) send_message(&left, 0, bytes, i);
  pause_millis(1500);
  zap_gpudirect_stats stats;
  MUST(zap_gpudirect_stats_read(right_side.handle, &stats));
  CHECK(stats.queued_bytes <= (4u << 20) + 64 * 8192);
  CHECK(stats.queued_bytes >= 1u << 20);
  uint32_t seen = 0;
  uint64_t until = zap_now() + 60000000000ull;
  while (seen < count && zap_now() < until) {
    hear(&left);
    while (zap_ring_ready(&right_side.handoff) > 0) {
      zap_ring_entry entry = *zap_ring_read(&right_side.handoff);
      CHECK(entry.length == bytes && memcmp((const void *)(uintptr_t)entry.address, at, bytes) == 0);
      zap_ring_consumed(&right_side.handoff);
      give_back(&right_side, entry.token);
      seen++;
      right_side.received++;
    }
    (void)sched_yield();
  }
  CHECK_EQUAL(seen, count);
  WAIT_UNTIL((hear(&left), left.done == count));
}

/* One end goes without a word: the other finds out, and what was on its way comes back. */
static void abort_midway(void) {
  join(&left, &right_side);
  uint32_t length = 1u << 20;
  left.failed = left.done = 0;
  fill(left.base + left.node.pool_offset, length, 1);
  for (uint32_t i = 0; i < 8; i++) send_message(&left, 0, length, i);
  MUST(zap_gpudirect_flow_abort(right_side.handle, right_side.flow));
  uint64_t until = zap_now() + 30000000000ull;
  while ((left.downs == 0 || right_side.downs == 0) && zap_now() < until) {
    hear(&left);
    hear(&right_side);
    while (zap_ring_ready(&right_side.handoff) > 0) {
      uint32_t token = zap_ring_read(&right_side.handoff)->token;
      zap_ring_consumed(&right_side.handoff);
      give_back(&right_side, token);
      right_side.received++;
    }
    /* Somebody else has to notice: a queue pair that waits has no sign of life of its own. */
    if (right_side.downs > 0) MUST(zap_gpudirect_flow_abort(left.handle, left.flow));
    pause_millis(1);
  }
  CHECK_EQUAL(left.downs, 1);
  CHECK_EQUAL(right_side.downs, 1);
  CHECK_EQUAL(left.done + left.failed, 8);
  /* Those that the node had not even taken come back as well, and were never accepted. */
  CHECK(left.undelivered <= left.failed);
  zap_gpudirect_stats stats;
  WAIT_UNTIL((zap_gpudirect_stats_read(right_side.handle, &stats), stats.held_bytes == 0 && stats.flows == 0));
}

static void refusals(const char *runtime, const char *device) {
  zap_gpudirect_settings settings;
  zap_gpudirect_node node;
  settings_of(&settings, runtime, "no_such0", 0);
  int32_t handle = zap_gpudirect_open(&settings);
  CHECK(handle > 0);
  CHECK_EQUAL(wait_open(handle, &node), ZAP_E_DEVICE);
  CHECK_CONTAINS(zap_failure(), "no_such0");
  CHECK_EQUAL(zap_gpudirect_opened(handle, &node), ZAP_E_HANDLE);
  settings_of(&settings, runtime, device, 0);
  settings.eager_bytes = 100;
  CHECK_EQUAL(zap_gpudirect_open(&settings), ZAP_E_INVALID);
  CHECK_EQUAL(zap_gpudirect_open(NULL), ZAP_E_INVALID);
  zap_prerequisite rows[8];
  CHECK_EQUAL(zap_gpudirect_probe(runtime, "", 0, -1, rows, 8), 4);
  for (int i = 0; i < 4; i++) CHECK_EQUAL(rows[i].met, 1);
  CHECK_EQUAL(zap_gpudirect_live(), 0);
}

int main(int count, char **words) {
  if (count < 6) return 2;
  refusals(words[1], words[2]);
  zap_gpudirect_settings settings;
  settings_of(&settings, words[1], words[2], atoi(words[4]));
  settings.flags = (uint32_t)atoi(words[5]);
  open_side(&left, &settings);
  settings_of(&settings, words[1], words[3], atoi(words[4]));
  open_side(&right_side, &settings);
  CHECK_EQUAL(left.node.windows, atoi(words[5]) != 2);
  join(&left, &right_side);
  exchange(&left, &right_side, 24, 1);
  exchange(&left, &right_side, 96, 16);
  exchange(&right_side, &left, 96, 16);
  bad_messages();
  bad_sends();
  exchange(&left, &right_side, 12, 4);
  back_pressure(4096, 1200);
  back_pressure(200000, 40);
  zap_gpudirect_stats stats;
  MUST(zap_gpudirect_stats_read(left.handle, &stats));
  printf("sends %llu inline %llu reads %llu stalls %llu sleeps %llu failures %llu\n", (unsigned long long)stats.sends,
         (unsigned long long)stats.inline_sends, (unsigned long long)stats.reads, (unsigned long long)stats.stalls,
         (unsigned long long)stats.sleeps, (unsigned long long)stats.failures);
  CHECK_EQUAL(stats.rnr_exceeded, 0);
  MUST(zap_gpudirect_flow_close(left.handle, left.flow));
  ended(1);
  CHECK_EQUAL(left.undelivered + right_side.undelivered, 0);
  abort_midway();
  join(&left, &right_side);
  exchange(&right_side, &left, 12, 4);
  close_side(&right_side);
  close_side(&left);
  CHECK_EQUAL(zap_gpudirect_live(), 0);
  return checks_done("node");
}
