/* A queue pair's life: found, given its turn, closed or failed, flushed, gone. rise.c is how it begins. */
#include "engine.h"

#include <stdlib.h>

#include "../common/thread.h"

/* What was posted comes back within this after a queue pair was put into error, or never. */
#define FLUSH_NS UINT64_C(1000000000)

struct zap_flow *zap_flow_find(struct zap_engine *engine, uint32_t number) {
  uint32_t index = number & 0xffff;
  if (index >= engine->settings.flows) return NULL;
  struct zap_flow *flow = &engine->flows[index];
  return flow->state != ZAP_FLOW_FREE && zap_flow_number(flow) == number ? flow : NULL;
}

/* ---- the end ---- */

void zap_flow_close(struct zap_engine *engine, struct zap_flow *flow) {
  if (flow->state != ZAP_FLOW_OPEN && flow->state != ZAP_FLOW_RISING) {
    zap_flow_fail(engine, flow, ZAP_DOWN_ABORTED, 0);
    return;
  }
  if (flow->closing) return;
  flow->closing = true;
  flow->close_at = engine->now + engine->settings.close_ms * UINT64_C(1000000);
}

static void stop(struct zap_engine *engine, struct zap_flow *flow) {
  struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_ERR};
  (void)engine->verbs->modify_qp(flow->qp, &attributes, IBV_QP_STATE);
  zap_outgoing_mark(engine, flow);
}

void zap_flow_fail(struct zap_engine *engine, struct zap_flow *flow, uint32_t reason, uint32_t status) {
  if (flow->state == ZAP_FLOW_RISING && !flow->doomed) {
    flow->doomed = true;
    flow->reason = reason;
    flow->status = status;
    return;
  }
  if (flow->state != ZAP_FLOW_OPEN && flow->state != ZAP_FLOW_BEGUN) return;
  flow->told_of = true;
  bool finished = flow->finish_sent && flow->finish_heard;
  flow->reason = finished ? ZAP_DOWN_FINISHED : reason;
  flow->status = finished ? 0 : status;
  flow->state = ZAP_FLOW_FLUSHING;
  flow->close_at = engine->now + FLUSH_NS;
  /* Reads that are under way are let finish: some devices lose track of a queue pair that is stopped amid one. */
  flow->draining = flow->reading > 0 && status == 0;
  if (!flow->draining) stop(engine, flow);
}

/* Everything is the node's again, and the caller learns of it. */
static void conclude(struct zap_engine *engine, struct zap_flow *flow) {
  zap_incoming_end(engine, flow);
  zap_outgoing_end(engine, flow);
  if (flow->told_of) {
    zap_gpudirect_event *event = zap_engine_event(engine, ZAP_GPUDIRECT_DOWN);
    event->flow = zap_flow_number(flow);
    event->reason = flow->reason;
    event->status = flow->status;
    event->error = flow->error;
    event->undelivered = flow->failed;
    engine->counts.undelivered += flow->failed;
  }
  flow->state = ZAP_FLOW_FREE;
  uint32_t last = engine->there[--engine->flow_count];
  engine->there[flow->place] = last;
  engine->flows[last].place = flow->place;
}

static void destroy(struct zap_engine *engine, struct zap_grave *grave) {
  /* A window that is bound to a queue pair may keep it alive. */
  for (uint32_t i = 0; i < ZAP_OFFERS; i++)
    if (grave->windows[i] != NULL) (void)ibv_dealloc_mw(grave->windows[i]);
  (void)engine->verbs->destroy_qp(grave->qp);
}

/* Goes when there is nothing left to do. */
static void *dig(void *context) {
  struct zap_engine *engine = context;
  zap_thread_name("zap-rdma-end");
  zap_engine_lock(engine);
  while (engine->graves != NULL) {
    struct zap_grave *grave = engine->graves;
    engine->graves = grave->next;
    zap_engine_unlock(engine);
    destroy(engine, grave);
    zap_engine_lock(engine);
    engine->grave_count--;
    if (grave->flow != NULL) conclude(engine, grave->flow);
    free(grave);
  }
  engine->digging = false;
  zap_engine_unlock(engine);
  atomic_fetch_sub(&engine->holders, 1);
  return NULL;
}

