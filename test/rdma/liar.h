/*
 * What the cases of liar.c stand on: the honest node, a third node that is connected with it all the time, and the liar: a device, one
 * region and queue pairs, straight on the verbs. One thread does everything but what the nodes' own threads do.
 */
#ifndef ZAP_RDMA_LIAR_H
#define ZAP_RDMA_LIAR_H

#include "../../shim/gpudirect/engine.h"
#include "../../shim/gpudirect/node.h"
#include "sides.h"

/* The honest node. */
#define EAGER_BYTES 8192u
#define RECEIVES 32u
#define SLABS 256u
#define MESSAGE_BYTES (1u << 20)
#define ARENA_BYTES (4u << 20)
#define RECEIVE_BYTES (256u << 10)
#define CLOSE_MS 1500u
/* Of its pool, in bytes: what it sends. The rest is a canary. */
#define SHOWN_AT 1000128u
#define SHOWN_BYTES 65636u
#define SMALL_AT 128u
#define SMALL_BYTES 64u
#define MAIL_AT 3000000u
/* Through slabs where there are windows: soft-RoCE ends them when it sends something again, and this has to arrive. */
#define MAIL_BYTES (windows ? 4096u : 20000u)
/* What it has to send on each flow: one large message, and more small ones than there are credits for. */
#define SHOWN_TOKEN 1u
#define MAIL_TOKEN 2u
#define SMALL_TOKEN 100u
#define SMALLS 20u
#define TOKENS 128u
/* What the liar grants, unless it grants something else: the last eight are for what is no message. */
#define GRANTED 16u

#define LIAR_RECEIVES 64u
#define LIAR_SENDS 64u
#define LIAR_STRIDE 16384u
#define LIAR_BYTES (6u << 20)
#define TARGET_BYTE 0x5c

static struct side honest, friendly;
static bool windows;
static uint32_t region_key;

/* ---- the liar ---- */

static struct {
  struct zap_verbs verbs;
  struct zap_hca hca;
  struct ibv_pd *pd;
  struct ibv_mr *mr;
  struct ibv_cq *cq;
  uint8_t *bytes;
  uint8_t *receives, *sends, *source, *target; /* in it */
  uint32_t serial;
} liar;

/* One queue pair, and what came on it. */
struct pair {
  struct ibv_qp *qp; /* NULL: it only says that it has one */
  uint32_t flow;     /* the node's */
  uint32_t serial, place, granted;
  struct zap_head shown;
  uint32_t received, takens, taken_id;
  uint32_t sent, under_way, completed;
  enum ibv_wc_status last;
};

/* How a pair is brought up; 0: as it should be. */
struct wish {
  uint32_t receives, granted, eager_bytes, message_bytes;
  bool nobody;
};

/* What must have become of a flow. */
struct outcome {
  uint32_t reason, or_reason, or_else;
  uint32_t status;       /* 0: any */
  bool shown_done;       /* the large message counts as delivered */
  bool shown_either;
  uint32_t slabs;        /* that the liar may have filled */
  uint64_t arena;        /* bytes of it that the node may have read into */
  bool rings;            /* rings and heads are as keep_rings saw them */
};

/* At most two at a time. */
static struct pair *pairs[2];

/* ---- what the honest node says ---- */

static struct {
  uint32_t flow, reason, status, undelivered;
} downs[16];
static uint32_t down_count, taken_messages, bad_messages, from_friend;
static uint8_t back[TOKENS], delivered[TOKENS];
static bool keep_messages;
static uint8_t payload_header[16];
static bool payload_is_no_message;

static inline const char *reason_text(uint32_t reason) {
  static char text[32];
  return zap_gpudirect_name(ZAP_GPUDIRECT_REASON, reason, text, sizeof text) > 0 ? text : "?";
}

/* A fault of the node's, if it is one. */
static inline void found(const char *what, bool is_so) {
  if (!is_so) return;
  printf("  found: %s\n", what);
  fprintf(stderr, "not so: %s\n", what);
  atomic_fetch_add(&checks_failed, 1);
}

/* Flows of the honest node's that came up. */
static uint32_t ups;

