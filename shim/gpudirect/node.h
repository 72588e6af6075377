/* A node: a region that is registered, an engine and its thread. Opened and closed as common/service.h says. No global state. */
#ifndef ZAP_RDMA_NODE_H
#define ZAP_RDMA_NODE_H

#include "zap_gpudirect.h"

#include "../common/service.h"
#include "verbs.h"

struct zap_engine;

extern const struct zap_service_kind zap_node_kind;
int32_t zap_node_open(const zap_gpudirect_settings *settings);
/* Of one that is in use. */
struct zap_engine *zap_node_engine(struct zap_service *service);
const struct zap_verbs *zap_node_verbs(struct zap_service *service);

#endif
