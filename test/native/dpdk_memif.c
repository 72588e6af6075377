/* Two processes over net_memif: neighbours found by asking, and every byte back from the other side. Words: the socket's path. */
#include <signal.h>
#include <sys/wait.h>

#include "dpdk_echo.h"

#define MESSAGES 20000u
#define WINDOW 64u

struct client {
  struct zap_ip to;
  uint32_t next, expected, again;
  uint64_t moved;
};

static bool client_turn(void *context, struct zap_queue *queue, uint64_t now) {
  struct client *client = context;
  if (client->moved == 0) client->moved = now;
  /* A lost one is repeated with all that follow it. */
  if (now - client->moved > 300000000 && client->next > client->expected) {
    client->next = client->expected;
    client->again++;
    client->moved = now;
  }
  bool sent = false;
  while (client->next < MESSAGES && client->next - client->expected < WINDOW) {
    uint8_t payload[1472];
    uint32_t length = 16 + client->next * 7 % 1400;
    kit_payload(payload, length, client->next);
    struct zap_outbound datagram = {.ip = client->to, .port = KIT_PORT, .payload = payload, .payload_length = length};
    if (zap_queue_send(queue, &datagram, now) != ZAP_SENT) break;
    client->next++;
    sent = true;
  }
  return sent;
}

static bool client_packet(void *context, struct zap_queue *queue, const struct zap_packet *packet, void *buffer, uint64_t now) {
  (void)queue;
  (void)buffer;
  struct client *client = context;
  uint32_t number;
  memcpy(&number, packet->payload + 4, 4);
  CHECK(kit_payload_is(packet->payload, packet->length, number));
  CHECK_EQUAL(packet->length, 16 + number * 7 % 1400);
  struct zap_ip from = zap_packet_from(packet);
  CHECK(memcmp(&from, &client->to, sizeof from) == 0);
  if (number == client->expected) {
    __atomic_store_n(&client->expected, number + 1, __ATOMIC_RELEASE);
    client->moved = now;
  }
  return false;
}

static void open_port(const char *role, const char *path, uint8_t last, struct zap_port **port) {
  char device[256];
  size_t page;
  void *region = kit_region(&page);
  (void)snprintf(device, sizeof device, "net_memif0,role=%s,id=0,socket=%s,socket-abstract=no", role, path);
  struct zap_eal_settings settings = kit_eal();
  MUST(zap_eal_start(&settings));
  struct zap_port_settings port_settings = kit_port(device, last, region, page);
  MUST(zap_port_open(&port_settings, port));
}

static int serve(const char *path, int until) {
  struct zap_port *port;
  struct zap_queue *queue;
  open_port("server", path, 2, &port);
  struct echo echo = {.failed = 0};
  struct zap_queue_settings settings = {.cpu = -1, .idle = ZAP_IDLE_PAUSE, .packet = echo_packet, .context = &echo};
  MUST(zap_queue_start(port, 0, &settings, &queue));
  /* Until the other side is done with us. */
  char byte;
  (void)!read(until, &byte, 1);
  MUST(zap_queue_stop(queue, 5000));
  MUST(zap_port_close(port, NULL));
  CHECK_EQUAL(atomic_load(&echo.kept), 0);
  return checks_done("server") == 0 ? 0 : 1;
}

static void run_client(struct zap_port *port, bool v4) {
  struct client client = {.to = v4 ? kit_ip4(2) : kit_ip6(2)};
  struct zap_queue_settings settings = {
      .cpu = -1, .idle = v4 ? ZAP_IDLE_PAUSE : ZAP_IDLE_SLEEP, .turn = client_turn, .packet = client_packet, .context = &client};
  struct zap_queue *queue;
  struct zap_queue_stats stats;
  MUST(zap_queue_start(port, 0, &settings, &queue));
  for (int i = 0; i < 30000 && __atomic_load_n(&client.expected, __ATOMIC_ACQUIRE) < MESSAGES; i++) pause_millis(1);
  zap_queue_stats(queue, &stats);
  MUST(zap_queue_stop(queue, 5000));
  CHECK_EQUAL(client.expected, MESSAGES);
  CHECK(stats.asked >= 1);
  for (uint32_t i = ZAP_PACKET_FIRST_DROP; i < ZAP_PACKET_VERDICTS; i++) CHECK_EQUAL(stats.verdict[i], 0);
}

int main(int count, char **words) {
  int ends[2];
  if (count < 2 || pipe(ends) != 0) return 2;
  pid_t server = fork();
  if (server == 0) {
    (void)close(ends[1]);
    return serve(words[1], ends[0]);
  }
  (void)close(ends[0]);
  struct zap_port *port;
  open_port("client", words[1], 1, &port);
  struct zap_port_stats stats;
  WAIT_UNTIL((zap_port_stats(port, &stats), stats.link));
  run_client(port, true);
  run_client(port, false);
  MUST(zap_port_close(port, NULL));
  (void)close(ends[1]);
  int status = 1;
  (void)waitpid(server, &status, 0);
  CHECK_EQUAL(status, 0);
  return checks_done("memif");
}
