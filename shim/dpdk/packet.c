#include "packet.h"

#include <string.h>

#define ETHERNET 14u
#define TYPE_IPV4 0x0800
#define TYPE_IPV6 0x86dd
#define TYPE_ARP 0x0806
#define TYPE_VLAN 0x8100
#define TYPE_QINQ 0x88a8
#define PROTOCOL_UDP 17
#define PROTOCOL_ICMPV6 58
#define SOLICITATION 135
#define ADVERTISEMENT 136

static const char *const names[ZAP_PACKET_VERDICTS] = {
    [ZAP_PACKET_GOOD] = "good",
    [ZAP_PACKET_ARP] = "arp",
    [ZAP_PACKET_DISCOVERY] = "discovery",
    [ZAP_PACKET_CUT] = "cut",
    [ZAP_PACKET_ETHERTYPE] = "ethertype",
    [ZAP_PACKET_STATION] = "station",
    [ZAP_PACKET_IP_HEADER] = "ip-header",
    [ZAP_PACKET_IP_CHECKSUM] = "ip-checksum",
    [ZAP_PACKET_EXTENSION] = "extension",
    [ZAP_PACKET_FRAGMENT] = "fragment",
    [ZAP_PACKET_PROTOCOL] = "protocol",
    [ZAP_PACKET_ADDRESS] = "address",
    [ZAP_PACKET_UDP_LENGTH] = "udp-length",
    [ZAP_PACKET_UDP_CHECKSUM] = "udp-checksum",
    [ZAP_PACKET_PORT] = "port",
    [ZAP_PACKET_MAGIC] = "magic",
    [ZAP_PACKET_SEGMENTS] = "segments",
    [ZAP_PACKET_RING] = "ring",
};

const char *zap_packet_name(uint32_t verdict) { return verdict < ZAP_PACKET_VERDICTS ? names[verdict] : "unknown"; }

static uint16_t read16(const uint8_t *at) { return (uint16_t)(at[0] << 8 | at[1]); }

static void write16(uint8_t *at, uint32_t value) {
  at[0] = (uint8_t)(value >> 8);
  at[1] = (uint8_t)value;
}

uint64_t zap_checksum_add(uint64_t sum, const uint8_t *bytes, size_t length) {
  uint64_t second = 0;
  /* 32 bits at a time into 64: the carries stay in the upper half, for any length below 16 GiB. */
  while (length >= 16) {
    uint32_t part[4];
    memcpy(part, bytes, sizeof part);
    sum += (uint64_t)part[0] + part[1];
    second += (uint64_t)part[2] + part[3];
    bytes += 16;
    length -= 16;
  }
  sum += second;
  while (length >= 2) {
    uint16_t part;
    memcpy(&part, bytes, sizeof part);
    sum += part;
    bytes += 2;
    length -= 2;
  }
  if (length == 1) {
    uint16_t part = 0;
    memcpy(&part, bytes, 1);
    sum += part;
  }
  return sum;
}

uint16_t zap_checksum_fold(uint64_t sum) {
  sum = (sum & 0xffffffff) + (sum >> 32);
  sum = (sum & 0xffffffff) + (sum >> 32);
  sum = (sum & 0xffff) + (sum >> 16);
  sum = (sum & 0xffff) + (sum >> 16);
  return (uint16_t)sum;
}

/* In network order, as a number that zap_checksum_add's sums can take. */
static uint64_t pseudo_word(uint32_t value) {
  uint8_t bytes[4] = {(uint8_t)(value >> 24), (uint8_t)(value >> 16), (uint8_t)(value >> 8), (uint8_t)value};
  uint32_t word;
  memcpy(&word, bytes, sizeof word);
  return word;
}

/* `addresses`: source and destination, one after the other, as in both headers. */
static uint64_t pseudo_sum(const uint8_t *addresses, size_t bytes, uint32_t protocol, uint32_t length) {
  return zap_checksum_add(pseudo_word(protocol) + pseudo_word(length), addresses, bytes);
}

