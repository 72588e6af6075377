/*
 * A node: a region, a port, an engine and the threads of its queues, opened and closed on a thread of its own, so that nobody waits for a
 * driver. No global state beside the table of handles.
 */
#ifndef ZAP_NODE_H
#define ZAP_NODE_H

#include "zap_dpdk.h"

#include "../common/handles.h"
#include "engine.h"

struct zap_node;

int32_t zap_node_open(const zap_dpdk_settings *settings, const zap_dpdk_allowed *allow, uint32_t allowed);
int32_t zap_node_opened(int32_t handle, zap_dpdk_node *node);
int32_t zap_node_close(int32_t handle);
int32_t zap_node_closed(int32_t handle);

/* Keeps it open until zap_node_release. NULL with the text set where it is not open (any more). */
struct zap_node *zap_node_use(int32_t handle);
void zap_node_release(struct zap_node *node);
/* Of a node that is in use. */
struct zap_engine *zap_node_engine(struct zap_node *node);
struct zap_port *zap_node_port(struct zap_node *node);
/* NULL beyond the last. */
struct zap_queue *zap_node_queue(struct zap_node *node, uint32_t number);

int32_t zap_node_region_free(int32_t region);

#endif
