/* What is received: slabs that are posted, messages that wait for their turn, memory and limits, the hand-off ring. */
#include "engine.h"

#include <string.h>

#include "../common/verdicts.h"
#include "../kernels/check_headers.h"

/* The least that a message counts for: what keeping track of it costs, and so that one peer's small messages do not fill the ring. */
#define CHARGE_MIN 256u
/* Of one read. A packet that is lost has all behind it sent again, and a message in one piece would keep smaller ones waiting. */
#define READ_BYTES (256u << 10)

void zap_incoming_flushed(struct zap_engine *engine, struct zap_flow *flow, uint32_t slab) {
  flow->posted_now--;
  engine->slab_flow[slab] = 0;
  zap_incoming_free_slab(engine, slab);
}

static struct zap_head *head_of(const struct zap_engine *engine, uint32_t slab) {
  return (struct zap_head *)(void *)(engine->settings.heads + (size_t)slab * ZAP_HEAD_BYTES);
}

static uint8_t *slab_at(const struct zap_engine *engine, uint32_t slab) {
  return engine->settings.slabs + (size_t)slab * engine->settings.eager_bytes;
}

static uint64_t work_id(const struct zap_flow *flow, uint32_t slab) {
  return UINT64_C(1) << 63 | (uint64_t)(flow->generation & 0x7fffu) << 48 | (uint64_t)flow->index << 32 | slab;
}

void zap_incoming_free_slab(struct zap_engine *engine, uint32_t slab) {
  engine->free_slabs[engine->free_slab_count++] = slab;
}

/* Posts one more receive, where there is a slab. */
static bool post(struct zap_engine *engine, struct zap_flow *flow) {
  if (engine->free_slab_count == 0) return false;
  uint32_t slab = engine->free_slabs[--engine->free_slab_count], lkey = engine->settings.host->lkey;
  uint32_t slab_lkey = engine->settings.messages->lkey;
  struct ibv_sge parts[2] = {
      {.addr = (uintptr_t)head_of(engine, slab), .length = ZAP_HEAD_BYTES, .lkey = lkey},
      {.addr = (uintptr_t)slab_at(engine, slab), .length = engine->settings.eager_bytes, .lkey = slab_lkey},
  };
  struct ibv_recv_wr request = {.wr_id = work_id(flow, slab), .sg_list = parts, .num_sge = 2}, *bad;
  if (ibv_post_recv(flow->qp, &request, &bad) != 0) {
    zap_incoming_free_slab(engine, slab);
    return false;
  }
  engine->slab_flow[slab] = flow->index + 1;
  engine->counts.receives++;
  flow->posted++;
  flow->posted_now++;
  return true;
}

/* Slabs that other flows lack of those that are for control: nobody else gets them, or what frees memory would not get through. */
static uint32_t owed(const struct zap_engine *engine, const struct zap_flow *flow) {
  if (engine->free_slab_count >= engine->flow_count * ZAP_CONTROL_CREDITS) return 0;
  uint32_t slabs = 0;
  for (uint32_t i = 0; i < engine->flow_count; i++) {
    const struct zap_flow *other = &engine->flows[engine->there[i]];
    bool lives = other->state == ZAP_FLOW_BEGUN || other->state == ZAP_FLOW_RISING || other->state == ZAP_FLOW_OPEN;
    if (other != flow && lives && other->posted_now < ZAP_CONTROL_CREDITS) slabs += ZAP_CONTROL_CREDITS - other->posted_now;
  }
  return slabs;
}

/*
 * As many as there should be. Who has its fill of what nobody takes gets no more than what control needs: the peer keeps that many
 * credits back, so no message comes.
 */
bool zap_incoming_post(struct zap_engine *engine, struct zap_flow *flow) {
  uint32_t in_hand = flow->incoming_tail - flow->incoming_head;
  bool full = in_hand + engine->settings.receives + ZAP_OFFERS > flow->incoming_mask || flow->charged >= engine->settings.receive_bytes || (engine->charged >= engine->settings.total_bytes && flow->charged > 0);
  uint32_t wanted = full ? ZAP_CONTROL_CREDITS : engine->settings.receives;
  if (flow->posted_now >= wanted || engine->free_slab_count == 0) return false;
  uint32_t others = owed(engine, flow);
  bool posted = false;
  while (flow->posted_now < wanted && (flow->posted_now < ZAP_CONTROL_CREDITS || engine->free_slab_count > others) && post(engine, flow))
    posted = true;
  return posted;
}

/* ---- blocks ---- */

