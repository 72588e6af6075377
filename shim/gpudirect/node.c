/* A node: a region that is registered, an engine and its thread. */
#include "node.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../common/fail.h"
#include "../common/mapping.h"
#include "../common/service.h"
#include "../common/thread.h"
#include "engine.h"
#include "registration.h"

#define END_MS 5000u
#define PAGE UINT64_C(4096)

struct zap_node_region {
  struct zap_object object;
  struct zap_mapping mapping; /* `at` is NULL where the memory is the caller's */
};

struct zap_node {
  struct zap_service service;
  zap_gpudirect_node seen;
  zap_gpudirect_settings settings;
  struct zap_verbs verbs;
  struct zap_hca hca;
  struct ibv_pd *pd;
  struct ibv_mr *host, *messages; /* of the region, and of the GPU's memory, if any */
  struct zap_node_region *region;
  struct zap_engine *engine;
  uint8_t *base;    /* of the region */
  uint8_t *landing; /* what the areas of received messages count from. The GPU's memory is never touched from here */
  uint32_t slabs;
  uint64_t heads; /* offset in the region */
  atomic_bool running;
};

static struct zap_node *node_of(struct zap_service *service) { return (struct zap_node *)service; }

static void free_region(struct zap_object *object) {
  struct zap_node_region *region = (struct zap_node_region *)object;
  if (region->mapping.at != NULL) zap_mapping_drop(&region->mapping);
  free(region);
}

static uint64_t round_up(uint64_t bytes, uint64_t to) { return (bytes + to - 1) / to * to; }

static uint32_t or_else(uint32_t value, uint32_t otherwise) { return value == 0 ? otherwise : value; }

static void resolve(zap_gpudirect_settings *s) {
  s->eager_bytes = or_else(s->eager_bytes, 8192);
  s->receives = or_else(s->receives, 64);
  s->flows = or_else(s->flows, 256);
  s->message_bytes = or_else(s->message_bytes, 10u << 20);
  s->close_ms = or_else(s->close_ms, 5000);
  s->timeout_ms = or_else(s->timeout_ms, 250);
  if (s->receive_bytes == 0) s->receive_bytes = 4u << 20;
  if (s->total_bytes == 0) s->total_bytes = 256u << 20;
  if (s->versions == 0) s->versions = 1;
}

/* The areas of received messages, from `start` on; returns where they end. */
static uint64_t lay_out_messages(struct zap_node *node, uint64_t start) {
  zap_gpudirect_node *seen = &node->seen;
  seen->eager_offset = start;
  seen->message_offset = start + round_up(node->settings.eager_area, PAGE);
  return seen->message_offset + round_up(node->settings.message_area, PAGE);
}

static int32_t lay_out_device(struct zap_node *node) {
  const zap_gpudirect_settings *s = &node->settings;
  uint64_t wanted = lay_out_messages(node, 0);
  if (s->device_bytes < wanted)
    return zap_fail(ZAP_E_INVALID, "%llu bytes of GPU memory, and %llu are needed", (unsigned long long)s->device_bytes,
                    (unsigned long long)wanted);
  node->seen.device_address = s->device_address;
  node->seen.device_bytes = s->device_bytes;
  node->landing = (uint8_t *)(uintptr_t)s->device_address;
  return ZAP_OK;
}

/* Where everything lies. */
static int32_t lay_out(struct zap_node *node) {
  const zap_gpudirect_settings *s = &node->settings;
  zap_gpudirect_node *seen = &node->seen;
  uint64_t ring = round_up(zap_ring_bytes(ZAP_GPUDIRECT_MESSAGES), PAGE);
  seen->event_slots = 1024;
  while (seen->event_slots < 4 * s->flows) seen->event_slots *= 2;
  uint64_t rings = 4 * ring + round_up(ZAP_RING_HEAD_BYTES + (uint64_t)seen->event_slots * ZAP_GPUDIRECT_EVENT_BYTES, PAGE);
  /* Each may hold a message, and some are left for larger ones. */
  uint64_t slabs = s->eager_area / s->eager_bytes, slabs_most = ZAP_GPUDIRECT_MESSAGES / 4 * 3;
  node->slabs = (uint32_t)(slabs < slabs_most ? slabs : slabs_most);
  uint64_t heads = round_up(((uint64_t)node->slabs + (uint64_t)s->flows * ZAP_SEND_SLOTS) * ZAP_HEAD_BYTES, PAGE);
  seen->handoff_offset = 0;
  seen->returns_offset = (uint32_t)ring;
  seen->sends_offset = (uint32_t)(2 * ring);
  seen->dones_offset = (uint32_t)(3 * ring);
  seen->events_offset = (uint32_t)(4 * ring);
  node->heads = rings;
  if (s->device_address != 0) {
    int32_t status = lay_out_device(node);
    if (status != ZAP_OK) return status;
    seen->pool_offset = rings + heads;
  } else {
    seen->pool_offset = lay_out_messages(node, rings + heads);
  }
  uint64_t wanted = seen->pool_offset + round_up(s->pool_area, PAGE);
  node->region = calloc(1, sizeof *node->region);
  if (node->region == NULL) return zap_fail(ZAP_E_MEMORY, "out of memory for a region");
  zap_object_init(&node->region->object, free_region);
  if (s->host_address != 0) {
    if (s->host_bytes < wanted)
      return zap_fail(ZAP_E_INVALID, "%llu bytes of page-locked memory, and %llu are needed", (unsigned long long)s->host_bytes,
                      (unsigned long long)wanted);
    seen->address = s->host_address;
    seen->bytes = s->host_bytes;
    seen->page_bytes = PAGE;
  } else {
    int32_t status = zap_mapping_make(wanted, false, &node->region->mapping);
    if (status != ZAP_OK) return status;
    seen->address = (uint64_t)(uintptr_t)node->region->mapping.at;
    seen->bytes = node->region->mapping.bytes;
    seen->page_bytes = node->region->mapping.page_bytes;
  }
  seen->pool_bytes = seen->bytes - seen->pool_offset;
  node->base = (uint8_t *)(uintptr_t)seen->address;
  if (s->device_address == 0) node->landing = node->base;
  return ZAP_OK;
}

