/*
 * A node that is fed captures through net_pcap: noise, cut and damaged headers, frames that are too long, fragments, and datagrams with
 * the right magic and nothing right behind it. Each is counted under its own reason, and nothing else happens. Words: a folder to write
 * into.
 */
#include "../../shim/dpdk/flow/crc32c.h"
#include "../../shim/dpdk/flow/flow.h"
#include "dpdk_capture.h"
#include "dpdk_sides.h"

#define ROUNDS 40
#define JUMBO 9000

static FILE *capture;
static struct zap_station us, them;
static uint8_t frame[JUMBO + 100];
static uint32_t length, frames, state;
static uint64_t verdicts[24], drops[24];

static uint8_t noise(void) {
  state = state * 1664525 + 1013904223;
  return (uint8_t)(state >> 24);
}

static void put(enum zap_verdict verdict) {
  capture_write(capture, frame, length);
  verdicts[verdict]++;
  frames++;
}

/* A datagram of ours around `payload`. */
static void wrap(bool v4, const uint8_t *payload, uint32_t bytes) { length = kit_frame(frame, &them, &us, v4, payload, bytes); }

/* One that the machine of flows gets to see, and drops. */
static void put_datagram(bool v4, const uint8_t *payload, uint32_t bytes, enum zap_flow_drop why) {
  wrap(v4, payload, bytes);
  put(ZAP_PACKET_GOOD);
  drops[why]++;
}

static void noisy(uint8_t *payload, uint32_t bytes) {
  for (uint32_t i = 0; i < bytes; i++) payload[i] = noise();
  memcpy(payload, kit_magic, bytes < 4 ? bytes : 4);
}

static void frames_of_any_kind(bool v4) {
  uint8_t payload[1400];
  noisy(payload, sizeof payload);
  wrap(v4, payload, 300);
  uint32_t whole = length, headers = v4 ? ZAP_HEADERS4 : ZAP_HEADERS6;
  /* Cut anywhere: in its headers, and before its end. */
  for (uint32_t at = 1; at < whole; at += 1 + noise() % 40) {
    length = at;
    put(ZAP_PACKET_CUT);
  }
  wrap(v4, payload, 300);
  frame[headers + noise() % 4] ^= 1;
  put(ZAP_PACKET_MAGIC);
  wrap(v4, payload, noise() % 4u);
  put(ZAP_PACKET_MAGIC);
  /* Says to be longer than it is. */
  wrap(v4, payload, 300);
  frame[v4 ? 16 : 18] = 0xff;
  put(ZAP_PACKET_CUT);
  wrap(v4, payload, 300);
  frame[headers - 4] = 0xff;
  put(ZAP_PACKET_UDP_LENGTH);
  wrap(v4, payload, 300);
  frame[headers + 4 + noise()] ^= 0x10;
  put(ZAP_PACKET_UDP_CHECKSUM);
  wrap(v4, payload, 300);
  frame[headers - 5] ^= 1;
  put(ZAP_PACKET_PORT);
  /* A first fragment and a later one. */
  wrap(v4, payload, 300);
  if (v4) {
    frame[20] = noise() % 2 ? 0x20 : 0x01;
    frame[24] = frame[25] = 0;
    uint16_t sum = (uint16_t)~zap_checksum_fold(zap_checksum_add(0, frame + 14, 20));
    memcpy(frame + 24, &sum, 2);
  } else {
    frame[20] = 44;
  }
  put(ZAP_PACKET_FRAGMENT);
  /* Noise to us and to others. */
  wrap(v4, payload, 300);
  for (uint32_t at = 6; at < length; at++) frame[at] = noise();
  frame[12] = 0x12;
  put(ZAP_PACKET_ETHERTYPE);
  frame[0] = 2;
  frame[5] ^= 1;
  put(ZAP_PACKET_STATION);
}

/* More than a buffer takes: it comes in several, and none of them is looked at. */
static void jumbo(bool v4) {
  uint8_t payload[JUMBO];
  noisy(payload, sizeof payload);
  wrap(v4, payload, JUMBO);
  put(ZAP_PACKET_SEGMENTS);
}

/* Kinds of datagrams, as docs/wire-dpdk.md numbers them. */
enum { KIND_HELLO = 3, KIND_WELCOME = 4, KIND_DATA = 5 };

static void put64(uint8_t *at, uint64_t value) { memcpy(at, &value, sizeof value); }