static inline void hear_honest(void) {
  while (zap_ring_ready(&honest.events) > 0) {
    const uint8_t *first = (const uint8_t *)honest.events.ring + ZAP_RING_HEAD_BYTES;
    zap_gpudirect_event event;
    memcpy(&event, first + (honest.events.mine++ & (honest.node.event_slots - 1)) * ZAP_GPUDIRECT_EVENT_BYTES, sizeof event);
    zap_ring_consumed(&honest.events);
    if (event.kind == ZAP_GPUDIRECT_UP) ups++;
    if (event.kind != ZAP_GPUDIRECT_DOWN) continue;
    CHECK(down_count < 16);
    CHECK(event.flow != honest.flow);
    downs[down_count].flow = event.flow;
    downs[down_count].reason = event.reason;
    downs[down_count].status = event.status;
    downs[down_count].undelivered = event.undelivered;
    if (down_count < 15) down_count++;
  }
  while (zap_ring_ready(&honest.dones) > 0) {
    zap_ring_entry entry = *zap_ring_read(&honest.dones);
    zap_ring_consumed(&honest.dones);
    CHECK(entry.token < TOKENS);
    if (entry.token >= TOKENS) continue;
    back[entry.token]++;
    delivered[entry.token] = entry.length == 1;
  }
  while (zap_ring_ready(&honest.handoff) > 0) {
    zap_ring_entry entry = *zap_ring_read(&honest.handoff);
    zap_ring_consumed(&honest.handoff);
    static const uint8_t magic[4] = {0x5a, 0x41, 0x50, 0};
    if (memcmp((const void *)(uintptr_t)entry.address, magic, 4) != 0) bad_messages++;
    if (entry.peer == honest.flow) from_friend++;
    else taken_messages++;
    give_back(&honest, entry.token);
  }
}

static inline void hear_liar(void) {
  struct ibv_wc wc[16];
  int got;
  while ((got = ibv_poll_cq(liar.cq, 16, wc)) > 0) {
    for (int i = 0; i < got; i++) {
      struct pair *pair = NULL;
      for (int at = 0; at < 2; at++)
        if (pairs[at] != NULL && pairs[at]->serial == (uint32_t)(wc[i].wr_id >> 32 & 0x7fffffff)) pair = pairs[at];
      if (pair == NULL) continue;
      if (wc[i].wr_id >> 63 == 0) {
        pair->under_way--;
        pair->completed++;
        pair->last = wc[i].status;
        continue;
      }
      if (wc[i].status != IBV_WC_SUCCESS) continue;
      struct zap_head head;
      memcpy(&head, liar.receives + ((size_t)pair->place * LIAR_RECEIVES + (uint32_t)wc[i].wr_id) * LIAR_STRIDE, sizeof head);
      pair->received++;
      if (head.kind == ZAP_HEAD_OFFER) pair->shown = head;
      if (head.kind == ZAP_HEAD_TAKEN) {
        pair->takens++;
        pair->taken_id = head.id;
      }
    }
  }
}

static inline void pump(void) {
  hear_liar();
  if (!keep_messages) hear_honest();
}

static inline bool await_down(uint32_t millis) {
  for (uint32_t i = 0; i < millis && down_count == 0; i++) {
    pump();
    pause_millis(1);
  }
  return down_count > 0;
}

/* ---- the canary ---- */

static struct {
  uint8_t *wanted; /* all behind the rings and heads */
  uint8_t *rings;
} canary;

static inline uint64_t canary_bytes(void) { return honest.node.bytes - honest.node.eager_offset; }

static inline void plant(void) {
  uint8_t *at = honest.base + honest.node.eager_offset;
  uint32_t x = 1;
  for (uint64_t i = 0; i + 4 <= canary_bytes(); i += 4) {
    x = x * 1664525u + 1013904223u;
    uint32_t mixed = x ^ x >> 15;
    memcpy(at + i, &mixed, 4);
  }
  uint8_t *pool = honest.base + honest.node.pool_offset;
  fill(pool + SHOWN_AT, SHOWN_BYTES, 1);
  fill(pool + SMALL_AT, SMALL_BYTES, 2);
  fill(pool + MAIL_AT, MAIL_BYTES, 3);
  canary.wanted = malloc(canary_bytes());
  canary.rings = malloc(honest.node.eager_offset);
  CHECK(canary.wanted != NULL && canary.rings != NULL);
  memcpy(canary.wanted, at, canary_bytes());
}

