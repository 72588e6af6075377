/*
 * A port of DPDK's: a network card or a software device, with its queues and the buffers that packets land in. Added and removed as
 * often as one likes. No global state beside the list of ports that are open.
 */
#ifndef ZAP_PORT_H
#define ZAP_PORT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "neighbours.h"
#include "packet.h"

struct rte_mempool;

#define ZAP_PORT_QUEUES 16

struct zap_port_settings {
  const char *device; /* "0000:01:00.0", or a software device with its arguments: "net_memif0,role=client,..." */
  /*
   * Where packets land: memory of the caller's that begins and ends at a page of `page_bytes` and stays until the port is closed. NULL:
   * DPDK's own memory, also taken where the device refuses (`own_memory` of the port says so).
   */
  void *region;
  size_t region_bytes, page_bytes;
  size_t packet_bytes; /* how much of it, from its start, packets have; 0: all. The device can send from all of it */
  uint32_t buffers;      /* 0: as many as the region has room for, or 4096 */
  uint32_t buffer_bytes; /* 0: what the MTU needs */
  uint32_t mtu;          /* 0: the device's own */
  uint32_t queues;       /* of each direction; 0: 1. A device may have fewer */
  uint32_t slots;        /* of each queue; 0: 1024. A device may have others */
  bool copy;             /* what is sent is always copied into one buffer */
  struct zap_station station; /* its mac is the port's */
  uint8_t prefix4, prefix6;   /* bits of the addresses that are on the link; 0: all are */
  bool has_gateway4, has_gateway6;
  struct zap_ip gateway4, gateway6; /* for all others */
  uint32_t start_ms; /* how long to try: a memif client before its server cannot start. 0: 1 s */
};

struct zap_port {
  uint16_t id;
  char name[64];
  char driver[32];
  uint16_t mtu, queues, slots;
  uint16_t longest;  /* UDP payload with IPv4; 20 less with IPv6 */
  bool own_memory;   /* packets lie in DPDK's memory, not in the caller's */
  bool chains;       /* takes a packet in several parts */
  bool sums_ip, sums_udp;   /* makes the checksums of what is sent */
  bool checks;              /* may say of a received packet that its checksums are right */
  uint32_t buffers, buffer_bytes;
  struct rte_mempool *pool;   /* packets that arrive, and copies to be sent */
  struct rte_mempool *heads;  /* headers to be sent before payload that lies elsewhere */
  struct zap_station station;
  struct zap_neighbours neighbours;
  atomic_uint threads; /* that poll a queue of it */
  struct zap_port_settings settings;
  char device[512];
  bool added, configured, started, registered;
  struct zap_port *next;
};

/* Adds, configures and starts a port. DPDK's environment must run. */
int32_t zap_port_open(const struct zap_port_settings *settings, struct zap_port **port);

/*
 * Stops and removes it, once no thread polls it. `*out`: how many buffers are still with a consumer, who must not touch them any more;
 * may be NULL. After ZAP_E_TIMEOUT the port's memory must stay for the life of the process.
 */
int32_t zap_port_close(struct zap_port *port, uint32_t *out);

/* The address to which a packet for `to` goes: itself, or the gateway. */
const struct zap_ip *zap_port_hop(const struct zap_port *port, const struct zap_ip *to);

struct zap_port_stats {
  uint64_t packets_in, packets_out, bytes_in, bytes_out;
  uint64_t missed, errors_in, errors_out, no_buffers;
  uint32_t buffers_free;
  bool link;
  uint32_t mbit; /* 0: unknown */
};
int32_t zap_port_stats(const struct zap_port *port, struct zap_port_stats *stats);

#endif