void zap_flow_drop(struct zap_engine *engine, struct zap_flow *flow) {
  bool all_back = flow->posted_now == 0 && zap_outgoing_idle(flow);
  struct zap_grave *grave = calloc(1, sizeof *grave), here;
  struct zap_grave *into = grave == NULL ? &here : grave;
  *into = (struct zap_grave){.qp = flow->qp, .flow = all_back ? NULL : flow};
  for (uint32_t i = 0; i < ZAP_OFFERS; i++) {
    into->windows[i] = flow->shown[i].window;
    flow->shown[i].window = NULL;
  }
  flow->qp = NULL;
  flow->state = ZAP_FLOW_BURIED;
  if (grave != NULL && !engine->digging) {
    atomic_fetch_add(&engine->holders, 1);
    engine->digging = zap_thread_start(dig, engine) == ZAP_OK;
    if (!engine->digging) atomic_fetch_sub(&engine->holders, 1);
  }
  if (grave == NULL || !engine->digging) {
    /* Here, then, however long it takes. */
    destroy(engine, into);
    free(grave);
    conclude(engine, flow);
    return;
  }
  grave->next = engine->graves;
  engine->graves = grave;
  engine->grave_count++;
  if (all_back) conclude(engine, flow);
}

bool zap_flow_turn(struct zap_engine *engine, struct zap_flow *flow) {
  if (flow->state == ZAP_FLOW_BEGUN || flow->state == ZAP_FLOW_RISING || flow->state == ZAP_FLOW_BURIED) return false;
  if (flow->state == ZAP_FLOW_FLUSHING) {
    if (flow->draining && (flow->reading == 0 || engine->now + FLUSH_NS / 2 > flow->close_at)) {
      flow->draining = false;
      stop(engine, flow);
      return true;
    }
    bool empty = flow->posted_now == 0 && zap_outgoing_idle(flow);
    if (!empty && engine->now < flow->close_at) return false;
    zap_flow_drop(engine, flow);
    return true;
  }
  bool any = zap_incoming_turn(engine, flow);
  if (flow->state == ZAP_FLOW_OPEN && zap_outgoing_turn(engine, flow)) any = true;
  if (flow->finish_sent && flow->finish_heard && zap_outgoing_idle(flow)) zap_flow_fail(engine, flow, ZAP_DOWN_FINISHED, 0);
  else if (flow->closing && engine->now > flow->close_at) zap_flow_fail(engine, flow, ZAP_DOWN_CLOSED, 0);
  return any;
}

static uint32_t reason_of(enum ibv_wc_status status) {
  switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RNR_RETRY_EXC_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR: return ZAP_DOWN_DEAD;
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_OP_ERR:
    case IBV_WC_REM_ABORT_ERR: return ZAP_DOWN_REFUSED;
    default: return ZAP_DOWN_BROKEN;
  }
}

static void failed(struct zap_engine *engine, struct zap_flow *flow, const struct ibv_wc *wc) {
  if (wc->status != IBV_WC_WR_FLUSH_ERR) {
    engine->counts.failures++;
    if (wc->status == IBV_WC_RETRY_EXC_ERR) engine->counts.retries_exceeded++;
    if (wc->status == IBV_WC_RNR_RETRY_EXC_ERR) engine->counts.rnr_exceeded++;
  }
  zap_flow_fail(engine, flow, reason_of(wc->status), (uint32_t)wc->status);
}

void zap_flow_complete(struct zap_engine *engine, const struct ibv_wc *wc) {
  uint32_t index = (uint32_t)(wc->wr_id >> 32) & 0xffff, value = (uint32_t)wc->wr_id;
  struct zap_flow *flow = index < engine->settings.flows ? &engine->flows[index] : NULL;
  /* One that is gone already: what it was about was dealt with then. */
  if (flow == NULL || flow->qp == NULL || flow->generation != ((uint32_t)(wc->wr_id >> 48) & 0x7fff)) return;
  bool receive = wc->wr_id >> 63 != 0;
  if (wc->status == IBV_WC_SUCCESS) {
    if (receive) zap_incoming_received(engine, flow, value, wc->byte_len);
    else zap_outgoing_completed(engine, flow, value);
    return;
  }
  if (receive) zap_incoming_flushed(engine, flow, value);
  else zap_outgoing_failed(engine, flow, value);
  failed(engine, flow, wc);
}

const char *zap_down_reason_name(uint32_t reason) {
  switch (reason) {
    case ZAP_DOWN_FINISHED: return "finished";
    case ZAP_DOWN_ABORTED: return "aborted";
    case ZAP_DOWN_PROTOCOL: return "protocol";
    case ZAP_DOWN_DEAD: return "dead";
    case ZAP_DOWN_REFUSED: return "refused";
    case ZAP_DOWN_BROKEN: return "broken";
    case ZAP_DOWN_CLOSED: return "closed";
    case ZAP_DOWN_UNREACHABLE: return "unreachable";
    case ZAP_DOWN_UNREGISTERED: return "unregistered";
    default: return NULL;
  }
}
