/*
 * What is sent. Sends complete in order, so only some of them ask for a completion: one in SIGNAL_EVERY, and the last of a row. The slot of
 * a send (its head, and what it was about) is free again when it or a later one has completed.
 */
#include "engine.h"

#include <errno.h>
#include <string.h>

#include "../common/fail.h"

#define SIGNAL_EVERY 32u
/* Of one flow in one turn: others want theirs. */
#define SENDS_MOST 64
#define TAKES_MOST 1024u
/* Slots that messages leave to what frees memory. */
#define CONTROL_SLOTS 32u

static struct zap_head *head_at(const struct zap_engine *engine, const struct zap_flow *flow, uint32_t number) {
  uint8_t *heads = engine->settings.heads + (size_t)engine->settings.slab_count * ZAP_HEAD_BYTES;
  return (struct zap_head *)(void *)(heads + ((size_t)flow->index * ZAP_SEND_SLOTS + number % ZAP_SEND_SLOTS) * ZAP_HEAD_BYTES);
}

static uint64_t work_id(const struct zap_flow *flow, uint32_t number) {
  return (uint64_t)(flow->generation & 0x7fffu) << 48 | (uint64_t)flow->index << 32 | number;
}

bool zap_outgoing_has_slots(const struct zap_flow *flow, uint32_t wanted) {
  return ZAP_SEND_SLOTS - (flow->post_tail - flow->post_head) >= wanted;
}

static uint32_t credits_of(const struct zap_flow *flow) { return flow->granted - flow->used; }

/* Posts a request that has everything but its number; keeps what it was about. */
static bool post(struct zap_engine *engine, struct zap_flow *flow, struct ibv_send_wr *request, enum zap_posted_what what, uint32_t token) {
  uint32_t number = flow->post_tail;
  flow->posts[number % ZAP_SEND_SLOTS] = (struct zap_posted){.what = what, .token = token};
  request->wr_id = work_id(flow, number);
  bool signal = ++flow->unsignalled >= SIGNAL_EVERY || what == ZAP_POSTED_READ || what == ZAP_POSTED_HIDE;
  if (signal) request->send_flags |= IBV_SEND_SIGNALED;
  struct ibv_send_wr *bad;
  int failed = ibv_post_send(flow->qp, request, &bad);
  if (failed != 0) {
    zap_flow_fail(engine, flow, ZAP_DOWN_BROKEN, 0);
    return false;
  }
  if (signal) flow->unsignalled = 0;
  flow->post_tail++;
  return true;
}

/* Sends a head, and behind it `length` bytes of the region. The head's kind and what belongs to it are set already. */
static bool send_head(struct zap_engine *engine, struct zap_flow *flow, const struct zap_head *head, uint64_t bytes, uint32_t length,
                      enum zap_posted_what what, uint32_t token, bool last) {
  struct zap_head *at = head_at(engine, flow, flow->post_tail);
  *at = *head;
  at->credits = flow->posted;
  uint32_t lkey = engine->settings.host->lkey;
  struct ibv_sge parts[2] = {
      {.addr = (uintptr_t)at, .length = ZAP_HEAD_BYTES, .lkey = lkey},
      {.addr = bytes, .length = length, .lkey = lkey},
  };
  struct ibv_send_wr request = {.sg_list = parts, .num_sge = length > 0 ? 2 : 1, .opcode = IBV_WR_SEND};
  if (ZAP_HEAD_BYTES + length <= engine->inline_bytes) {
    request.send_flags = IBV_SEND_INLINE;
    engine->counts.inline_sends++;
  }
  /* So that nobody waits for the completion of a row that does not go on. */
  if (last) flow->unsignalled = SIGNAL_EVERY;
  if (!post(engine, flow, &request, what, token)) return false;
  engine->counts.sends++;
  flow->used++;
  flow->told = at->credits;
  flow->mere = 0;
  return true;
}