/* Puts back what the node received; how much that was. */
static inline void check_canary(uint32_t slabs_most, uint64_t arena_most) {
  uint8_t *at = honest.base + honest.node.eager_offset;
  uint64_t arena_at = honest.node.message_offset - honest.node.eager_offset;
  uint64_t pool_at = honest.node.pool_offset - honest.node.eager_offset;
  uint32_t slabs = 0;
  for (uint64_t slab = 0; slab < arena_at; slab += EAGER_BYTES) {
    if (memcmp(at + slab, canary.wanted + slab, EAGER_BYTES) == 0) continue;
    memcpy(at + slab, canary.wanted + slab, EAGER_BYTES);
    slabs++;
  }
  uint64_t arena = 0;
  if (memcmp(at + arena_at, canary.wanted + arena_at, pool_at - arena_at) != 0)
    for (uint64_t i = arena_at; i < pool_at; i++) arena += at[i] != canary.wanted[i];
  memcpy(at + arena_at, canary.wanted + arena_at, pool_at - arena_at);
  CHECK(slabs <= slabs_most);
  CHECK(arena <= arena_most);
  CHECK(memcmp(at + pool_at, canary.wanted + pool_at, canary_bytes() - pool_at) == 0);
}

static inline void repair(void) { check_canary(SLABS, ARENA_BYTES); }

/* What no device but ours writes to, and the node only when it has something to say. */
#define RINGS 4
static inline void ring_parts(uint64_t from[RINGS], uint64_t to[RINGS]) {
  const zap_gpudirect_node *node = &honest.node;
  const uint32_t offsets[] = {node->handoff_offset, node->returns_offset, node->sends_offset};
  for (int i = 0; i < 3; i++) {
    from[i] = offsets[i] + ZAP_RING_HEAD_BYTES;
    to[i] = from[i] + (uint64_t)ZAP_GPUDIRECT_MESSAGES * sizeof(zap_ring_entry);
  }
  from[3] = node->events_offset + ZAP_RING_HEAD_BYTES + (uint64_t)node->event_slots * ZAP_GPUDIRECT_EVENT_BYTES;
  to[3] = node->eager_offset;
}

static inline void keep_rings(void) {
  uint64_t from[RINGS], to[RINGS];
  ring_parts(from, to);
  for (int i = 0; i < RINGS; i++) memcpy(canary.rings + from[i], honest.base + from[i], to[i] - from[i]);
}

static inline void check_rings(void) {
  uint64_t from[RINGS], to[RINGS];
  ring_parts(from, to);
  for (int i = 0; i < RINGS; i++) CHECK(memcmp(canary.rings + from[i], honest.base + from[i], to[i] - from[i]) == 0);
}

/* ---- what the honest node sends ---- */

static inline void send_on(uint32_t flow, uint32_t offset, uint32_t length, uint32_t token) {
  uint32_t other = honest.flow;
  honest.flow = flow;
  send_message(&honest, offset, length, token);
  honest.flow = other;
}

