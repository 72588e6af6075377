#include "port.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_config.h>
#include <rte_dev.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_memory.h>

#include "../common/fail.h"
#include "../common/thread.h"
#include "eal.h"
#include "log.h"
#include "memif.h"

#define BUFFERS 4096u
#define HEADS 1024u
#define CACHE 256u
/* Ethernet's header and two VLAN tags. */
#define LINK_BYTES 22u
#define CONFIGURE_MS 30000u

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct zap_port *open_ports;
static atomic_uint serial;

/* Many drivers' -1 means no more than that it failed. */
static int32_t failed(int number, const char *call) {
  return zap_eal_fail(ZAP_E_DRIVER, number == -1 ? 0 : number < 0 ? -number : number, call);
}

static const char *bus_of(const struct zap_port *port) { return strncmp(port->name, "net_", 4) == 0 ? "vdev" : "pci"; }

static int32_t add(struct zap_port *port) {
  const char *comma = strchr(port->device, ',');
  const char *arguments = comma == NULL ? "" : comma + 1;
  bool pci = strcmp(bus_of(port), "pci") == 0;
  if (pci && !zap_eal_has_pci())
    return zap_fail(ZAP_E_UNSUPPORTED, "%s: DPDK was started without network cards; a fresh process has to name one", port->name);
  uint16_t there;
  if (strncmp(port->name, "net_af_xdp", 10) == 0) zap_log_take_bpf();
  /* A card that was named at the start is there already. */
  if (rte_eth_dev_get_port_by_name(port->name, &there) != 0) {
    zap_memif_clear(port->device);
    int result = rte_eal_hotplug_add(bus_of(port), port->name, arguments);
    if (result != 0) return failed(result, "rte_eal_hotplug_add failed");
    port->added = true;
    if (rte_eth_dev_get_port_by_name(port->name, &there) != 0)
      return zap_fail(ZAP_E_DEVICE, "%s is no network device, or its driver is not installed", port->name);
  }
  port->added = true;
  port->id = there;
  return ZAP_OK;
}

/*
 * Drivers that share the pool's own memory, rather than the buffers' that it stands for: zero-copy memif with the other process, af_xdp
 * with the kernel.
 */
static bool refuses_region(const struct zap_port *port) {
  return strstr(port->device, "zero-copy=yes") != NULL || strncmp(port->name, "net_af_xdp", 10) == 0;
}

static size_t packet_bytes(const struct zap_port_settings *settings) {
  return settings->packet_bytes != 0 ? settings->packet_bytes : settings->region_bytes;
}

static int32_t pool_over_region(struct zap_port *port, const char *name, uint32_t count) {
  struct zap_port_settings *settings = &port->settings;
  if (rte_extmem_register(settings->region, settings->region_bytes, NULL, 0, settings->page_bytes) != 0)
    return failed(rte_errno, "rte_extmem_register failed");
  port->registered = true;
  struct rte_eth_dev_info info;
  if (rte_eth_dev_info_get(port->id, &info) == 0 && info.device != NULL) {
    int result = rte_dev_dma_map(info.device, settings->region, (uint64_t)(uintptr_t)settings->region, settings->region_bytes);
    /* Software devices have no DMA. */
    if (result != 0 && rte_errno != ENOTSUP) return failed(rte_errno, "rte_dev_dma_map failed");
  }
  struct rte_pktmbuf_extmem memory = {
      .buf_ptr = settings->region,
      .buf_iova = (rte_iova_t)(uintptr_t)settings->region,
      .buf_len = packet_bytes(settings),
      .elt_size = (uint16_t)port->buffer_bytes,
  };
  int socket = rte_eth_dev_socket_id(port->id);
  port->pool = rte_pktmbuf_pool_create_extbuf(name, count, CACHE, 0, (uint16_t)port->buffer_bytes, socket < 0 ? SOCKET_ID_ANY : socket,
                                              &memory, 1);
  return port->pool == NULL ? failed(rte_errno, "rte_pktmbuf_pool_create_extbuf failed") : ZAP_OK;
}