bool zap_outgoing_read(struct zap_engine *engine, struct zap_flow *flow, uint32_t place, uint64_t to, uint64_t from, uint32_t rkey,
                       uint32_t length) {
  struct ibv_sge part = {.addr = to, .length = length, .lkey = engine->settings.messages->lkey};
  struct ibv_send_wr request = {.sg_list = &part, .num_sge = 1, .opcode = IBV_WR_RDMA_READ};
  request.wr.rdma.remote_addr = from;
  request.wr.rdma.rkey = rkey;
  if (!post(engine, flow, &request, ZAP_POSTED_READ, place)) return false;
  engine->counts.reads++;
  return true;
}

/* ---- messages ---- */

static void finish(struct zap_engine *engine, uint32_t token, uint32_t flow, bool delivered) {
  struct zap_parcel *parcel = &engine->parcels[token];
  parcel->busy = false;
  if (delivered) {
    engine->counts.messages_out++;
    engine->counts.bytes_out += parcel->length;
  }
  *zap_ring_write(&engine->dones) = (zap_ring_entry){.token = token, .peer = flow, .length = delivered ? 1 : 0};
  engine->finished = true;
}

static bool queue(struct zap_engine *engine, const zap_ring_entry *entry) {
  const struct zap_engine_settings *s = &engine->settings;
  uint32_t token = entry->token;
  /* A number that is in use, or none at all, cannot even be given back. */
  if (token >= ZAP_GPUDIRECT_MESSAGES || engine->parcels[token].busy) return false;
  struct zap_parcel *parcel = &engine->parcels[token];
  *parcel = (struct zap_parcel){.address = entry->address, .length = entry->length, .flow = entry->peer, .next = ZAP_NONE, .busy = true};
  struct zap_flow *flow = zap_flow_find(engine, entry->peer);
  uint64_t at = entry->address - (uintptr_t)s->base;
  bool lies = at >= s->memory_offset && at < s->bytes && entry->length >= 16 && entry->length <= s->bytes - at;
  bool goes = flow != NULL && (flow->state == ZAP_FLOW_OPEN || flow->state == ZAP_FLOW_RISING);
  if (!lies || !goes || flow->closing || flow->finish_heard || entry->length > flow->their_most) {
    finish(engine, token, entry->peer, false);
    return lies;
  }
  if (flow->waiting++ == 0) flow->first = token;
  else engine->parcels[flow->last].next = token;
  flow->last = token;
  return true;
}

bool zap_outgoing_take(struct zap_engine *engine) {
  uint32_t ready = zap_ring_ready(&engine->sends);
  if (ready == 0) return false;
  if (ready > TAKES_MOST) ready = TAKES_MOST;
  for (uint32_t i = 0; i < ready; i++) {
    zap_ring_entry entry = *zap_ring_read(&engine->sends);
    if (!queue(engine, &entry)) engine->counts.unusable++;
  }
  zap_ring_consumed(&engine->sends);
  return true;
}

static void head_for(const struct zap_parcel *parcel, struct zap_head *head) {
  head->length = parcel->length;
  memcpy(head->header, (const void *)(uintptr_t)parcel->address, sizeof head->header);
}

/* ---- showing a large message ---- */

static bool show_by_window(struct zap_engine *engine, struct zap_flow *flow, struct zap_shown *shown, const struct zap_parcel *parcel) {
  if (shown->window == NULL) {
    shown->window = ibv_alloc_mw(engine->settings.pd, IBV_MW_TYPE_2);
    if (shown->window == NULL) return false;
  }
  shown->rkey = ibv_inc_rkey(shown->window->rkey);
  struct ibv_send_wr request = {.opcode = IBV_WR_BIND_MW};
  request.bind_mw.mw = shown->window;
  request.bind_mw.rkey = shown->rkey;
  request.bind_mw.bind_info = (struct ibv_mw_bind_info){
      .mr = engine->settings.host, .addr = parcel->address, .length = parcel->length, .mw_access_flags = IBV_ACCESS_REMOTE_READ};
  if (!post(engine, flow, &request, ZAP_POSTED_WINDOW, ZAP_NONE)) return false;
  /* Whoever posts keeps the window's own number up to date. */
  shown->window->rkey = shown->rkey;
  return true;
}