static enum zap_verdict parse_udp(const uint8_t *udp, uint32_t length, const struct zap_station *station, uint32_t trust,
                                  const uint8_t *addresses, struct zap_packet *packet) {
  if (length < 8) return ZAP_PACKET_UDP_LENGTH;
  uint32_t said = read16(udp + 4);
  if (said < 8 || said > length) return ZAP_PACKET_UDP_LENGTH;
  if (read16(udp + 2) != station->udp_port) return ZAP_PACKET_PORT;
  /* The magic first: it costs nothing, and what has it not needs no sum. */
  if (said < 12) return ZAP_PACKET_MAGIC;
  if (((uint32_t)udp[8] | (uint32_t)udp[9] << 8 | (uint32_t)udp[10] << 16 | (uint32_t)udp[11] << 24) != ZAP_PACKET_MAGIC_WORD)
    return ZAP_PACKET_MAGIC;
  if (!(trust & ZAP_TRUST_UDP)) {
    /* None was made: IPv4 allows that, IPv6 does not. */
    bool none = udp[6] == 0 && udp[7] == 0;
    if (none && !packet->is4) return ZAP_PACKET_UDP_CHECKSUM;
    if (!none) {
      uint64_t sum = pseudo_sum(addresses, packet->is4 ? 8 : 32, PROTOCOL_UDP, said);
      if (zap_checksum_fold(zap_checksum_add(sum, udp, said)) != 0xffff) return ZAP_PACKET_UDP_CHECKSUM;
    }
  }
  packet->from_ip = addresses;
  packet->from_port = read16(udp);
  packet->payload = udp + 8;
  packet->length = said - 8;
  /* Nobody can be answered on port 0. */
  return packet->from_port == 0 ? ZAP_PACKET_ADDRESS : ZAP_PACKET_GOOD;
}

static enum zap_verdict parse4(const uint8_t *ip, uint32_t length, const struct zap_station *station, uint32_t trust,
                               struct zap_packet *packet) {
  if (length < 20) return ZAP_PACKET_CUT;
  /* Options are skipped. */
  uint32_t header = (ip[0] & 15u) * 4;
  uint32_t total = read16(ip + 2);
  if (ip[0] >> 4 != 4 || header < 20 || total < header) return ZAP_PACKET_IP_HEADER;
  if (total > length) return ZAP_PACKET_CUT;
  if (!station->has4 || memcmp(ip + 16, station->ip4, 4) != 0) return ZAP_PACKET_ADDRESS;
  if (!(trust & ZAP_TRUST_IP) && zap_checksum_fold(zap_checksum_add(0, ip, header)) != 0xffff) return ZAP_PACKET_IP_CHECKSUM;
  if (read16(ip + 6) & 0x3fff) return ZAP_PACKET_FRAGMENT;
  if (ip[9] != PROTOCOL_UDP) return ZAP_PACKET_PROTOCOL;
  /* 0/8, 127/8, multicast and above send nothing. */
  if (ip[12] == 0 || ip[12] == 127 || ip[12] >= 224) return ZAP_PACKET_ADDRESS;
  packet->is4 = true;
  return parse_udp(ip + header, total - header, station, trust, ip + 12, packet);
}

