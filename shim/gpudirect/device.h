/* An RDMA device, one of its ports, and the address that it is reached by there. No global state. */
#ifndef ZAP_DEVICE_H
#define ZAP_DEVICE_H

#include <stdbool.h>

#include "verbs.h"

#define ZAP_HCA_NAME_BYTES 64
/* A queue pair's path has 8 bits for the index of its GID. */
#define ZAP_HCA_GIDS 256
/* zap_hca_gid.type where neither the library nor sysfs says. */
#define ZAP_HCA_GID_UNKNOWN UINT32_MAX

struct zap_hca_settings {
  const char *device; /* "mlx5_0"; NULL or "": the first that does */
  uint8_t port;       /* 0: the first that is active */
  int gid_index;      /* -1: chosen */
};

struct zap_hca_gid {
  uint8_t raw[16];
  int index;
  uint32_t type; /* IBV_GID_TYPE_... */
};

struct zap_hca {
  const struct zap_verbs *verbs;
  struct ibv_context *context;
  char name[ZAP_HCA_NAME_BYTES];
  char firmware[64];
  uint8_t port;
  bool ethernet; /* RoCE; else InfiniBand */
  bool routed;   /* paths need a global route (ibv_ah_attr.is_global): with RoCE always */
  uint16_t lid;  /* InfiniBand only */
  enum ibv_mtu mtu;
  struct zap_hca_gid gid;
  uint32_t max_message; /* bytes of one request */
  uint64_t max_region;  /* bytes of one registration */
  int max_reads_in;     /* RDMA reads of the peer under way, per queue pair */
  int max_reads_out;    /* our own */
  int max_sge;
  int max_requests; /* of one queue of a queue pair */
  int max_completions;
  int max_queue_pairs;
  int max_regions;
  bool soft;       /* soft-RoCE: what it sends again it also does again where the device alone had to do with it */
  int max_windows; /* memory windows of type 2 that can be bound to a queue pair; 0 where it has none */
};

/*
 * Opens a device with a port that is active and has an address for RC queue pairs. An index of -1 takes, on Ethernet, the first RoCE v2
 * GID with an address that can be routed, else the first link-local one, else the first whose type nobody knows; index 0 on InfiniBand.
 * RoCE v1 only by its index: it does not talk to v2. Fails with ZAP_E_DEVICE or the status of the call that failed; the text names
 * devices and ports and what was seen of them. `verbs` must outlive it.
 */
int32_t zap_hca_open(const struct zap_verbs *verbs, const struct zap_hca_settings *settings, struct zap_hca *hca);

/* After all that was made with its context is gone. One that is not open is fine. */
void zap_hca_close(struct zap_hca *hca);

/* A port, or with number 0 a device of which no port could be looked at. */
struct zap_hca_row {
  char device[ZAP_HCA_NAME_BYTES];
  char firmware[64];
  uint8_t port;
  uint8_t link_layer; /* IBV_LINK_LAYER_... */
  uint16_t lid;
  enum ibv_port_state state;
  enum ibv_mtu mtu;
  uint32_t gids;   /* entries that are not empty */
  char fault[192]; /* why it cannot be used, whatever its ports say; empty otherwise */
};

/* "Ethernet", "InfiniBand". */
const char *zap_hca_layer(uint8_t link_layer);

/* Every port of every device. Returns how many there are, of which the first `capacity` are in `rows`; none is no failure. */
int32_t zap_hca_list(const struct zap_verbs *verbs, struct zap_hca_row *rows, uint32_t capacity);

#endif