static bool show(struct zap_engine *engine, struct zap_flow *flow, struct zap_shown *shown, const struct zap_parcel *parcel) {
  if (engine->windows) {
    if (show_by_window(engine, flow, shown, parcel)) return true;
    if (flow->state != ZAP_FLOW_OPEN) return false;
    /* The device said that it has some, and gives none. */
    engine->windows = false;
  }
  shown->region = zap_verbs_register(engine->verbs, engine->settings.pd, (void *)(uintptr_t)parcel->address, parcel->length,
                                     IBV_ACCESS_REMOTE_READ);
  if (shown->region != NULL) shown->rkey = shown->region->rkey;
  return shown->region != NULL;
}

static void cover(struct zap_engine *engine, struct zap_flow *flow, struct zap_shown *shown) {
  if (shown->region != NULL) (void)engine->verbs->dereg_mr(shown->region);
  shown->region = NULL;
  shown->used = shown->taken = shown->hiding = false;
  flow->shown_count--;
}

/* The peer cannot read there any more: the message is its sender's again. */
static void hidden(struct zap_engine *engine, struct zap_flow *flow, struct zap_shown *shown, bool delivered) {
  cover(engine, flow, shown);
  finish(engine, shown->token, zap_flow_number(flow), delivered);
}

/* A window ends in the order of what is posted, so behind sends that may wait for a peer that takes none. */
static void hide(struct zap_engine *engine, struct zap_flow *flow, struct zap_shown *shown) {
  if (shown->region != NULL) {
    hidden(engine, flow, shown, true);
    return;
  }
  struct ibv_send_wr request = {.opcode = IBV_WR_LOCAL_INV};
  request.invalidate_rkey = shown->rkey;
  shown->hiding = post(engine, flow, &request, ZAP_POSTED_HIDE, (uint32_t)(shown - flow->shown));
}

bool zap_outgoing_taken(struct zap_flow *flow, uint32_t id) {
  if (id >= ZAP_OFFERS || !flow->shown[id].used || flow->shown[id].taken) return false;
  flow->shown[id].taken = true;
  flow->taken_count++;
  return true;
}

static bool hide_taken(struct zap_engine *engine, struct zap_flow *flow) {
  bool any = false;
  for (uint32_t id = 0; id < ZAP_OFFERS && flow->taken_count > 0; id++) {
    struct zap_shown *shown = &flow->shown[id];
    if (!shown->taken || shown->hiding || !zap_outgoing_has_slots(flow, 2)) continue;
    if (engine->visited && shown->region != NULL) {
      engine->postponed = true;
      continue;
    }
    flow->taken_count--;
    hide(engine, flow, shown);
    any = true;
    if (flow->state != ZAP_FLOW_OPEN) break;
  }
  return any;
}

/* ---- a flow's turn ---- */

static bool send_large(struct zap_engine *engine, struct zap_flow *flow, uint32_t token, struct zap_head *head) {
  uint32_t id = 0;
  while (id < ZAP_OFFERS && flow->shown[id].used) id++;
  if (id == ZAP_OFFERS) return false;
  if (engine->visited && !engine->windows) {
    engine->postponed = true;
    return false;
  }
  struct zap_shown *shown = &flow->shown[id];
  const struct zap_parcel *parcel = &engine->parcels[token];
  if (!show(engine, flow, shown, parcel)) {
    int error = errno;
    /* Where others are shown, there will be room again. */
    if (flow->state != ZAP_FLOW_OPEN || flow->shown_count > 0) return false;
    flow->error = (uint32_t)error;
    zap_flow_fail(engine, flow, ZAP_DOWN_UNREGISTERED, 0);
    return false;
  }
  shown->used = true;
  shown->token = token;
  flow->shown_count++;
  head->kind = ZAP_HEAD_OFFER;
  head->id = id;
  head->address = parcel->address;
  head->rkey = shown->rkey;
  if (send_head(engine, flow, head, 0, 0, ZAP_POSTED_CONTROL, ZAP_NONE, true)) return true;
  /* It is still among those that wait, and comes back from there. */
  cover(engine, flow, shown);
  return false;
}

