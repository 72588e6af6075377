/* DPDK in one process: what starting it changes (nothing), ports that come and go, and packets through net_ring and net_null. */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>

#include "dpdk_kit.h"

struct surroundings {
  cpu_set_t cpus;
  struct sigaction signals[65];
  sigset_t mask;
  FILE *out, *error;
  struct stat outs, errors;
  mode_t umask;
  char folder[512];
};

static void look_around(struct surroundings *seen) {
  memset(seen, 0, sizeof *seen);
  CHECK_EQUAL(sched_getaffinity(0, sizeof seen->cpus, &seen->cpus), 0);
  for (int i = 1; i < 65; i++) (void)sigaction(i, NULL, &seen->signals[i]);
  (void)pthread_sigmask(SIG_SETMASK, NULL, &seen->mask);
  seen->out = stdout;
  seen->error = stderr;
  (void)fstat(1, &seen->outs);
  (void)fstat(2, &seen->errors);
  seen->umask = umask(0);
  (void)umask(seen->umask);
  CHECK(getcwd(seen->folder, sizeof seen->folder) != NULL);
}

static bool same(const struct surroundings *first, const struct surroundings *second) {
  bool alike = CPU_EQUAL(&first->cpus, &second->cpus) && memcmp(&first->mask, &second->mask, sizeof first->mask) == 0;
  for (int i = 1; i < 65; i++)
    if (first->signals[i].sa_handler != second->signals[i].sa_handler || first->signals[i].sa_flags != second->signals[i].sa_flags)
      alike = false;
  alike = alike && first->out == second->out && first->error == second->error && first->umask == second->umask;
  /* Neither stream has become another file, or longer. */
  alike = alike && first->outs.st_ino == second->outs.st_ino && first->outs.st_size == second->outs.st_size;
  alike = alike && first->errors.st_ino == second->errors.st_ino && first->errors.st_size == second->errors.st_size;
  return alike && strcmp(first->folder, second->folder) == 0;
}

static int kept_out, kept_error;

static void streams_into_files(void) {
  char path[] = "/tmp/zap-dpdk-XXXXXX";
  int file = mkstemp(path);
  (void)unlink(path);
  kept_out = dup(1);
  kept_error = dup(2);
  (void)dup2(file, 1);
  (void)dup2(file, 2);
  (void)close(file);
}

static void streams_back(void) {
  (void)fflush(stdout);
  (void)dup2(kept_out, 1);
  (void)dup2(kept_error, 2);
}

/* On one CPU, with a handler of its own: both stay. */
static void nobody(int number) { (void)number; }

static void test_start(bool fails) {
  struct surroundings before, after;
  struct zap_eal_settings settings = kit_eal();
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(0, &one);
  CHECK_EQUAL(sched_setaffinity(0, sizeof one, &one), 0);
  (void)signal(SIGBUS, nobody);
  (void)signal(SIGUSR1, nobody);
  streams_into_files();
  look_around(&before);
  /* More than any processor has addresses for. */
  if (fails) settings.memory_mib = 400000000;
  int32_t status = zap_eal_start(&settings);
  look_around(&after);
  streams_back();
  CHECK(same(&before, &after));
  if (!fails) {
    MUST(status);
    MUST(zap_eal_start(&settings));
    CHECK(zap_eal_running());
    return;
  }
  CHECK_EQUAL(status, ZAP_E_DRIVER);
  CHECK_CONTAINS(zap_failure(), "rte_eal_init failed");
  CHECK_CONTAINS(zap_failure(), "fresh process");
  settings = kit_eal();
  CHECK_EQUAL(zap_eal_start(&settings), ZAP_E_DRIVER);
  CHECK_CONTAINS(zap_failure(), "fresh");
  CHECK(!zap_eal_running());
}

