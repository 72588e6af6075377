/* Frames as bytes: what is taken and what is dropped for which reason. No DPDK here. */
#include "dpdk_kit.h"

static struct zap_station us, them;
static uint8_t frame[2048];
static uint32_t length;

static void fresh(bool v4, uint32_t payload_length) {
  uint8_t payload[1500];
  kit_payload(payload, payload_length, 7);
  length = kit_frame(frame, &them, &us, v4, payload, payload_length);
}

/* From a buffer that ends where the frame does: a sanitizer sees whoever reads on. */
static enum zap_verdict parse_some(uint32_t bytes, uint32_t trust, struct zap_packet *packet) {
  static uint8_t *exact;
  free(exact);
  exact = malloc(bytes == 0 ? 1 : bytes);
  memcpy(exact, frame, bytes);
  memset(packet, 0, sizeof *packet);
  return zap_packet_parse(exact, bytes, &us, trust, packet);
}

static enum zap_verdict parse(void) {
  struct zap_packet packet;
  return parse_some(length, 0, &packet);
}

/* Makes the IPv4 header's checksum good again. */
static void sum4(void) {
  uint32_t header = (frame[14] & 15u) * 4;
  frame[24] = frame[25] = 0;
  uint16_t sum = (uint16_t)~zap_checksum_fold(zap_checksum_add(0, frame + 14, header));
  memcpy(frame + 24, &sum, 2);
}

#define DROPS(v4, change, reason)                    \
  do {                                               \
    fresh(v4, 100);                                  \
    change;                                          \
    CHECK_EQUAL(parse(), reason);                    \
  } while (0)

static void test_good(void) {
  for (int v4 = 0; v4 < 2; v4++) {
    for (uint32_t size = 8; size <= 1400; size++) {
      struct zap_packet packet;
      fresh(v4, size);
      CHECK_EQUAL(parse_some(length, 0, &packet), ZAP_PACKET_GOOD);
      CHECK_EQUAL(packet.length, size);
      CHECK(kit_payload_is(packet.payload, size, 7));
      CHECK_EQUAL(packet.from_port, KIT_PORT);
      struct zap_ip from = zap_packet_from(&packet), wanted = v4 ? kit_ip4(2) : kit_ip6(2);
      CHECK(memcmp(&from, &wanted, sizeof from) == 0);
    }
    /* One or two tags, and bytes behind the datagram, as Ethernet puts there to fill a frame up. */
    for (int tags = 1; tags <= 3; tags++) {
      struct zap_packet packet;
      fresh(v4, 20);
      for (int i = 0; i < tags; i++) {
        memmove(frame + 16, frame + 12, length - 12);
        memcpy(frame + 12, (uint8_t[4]){0x81, 0, 0, 5}, 4);
        length += 4;
      }
      length += 11;
      CHECK_EQUAL(parse_some(length, 0, &packet), tags < 3 ? ZAP_PACKET_GOOD : ZAP_PACKET_ETHERTYPE);
    }
  }
  /* Options of IPv4 are passed over. */
  fresh(true, 50);
  memmove(frame + 14 + 24, frame + 14 + 20, length - 34);
  memset(frame + 34, 1, 4);
  length += 4;
  frame[14] = 0x46;
  frame[17] = (uint8_t)(frame[17] + 4);
  sum4();
  CHECK_EQUAL(parse(), ZAP_PACKET_GOOD);
}