/* A message each way with the node that has nothing to do with all this: a large one there, a small one back. */
static inline void chat(void) {
  uint64_t got = friendly.received;
  uint32_t heard = from_friend;
  back[MAIL_TOKEN] = 0;
  send_on(honest.flow, MAIL_AT, MAIL_BYTES, MAIL_TOKEN);
  fill(friendly.base + friendly.node.pool_offset, SMALL_BYTES, 4);
  send_message(&friendly, 0, SMALL_BYTES, 1);
  for (int i = 0; i < 10000 && (friendly.received == got || from_friend == heard || back[MAIL_TOKEN] == 0); i++) {
    pump();
    hear(&friendly);
    while (zap_ring_ready(&friendly.handoff) > 0) {
      zap_ring_entry entry = *zap_ring_read(&friendly.handoff);
      zap_ring_consumed(&friendly.handoff);
      CHECK_EQUAL(entry.length, MAIL_BYTES);
      CHECK(memcmp((const void *)(uintptr_t)entry.address, honest.base + honest.node.pool_offset + MAIL_AT, MAIL_BYTES) == 0);
      friendly.received++;
      give_back(&friendly, entry.token);
    }
    pause_millis(1);
  }
  CHECK_EQUAL(friendly.received, got + 1);
  CHECK_EQUAL(from_friend, heard + 1);
  CHECK(back[MAIL_TOKEN] == 1 && delivered[MAIL_TOKEN]);
  CHECK_EQUAL(friendly.downs, 0);
  check_canary(1, 0);
}

/* ---- queue pairs ---- */

#define LIAR_MUST(call)                                                              \
  do {                                                                               \
    int answer_ = (call);                                                            \
    if (answer_ != 0) {                                                              \
      fprintf(stderr, "%s:%d: %s is %d\n", __FILE__, __LINE__, #call, answer_);      \
      exit(1);                                                                       \
    }                                                                                \
  } while (0)

static inline zap_gpudirect_offer offer_of_nobody(void) {
  zap_gpudirect_offer offer = {.magic = 0x3144475a, .queue_pair = 0xfffff0, .sequence = 77, .mtu = 1024, .ethernet = 1,
                               .eager_bytes = EAGER_BYTES, .receives = GRANTED, .message_bytes = MESSAGE_BYTES, .reads = 4};
  memcpy(offer.gid, liar.hca.gid.raw, sizeof offer.gid);
  return offer;
}

static inline void to_rts(struct ibv_qp *qp, const zap_gpudirect_offer *theirs, uint32_t sequence) {
  struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = theirs->queue_pair,
                            .rq_psn = theirs->sequence, .max_dest_rd_atomic = 4, .min_rnr_timer = 12,
                            .ah_attr = {.is_global = 1, .port_num = liar.hca.port}};
  rtr.ah_attr.grh = (struct ibv_global_route){.sgid_index = (uint8_t)liar.hca.gid.index, .hop_limit = 64};
  memcpy(rtr.ah_attr.grh.dgid.raw, theirs->gid, 16);
  LIAR_MUST(liar.verbs.modify_qp(qp, &rtr,
                                 IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                     IBV_QP_MIN_RNR_TIMER));
  struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS, .timeout = 16, .retry_cnt = 6, .rnr_retry = 7, .max_rd_atomic = 1, .sq_psn = sequence};
  LIAR_MUST(liar.verbs.modify_qp(qp, &rts,
                                 IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                     IBV_QP_MAX_QP_RD_ATOMIC));
}

