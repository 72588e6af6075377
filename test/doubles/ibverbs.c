/*
 * Test double of libibverbs.so.1. It is no RDMA: it joins the queue pairs of one process by copying, between two devices that are
 * none. What it does is set by ibverbs_double.h, by the environment, and by `double.conf` beside it (README.md).
 *
 * It is stricter than a device where a device is forgiving: what a program may not rely on, fails or is counted as a fault.
 *
 * With IBVERBS_DOUBLE_OLD it is as old as it may be: without ibv_reg_dmabuf_mr, ibv_reg_mr_iova2 and _ibv_query_gid_ex.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "double.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../../shim/gpudirect/verbs_abi.h"
#include "ibverbs_double.h"

#define IBVERBS(result, name, parameters)      \
  DOUBLE_EXPORT result ibv_##name parameters; \
  DOUBLE_EXPORT result ibv_##name parameters

#include "ibverbs_objects.h"
#include "ibverbs_memory.h"
#include "ibverbs_queues.h"
#include "ibverbs_work.h"
#include "ibverbs_pairs.h"

static uint64_t big_endian(uint64_t value) {
  uint8_t bytes[8];
  for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)(value >> (56 - 8 * i));
  memcpy(&value, bytes, sizeof value);
  return value;
}

/* ---- devices ---- */

static uint64_t guid_of(const struct device *device) { return big_endian(UINT64_C(0x5254000000000001) + (unsigned)device->number); }

IBVERBS(struct ibv_device **, get_device_list, (int *count)) {
  double_settings_read();
  int number = enter_call(NULL, "ibv_get_device_list");
  if (number != 0) return errno = number, NULL;
  int64_t most = setting(&devices[0], SET_devices);
  int there = most < 0 ? 0 : most > DEVICES ? DEVICES : (int)most;
  leave();
  struct ibv_device **list = calloc((size_t)there + 1, sizeof *list);
  for (int i = 0; list != NULL && i < there; i++) list[i] = &devices[i].base;
  if (count != NULL) *count = list == NULL ? 0 : there;
  return list;
}

IBVERBS(void, free_device_list, (struct ibv_device **list)) { free(list); }

IBVERBS(const char *, get_device_name, (struct ibv_device *device)) { return device->name; }

IBVERBS(unsigned long long, get_device_guid, (struct ibv_device *device)) { return guid_of((struct device *)(void *)device); }

IBVERBS(struct ibv_context *, open_device, (struct ibv_device *base)) {
  struct device *device = (struct device *)(void *)base;
  int number = enter_call(device, "ibv_open_device");
  if (number != 0) return errno = number, NULL;
  struct context *context = calloc(1, sizeof *context);
  if (context != NULL && !line_open(&context->events)) {
    free(context);
    context = NULL;
  }
  if (context != NULL) {
    context->device = device;
    context->base = (struct ibv_context){.device = base, .cmd_fd = -1, .async_fd = context->events.near, .num_comp_vectors = 1};
    context->base.ops = (struct ibv_context_ops){.alloc_mw = alloc_mw, .dealloc_mw = dealloc_mw, .poll_cq = poll_cq,
                                                 .req_notify_cq = req_notify_cq, .post_send = post_send, .post_recv = post_recv};
    context->next = contexts;
    contexts = context;
    add(device, COUNT_contexts, 1);
  }
  leave();
  return context == NULL ? NULL : &context->base;
}

IBVERBS(int, close_device, (struct ibv_context *base)) {
  struct context *context = (struct context *)(void *)base, **at = &contexts;
  int number = enter_call(context->device, "ibv_close_device");
  if (number != 0) return number;
  if (context->uses > 0) {
    fault("ibv_close_device with %d things in it", context->uses);
    leave();
    return EBUSY;
  }
  while (*at != context) at = &(*at)->next;
  *at = context->next;
  add(context->device, COUNT_contexts, -1);
  line_close(&context->events);
  leave();
  free(context);
  return 0;
}

IBVERBS(int, get_async_event, (struct ibv_context *base, struct ibv_async_event *event)) {
  struct note note;
  if (line_take(&((struct context *)(void *)base)->events, &note) != 0) return -1;
  *event = note.event;
  return 0;
}

IBVERBS(void, ack_async_event, (struct ibv_async_event *event)) {
  enter();
  if (event->event_type == IBV_EVENT_CQ_ERR) event->element.cq->async_events_completed++;
  else if (event->event_type <= IBV_EVENT_QP_ACCESS_ERR) event->element.qp->events_completed++;
  (void)pthread_cond_broadcast(&changed);
  leave();
}

/* ---- what they say of themselves ---- */

