/*
 * Ethernet, IP and UDP as bytes: what of a received frame is a ZAP datagram for us, and the headers of what we send. Pure
 * functions without DPDK, so that tests and fuzzers can drive them. RFC 894, 826 (ARP), 791, 768, 8200, 4861 (neighbours).
 */
#ifndef ZAP_PACKET_H
#define ZAP_PACKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a frame turned out to be. Everything from ZAP_PACKET_FIRST_DROP on is dropped and counted under its name. */
enum zap_verdict {
  ZAP_PACKET_GOOD,      /* a datagram for us that starts with the magic */
  ZAP_PACKET_ARP,       /* for zap_packet_neighbour */
  ZAP_PACKET_DISCOVERY, /* IPv6's neighbour discovery: likewise */
  ZAP_PACKET_FIRST_DROP,
  ZAP_PACKET_CUT = ZAP_PACKET_FIRST_DROP, /* shorter than its headers say */
  ZAP_PACKET_ETHERTYPE,            /* neither IP nor ARP */
  ZAP_PACKET_STATION,              /* for another MAC address */
  ZAP_PACKET_IP_HEADER,            /* a version or length that cannot be */
  ZAP_PACKET_IP_CHECKSUM,
  ZAP_PACKET_EXTENSION, /* IPv6 with extension headers */
  ZAP_PACKET_FRAGMENT,
  ZAP_PACKET_PROTOCOL, /* not UDP */
  ZAP_PACKET_ADDRESS,  /* for another IP address, or from one that nobody can have */
  ZAP_PACKET_UDP_LENGTH,
  ZAP_PACKET_UDP_CHECKSUM,
  ZAP_PACKET_PORT, /* for another UDP port */
  ZAP_PACKET_MAGIC,
  ZAP_PACKET_SEGMENTS, /* the driver spread it over several buffers */
  ZAP_PACKET_RING,     /* the hand-off ring is full, or all of its packets are out */
  ZAP_PACKET_VERDICTS
};

/* Short and stable, for example "ip-checksum"; "good", "arp" and "discovery" for the first three. */
const char *zap_packet_name(uint32_t verdict);

/* The first payload bytes of every ZAP datagram, read as a little-endian number: 5a 41 50 00. */
#define ZAP_PACKET_MAGIC_WORD 0x0050415au

/* IPv4 addresses everywhere as ::ffff:a.b.c.d. */
struct zap_ip {
  uint8_t bytes[16];
};

static inline bool zap_ip_is4(const struct zap_ip *ip) {
  static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
  return __builtin_memcmp(ip->bytes, mapped, sizeof mapped) == 0;
}

static inline struct zap_ip zap_ip_from4(const uint8_t from[4]) {
  struct zap_ip ip = {.bytes = {[10] = 0xff, [11] = 0xff}};
  __builtin_memcpy(ip.bytes + 12, from, 4);
  return ip;
}

/* Who we are on a port. */
struct zap_station {
  uint8_t mac[6];
  bool has4, has6;
  uint8_t ip4[4], ip6[16];
  uint16_t udp_port; /* a plain number */
};

/* What the port has checked already. */
#define ZAP_TRUST_IP 1u
#define ZAP_TRUST_UDP 2u

struct zap_packet {
  const uint8_t *payload; /* inside the frame; starts with the magic */
  uint32_t length;        /* of the payload */
  bool is4;
  uint16_t from_port;     /* a plain number */
  const uint8_t *from_ip; /* 4 or 16 bytes inside the frame */
  const uint8_t *body;    /* of ARP and discovery: after the Ethernet header and tags */
  uint32_t body_length;
};

static inline struct zap_ip zap_packet_from(const struct zap_packet *packet) {
  if (packet->is4) return zap_ip_from4(packet->from_ip);
  struct zap_ip ip;
  __builtin_memcpy(ip.bytes, packet->from_ip, sizeof ip.bytes);
  return ip;
}

/* Looks at a frame of any bytes. `packet` is filled as far as the verdict needs. Reads nothing beyond `length`. */
enum zap_verdict zap_packet_parse(const uint8_t *frame, uint32_t length, const struct zap_station *station, uint32_t trust,
                                  struct zap_packet *packet);

/* What an ARP or neighbour discovery packet tells and asks. */
struct zap_neighbour_news {
  bool told; /* `ip` says that it has `mac` */
  bool asks; /* it wants to know our MAC address: an answer is due */
  struct zap_ip ip;
  uint8_t mac[6];
};
/* False where it is nothing to us. */
bool zap_packet_neighbour(const struct zap_packet *packet, const struct zap_station *station, struct zap_neighbour_news *news);

/* Longest frame of the two below. */
#define ZAP_NEIGHBOUR_FRAME 86
/* "Who has `ip`?" by ARP or discovery; returns the frame's length, 0 where we have no address of that version. */
uint32_t zap_packet_ask(uint8_t *frame, const struct zap_station *station, const struct zap_ip *ip);
/* The answer to news that ask. */
uint32_t zap_packet_answer(uint8_t *frame, const struct zap_station *station, const struct zap_neighbour_news *news);

/* Ethernet, IP and UDP headers. */
#define ZAP_HEADERS4 42u
#define ZAP_HEADERS6 62u
/*
 * Writes the headers of a datagram of `length` payload bytes; returns how many bytes they are, 0 where we have no address of that
 * version. `sum`: of the payload by zap_checksum_add, or NULL where the port makes the UDP checksum: then the field has the sum of the
 * pseudo header, as ports want it. `ip_sum`: whether to make IPv4's header checksum.
 */
uint32_t zap_packet_headers(uint8_t *at, const struct zap_station *station, const uint8_t mac[6], const struct zap_ip *to,
                            uint16_t to_port, uint32_t length, const uint64_t *sum, bool ip_sum);

/* Adds bytes to an internet checksum (RFC 1071) that is not folded yet; all parts but the last must be of even length. */
uint64_t zap_checksum_add(uint64_t sum, const uint8_t *bytes, size_t length);
/* Folds it into 16 bits, in the order of bytes in memory, not complemented. */
uint16_t zap_checksum_fold(uint64_t sum);

#endif