static void unregister(struct zap_port *port) {
  if (!port->registered) return;
  struct rte_eth_dev_info info;
  if (port->added && rte_eth_dev_info_get(port->id, &info) == 0 && info.device != NULL)
    (void)rte_dev_dma_unmap(info.device, port->settings.region, (uint64_t)(uintptr_t)port->settings.region, port->settings.region_bytes);
  (void)rte_extmem_unregister(port->settings.region, port->settings.region_bytes);
  port->registered = false;
}

/* The frames of af_packet's ring, which a buffer must have room for whatever the MTU; 0 where none are named. */
static uint32_t ring_frame(const struct zap_port *port) {
  const char *named = strcmp(port->driver, "net_af_packet") == 0 ? strstr(port->device, ",framesz=") : NULL;
  return named == NULL ? 0 : (uint32_t)strtoul(named + strlen(",framesz="), NULL, 10);
}

static int32_t pools(struct zap_port *port) {
  const struct zap_port_settings *settings = &port->settings;
  uint32_t frame = port->mtu + LINK_BYTES, ring = ring_frame(port);
  uint32_t needed = RTE_PKTMBUF_HEADROOM + (ring > frame ? ring : frame);
  port->buffer_bytes = settings->buffer_bytes != 0 ? settings->buffer_bytes : needed < 2176 ? 2176 : needed;
  port->buffer_bytes = RTE_ALIGN_CEIL(port->buffer_bytes, 64);
  if (port->buffer_bytes < needed || port->buffer_bytes > UINT16_MAX)
    return zap_fail(ZAP_E_INVALID, "buffers of %u bytes: an MTU of %u needs %u, and 65472 is the most", port->buffer_bytes, port->mtu, needed);
  char name[32];
  unsigned number = atomic_fetch_add(&serial, 1);
  (void)snprintf(name, sizeof name, "zap-%u", number);
  port->own_memory = settings->region == NULL || refuses_region(port);
  uint32_t fit = (uint32_t)(packet_bytes(settings) / port->buffer_bytes);
  uint32_t count = settings->buffers != 0 ? settings->buffers : port->own_memory ? BUFFERS : fit;
  if (!port->own_memory && count > fit)
    return zap_fail(ZAP_E_INVALID, "%u buffers of %u bytes do not fit into %zu bytes", count, port->buffer_bytes, packet_bytes(settings));
  /* Each queue fills its slots, and each thread keeps some. */
  uint32_t least = port->queues * (port->slots + CACHE * 2u);
  if (count < least)
    return zap_fail(ZAP_E_INVALID, "%u buffers are too few: %u queues of %u slots need %u", count, port->queues, port->slots, least);
  port->buffers = count;
  if (!port->own_memory) {
    int32_t status = pool_over_region(port, name, count);
    if (status != ZAP_OK) return status;
  } else {
    port->pool = rte_pktmbuf_pool_create(name, count, CACHE, 0, (uint16_t)port->buffer_bytes, SOCKET_ID_ANY);
    if (port->pool == NULL) return failed(rte_errno, "rte_pktmbuf_pool_create failed");
  }
  if (!port->chains) return ZAP_OK;
  (void)snprintf(name, sizeof name, "zap-%u-heads", number);
  /* Room beside the packet for what DPDK must know of payload that lies elsewhere. */
  uint32_t heads = HEADS + port->queues * (port->slots + CACHE * 2u);
  port->heads = rte_pktmbuf_pool_create(name, heads * 2, CACHE, 64, RTE_PKTMBUF_HEADROOM + 384, SOCKET_ID_ANY);
  return port->heads == NULL ? failed(rte_errno, "rte_pktmbuf_pool_create failed") : ZAP_OK;
}