static void datagrams(bool v4, uint32_t round) {
  uint8_t payload[1400];
  for (uint32_t bytes = 4; bytes < 24; bytes += 5) {
    noisy(payload, bytes);
    put_datagram(v4, payload, bytes, ZAP_DROP_SHORT);
  }
  noisy(payload, sizeof payload);
  payload[4] = (uint8_t)(2 + noise() % 250u);
  put_datagram(v4, payload, 24 + noise() * 4u, ZAP_DROP_VERSION);
  payload[4] = 1;
  payload[5] = (uint8_t)(round % 2 == 0 ? 0 : 9 + noise() % 200u);
  put_datagram(v4, payload, 24 + noise() * 4u, ZAP_DROP_KIND);
  for (uint8_t kind = 1; kind <= 8; kind++) {
    payload[5] = kind;
    put_datagram(v4, payload, 160 + noise() * 4u, ZAP_DROP_CHECKSUM);
    put_datagram(v4, payload, 24 + noise() % 8u, ZAP_DROP_LAYOUT);
  }
  /* With the right checksum: flows that are not there, cookies that are not ours. INIT has neither, and would be answered. */
  for (uint8_t kind = 2; kind <= 8; kind++) {
    memset(payload + 4, 0, sizeof payload - 4);
    payload[4] = 1;
    payload[5] = kind;
    uint32_t bytes = kind == KIND_HELLO ? 1064 : 168;
    if (kind != KIND_HELLO) put64(payload + 16, 1u + noise());
    /* A session, and a node's name of one letter. */
    if (kind == KIND_HELLO || kind == KIND_WELCOME) {
      put64(payload + 24, 7);
      payload[48] = 1;
      payload[49] = 'x';
    }
    /* payload, credits, start, largest message */
    uint32_t terms[4] = {1000, 64, 5, 1000};
    if (kind == KIND_WELCOME) memcpy(payload + 112, terms, sizeof terms);
    if (kind == KIND_HELLO) {
      memcpy(payload + 116, terms, 4);
      memcpy(payload + 136, terms + 1, 12);
    }
    /* Of a message of as many bytes. */
    if (kind == KIND_DATA) put64(payload + 32, bytes - 64);
    uint32_t sum = zap_crc32c(0, payload, bytes);
    memcpy(payload + 8, &sum, 4);
    put_datagram(v4, payload, bytes, kind == KIND_HELLO ? ZAP_DROP_COOKIE : ZAP_DROP_SESSION);
  }
}

static void write_capture(const char *path) {
  capture = capture_open(path);
  memset(verdicts, 0, sizeof verdicts);
  memset(drops, 0, sizeof drops);
  frames = 0;
  state = 1;
  for (uint32_t round = 0; round < ROUNDS; round++) {
    frames_of_any_kind(round & 1);
    datagrams(round & 1, round);
    if (round % 8 < 2) jumbo(round & 1);
  }
  (void)fclose(capture);
}

static void open_node(struct side *side, const char *device) {
  zap_dpdk_settings settings;
  settings_of(&settings, device, 1, ZAP_DPDK_LISTEN | ZAP_DPDK_IP6);
  struct zap_ip ip6 = kit_ip6(1);
  memcpy(settings.ip6, ip6.bytes, sizeof settings.ip6);
  open_side(side, &settings);
  MUST(wait_open(side->handle, &side->node));
  attach(side);
}

static void compare(uint32_t list, const uint64_t *seen, const uint64_t *wanted) {
  for (uint32_t i = 0; i < 24; i++) {
    char name[32];
    if (seen[i] == wanted[i]) continue;
    (void)zap_dpdk_name(list, i, name, sizeof name);
    fprintf(stderr, "%s: %llu, not %llu\n", name, (unsigned long long)seen[i], (unsigned long long)wanted[i]);
    CHECK_EQUAL(seen[i], wanted[i]);
  }
}

int main(int count, char **words) {
  if (count < 2) return 2;
  static struct side side;
  char path[256], device[600];
  us = kit_station(1);
  them = kit_station(2);
  (void)snprintf(path, sizeof path, "%s/node-in.pcap", words[1]);
  (void)snprintf(device, sizeof device, "net_pcap0,rx_pcap=%s,tx_pcap=%s/node-out.pcap", path, words[1]);
  /* A first time, to learn which address the driver gives itself: it counts the devices that it has made. */
  write_capture(path);
  open_node(&side, device);
  memcpy(us.mac, side.node.mac, 6);
  us.mac[5]++;
  close_side(&side);
  write_capture(path);
  open_node(&side, device);
  CHECK(memcmp(us.mac, side.node.mac, 6) == 0);
  zap_dpdk_queue queue;
  WAIT_UNTIL((zap_dpdk_queue_read(side.handle, 0, &queue), queue.packets_in >= frames));
  /* Each buffer is free again when its frame has been looked at. */
  zap_dpdk_stats stats;
  WAIT_UNTIL((zap_dpdk_stats_read(side.handle, &stats), stats.buffers_free == side.node.buffers));
  CHECK_EQUAL(queue.packets_in, frames);
  compare(ZAP_DPDK_FRAME, stats.verdicts, verdicts);
  compare(ZAP_DPDK_DATAGRAM, stats.datagram_drops, drops);
  /* Nothing else: no answer, no peer, no message, and no memory that is gone. */
  CHECK_EQUAL(queue.packets_out, 0);
  CHECK_EQUAL(stats.flows + stats.dials + stats.candidates, 0);
  CHECK_EQUAL(stats.messages_in + stats.bytes_in + stats.bytes_copied + stats.held_bytes + stats.queued_messages, 0);
  CHECK_EQUAL(zap_ring_ready(&side.events) + zap_ring_ready(&side.handoff) + zap_ring_ready(&side.dones), 0);
  CHECK_EQUAL(stats.unusable_sends + stats.missed + stats.no_buffers + stats.device_errors, 0);
  close_side(&side);
  CHECK_EQUAL(zap_dpdk_live(), 0);
  return checks_done("node pcap");
}
