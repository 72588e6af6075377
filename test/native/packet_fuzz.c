/*
 * Fuzzing of the parser of frames (shim/dpdk/packet.c); how to run it is said in fuzz_driver.c. An input is a byte that says who we are and
 * what is trusted or mended, and a frame.
 */
#include "dpdk_kit.h"
#include "fuzz_driver.h"

#define TRUST 3u
#define NO_IP4 4u
#define NO_IP6 8u
/* The checksums that no trust makes good, and the station's MAC address: no mutation finds those by itself. */
#define MEND 16u

#define MUST_BE(condition)      \
  do {                          \
    if (!(condition)) {         \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      abort();                  \
    }                           \
  } while (0)

static uint32_t number16(const uint8_t *at) { return (uint32_t)at[0] << 8 | at[1]; }

static void put_sum(uint8_t *to, uint64_t sum) {
  uint16_t folded = (uint16_t)~zap_checksum_fold(sum);
  memcpy(to, &folded, sizeof folded);
}

static void mend(uint8_t *frame, uint32_t length, const struct zap_station *us) {
  if (length < 14) return;
  if (!(frame[0] & 1)) memcpy(frame, us->mac, 6);
  uint32_t at = 14, type = number16(frame + 12);
  for (int tags = 0; tags < 2 && (type == 0x8100 || type == 0x88a8); tags++, at += 4) {
    if (length < at + 4) return;
    type = number16(frame + at + 2);
  }
  uint8_t *ip = frame + at;
  uint32_t left = length - at, header = left == 0 ? 0 : (ip[0] & 15u) * 4;
  if (type == 0x0800 && header >= 20 && header <= left) {
    memset(ip + 10, 0, 2);
    put_sum(ip + 10, zap_checksum_add(0, ip, header));
  }
  if (type != 0x86dd || left < 44 || ip[6] != 58 || number16(ip + 4) < 4 || number16(ip + 4) > left - 40) return;
  const uint8_t pseudo[8] = {0, 0, ip[4], ip[5], 0, 0, 0, 58};
  memset(ip + 42, 0, 2);
  put_sum(ip + 42, zap_checksum_add(zap_checksum_add(zap_checksum_add(0, ip + 8, 32), pseudo, 8), ip + 40, number16(ip + 4)));
}

static void check_within(const uint8_t *frame, uint32_t length, const uint8_t *at, uint32_t bytes) {
  MUST_BE(at >= frame && at <= frame + length && bytes <= (uint32_t)(frame + length - at));
  static volatile uint8_t sum;
  for (uint32_t i = 0; i < bytes; i++) sum = (uint8_t)(sum + at[i]);
}

static struct zap_ip address_of(const struct zap_station *station, bool v4) {
  struct zap_ip ip = {.bytes = {0}};
  memcpy(ip.bytes, station->ip6, 16);
  return v4 ? zap_ip_from4(station->ip4) : ip;
}

/* Whoever asked understands the answer: that it is we who have our address. */
static void check_answer(const struct zap_station *us, const struct zap_neighbour_news *news, bool mine) {
  uint8_t frame[ZAP_NEIGHBOUR_FRAME];
  bool v4 = zap_ip_is4(&news->ip);
  uint32_t length = zap_packet_answer(frame, us, news);
  MUST_BE(length > 0 && length <= sizeof frame);
  struct zap_station them = {.has4 = v4, .has6 = !v4, .udp_port = 1};
  memcpy(them.mac, news->mac, 6);
  if (v4) memcpy(them.ip4, news->ip.bytes + 12, 4);
  else memcpy(them.ip6, news->ip.bytes, 16);
  struct zap_packet packet = {0};
  struct zap_neighbour_news heard;
  MUST_BE(zap_packet_parse(frame, length, &them, 0, &packet) == (v4 ? ZAP_PACKET_ARP : ZAP_PACKET_DISCOVERY));
  MUST_BE(zap_packet_neighbour(&packet, &them, &heard) && heard.told == !mine && !heard.asks && memcmp(heard.mac, us->mac, 6) == 0);
  struct zap_ip ours = address_of(us, v4);
  MUST_BE(memcmp(&heard.ip, &ours, sizeof ours) == 0);
}