/* These carry what their buffers have room for, and say 1,518 bytes whatever that is. */
static bool carries_any_mtu(const struct zap_port *port) {
  return strcmp(port->driver, "net_af_packet") == 0 || strcmp(port->driver, "net_memif") == 0;
}

static int32_t configure(struct zap_port *port) {
  const struct zap_port_settings *settings = &port->settings;
  struct rte_eth_dev_info info;
  int result = rte_eth_dev_info_get(port->id, &info);
  if (result != 0) return failed(result, "rte_eth_dev_info_get failed");
  (void)snprintf(port->driver, sizeof port->driver, "%s", info.driver_name);
  uint16_t mtu = 1500;
  (void)rte_eth_dev_get_mtu(port->id, &mtu);
  if (settings->mtu != 0) mtu = (uint16_t)settings->mtu;
  if (settings->mtu > info.max_mtu || settings->mtu > UINT16_MAX || (settings->mtu != 0 && settings->mtu < 576))
    return zap_fail(ZAP_E_INVALID, "an MTU of %u: %s takes 576 to %u", settings->mtu, port->name, info.max_mtu);
  uint16_t queues = settings->queues == 0 ? 1 : (uint16_t)settings->queues;
  if (queues > info.max_rx_queues) queues = info.max_rx_queues;
  if (queues > info.max_tx_queues) queues = info.max_tx_queues;
  if (queues == 0) return zap_fail(ZAP_E_DEVICE, "%s has no queues", port->name);
  const uint64_t receive = RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | RTE_ETH_RX_OFFLOAD_UDP_CKSUM;
  const uint64_t send = RTE_ETH_TX_OFFLOAD_IPV4_CKSUM | RTE_ETH_TX_OFFLOAD_UDP_CKSUM | RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
  struct rte_eth_conf conf = {
      .rxmode = {.mtu = carries_any_mtu(port) ? 0 : mtu, .offloads = receive & info.rx_offload_capa},
      .txmode = {.offloads = send & info.tx_offload_capa},
  };
  if (queues > 1 && info.flow_type_rss_offloads != 0) {
    conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
    conf.rx_adv_conf.rss_conf.rss_hf = (RTE_ETH_RSS_IP | RTE_ETH_RSS_UDP) & info.flow_type_rss_offloads;
  }
  result = rte_eth_dev_configure(port->id, queues, queues, &conf);
  if (result != 0) return failed(result, "rte_eth_dev_configure failed");
  port->configured = true;
  port->queues = queues;
  port->mtu = mtu;
  port->longest = (uint16_t)(mtu - 28);
  port->checks = conf.rxmode.offloads != 0;
  port->sums_ip = (conf.txmode.offloads & RTE_ETH_TX_OFFLOAD_IPV4_CKSUM) != 0;
  port->sums_udp = (conf.txmode.offloads & RTE_ETH_TX_OFFLOAD_UDP_CKSUM) != 0;
  /* What net_ring is given comes out of it again as it is, parts and all. */
  port->chains = !settings->copy && !refuses_region(port) && (conf.txmode.offloads & RTE_ETH_TX_OFFLOAD_MULTI_SEGS) != 0 && strcmp(port->driver, "net_ring") != 0;
  uint16_t in = settings->slots == 0 ? 1024 : (uint16_t)settings->slots, out = in;
  result = rte_eth_dev_adjust_nb_rx_tx_desc(port->id, &in, &out);
  if (result != 0) return failed(result, "rte_eth_dev_adjust_nb_rx_tx_desc failed");
  port->slots = in > out ? in : out;
  int32_t status = pools(port);
  if (status != ZAP_OK) return status;
  int socket = rte_eth_dev_socket_id(port->id);
  unsigned place = socket < 0 ? (unsigned)SOCKET_ID_ANY : (unsigned)socket;
  for (uint16_t i = 0; i < queues; i++) {
    result = rte_eth_rx_queue_setup(port->id, i, in, place, NULL, port->pool);
    if (result != 0) return failed(result, "rte_eth_rx_queue_setup failed");
    result = rte_eth_tx_queue_setup(port->id, i, out, place, NULL);
    if (result != 0) return failed(result, "rte_eth_tx_queue_setup failed");
  }
  struct rte_ether_addr mac;
  result = rte_eth_macaddr_get(port->id, &mac);
  if (result != 0) return failed(result, "rte_eth_macaddr_get failed");
  memcpy(port->station.mac, mac.addr_bytes, 6);
  return ZAP_OK;
}