static int32_t open_device(struct zap_node *node) {
  const zap_gpudirect_settings *s = &node->settings;
  zap_gpudirect_node *seen = &node->seen;
  int32_t status = zap_verbs_load(s->runtime, &node->verbs);
  if (status != ZAP_OK) return status;
  const struct zap_hca_settings wanted = {.device = s->device, .port = (uint8_t)s->port, .gid_index = s->gid_index};
  status = zap_hca_open(&node->verbs, &wanted, &node->hca);
  if (status != ZAP_OK) return status;
  node->pd = node->verbs.alloc_pd(node->hca.context);
  if (node->pd == NULL) return zap_verbs_fail("ibv_alloc_pd", node->hca.name, errno);
  seen->port = node->hca.port;
  seen->gid_index = (uint32_t)node->hca.gid.index;
  seen->mtu = 128u << (uint32_t)node->hca.mtu;
  seen->ethernet = node->hca.ethernet;
  seen->lid = node->hca.lid;
  memcpy(seen->gid, node->hca.gid.raw, sizeof seen->gid);
  zap_text_copy(seen->device, sizeof seen->device, node->hca.name);
  zap_text_copy(seen->firmware, sizeof seen->firmware, node->hca.firmware);
  return ZAP_OK;
}

/* All of the region once; nothing of it can be reached by a peer but what is shown to him, for as long as he reads it. */
static int32_t register_region(struct zap_node *node) {
  zap_gpudirect_node *seen = &node->seen;
  const struct zap_area area = {.address = seen->address,
                                .bytes = seen->bytes,
                                .method = node->settings.host_address != 0 ? ZAP_GPUDIRECT_LOCKED : ZAP_GPUDIRECT_HOST};
  int32_t status = ZAP_E_UNSUPPORTED;
  if (node->hca.max_windows > 0)
    status = zap_register_area(&node->verbs, node->pd, node->hca.name, &area, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND, &node->host);
  if (status != ZAP_OK) {
    node->hca.max_windows = 0;
    status = zap_register_area(&node->verbs, node->pd, node->hca.name, &area, IBV_ACCESS_LOCAL_WRITE, &node->host);
  }
  if (status != ZAP_OK) return status;
  seen->method = seen->region_method = area.method;
  seen->registered_bytes = seen->bytes;
  return ZAP_OK;
}

/* The GPU's memory that messages are received into: for this device alone, no peer is ever shown any of it. */
static int32_t register_messages(struct zap_node *node) {
  const zap_gpudirect_settings *s = &node->settings;
  if (s->device_address == 0) return ZAP_OK;
  const struct zap_area area = {
      .address = s->device_address, .bytes = s->device_bytes, .method = s->method, .dma_buf = s->dma_buf_fd};
  int32_t status = zap_register_area(&node->verbs, node->pd, node->hca.name, &area, IBV_ACCESS_LOCAL_WRITE, &node->messages);
  if (status == ZAP_OK) node->seen.method = s->method;
  return status;
}