static bool send_next(struct zap_engine *engine, struct zap_flow *flow) {
  uint32_t token = flow->first;
  struct zap_parcel *parcel = &engine->parcels[token];
  struct zap_head head = {.kind = ZAP_HEAD_EAGER};
  head_for(parcel, &head);
  uint32_t next = parcel->next;
  /* What is large may have to wait, and those before it must not wait with it. */
  bool before_large = flow->waiting > 1 && engine->parcels[next].length > flow->their_eager;
  bool last = flow->waiting == 1 || before_large || credits_of(flow) == ZAP_CONTROL_CREDITS + 1;
  bool sent = parcel->length <= flow->their_eager
                  ? send_head(engine, flow, &head, parcel->address, parcel->length, ZAP_POSTED_MESSAGE, token, last)
                  : send_large(engine, flow, token, &head);
  if (!sent) return false;
  flow->first = next;
  flow->waiting--;
  return true;
}

static bool send_messages(struct zap_engine *engine, struct zap_flow *flow) {
  int sent = 0;
  while (flow->waiting > 0 && sent < SENDS_MOST && flow->state == ZAP_FLOW_OPEN) {
    if (credits_of(flow) <= ZAP_CONTROL_CREDITS || !zap_outgoing_has_slots(flow, CONTROL_SLOTS + 4)) {
      if (!flow->stalled) engine->counts.stalls++;
      flow->stalled = true;
      break;
    }
    flow->stalled = false;
    if (!send_next(engine, flow)) break;
    sent++;
  }
  return sent > 0;
}

static bool send_takens(struct zap_engine *engine, struct zap_flow *flow) {
  bool any = false;
  while (flow->takens_count > 0 && credits_of(flow) > 0 && zap_outgoing_has_slots(flow, 2)) {
    struct zap_head head = {.kind = ZAP_HEAD_TAKEN, .id = flow->takens[0]};
    if (!send_head(engine, flow, &head, 0, 0, ZAP_POSTED_CONTROL, ZAP_NONE, true)) break;
    flow->takens_count--;
    flow->offers_in--;
    memmove(flow->takens, flow->takens + 1, flow->takens_count * sizeof *flow->takens);
    any = true;
  }
  return any;
}

/*
 * A quarter of the receives is news; fewer are told with the next thing that is sent. But who has none left but those for control would wait for
 * them for ever: a flow may have fewer receives than a quarter, and while nobody takes messages none but those for control. Two of them, or one
 * that is not in place of a credit, so that credits that are told each other come to an end.
 */
static bool send_credit(struct zap_engine *engine, struct zap_flow *flow) {
  uint32_t news = flow->posted - flow->told, left = flow->told - (flow->posted - flow->posted_now);
  bool due = news >= engine->settings.receives / 4 || (left <= ZAP_CONTROL_CREDITS && (news >= 2 || news > flow->mere));
  if (!due || credits_of(flow) == 0 || !zap_outgoing_has_slots(flow, 2)) return false;
  struct zap_head head = {.kind = ZAP_HEAD_CREDIT};
  return send_head(engine, flow, &head, 0, 0, ZAP_POSTED_CONTROL, ZAP_NONE, true);
}

static bool send_finish(struct zap_engine *engine, struct zap_flow *flow) {
  bool due = (flow->closing || flow->finish_heard) && !flow->finish_sent && flow->waiting == 0 && flow->shown_count == 0 &&
             flow->incoming_head == flow->incoming_tail && flow->takens_count == 0;
  if (!due || credits_of(flow) == 0 || !zap_outgoing_has_slots(flow, 2)) return false;
  struct zap_head head = {.kind = ZAP_HEAD_FINISH};
  flow->finish_sent = send_head(engine, flow, &head, 0, 0, ZAP_POSTED_CONTROL, ZAP_NONE, true);
  return flow->finish_sent;
}