static void uncharge(struct zap_engine *engine, struct zap_block *block) {
  struct zap_flow *flow = zap_flow_find(engine, block->flow);
  if (flow != NULL) flow->charged -= block->charge;
  engine->charged -= block->charge;
  block->charge = 0;
}

static void free_block(struct zap_engine *engine, struct zap_block *block) {
  if (block->charge > 0) uncharge(engine, block);
  if (block->slab != ZAP_NONE) {
    zap_incoming_free_slab(engine, block->slab);
    engine->slab_blocks--;
  } else {
    zap_arena_give(engine->arena, block->offset, block->length);
  }
  engine->free_blocks++;
  block->out = false;
  block->next = engine->free_block;
  engine->free_block = (uint32_t)(block - engine->blocks);
}

static struct zap_block *new_block(struct zap_engine *engine, struct zap_flow *flow, uint32_t slab, uint32_t length) {
  /* Every slab may come to need one at any time. */
  if (slab == ZAP_NONE && engine->free_blocks <= engine->settings.slab_count - engine->slab_blocks) return NULL;
  if (engine->free_block == ZAP_NONE) return NULL;
  engine->free_blocks--;
  if (slab != ZAP_NONE) engine->slab_blocks++;
  struct zap_block *block = &engine->blocks[engine->free_block];
  engine->free_block = block->next;
  block->slab = slab;
  block->length = length;
  block->flow = zap_flow_number(flow);
  block->charge = length < CHARGE_MIN ? CHARGE_MIN : length;
  flow->charged += block->charge;
  engine->charged += block->charge;
  return block;
}

/* ---- in order ---- */

static struct zap_incoming *in_line(struct zap_flow *flow, uint32_t number) { return &flow->incoming[number & flow->incoming_mask]; }

static uint8_t *bytes_of(const struct zap_engine *engine, const struct zap_block *block) {
  return block->slab != ZAP_NONE ? slab_at(engine, block->slab) : engine->settings.arena + block->offset;
}

static uint8_t judge(const struct zap_engine *engine, const uint8_t *header, uint32_t length) {
  if (length < ZAP_HEADER_BYTES) return ZAP_VERDICT_SHORT;
  uint8_t verdict = zap_check_header(header, length, engine->settings.versions);
  /* Where its root lies is for whoever reads it to see, as on every wire. */
  return verdict == ZAP_VERDICT_ROOT ? ZAP_VERDICT_OK : verdict;
}

static void hand_over(struct zap_engine *engine, struct zap_incoming *message) {
  struct zap_block *block = message->block;
  /* The head has only what the peer says of it. Where the CPU can look, it does; where it cannot, whoever can has to. */
  bool reached = engine->settings.messages == engine->settings.host;
  if (reached && message->verdict == ZAP_VERDICT_OK) message->verdict = judge(engine, bytes_of(engine, block), block->length);
  if (message->verdict != ZAP_VERDICT_OK) {
    engine->counts.message_drops[message->verdict]++;
    free_block(engine, block);
    return;
  }
  /* There are no more blocks than slots, so only a consumer that lies about its head can make this fail. */
  if (zap_ring_free(&engine->handoff, 1) == 0) {
    engine->counts.unusable++;
    free_block(engine, block);
    return;
  }
  block->out = true;
  engine->counts.messages_in++;
  engine->counts.bytes_in += block->length;
  engine->queued_bytes += block->length;
  uint32_t token = (uint32_t)(block - engine->blocks);
  engine->handed_block[engine->handoff.mine & (engine->handoff.slots - 1)] = token;
  *zap_ring_write(&engine->handoff) = (zap_ring_entry){
      .address = (uintptr_t)bytes_of(engine, block), .length = block->length, .peer = block->flow, .stamp = engine->now, .token = token};
  engine->handed = true;
}

/* Hands over what is ready at the front of the line. */
static bool deliver(struct zap_engine *engine, struct zap_flow *flow) {
  bool any = false;
  while (flow->incoming_head != flow->incoming_tail) {
    struct zap_incoming *first = in_line(flow, flow->incoming_head);
    if (first->state != ZAP_IN_READY) break;
    flow->incoming_head++;
    hand_over(engine, first);
    any = true;
  }
  return any;
}

static struct zap_incoming *append(struct zap_flow *flow) {
  if (flow->incoming_tail - flow->incoming_head > flow->incoming_mask) return NULL;
  struct zap_incoming *message = in_line(flow, flow->incoming_tail++);
  *message = (struct zap_incoming){.block = NULL};
  return message;
}