/* Refused before DPDK hears of it: another try is possible. */
static void test_refusals(void) {
  struct zap_eal_settings settings = kit_eal();
  struct zap_port *port;
  struct zap_port_settings one = kit_port("net_null0", 1, NULL, 0);
  CHECK_EQUAL(zap_port_open(&one, &port), ZAP_E_DRIVER);
  settings.cpus = "0;rm";
  CHECK_EQUAL(zap_eal_start(&settings), ZAP_E_INVALID);
  CHECK_CONTAINS(zap_failure(), "0;rm");
  settings.cpus = "0-999";
  CHECK_EQUAL(zap_eal_start(&settings), ZAP_E_INVALID);
  CHECK_CONTAINS(zap_failure(), "there is no CPU");
  settings.cpus = "0,,1";
  CHECK_EQUAL(zap_eal_start(&settings), ZAP_E_INVALID);
  settings = kit_eal();
  settings.pci = (const char *[]){"eth0"};
  settings.pci_count = 1;
  CHECK_EQUAL(zap_eal_start(&settings), ZAP_E_INVALID);
  settings = kit_eal();
  settings.hugepages = true;
  settings.memory_mib = 100u << 20;
  CHECK_EQUAL(zap_eal_start(&settings), ZAP_E_MEMORY);
  CHECK_CONTAINS(zap_failure(), "hugepages");
}

static void refuse(struct zap_port_settings settings, int32_t wanted, const char *text) {
  struct zap_port *port = NULL;
  CHECK_EQUAL(zap_port_open(&settings, &port), wanted);
  CHECK_CONTAINS(zap_failure(), text);
}

static void test_come_and_go(void *region, size_t page) {
  static const char *const devices[] = {"net_null0,size=64", "net_ring0", "net_null1,size=64,copy=1"};
  for (int round = 0; round < 12; round++) {
    struct zap_port *port[3] = {NULL};
    for (int i = 0; i < 3; i++) {
      struct zap_port_settings settings = kit_port(devices[i], (uint8_t)(i + 1), i == 0 ? region : NULL, page);
      MUST(zap_port_open(&settings, &port[i]));
      struct zap_port_stats stats;
      MUST(zap_port_stats(port[i], &stats));
      CHECK(stats.link);
      CHECK(port[i]->own_memory == (i != 0));
    }
    refuse(kit_port("net_ring0", 9, NULL, 0), ZAP_E_LIMIT, "open already");
    for (int i = 0; i < 3; i++) MUST(zap_port_close(port[i], NULL));
  }
  refuse(kit_port("net_nosuch0", 1, NULL, 0), ZAP_E_DRIVER, "rte_eal_hotplug_add failed");
  refuse(kit_port("", 1, NULL, 0), ZAP_E_INVALID, "name of a device");
  refuse(kit_port("0000:01:00.0", 1, NULL, 0), ZAP_E_UNSUPPORTED, "fresh process");
  refuse(kit_port("net_ring0", 1, (char *)region + 8, page), ZAP_E_INVALID, "begin and end at a page");
  struct zap_port_settings settings = kit_port("net_ring0", 1, region, page);
  settings.buffers = 1000000;
  refuse(settings, ZAP_E_INVALID, "do not fit");
  settings.buffers = 100;
  refuse(settings, ZAP_E_INVALID, "too few");
  settings = kit_port("net_ring0", 1, region, page);
  settings.mtu = 100;
  refuse(settings, ZAP_E_INVALID, "MTU");
  /* After all of that it still opens. */
  struct zap_port *port;
  settings = kit_port("net_ring0", 1, region, page);
  MUST(zap_port_open(&settings, &port));
  MUST(zap_port_close(port, NULL));
}

#define SLOTS 256
#define MESSAGES 20000u

struct sending {
  uint32_t sent, released;
  struct zap_ip to;
};

static void count_released(void *context, void *cookie) {
  (void)cookie;
  ((struct sending *)context)->released++;
}

/* To ourselves, as net_ring gives back what it is given. Sometimes in place, sometimes copied. */
static bool send_some(void *context, struct zap_queue *queue, uint64_t now) {
  struct sending *sending = context;
  for (int i = 0; i < 16 && sending->sent < MESSAGES; i++) {
    uint8_t payload[1400];
    uint32_t length = 8 + sending->sent % 1300, room = 0;
    kit_payload(payload, length, sending->sent);
    struct zap_outbound datagram = {.ip = sending->to, .port = KIT_PORT, .head = payload, .head_length = 8, .payload = payload + 8,
                                    .payload_length = length - 8, .released = count_released, .context = sending};
    if (sending->sent % 3 == 0) {
      uint8_t *at = zap_queue_head(queue, &room);
      if (at == NULL) return false;
      memcpy(at, payload, 8);
      datagram.head = at;
    }
    if (zap_queue_send(queue, &datagram, now) != ZAP_SENT) return true;
    sending->sent++;
  }
  return sending->sent < MESSAGES;
}

