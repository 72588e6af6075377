/* Captures through net_pcap: each frame is dropped and counted for its own reason. Words: a folder to write into. */
#include "dpdk_capture.h"

static FILE *capture;
static struct zap_station us, them;
static uint8_t frame[2048];
static uint32_t length, frames;
static uint64_t wanted[ZAP_PACKET_VERDICTS];

static void write_frame(enum zap_verdict verdict) {
  capture_write(capture, frame, length);
  wanted[verdict]++;
  frames++;
}

static void fresh(bool v4) {
  uint8_t payload[200];
  kit_payload(payload, sizeof payload, frames);
  length = kit_frame(frame, &them, &us, v4, payload, sizeof payload);
}

static void sum4(void) {
  frame[24] = frame[25] = 0;
  uint16_t sum = (uint16_t)~zap_checksum_fold(zap_checksum_add(0, frame + 14, 20));
  memcpy(frame + 24, &sum, 2);
}

#define WRITE(v4, change, verdict) \
  do {                             \
    fresh(v4);                     \
    change;                        \
    write_frame(verdict);          \
  } while (0)

static void write_capture(const char *path) {
  capture = capture_open(path);
  for (int i = 0; i < 20; i++) {
    WRITE(true, (void)0, ZAP_PACKET_GOOD);
    WRITE(false, (void)0, ZAP_PACKET_GOOD);
    WRITE(true, frame[5] ^= 1, ZAP_PACKET_STATION);
    WRITE(true, frame[12] = 0x12, ZAP_PACKET_ETHERTYPE);
    for (uint32_t at = 1; at < 242; at += 40) WRITE(i & 1, length = at, ZAP_PACKET_CUT);
    WRITE(true, frame[42] = 0, ZAP_PACKET_MAGIC);
    WRITE(false, frame[62] = 0, ZAP_PACKET_MAGIC);
    WRITE(true, (frame[20] = 0x20, sum4()), ZAP_PACKET_FRAGMENT);
    WRITE(false, frame[20] = 44, ZAP_PACKET_FRAGMENT);
    WRITE(true, frame[38] = 0xff, ZAP_PACKET_UDP_LENGTH);
    WRITE(true, frame[16] = 0x40, ZAP_PACKET_CUT);
    WRITE(false, frame[18] = 0xff, ZAP_PACKET_CUT);
    WRITE(true, frame[24] ^= 1, ZAP_PACKET_IP_CHECKSUM);
    WRITE(true, frame[100] ^= 1, ZAP_PACKET_UDP_CHECKSUM);
    WRITE(true, frame[37] ^= 1, ZAP_PACKET_PORT);
    WRITE(true, (frame[23] = 1, sum4()), ZAP_PACKET_PROTOCOL);
    WRITE(true, (length = zap_packet_ask(frame, &them, &(struct zap_ip){.bytes = {[10] = 255, 255, 10, 9, 0, 1}})), ZAP_PACKET_ARP);
    struct zap_ip ip6 = kit_ip6(1);
    WRITE(false, (length = zap_packet_ask(frame, &them, &ip6)), ZAP_PACKET_DISCOVERY);
    /* Noise, to our own address so that something looks at it. */
    fresh(true);
    for (uint32_t at = 12; at < length; at++) frame[at] = (uint8_t)(at * 7 + (unsigned)i * 13);
    write_frame(ZAP_PACKET_ETHERTYPE);
  }
  (void)fclose(capture);
}

int main(int count, char **words) {
  if (count < 2) return 2;
  char path[256], device[600];
  us = kit_station(1);
  them = kit_station(2);
  size_t page;
  void *region = kit_region(&page);
  struct zap_eal_settings settings = kit_eal();
  MUST(zap_eal_start(&settings));
  struct zap_port *port;
  struct zap_queue *queue;
  (void)snprintf(path, sizeof path, "%s/in.pcap", words[1]);
  (void)snprintf(device, sizeof device, "net_pcap0,rx_pcap=%s,tx_pcap=%s/out.pcap", path, words[1]);
  /* A first time, to learn which address the driver gives itself. */
  write_capture(path);
  struct zap_port_settings port_settings = kit_port(device, 1, region, page);
  MUST(zap_port_open(&port_settings, &port));
  memcpy(us.mac, port->station.mac, 6);
  /* It counts the devices that it has made. */
  us.mac[5]++;
  MUST(zap_port_close(port, NULL));
  memset(wanted, 0, sizeof wanted);
  frames = 0;
  write_capture(path);
  MUST(zap_port_open(&port_settings, &port));
  CHECK(memcmp(us.mac, port->station.mac, 6) == 0);
  struct zap_queue_settings queue_settings = {.cpu = -1, .idle = ZAP_IDLE_SLEEP};
  MUST(zap_queue_start(port, 0, &queue_settings, &queue));
  struct zap_queue_stats stats;
  WAIT_UNTIL((zap_queue_stats(queue, &stats), stats.packets_in >= frames));
  MUST(zap_queue_stop(queue, 5000));
  CHECK_EQUAL(stats.packets_in, frames);
  for (uint32_t i = 0; i < ZAP_PACKET_VERDICTS; i++) {
    if (stats.verdict[i] == wanted[i]) continue;
    fprintf(stderr, "%s: %llu, not %llu\n", zap_packet_name(i), (unsigned long long)stats.verdict[i], (unsigned long long)wanted[i]);
    CHECK_EQUAL(stats.verdict[i], wanted[i]);
  }
  CHECK_EQUAL(stats.answered, 40);
  uint32_t out = 1;
  MUST(zap_port_close(port, &out));
  CHECK_EQUAL(out, 0);
  return checks_done("pcap");
}