static bool eager(struct zap_engine *engine, struct zap_flow *flow, uint32_t slab, const struct zap_head *head) {
  struct zap_block *block = new_block(engine, flow, slab, head->length);
  if (block == NULL) return false;
  struct zap_incoming *message = append(flow);
  if (message == NULL) {
    /* Its slab is the caller's. */
    uncharge(engine, block);
    block->next = engine->free_block;
    engine->free_block = (uint32_t)(block - engine->blocks);
    engine->free_blocks++;
    engine->slab_blocks--;
    return false;
  }
  message->block = block;
  message->state = ZAP_IN_READY;
  message->verdict = judge(engine, head->header, head->length);
  return true;
}

static bool offered(struct zap_engine *engine, struct zap_flow *flow, const struct zap_head *head) {
  if (head->length > engine->settings.message_bytes || flow->offers_in == ZAP_OFFERS) return false;
  struct zap_incoming *message = append(flow);
  if (message == NULL) return false;
  flow->offers_in++;
  message->address = head->address;
  message->rkey = head->rkey;
  message->id = head->id;
  message->length = head->length;
  message->verdict = judge(engine, head->header, head->length);
  message->state = ZAP_IN_WANTED;
  return true;
}

/* True where the slab is somebody's now. False with *fault where the peer does what no peer of ours does. */
static bool understand(struct zap_engine *engine, struct zap_flow *flow, uint32_t slab, uint32_t bytes, bool *fault) {
  const struct zap_head *head = head_of(engine, slab);
  *fault = true;
  if (bytes < ZAP_HEAD_BYTES) return false;
  /* Credits never go back, and never beyond what a queue has room for. */
  uint32_t more = head->credits - flow->granted;
  if (more > 65536) return false;
  flow->granted = head->credits;
  /* It may know of no more receives than we have told it, and leaves the last few to what is no message. */
  uint32_t had = flow->told - (flow->posted - flow->posted_now - 1);
  bool message = head->kind == ZAP_HEAD_EAGER || head->kind == ZAP_HEAD_OFFER;
  if (had == 0 || had > 65536 || (message && had <= ZAP_CONTROL_CREDITS)) return false;
  uint32_t behind = bytes - ZAP_HEAD_BYTES;
  bool taken = false;
  switch (head->kind) {
    case ZAP_HEAD_EAGER:
      *fault = behind != head->length || head->length == 0 || flow->finish_heard;
      taken = !*fault && eager(engine, flow, slab, head);
      if (!*fault && !taken) *fault = true;
      return taken;
    case ZAP_HEAD_OFFER: *fault = behind != 0 || head->length == 0 || flow->finish_heard || !offered(engine, flow, head); return false;
    case ZAP_HEAD_TAKEN: *fault = behind != 0 || !zap_outgoing_taken(flow, head->id); return false;
    case ZAP_HEAD_CREDIT:
      *fault = behind != 0;
      flow->mere++;
      return false;
    case ZAP_HEAD_FINISH:
      *fault = behind != 0 || flow->finish_heard;
      flow->finish_heard = true;
      return false;
    default: return false;
  }
}

void zap_incoming_received(struct zap_engine *engine, struct zap_flow *flow, uint32_t slab, uint32_t bytes) {
  flow->posted_now--;
  engine->slab_flow[slab] = 0;
  bool fault;
  bool taken = understand(engine, flow, slab, bytes, &fault);
  if (!taken) zap_incoming_free_slab(engine, slab);
  if (fault) zap_flow_fail(engine, flow, ZAP_DOWN_PROTOCOL, 0);
}

/* ---- large messages ---- */

/* What nobody will be given need not be read. */
static bool refuse(struct zap_engine *engine, struct zap_flow *flow, struct zap_incoming *message) {
  if (message->verdict == ZAP_VERDICT_OK) return false;
  engine->counts.message_drops[message->verdict]++;
  flow->takens[flow->takens_count++] = message->id;
  return true;
}

static bool find_memory(struct zap_engine *engine, struct zap_flow *flow, struct zap_incoming *message, bool first) {
  uint64_t charge = message->length < CHARGE_MIN ? CHARGE_MIN : message->length;
  bool within = flow->charged + charge <= engine->settings.receive_bytes && engine->charged + charge <= engine->settings.total_bytes;
  /* A single larger one passes alone: when nothing else of this peer is queued. */
  if (!within && !(first && flow->charged == 0)) return false;
  uint64_t offset;
  if (!zap_arena_take(engine->arena, message->length, &offset)) return false;
  message->block = new_block(engine, flow, ZAP_NONE, message->length);
  if (message->block == NULL) {
    zap_arena_give(engine->arena, offset, message->length);
    return false;
  }
  message->block->offset = offset;
  return true;
}

