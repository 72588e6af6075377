/* The verbs, and what a host lacks for them. */
#include "zap_gpudirect.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../common/rows.h"
#include "engine.h"
#include "node.h"
#include "registration.h"

#define PROBED_BYTES 65536u
/* Ports that are shown beside the one that is used. */
#define OTHERS_MOST 6

uint32_t zap_gpudirect_abi(void) { return ZAP_ABI_VERSION; }

int32_t zap_gpudirect_error(char *text, uint32_t capacity) { return zap_failure_copy(text, capacity); }

/* ---- the probe ---- */

/* Registers it and deregisters it. ZAP_E_TIMEOUT where only the former was to be had. */
static int32_t try_area(const struct zap_verbs *verbs, struct ibv_pd *pd, const struct zap_hca *hca, const struct zap_area *area) {
  struct ibv_mr *region = NULL;
  int32_t status = zap_register_area(verbs, pd, hca->name, area, IBV_ACCESS_LOCAL_WRITE, &region);
  if (status != ZAP_OK) return status;
  int failed = verbs->dereg_mr(region);
  if (failed == 0) return ZAP_OK;
  int number = zap_verbs_errno(failed);
  return zap_fail(ZAP_E_TIMEOUT, "ibv_dereg_mr of what was registered by %s with %s failed with %s (%d)",
                  zap_method_name(area->method), hca->name, zap_verbs_errno_name(number), number);
}

static void try_memory(struct zap_rows *rows, const struct zap_verbs *verbs, const struct zap_hca *hca) {
  static const char name[] = "memory registration";
  struct ibv_pd *pd = verbs->alloc_pd(hca->context);
  if (pd == NULL) {
    (void)zap_verbs_fail("ibv_alloc_pd", hca->name, errno);
    zap_row(rows, name, false, "A protection domain cannot be had: see the limits of the process, and of its container.", "%s", zap_failure());
    return;
  }
  void *memory = aligned_alloc(4096, PROBED_BYTES);
  const struct zap_area area = {.address = (uintptr_t)memory, .bytes = PROBED_BYTES, .method = ZAP_GPUDIRECT_HOST};
  int32_t status = memory == NULL ? zap_fail(ZAP_E_MEMORY, "out of memory for a probe") : try_area(verbs, pd, hca, &area);
  if (status != ZAP_OK) zap_row(rows, name, false, "ulimit -l unlimited\nOr give the process CAP_IPC_LOCK.", "%s", zap_failure());
  else zap_row(rows, name, true, NULL, "64 KiB of host memory registered with %s", hca->name);
  /* What the device still has must stay. */
  if (status != ZAP_E_TIMEOUT) free(memory);
  (void)verbs->dealloc_pd(pd);
}

static void show(struct zap_rows *rows, const struct zap_hca *hca) {
  char gid[INET6_ADDRSTRLEN] = "";
  (void)inet_ntop(AF_INET6, hca->gid.raw, gid, sizeof gid);
  zap_row(rows, "HCA", true, NULL, "%s port %u, %s, %u bytes a packet, GID %d (%s), firmware %s", hca->name, (unsigned)hca->port,
          hca->ethernet ? "RoCE" : "InfiniBand", 128u << (unsigned)hca->mtu, hca->gid.index, gid,
          hca->firmware[0] == 0 ? "unknown" : hca->firmware);
}

/* All other ports, for whoever looks for another. */
static void show_others(struct zap_rows *rows, const struct zap_verbs *verbs, const struct zap_hca *hca) {
  struct zap_hca_row seen[OTHERS_MOST];
  int32_t count = zap_hca_list(verbs, seen, OTHERS_MOST);
  for (int32_t i = 0; i < count && i < (int32_t)OTHERS_MOST; i++) {
    const struct zap_hca_row *row = &seen[i];
    if (row->port == hca->port && strcmp(row->device, hca->name) == 0) continue;
    if (row->fault[0] != 0) zap_row(rows, "other HCA", true, NULL, "%s cannot be used: %s", row->device, row->fault);
    else
      zap_row(rows, "other HCA", true, NULL, "%s port %u, %s, %s, %u GIDs", row->device, (unsigned)row->port, zap_hca_layer(row->link_layer),
              verbs->port_state_str(row->state), (unsigned)row->gids);
  }
}