/* A queue pair to a new flow of the honest node's. */
static inline void bring_up(struct pair *pair, struct wish wish, uint32_t place) {
  uint32_t receives = wish.receives == 0 ? RECEIVES : wish.receives;
  uint32_t granted = wish.granted == 0 ? GRANTED : wish.granted;
  *pair = (struct pair){.serial = ++liar.serial, .place = place, .granted = granted};
  zap_gpudirect_offer theirs, ours = offer_of_nobody();
  int32_t flow = zap_gpudirect_flow_begin(honest.handle, &theirs);
  MUST(flow);
  pair->flow = (uint32_t)flow;
  ours.receives = granted;
  if (wish.eager_bytes != 0) ours.eager_bytes = wish.eager_bytes;
  if (wish.message_bytes != 0) ours.message_bytes = wish.message_bytes;
  pairs[place] = pair;
  if (!wish.nobody) {
    struct ibv_qp_init_attr wanted = {.send_cq = liar.cq, .recv_cq = liar.cq,
                                      .cap = {.max_send_wr = LIAR_SENDS, .max_recv_wr = LIAR_RECEIVES, .max_send_sge = 1,
                                              .max_recv_sge = 1},
                                      .qp_type = IBV_QPT_RC};
    pair->qp = liar.verbs.create_qp(liar.pd, &wanted);
    CHECK(pair->qp != NULL);
    if (pair->qp == NULL) exit(1);
    struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = liar.hca.port,
                               .qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE};
    LIAR_MUST(liar.verbs.modify_qp(pair->qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    for (uint32_t i = 0; i < receives; i++) {
      struct ibv_sge part = {.addr = (uintptr_t)liar.receives + ((size_t)place * LIAR_RECEIVES + i) * LIAR_STRIDE,
                             .length = ZAP_HEAD_BYTES + EAGER_BYTES, .lkey = liar.mr->lkey};
      struct ibv_recv_wr request = {.wr_id = UINT64_C(1) << 63 | (uint64_t)pair->serial << 32 | i, .sg_list = &part, .num_sge = 1}, *bad;
      LIAR_MUST(ibv_post_recv(pair->qp, &request, &bad));
    }
    ours.queue_pair = pair->qp->qp_num;
    to_rts(pair->qp, &theirs, ours.sequence);
  }
  uint32_t before = ups;
  MUST(zap_gpudirect_flow_accept(honest.handle, pair->flow, &ours));
  for (int i = 0; i < 10000 && ups == before && down_count == 0; i++) {
    hear_honest();
    pause_millis(1);
  }
}

static inline void take_down(struct pair *pair) {
  if (pair->qp != NULL) LIAR_MUST(liar.verbs.destroy_qp(pair->qp));
  pairs[pair->place] = NULL;
  hear_liar();
}

static inline void post(struct pair *pair, struct ibv_send_wr *request) {
  struct ibv_send_wr *bad;
  request->wr_id = (uint64_t)pair->serial << 32;
  request->send_flags = IBV_SEND_SIGNALED;
  pair->under_way++;
  LIAR_MUST(ibv_post_send(pair->qp, request, &bad));
}

/* Of the last thing that was posted. */
static inline enum ibv_wc_status settled(struct pair *pair) {
  for (int i = 0; i < 10000 && pair->under_way > 0; i++) {
    pump();
    if (pair->under_way > 0) pause_millis(1);
  }
  CHECK_EQUAL(pair->under_way, 0);
  return pair->last;
}

/* Sends `total` bytes that begin with this head; what is behind it is a message where there is room for its header. */
static inline void say_later(struct pair *pair, const struct zap_head *head, uint32_t total) {
  uint8_t *at = liar.sends + (size_t)(pair->sent++ % LIAR_SENDS) * LIAR_STRIDE;
  memset(at, payload_is_no_message ? 0xee : 0xc3, LIAR_STRIDE);
  memcpy(at, head, sizeof *head);
  struct zap_head *copy = (struct zap_head *)(void *)at;
  static const uint8_t none[16];
  if (memcmp(copy->header, none, 16) == 0 && head->length >= 16) {
    fill(copy->header, 16, 0);
    memcpy(copy->header + 12, &head->length, 4);
  }
  if (!payload_is_no_message) memcpy(at + ZAP_HEAD_BYTES, copy->header, 16);
  struct ibv_sge part = {.addr = (uintptr_t)at, .length = total, .lkey = liar.mr->lkey};
  struct ibv_send_wr request = {.sg_list = &part, .num_sge = total > 0 ? 1 : 0, .opcode = IBV_WR_SEND};
  post(pair, &request);
}

static inline enum ibv_wc_status say(struct pair *pair, const struct zap_head *head, uint32_t total) {
  say_later(pair, head, total);
  return settled(pair);
}

/* ---- RDMA ---- */

static inline void clear_target(void) { memset(liar.target, TARGET_BYTE, MESSAGE_BYTES); }

static inline bool target_is_whole(void) {
  for (uint32_t i = 0; i < MESSAGE_BYTES; i++)
    if (liar.target[i] != TARGET_BYTE) return false;
  return true;
}

static inline enum ibv_wc_status attempt(struct pair *pair, enum ibv_wr_opcode opcode, uint64_t at, uint32_t rkey, uint32_t length) {
  bool atomic = opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
  struct ibv_sge part = {.addr = (uintptr_t)liar.target, .length = length, .lkey = liar.mr->lkey};
  struct ibv_send_wr request = {.sg_list = &part, .num_sge = 1, .opcode = opcode};
  if (atomic) {
    request.wr.atomic.remote_addr = at;
    request.wr.atomic.rkey = rkey;
    request.wr.atomic.compare_add = 1;
    request.wr.atomic.swap = 2;
  } else {
    request.wr.rdma.remote_addr = at;
    request.wr.rdma.rkey = rkey;
  }
  post(pair, &request);
  return settled(pair);
}

static inline enum ibv_wc_status invalidate(struct pair *pair, uint32_t rkey) {
  struct zap_head head = {.kind = ZAP_HEAD_CREDIT, .credits = pair->granted};
  uint8_t *at = liar.sends + (size_t)(pair->sent++ % LIAR_SENDS) * LIAR_STRIDE;
  memcpy(at, &head, sizeof head);
  struct ibv_sge part = {.addr = (uintptr_t)at, .length = sizeof head, .lkey = liar.mr->lkey};
  struct ibv_send_wr request = {.sg_list = &part, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_INV};
  request.invalidate_rkey = rkey;
  post(pair, &request);
  return settled(pair);
}

/* ---- cases ---- */

/* The node has nothing but its flow with the third one: the receives that are posted there. Soon behind everything, not at once. */
static inline bool is_quiet(void) {
  zap_gpudirect_stats now;
  MUST(zap_gpudirect_stats_read(honest.handle, &now));
  return now.free_slabs == SLABS - RECEIVES && now.held_bytes == 0 && now.flows == 1;
}

static inline void begin_case(const char *name, struct pair *pair, struct wish wish) {
  printf("case %s\n", name);
  WAIT_UNTIL((pump(), is_quiet()));
  memset(back, 0, sizeof back);
  down_count = taken_messages = bad_messages = 0;
  clear_target();
  bring_up(pair, wish, 0);
  send_on(pair->flow, SHOWN_AT, SHOWN_BYTES, SHOWN_TOKEN);
  for (uint32_t i = 0; i < SMALLS; i++) send_on(pair->flow, SMALL_AT, SMALL_BYTES, SMALL_TOKEN + i);
  if (wish.nobody || wish.eager_bytes != 0 || wish.message_bytes != 0) return;
  /* As many as there are credits for; then it is quiet, and the large message is shown. */
  uint32_t credits = pair->granted - ZAP_CONTROL_CREDITS, wanted = wish.receives == 0 ? credits : wish.receives;
  WAIT_UNTIL((pump(), pair->received >= wanted));
  if (wish.receives == 0) WAIT_UNTIL((pump(), back[SMALL_TOKEN + credits - 2] == 1));
  CHECK_EQUAL(pair->shown.kind, ZAP_HEAD_OFFER);
  CHECK_EQUAL(pair->shown.length, SHOWN_BYTES);
}

static inline void end_case(struct pair *pair, struct outcome outcome) {
  WAIT_UNTIL((pump(), down_count > 0));
  /* One that does not end must not be taken for the next. */
  if (down_count == 0) MUST(zap_gpudirect_flow_abort(honest.handle, pair->flow));
  WAIT_UNTIL((pump(), down_count > 0));
  uint32_t failed = 0, done = 0;
  for (uint32_t token = 0; token < TOKENS; token++) {
    bool ours = token == SHOWN_TOKEN || (token >= SMALL_TOKEN && token < SMALL_TOKEN + SMALLS);
    /* The event says that all of them were there before it. */
    CHECK_EQUAL(back[token], ours || (token == MAIL_TOKEN && back[token] == 1) ? 1 : 0);
    if (ours && back[token] == 1) *(delivered[token] ? &done : &failed) += 1;
  }
  uint32_t reason = downs[0].reason;
  printf("  down: %s, status %u; %u delivered, %u back\n", reason_text(reason), downs[0].status, done, failed);
  CHECK_EQUAL(downs[0].flow, pair->flow);
  CHECK(reason == outcome.reason || (reason != 0 && (reason == outcome.or_reason || reason == outcome.or_else)));
  if (outcome.status != 0) CHECK_EQUAL(downs[0].status, outcome.status);
  if (!outcome.shown_either) CHECK_EQUAL(delivered[SHOWN_TOKEN], outcome.shown_done);
  CHECK(downs[0].undelivered <= failed);
  WAIT_UNTIL((pump(), is_quiet()));
  take_down(pair);
  pump();
  CHECK_EQUAL(down_count, 1);
  for (uint32_t token = 0; token < TOKENS; token++) CHECK(back[token] <= 1);
  if (outcome.rings) check_rings();
  check_canary(outcome.slabs, outcome.arena);
  chat();
}

/* ---- the beginning and the end ---- */

static inline void set_up(const char *runtime, const char *device, const char *liars, int gid, uint32_t flags) {
  zap_gpudirect_settings settings;
  settings_of(&settings, runtime, device, gid);
  /* Else soft-RoCE is not given any. */
  settings.flags = (flags & ZAP_GPUDIRECT_NO_WINDOWS) != 0 ? flags : flags | ZAP_GPUDIRECT_WINDOWS;
  /* Sent again is done again, which is the end of a window: not while the guest is merely slow. */
  if ((settings.flags & ZAP_GPUDIRECT_WINDOWS) != 0) settings.timeout_ms = 1000;
  settings.eager_bytes = EAGER_BYTES;
  settings.receives = RECEIVES;
  settings.eager_area = SLABS * EAGER_BYTES;
  settings.message_bytes = MESSAGE_BYTES;
  settings.message_area = ARENA_BYTES;
  settings.pool_area = 4u << 20;
  settings.receive_bytes = RECEIVE_BYTES;
  settings.close_ms = CLOSE_MS;
  open_side(&honest, &settings);
  windows = honest.node.windows != 0;
  CHECK_EQUAL(windows, (flags & ZAP_GPUDIRECT_NO_WINDOWS) == 0);
  (void)snprintf(settings.device, sizeof settings.device, "%s", liars);
  settings.flags = 0;
  open_side(&friendly, &settings);
  join(&honest, &friendly);
  struct zap_service *node = zap_service_use(honest.handle, &zap_node_kind);
  region_key = zap_node_engine(node)->settings.host->lkey;
  zap_service_release(node);
  MUST(zap_verbs_load(runtime, &liar.verbs));
  MUST(zap_hca_open(&liar.verbs, &(struct zap_hca_settings){.device = liars, .gid_index = gid}, &liar.hca));
  liar.pd = liar.verbs.alloc_pd(liar.hca.context);
  liar.bytes = aligned_alloc(4096, LIAR_BYTES);
  CHECK(liar.pd != NULL && liar.bytes != NULL);
  memset(liar.bytes, 0, LIAR_BYTES);
  liar.mr = zap_verbs_register(&liar.verbs, liar.pd, liar.bytes, LIAR_BYTES,
                               IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
  liar.cq = liar.verbs.create_cq(liar.hca.context, 1024, NULL, NULL, 0);
  CHECK(liar.mr != NULL && liar.cq != NULL);
  if (atomic_load(&checks_failed) > 0) exit(1);
  liar.receives = liar.bytes;
  liar.sends = liar.bytes + 2 * LIAR_RECEIVES * LIAR_STRIDE;
  liar.source = liar.sends + LIAR_SENDS * LIAR_STRIDE;
  liar.target = liar.source + MESSAGE_BYTES;
  plant();
  chat();
}

static inline void tear_down(void) {
  WAIT_UNTIL((pump(), is_quiet()));
  LIAR_MUST(liar.verbs.destroy_cq(liar.cq));
  LIAR_MUST(liar.verbs.dereg_mr(liar.mr));
  LIAR_MUST(liar.verbs.dealloc_pd(liar.pd));
  zap_hca_close(&liar.hca);
  free(liar.bytes);
  free(canary.wanted);
  free(canary.rings);
  close_side(&friendly);
  close_side(&honest);
  CHECK_EQUAL(zap_gpudirect_live(), 0);
}

#endif
