/*
 * Nodes over every kind of link that needs no hardware, both ways, over IPv4 and IPv6. Words: the kind, and a folder for sockets.
 * What takes veth pairs makes them in a network namespace of its own, gone with this process; that needs root.
 */
#include <sched.h>

#include "dpdk_sides.h"

static struct side left, right_side;

struct kind {
  const char *name, *setup;
  const char *left, *right; /* with the folder in place of %s */
  uint32_t queues, mtu;
  bool copies; /* the device takes packets only from memory of DPDK's */
  bool in_place, lends;
};

#define PAIR "ip link add zapa type veth peer name zapb"
#define UP "ip link set zapa addrgenmode none; ip link set zapb addrgenmode none; ip link set zapa up; ip link set zapb up"
#define PACKET(end, bytes, frames) \
  "net_af_packet_" end ",iface=zap" end ",blocksz=65536,framesz=" bytes ",framecnt=" frames ",qdisc_bypass=1"
#define MEMIF(role) ",role=" role ",id=0,socket=%s/memif.sock,socket-abstract=no"

static const struct kind kinds[] = {
    {.name = "memif", .left = "net_memif0" MEMIF("server"), .right = "net_memif1" MEMIF("client"), .in_place = true, .lends = true},
    {.name = "memif-jumbo", .left = "net_memif0" MEMIF("server") ",bsize=9216", .right = "net_memif1" MEMIF("client") ",bsize=9216",
     .mtu = 9000, .in_place = true, .lends = true},
    {.name = "af_packet", .setup = PAIR "; " UP, .left = PACKET("a", "2048", "4096"), .right = PACKET("b", "2048", "4096"), .in_place = true,
     .lends = true},
    {.name = "af_packet-jumbo", .setup = PAIR "; ip link set zapa mtu 9000; ip link set zapb mtu 9000; " UP,
     .left = PACKET("a", "16384", "512"), .right = PACKET("b", "16384", "512"), .mtu = 9000, .in_place = true, .lends = true},
    {.name = "af_packet-queues", .setup = PAIR "; " UP, .left = PACKET("a", "2048", "1024") ",qpairs=3",
     .right = PACKET("b", "2048", "1024") ",qpairs=2", .queues = 3, .in_place = true, .lends = true},
    {.name = "af_xdp", .setup = PAIR " numrxqueues 1 numtxqueues 1; " UP, .left = "net_af_xdp_a,iface=zapa", .right = "net_af_xdp_b,iface=zapb",
     .copies = true},
};

static void open_one(struct side *side, const struct kind *kind, const char *folder, uint8_t last) {
  char device[512];
  zap_dpdk_settings settings;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  (void)snprintf(device, sizeof device, last == 1 ? kind->left : kind->right, folder);
#pragma GCC diagnostic pop
  settings_of(&settings, device, last, ZAP_DPDK_LISTEN | ZAP_DPDK_IP6);
  struct zap_ip ip6 = kit_ip6(last);
  memcpy(settings.ip6, ip6.bytes, sizeof settings.ip6);
  settings.packet_area = 32u << 20;
  settings.queues = kind->queues;
  settings.mtu = (uint16_t)kind->mtu;
  open_side(side, &settings);
  MUST(wait_open(side->handle, &side->node));
  attach(side);
  CHECK_EQUAL(side->node.queues, kind->queues == 0 ? 1 : kind->queues - (uint32_t)(last - 1));
}

static void dial6(struct side *from, uint8_t last) {
  struct zap_ip ip6 = kit_ip6(last);
  zap_dpdk_dial dial = {.number = 1, .port = KIT_PORT};
  memcpy(dial.ip, ip6.bytes, sizeof dial.ip);
  MUST(zap_dpdk_dial_begin(from->handle, &dial));
}

static void talk(const struct kind *kind, bool v4) {
  left.ups = right_side.ups = left.downs = right_side.downs = 0;
  if (v4) dial(&left, 2, 1);
  else dial6(&right_side, 1);
  WAIT_UNTIL((hear(&left), hear(&right_side), left.ups == 1 && right_side.ups == 1));
  exchange(&left, &right_side, 240, 32);
  exchange(&right_side, &left, 240, 32);
  exchange(&left, &right_side, 12, 1);
  zap_dpdk_stats stats;
  MUST(zap_dpdk_stats_read(left.handle, &stats));
  CHECK_EQUAL(stats.in_place > 0, kind->in_place);
  MUST(zap_dpdk_flow_close(left.handle, left.flow));
  WAIT_UNTIL((hear(&left), hear(&right_side), left.downs == 1 && right_side.downs == 1));
  CHECK_EQUAL(left.undelivered + right_side.undelivered, 0);
}

int main(int count, char **words) {
  if (count < 3) return 2;
  const struct kind *kind = NULL;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (strcmp(kinds[i].name, words[1]) == 0) kind = &kinds[i];
  if (kind == NULL) return 2;
  if (kind->setup != NULL && (unshare(CLONE_NEWNET) != 0 || system(kind->setup) != 0)) return 2;
  open_one(&left, kind, words[2], 1);
  open_one(&right_side, kind, words[2], 2);
  /* The client of a pair decides for both. */
  CHECK_EQUAL(right_side.node.own_memory, kind->copies);
  CHECK_EQUAL(right_side.node.lends, kind->lends);
  talk(kind, true);
  talk(kind, false);
  if (kind->queues > 1) {
    zap_dpdk_queue first, second;
    MUST(zap_dpdk_queue_read(left.handle, 0, &first));
    MUST(zap_dpdk_queue_read(left.handle, 1, &second));
    CHECK(first.polls > 0 && second.polls > 0);
    CHECK_EQUAL(zap_dpdk_queue_read(left.handle, 3, &first), ZAP_E_INVALID);
  }
  close_side(&right_side);
  close_side(&left);
  CHECK_EQUAL(zap_dpdk_live(), 0);
  return checks_done(words[1]);
}
