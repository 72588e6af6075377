/*
 * Packets over net_memif by one queue, without flows: the same device as a node's, for comparing with what DPDK's own programs do on it.
 *
 *   ROLE PATH WHAT FRAME_BYTES MILLIS IDLE
 *
 * ROLE is server or client. WHAT: `flood` sends as fast as the other side takes it; `count` counts what arrives for MILLIS after the
 * first and prints it; `echo` sends back; `ping` sends one at a time and times its return, `ping-far` to a far end that answers no
 * questions for its MAC address, `ping-self` addressed to ourselves, for one that sends back frames as they are. Frames count their check
 * sequence. Prints "ready", then one line of JSON.
 */
#include "dpdk_clock.h"
#include "dpdk_echo.h"

#define LOST_NS UINT64_C(20000000)

struct work {
  struct zap_ip to;
  uint32_t length;
  uint8_t payload[1500];
  uint64_t arrived, bytes, first, last; /* count */
  uint64_t sent_at, lost;               /* ping */
  bool away;
};

static struct work work;
static struct trips trips;

static bool flood_turn(void *context, struct zap_queue *queue, uint64_t now) {
  (void)context;
  struct zap_outbound datagram = {.ip = work.to, .port = KIT_PORT, .payload = work.payload, .payload_length = work.length};
  bool sent = false;
  for (int i = 0; i < 32 && zap_queue_send(queue, &datagram, now) == ZAP_SENT; i++) sent = true;
  return sent;
}

static bool count_packet(void *context, struct zap_queue *queue, const struct zap_packet *packet, void *buffer, uint64_t now) {
  (void)context;
  (void)queue;
  (void)buffer;
  if (work.arrived == 0) work.first = now;
  work.arrived++;
  work.bytes += packet->length;
  work.last = now;
  return false;
}

static bool ping_turn(void *context, struct zap_queue *queue, uint64_t now) {
  (void)context;
  now = zap_now();
  if (work.away && now - work.sent_at < LOST_NS) return false;
  if (work.away) work.lost++;
  struct zap_outbound datagram = {.ip = work.to, .port = KIT_PORT, .payload = work.payload, .payload_length = work.length};
  if (zap_queue_send(queue, &datagram, now) != ZAP_SENT) return false;
  work.sent_at = now;
  work.away = true;
  return true;
}

static bool ping_packet(void *context, struct zap_queue *queue, const struct zap_packet *packet, void *buffer, uint64_t now) {
  (void)context;
  (void)queue;
  (void)buffer;
  (void)now;
  if (packet->length != work.length || !work.away) return false;
  trip_made(&trips, work.sent_at, zap_now());
  work.away = false;
  return false;
}

int main(int count, char **words) {
  if (count < 7) return 2;
  bool server = strcmp(words[1], "server") == 0;
  const char *what = words[3];
  uint32_t frame = (uint32_t)atoi(words[4]);
  double millis = atof(words[5]);
  bool self = strcmp(what, "ping-self") == 0, far = strcmp(what, "ping-far") == 0, ping = self || far || strcmp(what, "ping") == 0;
  uint8_t ours = server ? 1 : 2, theirs = server ? 2 : 1;
  char device[256];
  size_t page;
  uint8_t *region = kit_region(&page);
  struct zap_eal_settings eal = kit_eal();
  MUST(zap_eal_start(&eal));
  (void)snprintf(device, sizeof device, "net_memif0,role=%s,id=0,socket=%s,socket-abstract=no", words[1], words[2]);
  struct zap_port_settings port_settings = kit_port(device, ours, region, page);
  struct zap_port *port;
  MUST(zap_port_open(&port_settings, &port));
  if (frame < ZAP_HEADERS4 + 12 || frame > 1514) return 2;
  work.length = frame - 4 - ZAP_HEADERS4;
  kit_payload(work.payload, work.length, 1);
  work.to = kit_ip4(self ? ours : theirs);
  struct zap_station there = kit_station(theirs);
  if (self || far) CHECK(zap_neighbours_set(&port->neighbours, &work.to, self ? port->station.mac : there.mac));
  struct echo echo = {.failed = 0};
  struct zap_queue_settings settings = {.cpu = -1, .idle = (enum zap_idle)idle_named(words[6])};
  if (strcmp(what, "flood") == 0) settings.turn = flood_turn;
  else if (strcmp(what, "count") == 0) settings.packet = count_packet;
  else if (strcmp(what, "echo") == 0) settings.packet = echo_packet, settings.context = &echo;
  else if (ping) settings.packet = ping_packet, settings.turn = ping_turn;
  else return 2;
  struct zap_queue *queue;
  MUST(zap_queue_attach(port, 0, &settings, &queue));
  printf("\"ready\"\n");
  (void)fflush(stdout);
  trips_begin(&trips, millis / 4, millis);
  uint64_t span = (uint64_t)(millis * 1e6);
  for (;;) {
    for (int i = 0; i < 64; i++) (void)zap_queue_poll(queue);
    if (ping && trips_over(&trips, zap_now())) break;
    if (work.arrived > 0 && work.last - work.first >= span) break;
  }
  if (ping) {
    trips_print(&trips);
  } else {
    double seconds = (double)(work.last - work.first) / 1e9;
    printf("{\"result\":{\"packetsPerSecond\":%.0f}}\n", (double)work.arrived / seconds);
    (void)fflush(stdout);
  }
  return stay();
}
