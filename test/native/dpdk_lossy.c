/*
 * Two nodes in one process whose link is dpdk_relay's: whatever it does to frames, every message arrives once, in order and intact. Words:
 * the paths of the relay's two sockets, and how many messages each way.
 */
#include "dpdk_sides.h"

static struct side left, right_side;

static void open_one(struct side *side, const char *socket, uint8_t last) {
  char device[256];
  zap_dpdk_settings settings;
  (void)snprintf(device, sizeof device, "net_memif%u,role=client,id=0,socket=%s,socket-abstract=no", last, socket);
  settings_of(&settings, device, last, ZAP_DPDK_LISTEN);
  open_side(side, &settings);
  MUST(wait_open(side->handle, &side->node));
  attach(side);
}

int main(int count, char **words) {
  if (count < 4) return 2;
  open_one(&left, words[1], 1);
  open_one(&right_side, words[2], 2);
  uint32_t messages = (uint32_t)strtoul(words[3], NULL, 10);
  dial(&left, 2, 1);
  WAIT_UNTIL((hear(&left), hear(&right_side), left.ups == 1 && right_side.ups == 1));
  exchange(&left, &right_side, messages, 32);
  exchange(&right_side, &left, messages, 32);
  zap_dpdk_stats stats;
  MUST(zap_dpdk_stats_read(left.handle, &stats));
  fprintf(stderr, "again %llu of %llu, losses %llu, timeouts %llu, checksum drops %llu, duplicates %llu\n",
          (unsigned long long)stats.segments_again, (unsigned long long)stats.segments_out, (unsigned long long)stats.losses,
          (unsigned long long)stats.timeouts, (unsigned long long)stats.datagram_drops[4], (unsigned long long)stats.datagram_drops[13]);
  CHECK(stats.segments_again > 0);
  MUST(zap_dpdk_flow_close(left.handle, left.flow));
  WAIT_UNTIL((hear(&left), hear(&right_side), left.downs == 1 && right_side.downs == 1));
  CHECK_EQUAL(left.undelivered + right_side.undelivered, 0);
  close_side(&right_side);
  close_side(&left);
  return checks_done("lossy");
}
