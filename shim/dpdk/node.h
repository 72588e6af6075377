/*
 * A node: a region, a port, an engine and the threads of its queues. Opened and closed as common/service.h says. No global state.
 */
#ifndef ZAP_NODE_H
#define ZAP_NODE_H

#include "zap_dpdk.h"

#include "../common/service.h"
#include "engine.h"

extern const struct zap_service_kind zap_node_kind;
int32_t zap_node_open(const zap_dpdk_settings *settings, const zap_dpdk_allowed *allow, uint32_t allowed);
/* Of one that is in use. */
struct zap_engine *zap_node_engine(struct zap_service *service);
struct zap_port *zap_node_port(struct zap_service *service);
/* NULL beyond the last. */
struct zap_queue *zap_node_queue(struct zap_service *service, uint32_t number);

#endif