static void test_drops(void) {
  for (int v4 = 0; v4 < 2; v4++) {
    uint32_t ip = 14, udp = v4 ? 34 : 54;
    DROPS(v4, frame[5] ^= 1, ZAP_PACKET_STATION);
    DROPS(v4, memset(frame, 255, 6), ZAP_PACKET_STATION);
    DROPS(v4, frame[12] = 0x88, ZAP_PACKET_ETHERTYPE);
    DROPS(v4, frame[ip] = 0x55, ZAP_PACKET_IP_HEADER);
    DROPS(v4, length--, ZAP_PACKET_CUT);
    DROPS(v4, frame[udp + 3] ^= 1, ZAP_PACKET_PORT);
    DROPS(v4, frame[udp + 5]++, ZAP_PACKET_UDP_LENGTH);
    DROPS(v4, (frame[udp + 4] = 0, frame[udp + 5] = 7), ZAP_PACKET_UDP_LENGTH);
    DROPS(v4, frame[udp + 4] = 0xff, ZAP_PACKET_UDP_LENGTH);
    DROPS(v4, frame[udp + 6] ^= 0x40, ZAP_PACKET_UDP_CHECKSUM);
    DROPS(v4, frame[length - 1] ^= 1, ZAP_PACKET_UDP_CHECKSUM);
    DROPS(v4, frame[udp + 8] = 0, ZAP_PACKET_MAGIC);
    DROPS(v4, frame[udp + 11] = 1, ZAP_PACKET_MAGIC);
    for (uint32_t cut = 0; cut < length; cut++) {
      struct zap_packet packet;
      fresh(v4, 100);
      enum zap_verdict verdict = parse_some(cut, 0, &packet);
      CHECK_EQUAL(verdict, ZAP_PACKET_CUT);
    }
  }
  DROPS(true, (frame[33] ^= 1, sum4()), ZAP_PACKET_ADDRESS);
  DROPS(true, frame[24] ^= 1, ZAP_PACKET_IP_CHECKSUM);
  DROPS(true, (frame[20] = 0x20, sum4()), ZAP_PACKET_FRAGMENT);
  DROPS(true, (frame[21] = 1, sum4()), ZAP_PACKET_FRAGMENT);
  DROPS(true, (frame[23] = 6, sum4()), ZAP_PACKET_PROTOCOL);
  DROPS(true, (frame[26] = 224, sum4()), ZAP_PACKET_ADDRESS);
  DROPS(true, (frame[26] = 127, sum4()), ZAP_PACKET_ADDRESS);
  DROPS(true, (frame[14] = 0x44, sum4()), ZAP_PACKET_IP_HEADER);
  DROPS(true, (frame[16] = 0, frame[17] = 19, sum4()), ZAP_PACKET_IP_HEADER);
  /* IPv4 may go without a checksum, IPv6 may not. */
  DROPS(true, frame[40] = frame[41] = 0, ZAP_PACKET_GOOD);
  DROPS(false, frame[60] = frame[61] = 0, ZAP_PACKET_UDP_CHECKSUM);
  DROPS(false, frame[53] ^= 1, ZAP_PACKET_ADDRESS);
  DROPS(false, frame[22] = 0xff, ZAP_PACKET_ADDRESS);
  DROPS(false, frame[20] = 44, ZAP_PACKET_FRAGMENT);
  DROPS(false, frame[20] = 0, ZAP_PACKET_EXTENSION);
  DROPS(false, frame[20] = 6, ZAP_PACKET_PROTOCOL);
  /* What the port has checked is not checked again. */
  struct zap_packet packet;
  fresh(true, 100);
  frame[24] ^= 1;
  frame[40] ^= 1;
  CHECK_EQUAL(parse_some(length, ZAP_TRUST_IP | ZAP_TRUST_UDP, &packet), ZAP_PACKET_GOOD);
  for (uint32_t i = 0; i < ZAP_PACKET_VERDICTS; i++) CHECK(zap_packet_name(i) != NULL && zap_packet_name(i)[0] != 0);
  CHECK_CONTAINS(zap_packet_name(ZAP_PACKET_VERDICTS), "unknown");
}

