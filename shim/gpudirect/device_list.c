#include "device_parts.h"

#include <errno.h>

struct listing {
  const struct zap_verbs *verbs;
  struct zap_hca_row *rows;
  uint32_t capacity, count;
};

static void add_row(struct listing *listing, const struct zap_hca_row *row) {
  if (listing->count < listing->capacity) listing->rows[listing->count] = *row;
  listing->count++;
}

/* As a row with what failed last, in place of ports. */
static void add_fault(struct listing *listing, struct zap_hca_row *row) {
  zap_text_copy(row->fault, sizeof row->fault, zap_failure());
  add_row(listing, row);
  row->fault[0] = 0;
}

static uint32_t count_gids(const struct zap_verbs *verbs, struct ibv_context *context, uint8_t port, int length) {
  uint32_t filled = 0;
  for (int index = 0; index < length; index++) {
    struct zap_hca_gid gid;
    if (zap_gid_read(verbs, context, port, false, index, &gid) == 0 && !zap_gid_empty(&gid)) filled++;
  }
  return filled;
}

static void list_ports(struct listing *listing, struct ibv_context *context, struct zap_hca_row *row) {
  const struct zap_verbs *verbs = listing->verbs;
  char of[ZAP_ABOUT_BYTES];
  struct ibv_device_attr device = {.phys_port_cnt = 0};
  int answer = verbs->query_device(context, &device);
  if (answer != 0) {
    (void)zap_verbs_fail("ibv_query_device", zap_hca_about(of, context->device, 0), zap_verbs_errno(answer));
    add_fault(listing, row);
    return;
  }
  zap_text_copy(row->firmware, sizeof row->firmware, device.fw_ver);
  const char *why = zap_hca_unfit(context->device);
  for (unsigned number = 1; number <= device.phys_port_cnt; number++) {
    struct ibv_port_attr port;
    row->port = (uint8_t)number;
    int error = zap_verbs_port(verbs, context, row->port, &port);
    row->link_layer = port.link_layer;
    row->lid = port.lid;
    row->state = port.state;
    row->mtu = port.active_mtu;
    row->gids = error == 0 ? count_gids(verbs, context, row->port, zap_gid_places(&port)) : 0;
    if (error != 0) {
      (void)zap_verbs_fail("ibv_query_port", zap_hca_about(of, context->device, row->port), error);
      add_fault(listing, row);
    } else {
      zap_text_copy(row->fault, sizeof row->fault, why == NULL ? "" : why);
      add_row(listing, row);
    }
  }
}

int32_t zap_hca_list(const struct zap_verbs *verbs, struct zap_hca_row *rows, uint32_t capacity) {
  struct ibv_device **list = NULL;
  int count = 0;
  int32_t status = zap_hca_devices(verbs, &list, &count);
  if (status < 0) return status;
  struct listing listing = {.verbs = verbs, .rows = rows, .capacity = capacity};
  for (int at = 0; at < count; at++) {
    char of[ZAP_ABOUT_BYTES];
    struct zap_hca_row row = {.port = 0};
    zap_text_copy(row.device, sizeof row.device, zap_hca_about(of, list[at], 0));
    errno = 0;
    struct ibv_context *context = verbs->open_device(list[at]);
    if (context == NULL) {
      (void)zap_verbs_fail("ibv_open_device", of, errno);
      add_fault(&listing, &row);
      continue;
    }
    list_ports(&listing, context, &row);
    (void)verbs->close_device(context);
  }
  verbs->free_device_list(list);
  return (int32_t)listing.count;
}