/* The far end takes no more: what it has not begun to get comes back at once. */
static void fail_waiting(struct zap_engine *engine, struct zap_flow *flow) {
  for (; flow->waiting > 0; flow->waiting--) {
    uint32_t token = flow->first;
    flow->first = engine->parcels[token].next;
    flow->failed++;
    finish(engine, token, zap_flow_number(flow), false);
  }
}

bool zap_outgoing_turn(struct zap_engine *engine, struct zap_flow *flow) {
  if (flow->finish_heard) fail_waiting(engine, flow);
  bool any = hide_taken(engine, flow);
  if (send_takens(engine, flow)) any = true;
  if (flow->state == ZAP_FLOW_OPEN && send_messages(engine, flow)) any = true;
  if (flow->state == ZAP_FLOW_OPEN && send_credit(engine, flow)) any = true;
  if (flow->state == ZAP_FLOW_OPEN && send_finish(engine, flow)) any = true;
  return any;
}

void zap_outgoing_mark(struct zap_engine *engine, struct zap_flow *flow) {
  if (zap_outgoing_idle(flow) || !zap_outgoing_has_slots(flow, 1)) return;
  struct zap_head *at = head_at(engine, flow, flow->post_tail);
  *at = (struct zap_head){.kind = ZAP_HEAD_CREDIT, .credits = flow->posted};
  struct ibv_sge part = {.addr = (uintptr_t)at, .length = ZAP_HEAD_BYTES, .lkey = engine->settings.host->lkey};
  struct ibv_send_wr request = {.sg_list = &part, .num_sge = 1, .opcode = IBV_WR_SEND};
  flow->unsignalled = SIGNAL_EVERY;
  (void)post(engine, flow, &request, ZAP_POSTED_CONTROL, ZAP_NONE);
}

bool zap_outgoing_idle(const struct zap_flow *flow) { return flow->post_head == flow->post_tail; }

void zap_outgoing_completed(struct zap_engine *engine, struct zap_flow *flow, uint32_t number) {
  if (number - flow->post_head >= flow->post_tail - flow->post_head) return;
  while (flow->post_head != number + 1) {
    struct zap_posted *posted = &flow->posts[flow->post_head++ % ZAP_SEND_SLOTS];
    if (posted->what == ZAP_POSTED_MESSAGE) finish(engine, posted->token, zap_flow_number(flow), true);
    else if (posted->what == ZAP_POSTED_READ) zap_incoming_read(flow, posted->token);
    else if (posted->what == ZAP_POSTED_HIDE) hidden(engine, flow, &flow->shown[posted->token], true);
  }
}

void zap_outgoing_failed(struct zap_engine *engine, struct zap_flow *flow, uint32_t number) {
  if (number - flow->post_head >= flow->post_tail - flow->post_head) return;
  if (number != flow->post_head) zap_outgoing_completed(engine, flow, number - 1);
  struct zap_posted *posted = &flow->posts[flow->post_head++ % ZAP_SEND_SLOTS];
  if (posted->what != ZAP_POSTED_MESSAGE) return;
  flow->failed++;
  finish(engine, posted->token, zap_flow_number(flow), false);
}

void zap_outgoing_end(struct zap_engine *engine, struct zap_flow *flow) {
  for (; flow->post_head != flow->post_tail; flow->post_head++) {
    struct zap_posted *posted = &flow->posts[flow->post_head % ZAP_SEND_SLOTS];
    if (posted->what != ZAP_POSTED_MESSAGE) continue;
    flow->failed++;
    finish(engine, posted->token, zap_flow_number(flow), false);
  }
  for (uint32_t i = 0; i < ZAP_OFFERS; i++) {
    struct zap_shown *shown = &flow->shown[i];
    if (!shown->used) continue;
    if (!shown->taken) flow->failed++;
    hidden(engine, flow, shown, shown->taken);
  }
  fail_waiting(engine, flow);
}