static void test_neighbours(void) {
  uint8_t asked[128];
  for (int v4 = 0; v4 < 2; v4++) {
    struct zap_ip ip = v4 ? kit_ip4(1) : kit_ip6(1), theirs = v4 ? kit_ip4(2) : kit_ip6(2);
    struct zap_packet packet;
    struct zap_neighbour_news news;
    length = zap_packet_ask(frame, &them, &ip);
    CHECK(length > 0 && length <= ZAP_NEIGHBOUR_FRAME);
    memcpy(asked, frame, length);
    CHECK_EQUAL(parse_some(length, 0, &packet), v4 ? ZAP_PACKET_ARP : ZAP_PACKET_DISCOVERY);
    CHECK(zap_packet_neighbour(&packet, &us, &news));
    CHECK(news.asks && news.told);
    CHECK(memcmp(news.mac, them.mac, 6) == 0 && memcmp(&news.ip, &theirs, sizeof theirs) == 0);
    /* Our answer, as they see it. */
    uint8_t answer[ZAP_NEIGHBOUR_FRAME];
    uint32_t bytes = zap_packet_answer(answer, &us, &news);
    memset(&packet, 0, sizeof packet);
    CHECK_EQUAL(zap_packet_parse(answer, bytes, &them, 0, &packet), v4 ? ZAP_PACKET_ARP : ZAP_PACKET_DISCOVERY);
    CHECK(zap_packet_neighbour(&packet, &them, &news));
    CHECK(!news.asks && news.told);
    CHECK(memcmp(news.mac, us.mac, 6) == 0 && memcmp(&news.ip, &ip, sizeof ip) == 0);
    /* A changed byte in what counts is never taken for an answer to something else. */
    if (!v4) {
      memcpy(frame, asked, length);
      frame[60] ^= 1;
      CHECK_EQUAL(parse_some(length, 0, &packet), ZAP_PACKET_DISCOVERY);
      CHECK(!zap_packet_neighbour(&packet, &us, &news));
      memcpy(frame, asked, length);
      frame[21] = 64;
      CHECK_EQUAL(parse_some(length, 0, &packet), ZAP_PACKET_DISCOVERY);
      CHECK(!zap_packet_neighbour(&packet, &us, &news));
    }
  }
  static struct zap_neighbours table;
  struct zap_neighbour_found found;
  const uint64_t second = 1000000000u, start = 100 * second;
  zap_neighbours_init(&table);
  struct zap_ip ip = kit_ip4(9);
  zap_neighbours_told(&table, &ip, us.mac, start, false);
  zap_neighbours_find(&table, &ip, start, &found);
  CHECK(!found.known && found.ask);
  zap_neighbours_find(&table, &ip, start + 1, &found);
  CHECK(!found.known && !found.ask);
  zap_neighbours_find(&table, &ip, start + second, &found);
  CHECK(!found.known && found.ask);
  zap_neighbours_told(&table, &ip, them.mac, start + second, false);
  zap_neighbours_find(&table, &ip, start + 2 * second, &found);
  CHECK(found.known && !found.ask && memcmp(found.mac, them.mac, 6) == 0);
  zap_neighbours_find(&table, &ip, start + 32 * second, &found);
  CHECK(found.known && found.ask);
  zap_neighbours_find(&table, &ip, start + 62 * second, &found);
  CHECK(!found.known && found.ask);
  CHECK(zap_neighbours_set(&table, &ip, us.mac));
  zap_neighbours_told(&table, &ip, them.mac, start + 62 * second, true);
  zap_neighbours_find(&table, &ip, start + 999 * second, &found);
  CHECK(found.known && !found.ask && memcmp(found.mac, us.mac, 6) == 0);
  /* A flood of others neither grows it nor pushes out what is static. */
  for (uint32_t i = 0; i < 100000; i++) {
    struct zap_ip other = {.bytes = {0xfd, 1, [4] = (uint8_t)(i >> 16), (uint8_t)(i >> 8), (uint8_t)i}};
    zap_neighbours_told(&table, &other, them.mac, start, true);
  }
  zap_neighbours_find(&table, &ip, start, &found);
  CHECK(found.known && memcmp(found.mac, us.mac, 6) == 0);
  zap_neighbours_destroy(&table);
}

static uint32_t seed = 1;
static uint32_t next(void) {
  seed ^= seed << 13;
  seed ^= seed >> 17;
  seed ^= seed << 5;
  return seed;
}

/* Good frames with some bytes changed, and lengths cut. */
static void test_random(void) {
  for (int round = 0; round < 200000; round++) {
    struct zap_packet packet;
    struct zap_neighbour_news news;
    struct zap_ip ip = next() & 1 ? kit_ip4(1) : kit_ip6(1);
    if (next() % 4 == 0) length = zap_packet_ask(frame, &them, &ip);
    else fresh(next() & 1, 8 + next() % 60);
    for (uint32_t changes = next() % 4; changes > 0; changes--) frame[next() % length] = (uint8_t)next();
    if (next() % 4 == 0) length = next() % (length + 1);
    enum zap_verdict verdict = parse_some(length, next() % 4, &packet);
    CHECK(verdict < ZAP_PACKET_VERDICTS);
    if (verdict == ZAP_PACKET_ARP || verdict == ZAP_PACKET_DISCOVERY) (void)zap_packet_neighbour(&packet, &us, &news);
    if (verdict == ZAP_PACKET_GOOD) CHECK(memcmp(packet.payload, kit_magic, 4) == 0);
  }
}

int main(void) {
  us = kit_station(1);
  them = kit_station(2);
  test_good();
  test_drops();
  test_neighbours();
  test_random();
  return checks_done("packet");
}