static void look(struct zap_rows *rows, const char *runtime, const struct zap_hca_settings *wanted) {
  struct zap_verbs verbs;
  if (zap_verbs_load(runtime, &verbs) != ZAP_OK) {
    zap_row(rows, "ibverbs", false, "Install rdma-core and its providers.", "%s", zap_failure());
    return;
  }
  zap_row(rows, "ibverbs", true, NULL, "%s", runtime);
  struct zap_hca hca;
  if (zap_hca_open(&verbs, wanted, &hca) != ZAP_OK) {
    zap_row(rows, "HCA", false, "See `ibv_devinfo -v`, and `rdma link` for the state of its ports.", "%s", zap_failure());
    return;
  }
  show(rows, &hca);
  try_memory(rows, &verbs, &hca);
  show_others(rows, &verbs, &hca);
  zap_hca_close(&hca);
}

int32_t zap_gpudirect_probe(const char *runtime, const char *device, uint32_t port, int32_t gid_index, zap_prerequisite *rows,
                             uint32_t capacity) {
  if (runtime == NULL || device == NULL || rows == NULL || capacity == 0)
    return zap_fail(ZAP_E_INVALID, "a probe needs the path of libibverbs, a device or none, and room for its rows");
  if (port > UINT8_MAX) return zap_fail(ZAP_E_INVALID, "there is no port %u", port);
  const struct zap_hca_settings wanted = {.device = device, .port = (uint8_t)port, .gid_index = gid_index};
  struct zap_rows seen = {.count = 0};
  look(&seen, runtime, &wanted);
  return (int32_t)zap_rows_copy(&seen, rows, capacity);
}

static int32_t with_device(const struct zap_verbs *verbs, const char *device, const struct zap_area *area) {
  struct zap_hca hca;
  const struct zap_hca_settings wanted = {.device = device, .gid_index = -1};
  int32_t status = zap_hca_open(verbs, &wanted, &hca);
  if (status != ZAP_OK) return status;
  struct ibv_pd *pd = verbs->alloc_pd(hca.context);
  status = pd == NULL ? zap_verbs_fail("ibv_alloc_pd", hca.name, errno) : try_area(verbs, pd, &hca, area);
  if (pd != NULL) (void)verbs->dealloc_pd(pd);
  zap_hca_close(&hca);
  return status;
}

int32_t zap_gpudirect_probe_memory(const char *runtime, const char *device, uint32_t method, uint64_t address, uint64_t bytes,
                                   int32_t dma_buf_fd) {
  if (runtime == NULL || device == NULL) return zap_fail(ZAP_E_INVALID, "a probe needs the path of libibverbs, and a device or none");
  const struct zap_area area = {.address = address, .bytes = bytes, .method = method, .dma_buf = dma_buf_fd};
  struct zap_verbs verbs;
  int32_t status = zap_check_area(&area);
  if (status == ZAP_OK) status = zap_verbs_load(runtime, &verbs);
  return status == ZAP_OK ? with_device(&verbs, device, &area) : status;
}

/* ---- nodes ---- */

int32_t zap_gpudirect_open(const zap_gpudirect_settings *settings) { return zap_node_open(settings); }

int32_t zap_gpudirect_opened(int32_t handle, zap_gpudirect_node *node) {
  if (node == NULL) return zap_fail(ZAP_E_INVALID, "there is no place for the node");
  return zap_service_opened(handle, &zap_node_kind, node);
}

int32_t zap_gpudirect_close(int32_t handle) { return zap_service_close(handle, &zap_node_kind); }

int32_t zap_gpudirect_closed(int32_t handle) { return zap_service_closed(handle, &zap_node_kind); }

int32_t zap_gpudirect_region_free(int32_t handle) {
  struct zap_object *region = zap_handle_close(handle, ZAP_KIND_REGION);
  if (region == NULL) return ZAP_E_HANDLE;
  zap_object_release(region);
  return ZAP_OK;
}

/* ---- flows ---- */