static int32_t run_configure(void *context) {
  struct zap_port *port = context;
  int32_t status = add(port);
  return status == ZAP_OK ? configure(port) : status;
}

/*
 * memif's handlers, on DPDK's interrupt thread, make and free a port's queues when the other side comes and goes, without a lock
 * against whoever starts, stops or closes it.
 */
static int32_t run_safely(struct zap_port *port, int32_t (*run)(void *context)) {
  return strcmp(port->driver, "net_memif") == 0 ? zap_eal_run_between(run, port) : run(port);
}

static int32_t start_now(void *context) {
  struct zap_port *port = context;
  int result = rte_eth_dev_start(port->id);
  if (result != 0) return failed(result, "rte_eth_dev_start failed");
  port->started = true;
  /* A card that cannot be told to let go of what it has sent gets copies. Software devices keep nothing. */
  if (strcmp(bus_of(port), "pci") == 0 && rte_eth_tx_done_cleanup(port->id, 0, 0) == -ENOTSUP) port->chains = false;
  /* For neighbour discovery. Not every device has to be told. */
  if (port->station.has6) (void)rte_eth_allmulticast_enable(port->id);
  return ZAP_OK;
}

static int32_t run_start(void *context) { return run_safely(context, start_now); }

static int32_t stop_now(void *context) {
  struct zap_port *port = context;
  if (port->started) (void)rte_eth_dev_stop(port->id);
  port->started = false;
  return ZAP_OK;
}

static int32_t run_stop(void *context) { return run_safely(context, stop_now); }

static int32_t close_now(void *context) {
  struct zap_port *port = context;
  (void)stop_now(port);
  if (!port->configured) return ZAP_OK;
  port->configured = false;
  int result = rte_eth_dev_close(port->id);
  return result == 0 ? ZAP_OK : failed(result, "rte_eth_dev_close failed");
}

/*
 * A memif client whose server listens, but has not started yet, is turned away and stays so until it is started anew. Any other device's
 * link may come up when it likes.
 */
static bool waits_for_link(const struct zap_port *port) {
  return strcmp(port->driver, "net_memif") == 0 && strstr(port->device, "role=server") == NULL;
}

static bool link_up(const struct zap_port *port) {
  /*
   * Long enough for a busy machine: a server that greets a client which has given up meanwhile takes its whole process down, inside
   * DPDK.
   */
  for (int tries = 0; tries < 400; tries++) {
    struct rte_eth_link link;
    if (rte_eth_link_get_nowait(port->id, &link) == 0 && link.link_status != 0) return true;
    (void)nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
  }
  return false;
}

/* Once; the caller tries again. */
static int32_t start(struct zap_port *port) {
  int32_t status = zap_eal_run(run_start, port, CONFIGURE_MS);
  if (status != ZAP_OK || !waits_for_link(port) || link_up(port)) return status;
  status = zap_eal_run(run_stop, port, CONFIGURE_MS);
  return status != ZAP_OK ? status : zap_fail(ZAP_E_DEVICE, "%s: the other side of the socket does not start", port->name);
}

/* A socket may be several ports'. */
static bool is_last_of_socket(const struct zap_port *port) {
  bool last = true;
  pthread_mutex_lock(&lock);
  for (const struct zap_port *each = open_ports; each != NULL; each = each->next)
    if (each != port && zap_memif_serves(each->device) && zap_memif_together(each->device, port->device)) last = false;
  pthread_mutex_unlock(&lock);
  return last;
}