static void check_news(const struct zap_station *us, const struct zap_packet *packet) {
  struct zap_neighbour_news news;
  if (!zap_packet_neighbour(packet, us, &news)) return;
  static const uint8_t nobody[6];
  MUST_BE(!(news.mac[0] & 1) && memcmp(news.mac, nobody, 6) != 0);
  /* ARP tells of IPv4 and discovery of IPv6, and none of an address of ours: whoever asks from that one hears that it is taken. */
  MUST_BE(zap_ip_is4(&news.ip) == packet->is4);
  struct zap_ip ours = address_of(us, packet->is4);
  bool mine = memcmp(&news.ip, &ours, sizeof ours) == 0;
  MUST_BE(!(news.told && mine));
  if (news.asks) check_answer(us, &news, mine);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  /* The tests' own limit on their time is none for fuzzing. */
  (void)alarm(0);
  if (size == 0) return 0;
  uint32_t length = (uint32_t)size - 1;
  struct zap_station us = kit_station(1);
  us.has4 = !(bytes[0] & NO_IP4);
  us.has6 = !(bytes[0] & NO_IP6);
  /* Its own size, so that a read behind its end is seen. */
  uint8_t *frame = malloc(length == 0 ? 1 : length);
  memcpy(frame, bytes + 1, length);
  if (bytes[0] & MEND) mend(frame, length, &us);
  struct zap_packet packet = {0};
  enum zap_verdict verdict = zap_packet_parse(frame, length, &us, bytes[0] & TRUST, &packet);
  MUST_BE(verdict < ZAP_PACKET_SEGMENTS && strcmp(zap_packet_name(verdict), "unknown") != 0);
  if (verdict == ZAP_PACKET_GOOD) {
    MUST_BE(packet.length >= sizeof kit_magic && memcmp(packet.payload, kit_magic, sizeof kit_magic) == 0);
    MUST_BE(packet.from_port != 0 && (packet.is4 ? us.has4 : us.has6));
    check_within(frame, length, packet.payload, packet.length);
    check_within(frame, length, packet.from_ip, packet.is4 ? 4 : 16);
    struct zap_ip from = zap_packet_from(&packet);
    MUST_BE(zap_ip_is4(&from) == packet.is4);
  } else if (verdict < ZAP_PACKET_FIRST_DROP) {
    check_within(frame, length, packet.body, packet.body_length);
    check_news(&us, &packet);
  }
  free(frame);
  return 0;
}

#ifndef FUZZ_LIBFUZZER
/* Puts a tag in. */
static uint32_t tag(uint8_t *frame, uint32_t length, uint8_t first, uint8_t second) {
  memmove(frame + 16, frame + 12, length - 12);
  memcpy(frame + 12, (uint8_t[4]){first, second, 0, 5}, 4);
  return length + 4;
}

/* Kinds of frames that are good. */
enum kind { UDP4, UDP6, ARP_ASK, ARP_ANSWER, ND_ASK, ND_ANSWER };

static uint32_t make(enum kind kind, uint8_t *frame) {
  struct zap_station us = kit_station(1), them = kit_station(2);
  struct zap_ip ip4 = kit_ip4(1), ip6 = kit_ip6(1);
  struct zap_neighbour_news news = {.asks = true, .ip = kind == ARP_ANSWER ? ip4 : ip6};
  memcpy(news.mac, us.mac, 6);
  uint8_t payload[64];
  kit_payload(payload, sizeof payload, 3);
  switch (kind) {
    case UDP4: return kit_frame(frame, &them, &us, true, payload, sizeof payload);
    case UDP6: return kit_frame(frame, &them, &us, false, payload, sizeof payload);
    case ARP_ASK: return zap_packet_ask(frame, &them, &ip4);
    case ND_ASK: return zap_packet_ask(frame, &them, &ip6);
    default: return zap_packet_answer(frame, &them, &news);
  }
}

struct example {
  const char *name;
  enum kind kind;
  uint8_t how;
  uint8_t tags;
  uint8_t length; /* what is left of it; 0: all */
  struct {
    uint8_t at, is; /* a byte that is another; the first of them without `at` ends the list */
  } change[9];
};