static uint32_t chunk_of(const struct zap_incoming *message, uint32_t from) {
  uint32_t left = message->length - from;
  return left < READ_BYTES ? left : READ_BYTES;
}

/* Asks for as much of it as may be asked for. True where all of it is. */
static bool ask(struct zap_engine *engine, struct zap_flow *flow, uint32_t number, bool *any) {
  struct zap_incoming *message = in_line(flow, number);
  uint64_t to = (uintptr_t)bytes_of(engine, message->block);
  while (message->asked < message->length) {
    uint32_t from = message->asked, bytes = chunk_of(message, from);
    if (flow->reading >= flow->reads_most || !zap_outgoing_has_slots(flow, 1)) return false;
    if (!zap_outgoing_read(engine, flow, number, to + from, message->address + from, message->rkey, bytes)) return false;
    message->state = ZAP_IN_READING;
    message->asked += bytes;
    flow->reading++;
    *any = true;
  }
  return true;
}

static bool begin_reads(struct zap_engine *engine, struct zap_flow *flow) {
  bool any = false;
  for (uint32_t number = flow->incoming_head; number != flow->incoming_tail && flow->reading < flow->reads_most; number++) {
    struct zap_incoming *message = in_line(flow, number);
    if (message->state == ZAP_IN_READY) continue;
    bool first = number == flow->incoming_head;
    if (first && flow->takens_count < ZAP_OFFERS && refuse(engine, flow, message)) {
      flow->incoming_head++;
      any = true;
      continue;
    }
    if (message->verdict != ZAP_VERDICT_OK) break;
    /* In order: who is behind one that finds no memory must not take it away. */
    if (message->block == NULL && !find_memory(engine, flow, message, first)) break;
    if (!ask(engine, flow, number, &any)) break;
  }
  return any;
}

void zap_incoming_read(struct zap_flow *flow, uint32_t place) {
  struct zap_incoming *message = in_line(flow, place);
  flow->reading--;
  /* They come in the order in which they were asked for. */
  message->had += chunk_of(message, message->had);
  if (message->had < message->length) return;
  message->state = ZAP_IN_READY;
  flow->takens[flow->takens_count++] = message->id;
}

bool zap_incoming_turn(struct zap_engine *engine, struct zap_flow *flow) {
  bool any = begin_reads(engine, flow);
  if (deliver(engine, flow)) any = true;
  if (zap_incoming_post(engine, flow)) any = true;
  return any;
}

void zap_incoming_end(struct zap_engine *engine, struct zap_flow *flow) {
  for (uint32_t slab = 0; slab < engine->settings.slab_count && flow->posted_now > 0; slab++)
    if (engine->slab_flow[slab] == flow->index + 1) zap_incoming_flushed(engine, flow, slab);
  /* What came whole is the consumer's, also behind one that did not: its sender has been told that it was delivered, and of the other that it was not. */
  for (; flow->incoming_head != flow->incoming_tail; flow->incoming_head++) {
    struct zap_incoming *message = in_line(flow, flow->incoming_head);
    if (message->state == ZAP_IN_READY) hand_over(engine, message);
    else if (message->block != NULL) free_block(engine, message->block);
  }
}

/* ---- back from the consumer ---- */

static bool account_for_taken(struct zap_engine *engine) {
  uint64_t head = __atomic_load_n(&engine->handoff.ring->head, __ATOMIC_ACQUIRE);
  uint64_t count = head - engine->taken;
  if (count == 0 || count > engine->handoff.mine - engine->taken) return false;
  while (engine->taken != head) {
    struct zap_block *block = &engine->blocks[engine->handed_block[engine->taken++ & (engine->handoff.slots - 1)]];
    engine->queued_bytes -= block->length;
    uncharge(engine, block);
  }
  return true;
}

bool zap_incoming_take_back(struct zap_engine *engine) {
  /* In this order: whoever gives a message back has taken it before. */
  uint32_t ready = zap_ring_ready(&engine->returns);
  bool busy = account_for_taken(engine);
  for (uint32_t i = 0; i < ready; i++) {
    uint32_t token = __atomic_load_n(&zap_ring_read(&engine->returns)->token, __ATOMIC_RELAXED);
    struct zap_block *block = token < ZAP_GPUDIRECT_MESSAGES ? &engine->blocks[token] : NULL;
    if (block == NULL || !block->out || block->charge > 0) engine->counts.unusable++;
    else free_block(engine, block);
  }
  if (ready > 0) zap_ring_consumed(&engine->returns);
  return busy || ready > 0;
}

const char *zap_message_drop_name(uint32_t index) { return zap_verdict_name(index); }