static void test_ring_device(void *region, size_t page, bool v4, enum zap_idle idle) {
  struct zap_port *port;
  struct zap_port_settings settings = kit_port("net_ring0", 1, region, page);
  MUST(zap_port_open(&settings, &port));
  struct sending sending = {.to = v4 ? kit_ip4(1) : kit_ip6(1)};
  CHECK(zap_neighbours_set(&port->neighbours, &sending.to, port->station.mac));
  zap_ring *out = aligned_alloc(128, ZAP_RING_HEAD_BYTES + SLOTS * ZAP_RING_ENTRY_BYTES);
  zap_ring *back = aligned_alloc(128, ZAP_RING_HEAD_BYTES + SLOTS * ZAP_RING_ENTRY_BYTES);
  CHECK(zap_ring_init(out, SLOTS) && zap_ring_init(back, SLOTS));
  struct zap_handoff handoff;
  MUST(zap_handoff_init(&handoff, out, back));
  struct zap_queue_settings queue_settings = {
      .cpu = -1, .idle = idle, .turn = send_some, .context = &sending, .handoff = &handoff};
  struct zap_queue *queue;
  MUST(zap_queue_start(port, 0, &queue_settings, &queue));
  /* Nobody closes a port under a thread that polls it. */
  CHECK_EQUAL(zap_port_close(port, NULL), ZAP_E_INVALID);
  struct zap_ring_end taker, giver;
  zap_ring_attach(&taker, out);
  zap_ring_attach(&giver, back);
  uint32_t expected = 0, dropped = 0;
  uint64_t until = zap_now() + 20000000000u;
  struct zap_queue_stats stats;
  while (zap_now() < until) {
    uint32_t ready = zap_ring_ready(&taker);
    for (uint32_t i = 0; i < ready; i++) {
      zap_ring_entry entry = *zap_ring_read(&taker);
      uint8_t *bytes = (uint8_t *)(uintptr_t)entry.address;
      CHECK(bytes > (uint8_t *)region && bytes < (uint8_t *)region + KIT_REGION);
      uint32_t number;
      memcpy(&number, bytes + 4, 4);
      CHECK(number >= expected && kit_payload_is(bytes, entry.length, number));
      dropped += number - expected;
      expected = number + 1;
      zap_ring_write(&giver)->token = entry.token;
    }
    zap_ring_consumed(&taker);
    if (ready > 0) (void)zap_ring_publish(&giver);
    else (void)sched_yield();
    zap_queue_stats(queue, &stats);
    if (stats.packets_in == MESSAGES && expected + stats.verdict[ZAP_PACKET_RING] >= MESSAGES && zap_ring_ready(&taker) == 0) break;
  }
  CHECK_EQUAL(stats.packets_in, MESSAGES);
  CHECK_EQUAL(stats.packets_out, MESSAGES);
  CHECK_EQUAL(stats.verdict[ZAP_PACKET_GOOD] + stats.verdict[ZAP_PACKET_RING], MESSAGES);
  CHECK_EQUAL(dropped + (MESSAGES - expected), stats.verdict[ZAP_PACKET_RING]);
  CHECK_EQUAL(sending.released, MESSAGES);
  MUST(zap_queue_stop(queue, 5000));
  CHECK_EQUAL(handoff.spares, SLOTS);
  uint32_t still_out = 1;
  MUST(zap_port_close(port, &still_out));
  CHECK_EQUAL(still_out, 0);
  zap_handoff_destroy(&handoff);
  free(out);
  free(back);
}