static enum zap_verdict parse6(const uint8_t *ip, uint32_t length, const struct zap_station *station, uint32_t trust,
                               bool to_us, struct zap_packet *packet) {
  if (length < 40) return ZAP_PACKET_CUT;
  if (ip[0] >> 4 != 6) return ZAP_PACKET_IP_HEADER;
  uint32_t payload = read16(ip + 4);
  if (payload > length - 40) return ZAP_PACKET_CUT;
  packet->is4 = false;
  uint8_t next = ip[6];
  if (next == PROTOCOL_ICMPV6) {
    if (!station->has6) return ZAP_PACKET_ADDRESS;
    packet->body = ip;
    packet->body_length = 40 + payload;
    bool discovery = payload >= 24 && (ip[40] == SOLICITATION || ip[40] == ADVERTISEMENT);
    return discovery ? ZAP_PACKET_DISCOVERY : ZAP_PACKET_PROTOCOL;
  }
  if (!to_us) return ZAP_PACKET_STATION;
  if (!station->has6 || memcmp(ip + 24, station->ip6, 16) != 0) return ZAP_PACKET_ADDRESS;
  if (next == 44) return ZAP_PACKET_FRAGMENT;
  if (next == 0 || next == 43 || next == 60 || next == 51 || next == 135) return ZAP_PACKET_EXTENSION;
  if (next != PROTOCOL_UDP) return ZAP_PACKET_PROTOCOL;
  /* The unspecified address, ::1 and multicast send nothing; nor do IPv4 addresses in disguise. */
  static const uint8_t zero[15];
  struct zap_ip from;
  memcpy(from.bytes, ip + 8, sizeof from.bytes);
  if (ip[8] == 0xff || (memcmp(ip + 8, zero, 15) == 0 && ip[23] <= 1) || zap_ip_is4(&from)) return ZAP_PACKET_ADDRESS;
  return parse_udp(ip + 40, payload, station, trust, ip + 8, packet);
}

enum zap_verdict zap_packet_parse(const uint8_t *frame, uint32_t length, const struct zap_station *station, uint32_t trust,
                                  struct zap_packet *packet) {
  if (length < ETHERNET) return ZAP_PACKET_CUT;
  uint32_t at = ETHERNET;
  uint16_t type = read16(frame + 12);
  for (int tags = 0; tags < 2 && (type == TYPE_VLAN || type == TYPE_QINQ); tags++) {
    if (length < at + 4) return ZAP_PACKET_CUT;
    type = read16(frame + at + 2);
    at += 4;
  }
  bool to_us = memcmp(frame, station->mac, 6) == 0;
  /* A multicast or broadcast address has the lowest bit of its first byte. */
  if (!to_us && !(frame[0] & 1)) return ZAP_PACKET_STATION;
  switch (type) {
    case TYPE_IPV4: return to_us ? parse4(frame + at, length - at, station, trust, packet) : ZAP_PACKET_STATION;
    case TYPE_IPV6: return parse6(frame + at, length - at, station, trust, to_us, packet);
    case TYPE_ARP:
      if (length - at < 28) return ZAP_PACKET_CUT;
      packet->is4 = true;
      packet->body = frame + at;
      packet->body_length = 28;
      return ZAP_PACKET_ARP;
    default: return ZAP_PACKET_ETHERTYPE;
  }
}

static bool usable(const uint8_t mac[6]) {
  static const uint8_t none[6];
  return !(mac[0] & 1) && memcmp(mac, none, 6) != 0;
}

static bool arp_news(const uint8_t *arp, const struct zap_station *station, struct zap_neighbour_news *news) {
  static const uint8_t ethernet_ipv4[6] = {0, 1, 8, 0, 6, 4};
  if (!station->has4 || memcmp(arp, ethernet_ipv4, sizeof ethernet_ipv4) != 0) return false;
  uint16_t operation = read16(arp + 6);
  if (operation != 1 && operation != 2) return false;
  if (memcmp(arp + 24, station->ip4, 4) != 0 || !usable(arp + 8)) return false;
  news->ip = zap_ip_from4(arp + 14);
  memcpy(news->mac, arp + 8, 6);
  news->asks = operation == 1;
  /* A probe for a free address has no sender yet. Nobody may say that our own address is theirs. */
  static const uint8_t none[4];
  news->told = memcmp(arp + 14, none, 4) != 0 && memcmp(arp + 14, station->ip4, 4) != 0;
  return true;
}