IBVERBS(int, query_device, (struct ibv_context *context, struct ibv_device_attr *attr)) {
  struct device *device = device_of(context);
  int number = enter_call(device, "ibv_query_device");
  if (number != 0) return number;
  int mw = (int)setting(device, SET_windows), reads = (int)setting(device, SET_reads);
  *attr = (struct ibv_device_attr){
      .fw_ver = "double", .node_guid = guid_of(device), .sys_image_guid = guid_of(device), .max_mr_size = UINT64_MAX, .page_size_cap = 4096,
      .max_qp = MAX_PAIRS, .max_qp_wr = MAX_REQUESTS, .device_cap_flags = IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_RC_RNR_NAK_GEN,
      .max_sge = SGES, .max_sge_rd = SGES, .max_cq = MAX_PAIRS, .max_cqe = (int)setting(device, SET_completions), .max_mr = 1 << 20,
      .max_pd = 1 << 16, .max_qp_rd_atom = reads, .max_res_rd_atom = reads * MAX_PAIRS, .max_qp_init_rd_atom = reads, .max_mw = mw,
      .max_pkeys = 1, .phys_port_cnt = 1};
  if (mw > 0) attr->device_cap_flags |= IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_MGT_EXTENSIONS | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
  leave();
  return 0;
}

IBVERBS(int, query_port, (struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *start)) {
  struct device *device = device_of(context);
  int number = enter_call(device, "ibv_query_port");
  if (number != 0) return number;
  bool ib = setting(device, SET_infiniband) != 0;
  const struct ibv_port_attr attr = {
      .state = (enum ibv_port_state)setting(device, SET_port_state), .max_mtu = IBV_MTU_4096, .active_mtu = (enum ibv_mtu)setting(device, SET_mtu),
      .gid_tbl_len = GID_PLACES, .max_msg_sz = (uint32_t)setting(device, SET_message_bytes), .pkey_tbl_len = 1,
      .lid = ib ? (uint16_t)(setting(device, SET_lid) + device->number) : 0, .sm_lid = ib ? 1 : 0, .max_vl_num = 1, .active_width = 2,
      .active_speed = 32, .phys_state = 5, .link_layer = ib ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET};
  leave();
  if (port != 1) return EINVAL;
  memcpy(start, &attr, offsetof(struct ibv_port_attr, port_cap_flags2));
  return 0;
}

/* With the lock. All zeros where there is none. */
static void gid_of(const struct device *device, int index, union ibv_gid *gid, uint32_t *type) {
  uint64_t guid = guid_of(device);
  memset(gid, 0, sizeof *gid);
  *type = IBV_GID_TYPE_IB;
  bool ib = setting(device, SET_infiniband) != 0;
  if (ib ? index > 0 : index >= 4 || index >= setting(device, SET_gids)) return;
  if (!ib) *type = index % 2 == 0 ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_ROCE_V2;
  if (index < 2) {
    gid->raw[0] = 0xfe;
    gid->raw[1] = 0x80;
    memcpy(gid->raw + 8, &guid, sizeof guid);
  } else {
    /* 192.0.2.1 and .2 */
    static const uint8_t start[16] = {[10] = 0xff, [11] = 0xff, [12] = 192, [14] = 2, [15] = 1};
    memcpy(gid->raw, start, sizeof start);
    gid->raw[15] = (uint8_t)(1 + device->number);
  }
}

IBVERBS(int, query_gid, (struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)) {
  int number = enter_call(device_of(context), "ibv_query_gid");
  if (number != 0) return errno = number, -1;
  uint32_t type;
  bool fits = port == 1 && index >= 0 && index < GID_PLACES;
  if (fits) gid_of(device_of(context), index, gid, &type);
  leave();
  if (fits) return 0;
  errno = EINVAL;
  return -1;
}

#ifndef IBVERBS_DOUBLE_OLD
DOUBLE_EXPORT int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry, uint32_t flags,
                                    size_t bytes);
DOUBLE_EXPORT int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry, uint32_t flags,
                                    size_t bytes) {
  static const union ibv_gid none;
  int number = enter_call(device_of(context), "_ibv_query_gid_ex");
  if (number != 0) return number;
  struct ibv_gid_entry found = {.gid_index = index, .port_num = port};
  bool fits = port == 1 && index < GID_PLACES && flags == 0 && bytes >= sizeof found;
  if (fits) gid_of(device_of(context), (int)index, &found.gid, &found.gid_type);
  leave();
  if (!fits) return EINVAL;
  if (memcmp(found.gid.raw, none.raw, sizeof none.raw) == 0) return ENODATA;
  memcpy(entry, &found, sizeof found);
  return 0;
}
#endif

IBVERBS(int, query_pkey, (struct ibv_context *context, uint8_t port, int index, uint16_t *key)) {
  int number = enter_call(device_of(context), "ibv_query_pkey");
  if (number == 0) leave();
  if (number == 0 && (port != 1 || index != 0)) number = EINVAL;
  if (number != 0) return errno = number, -1;
  *key = PKEY;
  return 0;
}

/* ---- names ---- */

