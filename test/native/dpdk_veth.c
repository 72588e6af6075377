/*
 * net_af_packet over a veth pair, with the kernel on its other end: ordinary UDP sockets talk to a queue. In a network namespace
 * of its own, gone with this process; needs root.
 */
#include <arpa/inet.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "dpdk_echo.h"

#define MESSAGES 2000u

struct side {
  struct echo echo;
  bool greeted4, greeted6;
};

/* We speak first: that takes asking for the neighbour. */
static bool greet(void *context, struct zap_queue *queue, uint64_t now) {
  struct side *side = context;
  uint8_t payload[300];
  kit_payload(payload, sizeof payload, 1);
  struct zap_outbound datagram = {.ip = kit_ip4(2), .port = KIT_PORT, .payload = payload, .payload_length = sizeof payload};
  if (!side->greeted4) side->greeted4 = zap_queue_send(queue, &datagram, now) == ZAP_SENT;
  datagram.ip = kit_ip6(2);
  if (!side->greeted6) side->greeted6 = zap_queue_send(queue, &datagram, now) == ZAP_SENT;
  return false;
}

static int open_socket(bool v4) {
  int fd = socket(v4 ? AF_INET : AF_INET6, SOCK_DGRAM, 0);
  struct timeval wait = {.tv_sec = 5};
  CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait) == 0);
  struct sockaddr_in at4 = {.sin_family = AF_INET, .sin_port = htons(KIT_PORT)};
  struct sockaddr_in6 at6 = {.sin6_family = AF_INET6, .sin6_port = htons(KIT_PORT)};
  int only = 1;
  if (!v4) (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only);
  if (v4) CHECK_EQUAL(bind(fd, (struct sockaddr *)&at4, sizeof at4), 0);
  else CHECK_EQUAL(bind(fd, (struct sockaddr *)&at6, sizeof at6), 0);
  return fd;
}

static ssize_t send_to(int fd, bool v4, uint16_t port, const void *bytes, size_t length) {
  struct sockaddr_in at4 = {.sin_family = AF_INET, .sin_port = htons(port)};
  struct sockaddr_in6 at6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
  (void)inet_pton(AF_INET, "10.9.0.1", &at4.sin_addr);
  (void)inet_pton(AF_INET6, "fd00::1", &at6.sin6_addr);
  return v4 ? sendto(fd, bytes, length, 0, (struct sockaddr *)&at4, sizeof at4)
            : sendto(fd, bytes, length, 0, (struct sockaddr *)&at6, sizeof at6);
}

static void talk(int fd, bool v4) {
  uint8_t payload[1472], back[2048];
  ssize_t got = recv(fd, back, sizeof back, 0);
  CHECK_EQUAL(got, 300);
  CHECK(kit_payload_is(back, 300, 1));
  for (uint32_t number = 0; number < MESSAGES; number += 4) {
    for (uint32_t i = number; i < number + 4; i++) {
      uint32_t length = 8 + i * 11 % 1440;
      kit_payload(payload, length, i);
      CHECK_EQUAL(send_to(fd, v4, KIT_PORT, payload, length), length);
    }
    for (uint32_t i = number; i < number + 4; i++) {
      uint32_t length = 8 + i * 11 % 1440;
      got = recv(fd, back, sizeof back, 0);
      CHECK_EQUAL(got, length);
      if (got != (ssize_t)length || !kit_payload_is(back, length, i)) {
        CHECK_EQUAL(number, MESSAGES);
        return;
      }
    }
  }
}

int main(void) {
  if (unshare(CLONE_NEWNET) != 0) return 2;
  if (system("ip link add zapa type veth peer name zapb && ip addr add 10.9.0.2/24 dev zapb && "
             "ip -6 addr add fd00::2/64 dev zapb nodad && ip link set zapa addrgenmode none && ip link set lo up && ip link set zapa up && "
             "ip link set zapb up && ethtool -K zapb tx off gso off >/dev/null") != 0)
    return 2;
  size_t page;
  void *region = kit_region(&page);
  struct zap_eal_settings settings = kit_eal();
  MUST(zap_eal_start(&settings));
  struct zap_port *port;
  struct zap_port_settings port_settings =
      kit_port("net_af_packet0,iface=zapa,blocksz=65536,framesz=2048,framecnt=512,qdisc_bypass=1", 1, region, page);
  MUST(zap_port_open(&port_settings, &port));
  CHECK_EQUAL(port->mtu, 1500);
  struct side side = {.greeted4 = false};
  struct zap_queue_settings queue_settings = {.cpu = -1, .idle = ZAP_IDLE_PAUSE, .packet = echo_packet, .turn = greet, .context = &side};
  /* Before the greeting arrives. */
  int fd4 = open_socket(true), fd6 = open_socket(false);
  struct zap_queue *queue;
  MUST(zap_queue_start(port, 0, &queue_settings, &queue));
  talk(fd4, true);
  talk(fd6, false);
  /* Now the kernel has to ask. */
  CHECK_EQUAL(system("ip neigh flush dev zapb"), 0);
  uint8_t again[16], back[64];
  kit_payload(again, sizeof again, 5);
  CHECK_EQUAL(send_to(fd4, true, KIT_PORT, again, sizeof again), sizeof again);
  CHECK_EQUAL(recv(fd4, back, sizeof back, 0), sizeof again);
  CHECK_EQUAL(send_to(fd6, false, KIT_PORT, again, sizeof again), sizeof again);
  CHECK_EQUAL(recv(fd6, back, sizeof back, 0), sizeof again);
  struct zap_queue_stats stats, after;
  zap_queue_stats(queue, &stats);
  CHECK_EQUAL(stats.verdict[ZAP_PACKET_GOOD], MESSAGES * 2 + 2);
  CHECK(stats.asked >= 2);
  CHECK(stats.answered >= 2);
  CHECK_EQUAL(side.echo.failed, 0);
  /* What the kernel sends and nobody wants. */
  uint8_t large[4000] = {0x5a, 0x41, 0x50, 0};
  (void)send_to(fd4, true, KIT_PORT + 1, large, 100);
  (void)send_to(fd4, true, KIT_PORT, large + 1, 100);
  (void)send_to(fd4, true, KIT_PORT, large, 3);
  CHECK_EQUAL(send_to(fd4, true, KIT_PORT, large, sizeof large), sizeof large);
  /* This driver asks the kernel to put fragments together again, into frames that do not fit its slots: they come cut. */
  WAIT_UNTIL((zap_queue_stats(queue, &after), after.verdict[ZAP_PACKET_CUT] - stats.verdict[ZAP_PACKET_CUT] == 1));
  CHECK_EQUAL(after.verdict[ZAP_PACKET_PORT] - stats.verdict[ZAP_PACKET_PORT], 1);
  CHECK_EQUAL(after.verdict[ZAP_PACKET_MAGIC] - stats.verdict[ZAP_PACKET_MAGIC], 2);
  (void)close(fd4);
  (void)close(fd6);
  MUST(zap_queue_stop(queue, 5000));
  MUST(zap_port_close(port, NULL));
  CHECK_EQUAL(atomic_load(&side.echo.kept), 0);
  return checks_done("veth");
}