/* The link-layer address option of that type, or NULL. */
static const uint8_t *link_option(const uint8_t *options, uint32_t length, uint8_t type) {
  while (length >= 8) {
    uint32_t bytes = options[1] * 8u;
    if (bytes == 0 || bytes > length) return NULL;
    if (options[0] == type && bytes == 8) return options + 2;
    options += bytes;
    length -= bytes;
  }
  return NULL;
}

static bool discovery_news(const uint8_t *ip, uint32_t length, const struct zap_station *station,
                           struct zap_neighbour_news *news) {
  const uint8_t *icmp = ip + 40;
  uint32_t payload = length - 40;
  /* From this link: no router has passed it on. */
  if (ip[7] != 255 || icmp[1] != 0) return false;
  uint64_t sum = pseudo_sum(ip + 8, 32, PROTOCOL_ICMPV6, payload);
  if (zap_checksum_fold(zap_checksum_add(sum, icmp, payload)) != 0xffff) return false;
  bool solicitation = icmp[0] == SOLICITATION;
  const uint8_t *link = link_option(icmp + 24, payload - 24, solicitation ? 1 : 2);
  if (link == NULL || !usable(link)) return false;
  memcpy(news->mac, link, 6);
  news->asks = solicitation;
  memcpy(news->ip.bytes, solicitation ? ip + 8 : icmp + 8, 16);
  if (solicitation && memcmp(icmp + 8, station->ip6, 16) != 0) return false;
  /* An IPv4 address in disguise: those are ARP's to tell. */
  if (zap_ip_is4(&news->ip)) return false;
  news->told = news->ip.bytes[0] != 0xff && memcmp(news->ip.bytes, station->ip6, 16) != 0;
  return news->told;
}

bool zap_packet_neighbour(const struct zap_packet *packet, const struct zap_station *station, struct zap_neighbour_news *news) {
  *news = (struct zap_neighbour_news){.told = false};
  if (packet->is4) return arp_news(packet->body, station, news);
  return discovery_news(packet->body, packet->body_length, station, news);
}

static void ethernet(uint8_t *frame, const uint8_t to[6], const uint8_t from[6], uint16_t type) {
  memcpy(frame, to, 6);
  memcpy(frame + 6, from, 6);
  write16(frame + 12, type);
}

static uint32_t arp(uint8_t *frame, const struct zap_station *station, uint16_t operation, const uint8_t *mac, const uint8_t *ip) {
  static const uint8_t everybody[6] = {255, 255, 255, 255, 255, 255}, nobody[6];
  static const uint8_t ethernet_ipv4[6] = {0, 1, 8, 0, 6, 4};
  ethernet(frame, mac == NULL ? everybody : mac, station->mac, TYPE_ARP);
  memcpy(frame + 14, ethernet_ipv4, 6);
  write16(frame + 20, operation);
  memcpy(frame + 22, station->mac, 6);
  memcpy(frame + 28, station->ip4, 4);
  memcpy(frame + 32, mac == NULL ? nobody : mac, 6);
  memcpy(frame + 38, ip, 4);
  return 42;
}

static uint32_t discovery(uint8_t *frame, const struct zap_station *station, uint8_t type, const uint8_t mac[6],
                          const uint8_t to[16], const uint8_t target[16]) {
  ethernet(frame, mac, station->mac, TYPE_IPV6);
  uint8_t *ip = frame + ETHERNET, *icmp = ip + 40;
  memset(ip, 0, 72);
  ip[0] = 0x60;
  ip[5] = 32;
  ip[6] = PROTOCOL_ICMPV6;
  ip[7] = 255;
  memcpy(ip + 8, station->ip6, 16);
  memcpy(ip + 24, to, 16);
  icmp[0] = type;
  /* Solicited, and in place of what was known before. */
  if (type == ADVERTISEMENT) icmp[4] = 0x60;
  memcpy(icmp + 8, target, 16);
  icmp[24] = type == SOLICITATION ? 1 : 2;
  icmp[25] = 1;
  memcpy(icmp + 26, station->mac, 6);
  uint16_t sum = (uint16_t)~zap_checksum_fold(zap_checksum_add(pseudo_sum(ip + 8, 32, PROTOCOL_ICMPV6, 32), icmp, 32));
  memcpy(icmp + 2, &sum, 2);
  return ZAP_NEIGHBOUR_FRAME;
}