static const struct example examples[] = {
    {.name = "udp4"},
    {.name = "udp6", .kind = UDP6},
    {.name = "udp4-trusted", .how = TRUST},
    {.name = "udp6-trusted", .kind = UDP6, .how = TRUST},
    {.name = "udp4-vlan", .tags = 1},
    {.name = "udp6-vlan", .kind = UDP6, .tags = 1},
    {.name = "udp4-qinq", .tags = 2},
    {.name = "udp6-qinq", .kind = UDP6, .tags = 2},
    {.name = "udp4-three-tags", .tags = 3},
    {.name = "udp4-not-ours", .how = NO_IP4},
    {.name = "udp6-not-ours", .kind = UDP6, .how = NO_IP6},
    {.name = "udp4-options",
     .how = MEND | TRUST,
     .change = {{14, 0x46}, {40, 0x10}, {41, 0x92}, {42, 0}, {43, 68}, {46, 0x5a}, {47, 0x41}, {48, 0x50}, {49, 0}}},
    {.name = "udp4-fragment", .how = MEND, .change = {{20, 0x20}}},
    {.name = "udp4-tcp", .how = MEND, .change = {{23, 6}}},
    {.name = "udp4-jumbo", .how = MEND, .change = {{16, 0xff}, {17, 0xff}}},
    {.name = "udp4-short-ip", .how = MEND, .change = {{17, 21}}},
    {.name = "udp4-header-60", .how = MEND, .change = {{14, 0x4f}}},
    {.name = "udp4-udp-jumbo", .how = TRUST, .change = {{38, 0xff}}},
    {.name = "udp4-udp-short", .how = TRUST, .change = {{39, 7}}},
    {.name = "udp4-no-sum", .change = {{40, 0}, {41, 0}}},
    {.name = "udp4-magic", .how = TRUST, .change = {{42, 0}}},
    {.name = "udp4-cut-ethernet", .length = 13},
    {.name = "udp4-cut-tag", .tags = 1, .length = 16},
    {.name = "udp4-cut-ip", .length = 33},
    {.name = "udp4-cut-udp", .length = 40},
    {.name = "udp4-cut-payload", .length = 100},
    {.name = "udp6-fragment", .kind = UDP6, .change = {{20, 44}}},
    {.name = "udp6-extension", .kind = UDP6, .change = {{20, 60}}},
    {.name = "udp6-jumbo", .kind = UDP6, .change = {{18, 0xff}}},
    {.name = "udp6-cut-ip", .kind = UDP6, .length = 53},
    {.name = "udp6-cut-udp", .kind = UDP6, .length = 60},
    {.name = "arp-ask", .kind = ARP_ASK},
    {.name = "arp-answer", .kind = ARP_ANSWER},
    {.name = "arp-probe", .kind = ARP_ASK, .change = {{28, 0}, {29, 0}, {30, 0}, {31, 0}}},
    {.name = "arp-vlan", .kind = ARP_ASK, .tags = 1},
    {.name = "arp-qinq", .kind = ARP_ANSWER, .tags = 2},
    {.name = "arp-cut", .kind = ARP_ASK, .length = 41},
    {.name = "nd-ask", .kind = ND_ASK, .how = MEND},
    {.name = "nd-answer", .kind = ND_ANSWER, .how = MEND},
    {.name = "nd-vlan", .kind = ND_ASK, .how = MEND, .tags = 1},
    {.name = "nd-two-options", .kind = ND_ASK, .how = MEND, .change = {{19, 40}, {78, 14}, {86, 1}, {87, 1}, {88, 2}, {93, 7}}},
    {.name = "nd-option-0", .kind = ND_ASK, .how = MEND, .change = {{79, 0}}},
    {.name = "nd-option-long", .kind = ND_ASK, .how = MEND, .change = {{79, 9}}},
    {.name = "nd-ip4-in-disguise", .kind = ND_ASK, .how = MEND, .change = {{22, 0}, {32, 0xff}, {33, 0xff}, {37, 9}}},
    {.name = "nd-cut", .kind = ND_ANSWER, .how = MEND, .length = 77},
    {.name = "nothing", .how = TRUST, .length = 1},
};

bool fuzz_example(uint32_t number, char name[64], uint8_t *to, uint32_t *length) {
  if (number >= sizeof examples / sizeof *examples) return false;
  const struct example *e = &examples[number];
  (void)snprintf(name, 64, "%s", e->name);
  memset(to, 0, 256);
  to[0] = e->how;
  uint32_t bytes = make(e->kind, to + 1);
  for (uint32_t i = 0; i < 9 && e->change[i].at != 0; i++) {
    to[1 + e->change[i].at] = e->change[i].is;
    if (e->change[i].at >= bytes) bytes = e->change[i].at + 1u;
  }
  for (uint32_t i = 0; i < e->tags; i++) bytes = i == 0 ? tag(to + 1, bytes, 0x81, 0) : tag(to + 1, bytes, 0x88, 0xa8);
  *length = 1 + (e->length > 0 ? e->length : bytes);
  return true;
}
#endif
