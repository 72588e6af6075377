/* A queue pair on its way up: made with receives posted, and connected with the one that the far end offered. */
#include "engine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../common/fail.h"
#include "../common/thread.h"

#define MAGIC 0x3144475au /* "ZGD1" */
#define IN_LINE 4096u
#define INLINE_WANTED 256u
/* Reads of one peer at once: each is of up to 256 KiB, and two are enough to keep a link of 400 Gbit/s busy. */
#define READS_MOST 8u
/* Not seven: soft-RoCE never counts those down. */
#define RETRIES 6
/* For ever: between two nodes of ours it does not happen. */
#define RNR_RETRIES 7

static int mtu_bytes(enum ibv_mtu mtu) { return 128 << (int)mtu; }

static enum ibv_mtu mtu_of(uint32_t bytes) {
  enum ibv_mtu mtu = IBV_MTU_256;
  while (mtu < IBV_MTU_4096 && (uint32_t)mtu_bytes(mtu) * 2 <= bytes) mtu++;
  return mtu;
}

/* ---- making ---- */

static int32_t make_pair(struct zap_engine *engine, struct zap_flow *flow) {
  const struct zap_engine_settings *s = &engine->settings;
  struct ibv_qp_init_attr wanted = {
      .send_cq = engine->cq,
      .recv_cq = engine->cq,
      .cap = {.max_send_wr = ZAP_SEND_SLOTS, .max_recv_wr = s->receives, .max_send_sge = 2, .max_recv_sge = 2, .max_inline_data = INLINE_WANTED},
      .qp_type = IBV_QPT_RC,
  };
  flow->qp = engine->verbs->create_qp(s->pd, &wanted);
  if (flow->qp == NULL) {
    /* Some devices refuse what they cannot have inside. */
    wanted.cap.max_inline_data = 0;
    flow->qp = engine->verbs->create_qp(s->pd, &wanted);
  }
  if (flow->qp == NULL) return zap_verbs_fail("ibv_create_qp", s->hca->name, errno);
  engine->inline_bytes = wanted.cap.max_inline_data;
  struct ibv_qp_attr attributes = {
      .qp_state = IBV_QPS_INIT, .port_num = (uint8_t)s->hca->port, .qp_access_flags = IBV_ACCESS_REMOTE_READ};
  int failed = engine->verbs->modify_qp(flow->qp, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  return failed == 0 ? ZAP_OK : zap_verbs_fail("ibv_modify_qp to INIT", s->hca->name, zap_verbs_errno(failed));
}

/* Everything but what outlives it. */
static void reset(struct zap_flow *flow) {
  struct zap_incoming *incoming = flow->incoming;
  uint32_t index = flow->index, generation = flow->generation;
  memset(flow, 0, sizeof *flow);
  flow->index = index;
  flow->generation = generation;
  flow->incoming = incoming;
  flow->incoming_mask = IN_LINE - 1;
  flow->first = flow->last = ZAP_NONE;
}

int32_t zap_flow_begin(struct zap_engine *engine, zap_gpudirect_offer *offer) {
  const struct zap_engine_settings *s = &engine->settings;
  struct zap_flow *flow = NULL;
  for (uint32_t i = 0; i < s->flows && flow == NULL; i++)
    if (engine->flows[i].state == ZAP_FLOW_FREE) flow = &engine->flows[i];
  if (flow == NULL) return zap_fail(ZAP_E_LIMIT, "%u queue pairs are as many as there may be", s->flows);
  if (engine->flow_count >= engine->flows_most)
    return zap_fail(ZAP_E_LIMIT, "the completion queue of %s has room for %u queue pairs with %u receives each", s->hca->name,
                    engine->flows_most, s->receives);
  if (engine->free_slab_count < ZAP_CONTROL_CREDITS * 2)
    return zap_fail(ZAP_E_LIMIT, "the slabs of %u bytes are all in use: no queue pair can be given any", s->eager_bytes);
  if (flow->incoming == NULL) flow->incoming = calloc(IN_LINE, sizeof *flow->incoming);
  if (flow->incoming == NULL) return zap_fail(ZAP_E_MEMORY, "out of memory for a queue pair");
  reset(flow);
  /* 15 bits, so that a number is positive, and never 0. */
  flow->generation = flow->generation % 0x7fff + 1;
  int32_t status = make_pair(engine, flow);
  if (status != ZAP_OK) {
    if (flow->qp != NULL) (void)engine->verbs->destroy_qp(flow->qp);
    flow->qp = NULL;
    return status;
  }
  flow->state = ZAP_FLOW_BEGUN;
  flow->place = engine->flow_count++;
  engine->there[flow->place] = flow->index;
  (void)zap_incoming_post(engine, flow);
  uint32_t sequence = 0;
  /* By its number: older C libraries do not have it. */
  if (syscall(SYS_getrandom, &sequence, sizeof sequence, 0) != (long)sizeof sequence) sequence = (uint32_t)engine->now;
  const struct zap_hca *hca = s->hca;
  *offer = (zap_gpudirect_offer){
      .magic = MAGIC,
      .queue_pair = flow->qp->qp_num,
      .sequence = sequence & 0xffffff,
      .lid = hca->lid,
      .mtu = (uint32_t)mtu_bytes(hca->mtu),
      .ethernet = hca->ethernet,
      .eager_bytes = s->eager_bytes,
      .receives = flow->posted,
      .message_bytes = s->message_bytes,
      .reads = (uint32_t)hca->max_reads_in,
  };
  memcpy(offer->gid, hca->gid.raw, sizeof offer->gid);
  flow->told = flow->posted;
  flow->sequence = offer->sequence;
  return (int32_t)zap_flow_number(flow);
}

/* ---- bringing up ---- */

static int32_t check(const struct zap_engine *engine, const zap_gpudirect_offer *offer) {
  if (offer->magic != MAGIC) return zap_fail(ZAP_E_INVALID, "the peer's offer is of another version, or none");
  if ((offer->ethernet != 0) != engine->settings.hca->ethernet)
    return zap_fail(ZAP_E_INVALID, "the peer's port is %s and ours is not", offer->ethernet ? "Ethernet" : "InfiniBand");
  if (offer->eager_bytes < 16 || offer->receives < ZAP_CONTROL_CREDITS * 2 || offer->receives > 65536 || offer->reads == 0)
    return zap_fail(ZAP_E_INVALID, "the peer's offer cannot be: %u receives of %u bytes, %u reads", offer->receives, offer->eager_bytes, offer->reads);
  return ZAP_OK;
}

static int32_t to_rtr(struct zap_engine *engine, const struct zap_flow *flow, const zap_gpudirect_offer *offer) {
  const struct zap_hca *hca = engine->settings.hca;
  uint32_t mtu = (uint32_t)mtu_bytes(hca->mtu);
  struct ibv_qp_attr attributes = {
      .qp_state = IBV_QPS_RTR,
      .path_mtu = mtu_of(offer->mtu < mtu ? offer->mtu : mtu),
      .dest_qp_num = offer->queue_pair,
      .rq_psn = offer->sequence & 0xffffff,
      .max_dest_rd_atomic = (uint8_t)hca->max_reads_in,
      .min_rnr_timer = 12,
      .ah_attr = {.dlid = (uint16_t)offer->lid, .port_num = (uint8_t)hca->port},
  };
  static const uint8_t none[16];
  if (hca->ethernet || memcmp(offer->gid, none, sizeof none) != 0) {
    attributes.ah_attr.is_global = 1;
    memcpy(attributes.ah_attr.grh.dgid.raw, offer->gid, sizeof offer->gid);
    attributes.ah_attr.grh.sgid_index = (uint8_t)hca->gid.index;
    attributes.ah_attr.grh.hop_limit = 64;
    attributes.ah_attr.grh.traffic_class = (uint8_t)engine->settings.traffic_class;
  }
  return engine->verbs->modify_qp(flow->qp, &attributes,
                                  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                      IBV_QP_MIN_RNR_TIMER);
}

/* The device counts in 4.096 us * 2^n (InfiniBand Architecture Specification, volume 1, 9.7.6.1.3). */
static uint8_t timeout_of(uint32_t milliseconds) {
  uint8_t exponent = 1;
  while (exponent < 31 && (UINT64_C(4096) << exponent) < milliseconds * UINT64_C(1000000)) exponent++;
  return exponent;
}

static int32_t to_rts(struct zap_engine *engine, const struct zap_flow *flow) {
  struct ibv_qp_attr attributes = {
      .qp_state = IBV_QPS_RTS,
      .timeout = timeout_of(engine->settings.timeout_ms),
      .retry_cnt = RETRIES,
      .rnr_retry = RNR_RETRIES,
      .sq_psn = flow->sequence,
      .max_rd_atomic = (uint8_t)flow->reads_most,
  };
  return engine->verbs->modify_qp(
      flow->qp, &attributes,
      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

struct rise {
  struct zap_engine *engine;
  struct zap_flow *flow;
  zap_gpudirect_offer offer;
};

/* Without the lock: the kernel looks for the far end's address. */
static int raise(const struct rise *rise) {
  int failed = to_rtr(rise->engine, rise->flow, &rise->offer);
  if (failed == 0) failed = to_rts(rise->engine, rise->flow);
  return failed == 0 ? 0 : zap_verbs_errno(failed);
}

static void risen(struct zap_engine *engine, struct zap_flow *flow, int error) {
  if (error == 0 && !flow->doomed) {
    flow->state = ZAP_FLOW_OPEN;
    zap_engine_event(engine, ZAP_GPUDIRECT_UP)->flow = zap_flow_number(flow);
    return;
  }
  if (!flow->doomed) {
    flow->reason = ZAP_DOWN_UNREACHABLE;
    flow->error = (uint32_t)error;
  }
  zap_flow_drop(engine, flow);
}

static void *rise_alone(void *context) {
  struct rise *rise = context;
  struct zap_engine *engine = rise->engine;
  zap_thread_name("zap-rdma-up");
  int error = raise(rise);
  zap_engine_lock(engine);
  risen(engine, rise->flow, error);
  zap_engine_unlock(engine);
  zap_engine_kick(engine);
  free(rise);
  atomic_fetch_sub(&engine->holders, 1);
  return NULL;
}

int32_t zap_flow_accept(struct zap_engine *engine, uint32_t number, const zap_gpudirect_offer *offer) {
  struct zap_flow *flow = zap_flow_find(engine, number);
  if (flow == NULL || flow->state != ZAP_FLOW_BEGUN) return zap_fail(ZAP_E_HANDLE, "%u is no queue pair that waits for its peer", number);
  int32_t status = check(engine, offer);
  struct rise *rise = status == ZAP_OK ? malloc(sizeof *rise) : NULL;
  if (status == ZAP_OK && rise == NULL) status = zap_fail(ZAP_E_MEMORY, "out of memory for a queue pair");
  if (status != ZAP_OK) {
    zap_flow_drop(engine, flow);
    return status;
  }
  flow->granted = offer->receives;
  flow->their_eager = offer->eager_bytes;
  flow->their_most = offer->message_bytes < engine->settings.message_bytes ? offer->message_bytes : engine->settings.message_bytes;
  uint32_t ours = (uint32_t)engine->settings.hca->max_reads_out;
  if (ours > READS_MOST) ours = READS_MOST;
  flow->reads_most = offer->reads < ours ? offer->reads : ours;
  flow->state = ZAP_FLOW_RISING;
  flow->told_of = true;
  *rise = (struct rise){.engine = engine, .flow = flow, .offer = *offer};
  atomic_fetch_add(&engine->holders, 1);
  if (zap_thread_start(rise_alone, rise) == ZAP_OK) return ZAP_OK;
  /* Here, then, however long it takes. */
  atomic_fetch_sub(&engine->holders, 1);
  risen(engine, flow, raise(rise));
  free(rise);
  return ZAP_OK;
}