static int32_t make_engine(struct zap_node *node) {
  const zap_gpudirect_settings *s = &node->settings;
  zap_gpudirect_node *seen = &node->seen;
  uint8_t *base = node->base;
  struct zap_engine_settings settings = {
      .verbs = &node->verbs,
      .hca = &node->hca,
      .pd = node->pd,
      .host = node->host,
      .messages = node->messages != NULL ? node->messages : node->host,
      .base = base,
      .bytes = seen->bytes,
      .handoff = (zap_ring *)(void *)(base + seen->handoff_offset),
      .returns = (zap_ring *)(void *)(base + seen->returns_offset),
      .sends = (zap_ring *)(void *)(base + seen->sends_offset),
      .dones = (zap_ring *)(void *)(base + seen->dones_offset),
      .events = (zap_ring *)(void *)(base + seen->events_offset),
      .event_slots = seen->event_slots,
      .heads = base + node->heads,
      .slabs = node->landing + seen->eager_offset,
      .slab_count = node->slabs,
      .arena = node->landing + seen->message_offset,
      .arena_bytes = (node->messages != NULL ? seen->device_bytes : seen->pool_offset) - seen->message_offset,
      .memory_offset = node->messages != NULL ? seen->pool_offset : seen->eager_offset,
      .eager_bytes = s->eager_bytes,
      .receives = s->receives,
      .flows = s->flows,
      .message_bytes = s->message_bytes,
      .receive_bytes = s->receive_bytes,
      .total_bytes = s->total_bytes,
      .versions = s->versions,
      .close_ms = s->close_ms,
      .timeout_ms = s->timeout_ms,
      .flags = s->flags,
      .traffic_class = s->traffic_class,
      .wake_fd = node->service.wake[0],
  };
  zap_ring *const rings[] = {settings.handoff, settings.returns, settings.sends, settings.dones};
  for (size_t i = 0; i < sizeof rings / sizeof *rings; i++) (void)zap_ring_init(rings[i], ZAP_GPUDIRECT_MESSAGES);
  (void)zap_ring_init(settings.events, seen->event_slots);
  settings.events->entry_bytes = ZAP_GPUDIRECT_EVENT_BYTES;
  int32_t status = zap_engine_create(&settings, &node->engine);
  if (status == ZAP_OK) seen->windows = node->engine->windows;
  seen->eager_bytes = s->eager_bytes;
  return status;
}

static void *run_engine(void *context) {
  struct zap_node *node = context;
  zap_thread_name("zap-rdma");
  zap_engine_run(node->engine);
  atomic_store(&node->running, false);
  zap_object_release(&node->service.object);
  return NULL;
}

static int32_t start_engine(struct zap_node *node) {
  atomic_store(&node->running, true);
  zap_object_keep(&node->service.object);
  int32_t status = zap_thread_start(run_engine, node);
  if (status == ZAP_OK) return ZAP_OK;
  atomic_store(&node->running, false);
  zap_object_release(&node->service.object);
  return status;
}

static int32_t deregister(struct zap_node *node, struct ibv_mr **region) {
  int failed = *region == NULL ? 0 : node->verbs.dereg_mr(*region);
  if (failed != 0) return zap_verbs_fail("ibv_dereg_mr", node->hca.name, zap_verbs_errno(failed));
  *region = NULL;
  return ZAP_OK;
}

