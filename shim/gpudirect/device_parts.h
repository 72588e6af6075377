/* Of device.c, device_gid.c and device_list.c, for one another. No global state. */
#ifndef ZAP_DEVICE_PARTS_H
#define ZAP_DEVICE_PARTS_H

#include "device.h"

/* "rxe0", or "rxe0 port 1", into `text` of ZAP_ABOUT_BYTES, which it returns. */
#define ZAP_ABOUT_BYTES 96
const char *zap_hca_about(char *text, const struct ibv_device *device, uint8_t port);

/* Why there are no RC queue pairs on this device as we need them; NULL where there are. */
const char *zap_hca_unfit(const struct ibv_device *device);

/* The library's list, for free_device_list. */
int32_t zap_hca_devices(const struct zap_verbs *verbs, struct ibv_device ***list, int *count);

/* How many places of a port's table a queue pair can name. */
int zap_gid_places(const struct ibv_port_attr *port);

/* One of them; zeros where it is empty. `typed`: with its type, which may take a file of sysfs. Returns 0 or an errno. */
int zap_gid_read(const struct zap_verbs *verbs, struct ibv_context *context, uint8_t port, bool typed, int index, struct zap_hca_gid *gid);
bool zap_gid_empty(const struct zap_hca_gid *gid);

/* Sets hca->gid: the best for RoCE, or the one of `index`. `of`: device and port, for texts. */
int32_t zap_gid_choose(struct zap_hca *hca, const struct ibv_port_attr *port, const char *of);
int32_t zap_gid_take(struct zap_hca *hca, const struct ibv_port_attr *port, int index, const char *of);

#endif