static void test_null_device(void *region, size_t page) {
  struct zap_port *port;
  struct zap_port_settings settings = kit_port("net_null0,size=300,copy=0", 1, region, page);
  memset(region, 0, KIT_REGION);
  MUST(zap_port_open(&settings, &port));
  struct zap_ip to = kit_ip4(2);
  CHECK(zap_neighbours_set(&port->neighbours, &to, port->station.mac));
  struct sending sending = {.to = to};
  struct zap_queue_settings queue_settings = {.cpu = -1, .idle = ZAP_IDLE_PAUSE, .context = &sending};
  struct zap_queue *queue;
  MUST(zap_queue_start(port, 0, &queue_settings, &queue));
  struct zap_queue_stats stats;
  WAIT_UNTIL((zap_queue_stats(queue, &stats), stats.packets_in > 100000));
  MUST(zap_queue_stop(queue, 5000));
  /* Zeros: for no station. */
  CHECK_EQUAL(stats.verdict[ZAP_PACKET_GOOD], 0);
  CHECK(stats.verdict[ZAP_PACKET_STATION] > 0);
  /* Payload that is lent is given back once, also where a driver is never asked to copy it. */
  queue_settings.packet = NULL;
  MUST(zap_queue_attach(port, 0, &queue_settings, &queue));
  static uint8_t payload[1400];
  for (uint32_t i = 0; i < 5000; i++) {
    kit_payload(payload, sizeof payload, i);
    struct zap_outbound datagram = {.ip = to, .port = 1, .head = payload, .head_length = 64, .payload = payload + 64,
                                    .payload_length = sizeof payload - 64 - i % 1300, .released = count_released, .context = &sending};
    CHECK_EQUAL(zap_queue_send(queue, &datagram, zap_now()), ZAP_SENT);
  }
  zap_queue_flush(queue);
  CHECK_EQUAL(sending.released, 5000);
  struct zap_outbound large = {.ip = to, .port = 1, .payload = payload, .payload_length = 1473};
  CHECK_EQUAL(zap_queue_send(queue, &large, zap_now()), ZAP_SENT_TOO_LONG);
  struct zap_outbound unknown = {.ip = kit_ip4(77), .port = 1, .payload = payload, .payload_length = 10};
  CHECK_EQUAL(zap_queue_send(queue, &unknown, zap_now()), ZAP_SENT_WAITING);
  zap_queue_stats(queue, &stats);
  CHECK_EQUAL(stats.asked, 1);
  zap_queue_detach(queue);
  MUST(zap_port_close(port, NULL));
}

/* A thread for each queue, and the port told to spread what arrives; a third queue there is none of. */
static void test_two_queues(void) {
  struct zap_port *port;
  struct zap_port_settings settings = kit_port("net_null0,size=64", 1, NULL, 0);
  settings.queues = 2;
  MUST(zap_port_open(&settings, &port));
  CHECK_EQUAL(port->queues, 2);
  struct zap_queue_settings queue_settings = {.cpu = -1, .idle = ZAP_IDLE_SLEEP};
  struct zap_queue *queue[3];
  for (uint16_t i = 0; i < 2; i++) MUST(zap_queue_start(port, i, &queue_settings, &queue[i]));
  CHECK_EQUAL(zap_queue_start(port, 2, &queue_settings, &queue[2]), ZAP_E_INVALID);
  queue_settings.cpu = 1000;
  CHECK_EQUAL(zap_queue_start(port, 1, &queue_settings, &queue[2]), ZAP_E_INVALID);
  CHECK_CONTAINS(zap_failure(), "CPU 1000");
  for (int i = 0; i < 2; i++) {
    struct zap_queue_stats stats;
    WAIT_UNTIL((zap_queue_stats(queue[i], &stats), stats.packets_in > 1000));
  }
  for (int i = 0; i < 2; i++) MUST(zap_queue_stop(queue[i], 5000));
  MUST(zap_port_close(port, NULL));
}

int main(int count, char **words) {
  if (count > 1 && strcmp(words[1], "fails") == 0) {
    test_start(true);
    return checks_done("failed start");
  }
  size_t page;
  void *region = kit_region(&page);
  test_refusals();
  test_start(false);
  test_come_and_go(region, page);
  test_ring_device(region, page, true, ZAP_IDLE_PAUSE);
  test_ring_device(region, page, false, ZAP_IDLE_SLEEP);
  test_null_device(region, page);
  test_two_queues();
  return checks_done("ports");
}