static int32_t run_close(void *context) {
  struct zap_port *port = context;
  /* Unmapped while the device still exists. */
  int32_t status = run_safely(port, close_now);
  uint32_t out = 0;
  if (port->pool != NULL) out = rte_mempool_in_use_count(port->pool);
  if (port->added && strcmp(bus_of(port), "vdev") == 0) {
    int result = rte_eal_hotplug_remove(bus_of(port), port->name);
    if (result != 0 && status == ZAP_OK) status = failed(result, "rte_eal_hotplug_remove failed");
    port->added = false;
    if (zap_memif_serves(port->device) && is_last_of_socket(port)) zap_memif_hush(port->device);
  }
  rte_mempool_free(port->pool);
  rte_mempool_free(port->heads);
  port->pool = port->heads = NULL;
  unregister(port);
  port->buffers = out;
  return status;
}

/* One device cannot be open twice: its name is taken until it is closed. */
static int32_t enlist(struct zap_port *port) {
  int32_t status = ZAP_OK;
  pthread_mutex_lock(&lock);
  for (struct zap_port *each = open_ports; each != NULL; each = each->next)
    if (strcmp(each->name, port->name) == 0) status = ZAP_E_LIMIT;
  if (status == ZAP_OK) {
    port->next = open_ports;
    open_ports = port;
  }
  pthread_mutex_unlock(&lock);
  return status == ZAP_OK ? ZAP_OK : zap_fail(status, "%s is open already", port->name);
}

static void delist(struct zap_port *port) {
  pthread_mutex_lock(&lock);
  for (struct zap_port **each = &open_ports; *each != NULL; each = &(*each)->next) {
    if (*each != port) continue;
    *each = port->next;
    break;
  }
  pthread_mutex_unlock(&lock);
}

static int32_t check(const struct zap_port_settings *settings) {
  if (settings->device == NULL || settings->device[0] == 0 || strlen(settings->device) >= sizeof((struct zap_port *)0)->device)
    return zap_fail(ZAP_E_INVALID, "a port needs the name of a device of at most %zu bytes", sizeof((struct zap_port *)0)->device - 1);
  if (strcspn(settings->device, ",") >= sizeof((struct zap_port *)0)->name)
    return zap_fail(ZAP_E_INVALID, "\"%.80s...\" is too long for the name of a device", settings->device);
  if (settings->queues > ZAP_PORT_QUEUES) return zap_fail(ZAP_E_INVALID, "%u queues are more than %d", settings->queues, ZAP_PORT_QUEUES);
  if (settings->slots > 32768) return zap_fail(ZAP_E_INVALID, "%u slots are more than 32768", settings->slots);
  if (settings->prefix4 > 32 || settings->prefix6 > 128) return zap_fail(ZAP_E_INVALID, "a prefix is longer than its address");
  if (settings->region == NULL) return ZAP_OK;
  size_t page = settings->page_bytes;
  if (page < 4096 || (page & (page - 1)) != 0) return zap_fail(ZAP_E_INVALID, "pages of %zu bytes", page);
  if (((uintptr_t)settings->region | settings->region_bytes) & (page - 1) || settings->region_bytes == 0)
    return zap_fail(ZAP_E_INVALID, "a region of %zu bytes that does not begin and end at a page of %zu", settings->region_bytes, page);
  if (settings->packet_bytes > settings->region_bytes)
    return zap_fail(ZAP_E_INVALID, "%zu bytes for packets of a region of %zu", settings->packet_bytes, settings->region_bytes);
  return ZAP_OK;
}

static void forget(struct zap_port *port) {
  delist(port);
  zap_neighbours_destroy(&port->neighbours);
  free(port);
}