int32_t zap_gpudirect_flow_begin(int32_t handle, zap_gpudirect_offer *offer) {
  if (offer == NULL) return zap_fail(ZAP_E_INVALID, "there is no place for the offer");
  struct zap_service *node = zap_service_use(handle, &zap_node_kind);
  if (node == NULL) return ZAP_E_HANDLE;
  struct zap_engine *engine = zap_node_engine(node);
  zap_engine_lock(engine);
  int32_t status = zap_flow_begin(engine, offer);
  zap_engine_unlock(engine);
  zap_service_release(node);
  return status;
}

int32_t zap_gpudirect_flow_accept(int32_t handle, uint32_t flow, const zap_gpudirect_offer *offer) {
  if (offer == NULL) return zap_fail(ZAP_E_INVALID, "there is no offer");
  struct zap_service *node = zap_service_use(handle, &zap_node_kind);
  if (node == NULL) return ZAP_E_HANDLE;
  struct zap_engine *engine = zap_node_engine(node);
  zap_engine_lock(engine);
  int32_t status = zap_flow_accept(engine, flow, offer);
  zap_engine_unlock(engine);
  zap_engine_kick(engine);
  zap_service_release(node);
  return status;
}

static int32_t end(int32_t handle, uint32_t number, bool now) {
  struct zap_service *node = zap_service_use(handle, &zap_node_kind);
  if (node == NULL) return ZAP_E_HANDLE;
  struct zap_engine *engine = zap_node_engine(node);
  zap_engine_lock(engine);
  /* What was given to be sent before comes first. */
  while (!now && zap_outgoing_take(engine)) continue;
  struct zap_flow *flow = zap_flow_find(engine, number);
  if (flow != NULL && now) zap_flow_fail(engine, flow, ZAP_DOWN_ABORTED, 0);
  else if (flow != NULL) zap_flow_close(engine, flow);
  zap_engine_unlock(engine);
  zap_engine_kick(engine);
  zap_service_release(node);
  return ZAP_OK;
}

int32_t zap_gpudirect_flow_close(int32_t handle, uint32_t flow) { return end(handle, flow, false); }

int32_t zap_gpudirect_flow_abort(int32_t handle, uint32_t flow) { return end(handle, flow, true); }

int32_t zap_gpudirect_kick(int32_t handle) {
  struct zap_service *node = zap_service_use(handle, &zap_node_kind);
  if (node == NULL) return ZAP_E_HANDLE;
  zap_engine_kick(zap_node_engine(node));
  zap_service_release(node);
  return ZAP_OK;
}

int32_t zap_gpudirect_stats_read(int32_t handle, zap_gpudirect_stats *stats) {
  if (stats == NULL) return zap_fail(ZAP_E_INVALID, "there is no place for the counters");
  struct zap_service *node = zap_service_use(handle, &zap_node_kind);
  if (node == NULL) return ZAP_E_HANDLE;
  zap_engine_stats(zap_node_engine(node), stats);
  zap_service_release(node);
  return ZAP_OK;
}

/* libibverbs has texts for these too, with blanks; these are for counters and logs. */
static const char *status_name(uint32_t status) {
  static const char *const names[] = {
      "success",        "local-length",  "local-queue-pair", "local-context",  "local-protection", "flushed",
      "window-bind",    "bad-response",  "local-access",     "remote-request", "remote-access",    "remote-operation",
      "retry-exceeded", "rnr-exceeded",  "local-rdd",        "remote-rd",      "remote-abort",     "invalid-context",
      "invalid-state",  "fatal",         "response-timeout", "general",
  };
  return status < sizeof names / sizeof *names ? names[status] : NULL;
}

int32_t zap_gpudirect_name(uint32_t list, uint32_t index, char *text, uint32_t capacity) {
  if (text == NULL || capacity == 0) return zap_fail(ZAP_E_INVALID, "there is no place for a name");
  const char *name = list == ZAP_GPUDIRECT_MESSAGE  ? zap_message_drop_name(index)
                     : list == ZAP_GPUDIRECT_REASON ? zap_down_reason_name(index)
                     : list == ZAP_GPUDIRECT_STATUS ? status_name(index)
                                                    : NULL;
  zap_text_copy(text, capacity, name == NULL ? "" : name);
  return (int32_t)strlen(text);
}

int32_t zap_gpudirect_live(void) { return zap_handles_live(); }
