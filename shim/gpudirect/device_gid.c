#include "device_parts.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* For libraries without _ibv_query_gid_ex. */
static uint32_t type_in_sysfs(const struct ibv_device *device, uint8_t port, int index) {
  char path[IBV_SYSFS_PATH_MAX + 64], line[32] = "";
  (void)snprintf(path, sizeof path, "%.255s/ports/%u/gid_attrs/types/%d", device->ibdev_path, port, index);
  FILE *file = fopen(path, "re");
  if (file == NULL) return ZAP_HCA_GID_UNKNOWN;
  bool read = fgets(line, sizeof line, file) != NULL;
  (void)fclose(file);
  if (!read) return ZAP_HCA_GID_UNKNOWN;
  if (strncmp(line, "RoCE v2", 7) == 0) return IBV_GID_TYPE_ROCE_V2;
  return strncmp(line, "IB/RoCE v1", 10) == 0 ? IBV_GID_TYPE_ROCE_V1 : ZAP_HCA_GID_UNKNOWN;
}

bool zap_gid_empty(const struct zap_hca_gid *gid) {
  static const uint8_t nothing[16];
  return memcmp(gid->raw, nothing, sizeof nothing) == 0;
}

int zap_gid_read(const struct zap_verbs *verbs, struct ibv_context *context, uint8_t port, bool typed, int index, struct zap_hca_gid *gid) {
  *gid = (struct zap_hca_gid){.index = index, .type = typed ? ZAP_HCA_GID_UNKNOWN : IBV_GID_TYPE_IB};
  if (verbs->query_gid_ex != NULL) {
    struct ibv_gid_entry entry = {.gid_type = 0};
    int answer = verbs->query_gid_ex(context, port, (uint32_t)index, &entry, 0, sizeof entry);
    if (answer == 0) {
      memcpy(gid->raw, entry.gid.raw, sizeof gid->raw);
      gid->type = entry.gid_type;
      return 0;
    }
    if (zap_verbs_errno(answer) == ENODATA) return 0;
  }
  union ibv_gid raw = {.raw = {0}};
  int answer = verbs->query_gid(context, port, index, &raw);
  if (answer != 0) return zap_verbs_errno(answer);
  memcpy(gid->raw, raw.raw, sizeof gid->raw);
  if (typed && !zap_gid_empty(gid)) gid->type = type_in_sysfs(context->device, port, index);
  return 0;
}

/* fe80::/10, or 169.254/16 as an IPv4 address in IPv6. */
static bool link_local(const uint8_t raw[16]) {
  static const uint8_t ipv4[12] = {[10] = 0xff, [11] = 0xff};
  if (memcmp(raw, ipv4, sizeof ipv4) == 0) return raw[12] == 169 && raw[13] == 254;
  return raw[0] == 0xfe && (raw[1] & 0xc0) == 0x80;
}

/* The lower the better. What is empty, or RoCE v1, is never chosen. */
enum rank { ROUTED, LOCAL, UNTOLD, NEVER };

static enum rank rank_of(const struct zap_hca_gid *gid) {
  if (zap_gid_empty(gid)) return NEVER;
  if (gid->type == ZAP_HCA_GID_UNKNOWN) return UNTOLD;
  if (gid->type != IBV_GID_TYPE_ROCE_V2) return NEVER;
  return link_local(gid->raw) ? LOCAL : ROUTED;
}

int zap_gid_places(const struct ibv_port_attr *port) {
  return port->gid_tbl_len < 0 ? 0 : port->gid_tbl_len > ZAP_HCA_GIDS ? ZAP_HCA_GIDS : port->gid_tbl_len;
}

int32_t zap_gid_choose(struct zap_hca *hca, const struct ibv_port_attr *port, const char *of) {
  enum rank best = NEVER;
  int length = zap_gid_places(port), filled = 0, error = 0;
  for (int index = 0; index < length && best != ROUTED; index++) {
    struct zap_hca_gid gid;
    int failed = zap_gid_read(hca->verbs, hca->context, hca->port, true, index, &gid);
    if (failed != 0) {
      error = failed;
      continue;
    }
    if (!zap_gid_empty(&gid)) filled++;
    enum rank rank = rank_of(&gid);
    if (rank >= best) continue;
    best = rank;
    hca->gid = gid;
  }
  if (best != NEVER) return ZAP_OK;
  if (filled == 0 && error != 0) return zap_verbs_fail("ibv_query_gid", of, error);
  if (filled == 0) return zap_fail(ZAP_E_DEVICE, "%s has no GID in a table of %d: its network device needs an address", of, length);
  return zap_fail(ZAP_E_DEVICE, "%s has no RoCE v2 GID among %d: choose one of RoCE v1 by its index, here and on every peer", of, filled);
}

int32_t zap_gid_take(struct zap_hca *hca, const struct ibv_port_attr *port, int index, const char *of) {
  int length = zap_gid_places(port);
  if (index >= length) return zap_fail(ZAP_E_INVALID, "%s has no GID of index %d: its table has %d places", of, index, length);
  int error = zap_gid_read(hca->verbs, hca->context, hca->port, hca->ethernet, index, &hca->gid);
  if (error != 0) return zap_verbs_fail("ibv_query_gid", of, error);
  if (zap_gid_empty(&hca->gid))
    return zap_fail(ZAP_E_DEVICE, "the GID of index %d of %s is empty: ibv_devinfo -v shows those that are not", index, of);
  return ZAP_OK;
}