int32_t zap_port_open(const struct zap_port_settings *settings, struct zap_port **out) {
  int32_t status = check(settings);
  if (status != ZAP_OK) return status;
  if (!zap_eal_running()) return zap_fail(ZAP_E_DRIVER, "DPDK's environment does not run");
  struct zap_port *port = calloc(1, sizeof *port);
  if (port == NULL) return zap_fail(ZAP_E_MEMORY, "out of memory for a port");
  port->settings = *settings;
  port->station = settings->station;
  (void)snprintf(port->device, sizeof port->device, "%s", settings->device);
  port->settings.device = port->device;
  (void)snprintf(port->name, sizeof port->name, "%.*s", (int)strcspn(settings->device, ","), settings->device);
  zap_neighbours_init(&port->neighbours);
  status = enlist(port);
  if (status != ZAP_OK) {
    zap_neighbours_destroy(&port->neighbours);
    free(port);
    return status;
  }
  status = zap_eal_run(run_configure, port, CONFIGURE_MS);
  uint64_t until = zap_now() + (settings->start_ms == 0 ? 1000 : settings->start_ms) * 1000000ull;
  while (status == ZAP_OK) {
    status = start(port);
    if (status == ZAP_OK) {
      *out = port;
      return ZAP_OK;
    }
    if (status == ZAP_E_TIMEOUT || zap_now() > until) break;
    (void)nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    status = ZAP_OK;
  }
  /* Whoever is late may still write to it. */
  if (status == ZAP_E_TIMEOUT) return status;
  char text[ZAP_TEXT_BYTES];
  zap_text_copy(text, sizeof text, zap_failure());
  if (zap_eal_run(run_close, port, CONFIGURE_MS) != ZAP_E_TIMEOUT) forget(port);
  return zap_fail(status, "%s", text);
}

int32_t zap_port_close(struct zap_port *port, uint32_t *out) {
  if (atomic_load(&port->threads) != 0) return zap_fail(ZAP_E_INVALID, "%s is still polled by %u threads", port->name, atomic_load(&port->threads));
  int32_t status = zap_eal_run(run_close, port, CONFIGURE_MS);
  if (status == ZAP_E_TIMEOUT) return status;
  if (out != NULL) *out = port->buffers;
  forget(port);
  return status;
}

static bool same_bits(const uint8_t *first, const uint8_t *second, unsigned bits) {
  if (memcmp(first, second, bits / 8) != 0) return false;
  return bits % 8 == 0 || ((first[bits / 8] ^ second[bits / 8]) >> (8 - bits % 8)) == 0;
}

const struct zap_ip *zap_port_hop(const struct zap_port *port, const struct zap_ip *to) {
  const struct zap_port_settings *settings = &port->settings;
  if (zap_ip_is4(to))
    return !settings->has_gateway4 || same_bits(to->bytes + 12, port->station.ip4, settings->prefix4) ? to : &settings->gateway4;
  return !settings->has_gateway6 || same_bits(to->bytes, port->station.ip6, settings->prefix6) ? to : &settings->gateway6;
}

int32_t zap_port_stats(const struct zap_port *port, struct zap_port_stats *stats) {
  struct rte_eth_stats seen;
  int result = rte_eth_stats_get(port->id, &seen);
  if (result != 0) return failed(result, "rte_eth_stats_get failed");
  struct rte_eth_link link = {.link_status = 0};
  (void)rte_eth_link_get_nowait(port->id, &link);
  *stats = (struct zap_port_stats){
      .packets_in = seen.ipackets,
      .packets_out = seen.opackets,
      .bytes_in = seen.ibytes,
      .bytes_out = seen.obytes,
      .missed = seen.imissed,
      .errors_in = seen.ierrors,
      .errors_out = seen.oerrors,
      .no_buffers = seen.rx_nombuf,
      .buffers_free = rte_mempool_avail_count(port->pool),
      .link = link.link_status != 0,
      .mbit = link.link_speed == RTE_ETH_SPEED_NUM_UNKNOWN ? 0 : link.link_speed,
  };
  return ZAP_OK;
}