IBVERBS(const char *, wc_status_str, (enum ibv_wc_status status)) {
  static const char *const names[] = {
      "success", "local length error", "local QP operation error", "local EE context operation error", "local protection error",
      "Work Request Flushed Error", "memory management operation error", "bad response error", "local access error", "remote invalid request error",
      "remote access error", "remote operation error", "transport retry counter exceeded", "RNR retry counter exceeded",
      "local RDD violation error", "remote invalid RD request", "aborted error", "invalid EE context number", "invalid EE context state",
      "fatal error", "response timeout error", "general error"};
  return (unsigned)status < sizeof names / sizeof *names ? names[status] : "unknown";
}

IBVERBS(const char *, event_type_str, (enum ibv_event_type type)) {
  switch (type) {
    case IBV_EVENT_CQ_ERR: return "CQ error";
    case IBV_EVENT_QP_FATAL: return "local work queue catastrophic error";
    case IBV_EVENT_QP_REQ_ERR: return "invalid request local work queue error";
    case IBV_EVENT_QP_ACCESS_ERR: return "local access violation work queue error";
    case IBV_EVENT_PORT_ACTIVE: return "port active";
    case IBV_EVENT_PORT_ERR: return "port error";
    default: return "unknown";
  }
}

IBVERBS(const char *, node_type_str, (enum ibv_node_type type)) { return type == IBV_NODE_CA ? "InfiniBand channel adapter" : "unknown"; }

IBVERBS(const char *, port_state_str, (enum ibv_port_state state)) {
  static const char *const names[] = {"no state change (NOP)", "down", "init", "armed", "active", "active defer"};
  return (unsigned)state < sizeof names / sizeof *names ? names[state] : "invalid state";
}

/* ---- for tests ---- */

#define CONTROL(result, name, parameters)                  \
  DOUBLE_EXPORT result ibverbs_double_##name parameters; \
  DOUBLE_EXPORT result ibverbs_double_##name parameters

/* -1: all; -2: there is none of that name. */
static int number_of(const char *name) {
  if (name == NULL || name[0] == 0) return -1;
  for (int at = 0; at < DEVICES; at++)
    if (strcmp(name, devices[at].base.name) == 0) return at;
  return -2;
}

static int place_of(const char *const *names, int count, const char *name) {
  for (int at = 0; at < count; at++)
    if (strcmp(names[at], name) == 0) return at;
  return -1;
}

CONTROL(int, set, (const char *device, const char *name, int64_t value)) {
  enter();
  int wanted = number_of(device), which = place_of(setting_names, SETTINGS, name);
  bool fits = wanted != -2 && which >= 0;
  for (int at = 0; fits && at < DEVICES; at++)
    if (wanted < 0 || wanted == at) devices[at].settings[which] = value;
  if (fits) proceed_all();
  leave();
  return fits ? 0 : -1;
}

CONTROL(int, fail, (const char *device, const char *call, int number, int after)) {
  enter();
  int wanted = number_of(device), status = wanted == -2 ? -1 : fail_from_now(wanted, call, strlen(call), number, after);
  leave();
  return status;
}

CONTROL(int, port, (const char *device, int up)) {
  enter();
  int wanted = number_of(device);
  for (int at = 0; at < DEVICES; at++)
    if (wanted == -1 || wanted == at) devices[at].settings[SET_port_state] = up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  const struct ibv_async_event event = {.element = {.port_num = 1}, .event_type = up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR};
  for (struct context *context = contexts; context != NULL; context = context->next)
    if (wanted == -1 || wanted == context->device->number) tell(&context->base, event);
  proceed_all();
  leave();
  return wanted == -2 ? -1 : 0;
}

CONTROL(int, break_pair, (const char *device, uint32_t number)) {
  enter();
  int wanted = number_of(device), found = 0;
  for (struct qp *qp = pairs; qp != NULL; qp = qp->next) {
    if ((wanted != -1 && wanted != qp->device->number) || (number != 0 && number != qp->base.qp_num)) continue;
    tell_of_pair(qp, IBV_EVENT_QP_FATAL);
    into_error(qp);
    found++;
  }
  proceed_all();
  leave();
  return found > 0 ? 0 : -1;
}

CONTROL(int64_t, count, (const char *device, const char *what)) {
  enter();
  int wanted = number_of(device), which = place_of(count_names, COUNTS, what);
  int64_t sum = wanted == -2 || which < 0 ? -1 : 0;
  for (int at = 0; sum >= 0 && at < DEVICES; at++)
    if (wanted < 0 || wanted == at) sum += devices[at].counts[which];
  leave();
  return sum;
}

CONTROL(int64_t, faults, (char *text, uint32_t capacity)) {
  enter();
  int64_t seen = faults_seen;
  if (text != NULL && capacity > 0) (void)snprintf(text, capacity, "%s", first_fault);
  leave();
  return seen;
}

CONTROL(void, reset, (void)) {
  enter();
  reset_locked();
  proceed_all();
  leave();
}
