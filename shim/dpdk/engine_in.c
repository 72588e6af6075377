/* Received messages: where they lie, how much of them there may be, and the hand-off ring. Everything here has the engine's lock. */
#include "engine.h"

#include <rte_config.h>
#include <rte_mbuf.h>

#include "../common/verdicts.h"
#include "../kernels/check_headers.h"

#define NONE UINT32_MAX
/* The least that a message counts for: what keeping track of it costs, and so that one peer's small messages do not fill the ring. */
#define CHARGE_MIN 256u
/* When a message has waited so long for room in the arena, nobody else gets any until it has its own. */
#define HUNGER_NS UINT64_C(10000000)

static struct zap_block *take_block(struct zap_engine *engine) {
  if (engine->free_block == NONE) return NULL;
  struct zap_block *block = &engine->blocks[engine->free_block];
  engine->free_block = block->next;
  return block;
}

static void uncharge(struct zap_engine *engine, struct zap_block *block) {
  struct zap_account *account = &engine->accounts[block->flow & 0xffff];
  if (account->flow == block->flow) account->charged -= block->charge;
  engine->charged -= block->charge;
  block->charge = 0;
}

static void free_block(struct zap_engine *engine, struct zap_block *block) {
  if (block->charge > 0) uncharge(engine, block);
  if (block->packet != NULL) {
    rte_pktmbuf_free(block->packet);
    engine->adopted--;
  } else {
    zap_arena_give(engine->arena, block->offset, block->length);
  }
  block->packet = NULL;
  block->out = false;
  block->next = engine->free_block;
  engine->free_block = (uint32_t)(block - engine->blocks);
}

/* What is charged for messages that are not complete is given up when the next one is refused: so the next always gets through. */
static bool within_limits(const struct zap_engine *engine, const struct zap_account *account, uint32_t charge) {
  if (account->charged > 0 && account->charged + charge > engine->settings.receive_bytes) return false;
  return engine->charged == 0 || engine->charged + charge <= engine->settings.total_bytes;
}

static bool place(struct zap_engine *engine, struct zap_block *block, uint32_t flow, bool next, const uint8_t *whole) {
  if (whole != NULL && engine->packet != NULL && engine->adopted < engine->settings.adoptable) {
    block->packet = engine->packet;
    engine->adopt = true;
    engine->adopted++;
    return true;
  }
  bool starving = engine->hungry != 0 && engine->now - engine->hungry_since >= HUNGER_NS;
  if (starving && engine->hungry != flow) return false;
  if (zap_arena_take(engine->arena, block->length, &block->offset)) {
    if (engine->hungry == flow && next) engine->hungry = 0;
    return true;
  }
  if (next && engine->hungry == 0) {
    engine->hungry = flow;
    engine->hungry_since = engine->now;
  }
  return false;
}

bool zap_engine_need(void *context, uint32_t flow, uint32_t length, bool next, const uint8_t *whole, struct zap_flow_buffer *buffer) {
  struct zap_engine *engine = context;
  struct zap_account *account = &engine->accounts[flow & 0xffff];
  uint32_t charge = length < CHARGE_MIN ? CHARGE_MIN : length;
  struct zap_block *block = NULL;
  if (within_limits(engine, account, charge)) block = take_block(engine);
  else if (engine->hungry == flow) engine->hungry = 0;
  if (block != NULL) {
    block->length = length;
    block->flow = flow;
    if (place(engine, block, flow, next, whole)) {
      block->charge = charge;
      account->charged += charge;
      engine->charged += charge;
      buffer->bytes = block->packet != NULL ? (uint8_t *)(uintptr_t)whole : engine->settings.arena + block->offset;
      buffer->cookie = block;
      return true;
    }
    block->next = engine->free_block;
    engine->free_block = (uint32_t)(block - engine->blocks);
  }
  engine->refused = true;
  return false;
}

void zap_engine_unused(void *context, uint32_t flow, const struct zap_flow_buffer *buffer) {
  (void)flow;
  free_block(context, buffer->cookie);
}

void zap_engine_delivered(void *context, uint32_t flow, const struct zap_flow_buffer *buffer, uint32_t length) {
  struct zap_engine *engine = context;
  struct zap_block *block = buffer->cookie;
  uint8_t verdict = zap_check_header(buffer->bytes, length, engine->settings.versions);
  /* Where its root lies is for whoever reads it to see, as on every wire. */
  if (verdict != ZAP_VERDICT_OK && verdict != ZAP_VERDICT_ROOT) {
    engine->message_drops[verdict]++;
    free_block(engine, block);
    return;
  }
  /* There are no more blocks than slots, so only a consumer that lies about its head can make this fail. */
  if (zap_ring_free(&engine->handoff, 1) == 0) {
    engine->unusable++;
    free_block(engine, block);
    return;
  }
  block->out = true;
  engine->messages_in++;
  engine->bytes_in += length;
  engine->queued_bytes += length;
  if (block->packet != NULL) engine->in_place++;
  else engine->bytes_copied += length;
  uint32_t token = (uint32_t)(block - engine->blocks);
  engine->handed_block[engine->handoff.mine & (engine->handoff.slots - 1)] = token;
  zap_ring_entry *entry = zap_ring_write(&engine->handoff);
  entry->address = (uint64_t)(uintptr_t)buffer->bytes;
  entry->length = length;
  entry->peer = flow;
  entry->stamp = engine->now;
  entry->token = token;
  entry->reserved = 0;
  engine->handed = true;
}

bool zap_engine_has_returns(const struct zap_engine *engine) {
  return __atomic_load_n(&engine->returns.ring->tail, __ATOMIC_RELAXED) != engine->returns.mine ||
         __atomic_load_n(&engine->handoff.ring->head, __ATOMIC_RELAXED) != engine->taken;
}

/* What the consumer has taken counts against the limits no more, whether or not it still holds it. */
static bool account_for_taken(struct zap_engine *engine) {
  uint64_t head = __atomic_load_n(&engine->handoff.ring->head, __ATOMIC_ACQUIRE);
  uint64_t count = head - engine->taken;
  if (count == 0 || count > engine->handoff.mine - engine->taken) return false;
  while (engine->taken != head) {
    uint32_t token = engine->handed_block[engine->taken++ & (engine->handoff.slots - 1)];
    struct zap_block *block = &engine->blocks[token];
    engine->queued_bytes -= block->length;
    uncharge(engine, block);
  }
  return true;
}

bool zap_engine_take_back(struct zap_engine *engine) {
  /* In this order: whoever gives a message back has taken it before. */
  uint32_t ready = zap_ring_ready(&engine->returns);
  bool busy = account_for_taken(engine);
  for (uint32_t i = 0; i < ready; i++) {
    uint32_t token = __atomic_load_n(&zap_ring_read(&engine->returns)->token, __ATOMIC_RELAXED);
    struct zap_block *block = token < ZAP_DPDK_MESSAGES ? &engine->blocks[token] : NULL;
    if (block == NULL || !block->out || block->charge > 0) engine->unusable++;
    else free_block(engine, block);
  }
  if (ready > 0) zap_ring_consumed(&engine->returns);
  return busy || ready > 0;
}

const char *zap_engine_message_drop_name(uint32_t index) { return zap_verdict_name(index); }