uint32_t zap_packet_ask(uint8_t *frame, const struct zap_station *station, const struct zap_ip *ip) {
  if (zap_ip_is4(ip)) return station->has4 ? arp(frame, station, 1, NULL, ip->bytes + 12) : 0;
  if (!station->has6) return 0;
  const uint8_t *last = ip->bytes + 13;
  const uint8_t mac[6] = {0x33, 0x33, 0xff, last[0], last[1], last[2]};
  const uint8_t group[16] = {0xff, 2, [11] = 1, 0xff, last[0], last[1], last[2]};
  return discovery(frame, station, SOLICITATION, mac, group, ip->bytes);
}

uint32_t zap_packet_answer(uint8_t *frame, const struct zap_station *station, const struct zap_neighbour_news *news) {
  if (zap_ip_is4(&news->ip)) return arp(frame, station, 2, news->mac, news->ip.bytes + 12);
  return discovery(frame, station, ADVERTISEMENT, news->mac, news->ip.bytes, station->ip6);
}

uint32_t zap_packet_headers(uint8_t *at, const struct zap_station *station, const uint8_t mac[6], const struct zap_ip *to,
                            uint16_t to_port, uint32_t length, const uint64_t *sum, bool ip_sum) {
  bool is4 = zap_ip_is4(to);
  if (is4 ? !station->has4 : !station->has6) return 0;
  ethernet(at, mac, station->mac, is4 ? TYPE_IPV4 : TYPE_IPV6);
  uint8_t *ip = at + ETHERNET;
  uint32_t udp_length = length + 8;
  uint8_t *udp;
  uint64_t pseudo;
  if (is4) {
    memset(ip, 0, 12);
    ip[0] = 0x45;
    write16(ip + 2, udp_length + 20);
    ip[6] = 0x40; /* never to be cut into fragments */
    ip[8] = 64;
    ip[9] = PROTOCOL_UDP;
    memcpy(ip + 12, station->ip4, 4);
    memcpy(ip + 16, to->bytes + 12, 4);
    if (ip_sum) {
      uint16_t header = (uint16_t)~zap_checksum_fold(zap_checksum_add(0, ip, 20));
      memcpy(ip + 10, &header, 2);
    }
    udp = ip + 20;
    pseudo = pseudo_sum(ip + 12, 8, PROTOCOL_UDP, udp_length);
  } else {
    memset(ip, 0, 8);
    ip[0] = 0x60;
    write16(ip + 4, udp_length);
    ip[6] = PROTOCOL_UDP;
    ip[7] = 64;
    memcpy(ip + 8, station->ip6, 16);
    memcpy(ip + 24, to->bytes, 16);
    udp = ip + 40;
    pseudo = pseudo_sum(ip + 8, 32, PROTOCOL_UDP, udp_length);
  }
  write16(udp, station->udp_port);
  write16(udp + 2, to_port);
  write16(udp + 4, udp_length);
  write16(udp + 6, 0);
  uint16_t check = zap_checksum_fold(pseudo);
  if (sum != NULL) {
    check = (uint16_t)~zap_checksum_fold(zap_checksum_add(pseudo + *sum, udp, 8));
    /* Zero would mean that there is none. */
    if (check == 0) check = 0xffff;
  }
  memcpy(udp + 6, &check, 2);
  return is4 ? ZAP_HEADERS4 : ZAP_HEADERS6;
}
