#include "device_parts.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *zap_hca_about(char *text, const struct ibv_device *device, uint8_t port) {
  if (port == 0) {
    (void)snprintf(text, ZAP_ABOUT_BYTES, "%.63s", device->name);
  } else {
    (void)snprintf(text, ZAP_ABOUT_BYTES, "%.63s port %u", device->name, port);
  }
  return text;
}

const char *zap_hca_layer(uint8_t link_layer) {
  switch (link_layer) {
    case IBV_LINK_LAYER_ETHERNET: return "Ethernet";
    /* What does not say is older than RoCE. */
    case IBV_LINK_LAYER_UNSPECIFIED:
    case IBV_LINK_LAYER_INFINIBAND: return "InfiniBand";
    default: return "unknown link layer";
  }
}

const char *zap_hca_unfit(const struct ibv_device *device) {
  switch (device->transport_type) {
    case IBV_TRANSPORT_IB: return NULL;
    case IBV_TRANSPORT_IWARP: return "it speaks iWARP, and InfiniBand or RoCE is needed";
    default: return "it has no reliable connections as InfiniBand and RoCE have them";
  }
}

/* Texts one after the other, with "; " between them. */
struct seen {
  char text[384];
  size_t length;
};

static void see(struct seen *seen, const char *format, ...) ZAP_PRINTF(2, 3);
static void see(struct seen *seen, const char *format, ...) {
  char part[ZAP_TEXT_BYTES];
  va_list values;
  va_start(values, format);
  (void)vsnprintf(part, sizeof part, format, values);
  va_end(values);
  size_t room = sizeof seen->text - seen->length;
  int wrote = snprintf(seen->text + seen->length, room, "%s%s", seen->length == 0 ? "" : "; ", part);
  if (wrote > 0) seen->length = (size_t)wrote < room ? seen->length + (size_t)wrote : sizeof seen->text - 1;
}

/* The port that was asked for, or the first active one, and what it says of itself. */
static int32_t find_port(struct zap_hca *hca, const struct ibv_device_attr *device, uint8_t wanted, struct ibv_port_attr *found) {
  char of[ZAP_ABOUT_BYTES];
  const struct ibv_device *self = hca->context->device;
  struct seen seen = {.length = 0};
  if (wanted > device->phys_port_cnt)
    return zap_fail(ZAP_E_INVALID, "%s has no port %u: it has %u", zap_hca_about(of, self, 0), wanted, device->phys_port_cnt);
  for (unsigned port = 1; port <= device->phys_port_cnt; port++) {
    if (wanted != 0 && port != wanted) continue;
    int error = zap_verbs_port(hca->verbs, hca->context, (uint8_t)port, found);
    if (error != 0) {
      if (wanted != 0) return zap_verbs_fail("ibv_query_port", zap_hca_about(of, self, wanted), error);
      see(&seen, "port %u: ibv_query_port failed with %s (%d)", port, zap_verbs_errno_name(error), error);
      continue;
    }
    if (found->state == IBV_PORT_ACTIVE) {
      hca->port = (uint8_t)port;
      return ZAP_OK;
    }
    see(&seen, "port %u is %s (%s)", port, hca->verbs->port_state_str(found->state), zap_hca_layer(found->link_layer));
  }
  return zap_fail(ZAP_E_DEVICE, "%s has no active port: %s", zap_hca_about(of, self, 0), seen.length == 0 ? "it has no ports" : seen.text);
}

/* Of soft-RoCE's driver, as ibv_query_device tells it. */
#define SOFT_VENDOR 0xffffffu

static void limits(struct zap_hca *hca, const struct ibv_device_attr *device) {
  hca->max_region = device->max_mr_size;
  hca->max_reads_in = device->max_qp_rd_atom;
  hca->max_reads_out = device->max_qp_init_rd_atom;
  hca->soft = device->vendor_id == SOFT_VENDOR;
  hca->max_sge = device->max_sge;
  hca->max_requests = device->max_qp_wr;
  hca->max_completions = device->max_cqe;
  hca->max_queue_pairs = device->max_qp;
  hca->max_regions = device->max_mr;
  bool windows = (device->device_cap_flags & (unsigned)(IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B)) != 0;
  hca->max_windows = windows && hca->context->ops.alloc_mw != NULL ? device->max_mw : 0;
}