/* In the reverse order; memory is deregistered before it goes. What the device does not let go of is left as it is, memory above all. */
static int32_t take_apart(struct zap_node *node) {
  if (node->engine != NULL) zap_engine_stop(node->engine);
  for (uint32_t i = 0; i < END_MS && atomic_load(&node->running); i++) (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  if (atomic_load(&node->running)) return zap_fail(ZAP_E_TIMEOUT, "the thread that drives %s does not end", node->hca.name);
  int32_t finished = node->engine == NULL ? ZAP_OK : zap_engine_finish(node->engine, END_MS);
  if (finished != ZAP_OK) return finished;
  zap_engine_destroy(node->engine);
  node->engine = NULL;
  int32_t status = deregister(node, &node->messages);
  if (status == ZAP_OK) status = deregister(node, &node->host);
  if (status != ZAP_OK) return status;
  if (node->pd != NULL) (void)node->verbs.dealloc_pd(node->pd);
  node->pd = NULL;
  if (node->hca.context != NULL) zap_hca_close(&node->hca);
  if (node->region != NULL) zap_object_release(&node->region->object);
  node->region = NULL;
  return ZAP_OK;
}

static int32_t dismantle(struct zap_node *node) {
  int32_t status = take_apart(node);
  /* A thread that waits for the driver goes on from there, whenever that is: then the node stays for good. */
  if (status != ZAP_OK) zap_object_keep(&node->service.object);
  return status;
}

static int32_t open_all(struct zap_service *service) {
  struct zap_node *node = node_of(service);
  int32_t status = open_device(node);
  if (status == ZAP_OK) status = lay_out(node);
  if (status == ZAP_OK) status = register_region(node);
  if (status == ZAP_OK) status = register_messages(node);
  if (status == ZAP_OK) status = make_engine(node);
  if (status == ZAP_OK) status = start_engine(node);
  if (status == ZAP_OK) {
    int32_t region = zap_handle_open(ZAP_KIND_REGION, &node->region->object);
    node->seen.region = region;
    if (region < 0) status = region;
  }
  if (status == ZAP_OK) return ZAP_OK;
  char text[ZAP_TEXT_BYTES];
  zap_text_copy(text, sizeof text, zap_failure());
  if (dismantle(node) == ZAP_OK) return zap_fail(status, "%s", text);
  /* Said in a way of its own: what is the caller's must stay. */
  char left[ZAP_TEXT_BYTES];
  zap_text_copy(left, sizeof left, zap_failure());
  return zap_fail(ZAP_E_TIMEOUT, "%.280s; and its memory is still with the device: %.160s", text, left);
}

static int32_t close_all(struct zap_service *service, bool unseen) {
  struct zap_node *node = node_of(service);
  int32_t status = dismantle(node);
  if (unseen) zap_object_release(zap_handle_close(node->seen.region, ZAP_KIND_REGION));
  return status;
}

static void show(struct zap_service *service, void *out, int wake_fd) {
  zap_gpudirect_node *seen = out;
  *seen = node_of(service)->seen;
  seen->wake_fd = wake_fd;
}

static void destroy(struct zap_service *service) { free(service); }

const struct zap_service_kind zap_node_kind = {
    .kind = ZAP_KIND_NODE, .open = open_all, .close = close_all, .show = show, .destroy = destroy};

static int32_t check(const zap_gpudirect_settings *s) {
  if (memchr(s->runtime, 0, sizeof s->runtime) == NULL || memchr(s->device, 0, sizeof s->device) == NULL)
    return zap_fail(ZAP_E_INVALID, "a text of the settings has no end");
  if (s->port > 255) return zap_fail(ZAP_E_INVALID, "there is no port %u", s->port);
  if (s->eager_bytes < 256 || s->eager_bytes > 1u << 20 || s->eager_bytes % 64 != 0)
    return zap_fail(ZAP_E_INVALID, "slabs of %u bytes: a multiple of 64 from 256 to 1 MiB is possible", s->eager_bytes);
  if (s->receives < ZAP_CONTROL_CREDITS * 2 || s->receives > 1024)
    return zap_fail(ZAP_E_INVALID, "%u receives: %u to 1024 are possible", s->receives, ZAP_CONTROL_CREDITS * 2);
  if (s->timeout_ms > 60000) return zap_fail(ZAP_E_INVALID, "a time-out of %u ms: at most 60,000 are possible", s->timeout_ms);
  if (s->flows > 4096) return zap_fail(ZAP_E_INVALID, "%u flows are more than 4096", s->flows);
  if (s->message_bytes < 16 || s->message_bytes > 1u << 30) return zap_fail(ZAP_E_INVALID, "messages of %u bytes: at most 1 GiB", s->message_bytes);
  if (s->eager_area / s->eager_bytes < s->receives) return zap_fail(ZAP_E_INVALID, "the area for slabs has too few for one peer");
  if (s->message_area == 0 || s->pool_area == 0) return zap_fail(ZAP_E_INVALID, "an area of the region is empty");
  if ((s->eager_area | s->message_area | s->pool_area) >> 40 != 0) return zap_fail(ZAP_E_INVALID, "an area of the region is too large");
  if (s->host_address % PAGE != 0) return zap_fail(ZAP_E_INVALID, "memory that does not begin at a page");
  if (s->device_address == 0) return s->method == 0 ? ZAP_OK : zap_fail(ZAP_E_INVALID, "a method, and no GPU memory to register by it");
  if (s->method != ZAP_GPUDIRECT_DMA_BUF && s->method != ZAP_GPUDIRECT_PEERMEM)
    return zap_fail(ZAP_E_INVALID, "%u is no method of registering GPU memory", s->method);
  const struct zap_area area = {
      .address = s->device_address, .bytes = s->device_bytes, .method = s->method, .dma_buf = s->dma_buf_fd};
  return zap_check_area(&area);
}

int32_t zap_node_open(const zap_gpudirect_settings *settings) {
  if (settings == NULL) return zap_fail(ZAP_E_INVALID, "a node needs settings");
  zap_gpudirect_settings resolved = *settings;
  resolve(&resolved);
  int32_t status = check(&resolved);
  if (status != ZAP_OK) return status;
  struct zap_node *node = calloc(1, sizeof *node);
  if (node == NULL) return zap_fail(ZAP_E_MEMORY, "out of memory for a node");
  node->settings = resolved;
  return zap_service_start(&node->service, &zap_node_kind);
}

struct zap_engine *zap_node_engine(struct zap_service *service) { return node_of(service)->engine; }
const struct zap_verbs *zap_node_verbs(struct zap_service *service) { return &node_of(service)->verbs; }