static int32_t take_port(struct zap_hca *hca, const struct zap_hca_settings *settings) {
  char of[ZAP_ABOUT_BYTES];
  struct ibv_device_attr device = {.phys_port_cnt = 0};
  int answer = hca->verbs->query_device(hca->context, &device);
  if (answer != 0) return zap_verbs_fail("ibv_query_device", zap_hca_about(of, hca->context->device, 0), zap_verbs_errno(answer));
  struct ibv_port_attr port;
  int32_t status = find_port(hca, &device, settings->port, &port);
  if (status < 0) return status;
  zap_hca_about(of, hca->context->device, hca->port);
  hca->ethernet = port.link_layer == IBV_LINK_LAYER_ETHERNET;
  hca->routed = hca->ethernet || (port.flags & IBV_QPF_GRH_REQUIRED) != 0;
  hca->lid = port.lid;
  hca->mtu = port.active_mtu;
  hca->max_message = port.max_msg_sz;
  zap_text_copy(hca->firmware, sizeof hca->firmware, device.fw_ver);
  limits(hca, &device);
  if (settings->gid_index < 0 && hca->ethernet) return zap_gid_choose(hca, &port, of);
  return zap_gid_take(hca, &port, settings->gid_index < 0 ? 0 : settings->gid_index, of);
}

static int32_t open_one(const struct zap_verbs *verbs, struct ibv_device *device, const struct zap_hca_settings *settings,
                        struct zap_hca *hca) {
  char of[ZAP_ABOUT_BYTES];
  *hca = (struct zap_hca){.verbs = verbs};
  zap_hca_about(of, device, 0);
  zap_text_copy(hca->name, sizeof hca->name, of);
  const char *why = zap_hca_unfit(device);
  if (why != NULL) return zap_fail(ZAP_E_UNSUPPORTED, "%s cannot be used: %s", of, why);
  errno = 0;
  hca->context = verbs->open_device(device);
  if (hca->context == NULL) return zap_verbs_fail("ibv_open_device", of, errno);
  int32_t status = take_port(hca, settings);
  if (status < 0) zap_hca_close(hca);
  return status;
}

int32_t zap_hca_devices(const struct zap_verbs *verbs, struct ibv_device ***list, int *count) {
  errno = 0;
  *count = 0;
  *list = verbs->get_device_list(count);
  return *list == NULL ? zap_verbs_fail("ibv_get_device_list", "this host", errno) : ZAP_OK;
}

static int32_t open_among(const struct zap_verbs *verbs, struct ibv_device **list, int count, const struct zap_hca_settings *settings,
                          struct zap_hca *hca) {
  struct seen seen = {.length = 0};
  const char *wanted = settings->device == NULL ? "" : settings->device;
  int32_t status = ZAP_E_DEVICE;
  for (int at = 0; at < count; at++) {
    const char *name = verbs->get_device_name(list[at]);
    if (wanted[0] != 0) {
      if (strcmp(name, wanted) == 0) return open_one(verbs, list[at], settings, hca);
      see(&seen, "%s", name);
      continue;
    }
    status = open_one(verbs, list[at], settings, hca);
    if (status == ZAP_OK) return status;
    see(&seen, "%s", zap_failure());
  }
  if (count == 0)
    return zap_fail(ZAP_E_DEVICE,
                    "no RDMA device: this host has none, or its driver or the driver's part of libibverbs (ibverbs-providers) is missing");
  if (wanted[0] != 0) return zap_fail(ZAP_E_DEVICE, "no RDMA device \"%.63s\" here: there is %s", wanted, seen.text);
  if (count == 1) return status;
  return zap_fail(ZAP_E_DEVICE, "none of %d RDMA devices can be used: %s", count, seen.text);
}

int32_t zap_hca_open(const struct zap_verbs *verbs, const struct zap_hca_settings *settings, struct zap_hca *hca) {
  *hca = (struct zap_hca){.verbs = verbs};
  if (settings->gid_index < -1 || settings->gid_index >= ZAP_HCA_GIDS)
    return zap_fail(ZAP_E_INVALID, "a GID index is 0 to %d, or -1 for a choice, not %d", ZAP_HCA_GIDS - 1, settings->gid_index);
  struct ibv_device **list = NULL;
  int count = 0;
  int32_t status = zap_hca_devices(verbs, &list, &count);
  if (status < 0) return status;
  status = open_among(verbs, list, count, settings, hca);
  verbs->free_device_list(list);
  return status;
}

void zap_hca_close(struct zap_hca *hca) {
  if (hca->context == NULL) return;
  (void)hca->verbs->close_device(hca->context);
  hca->context = NULL;
}
