/*
 * A peer that lies: an honest node by its verbs and rings, on the first device, and on the second one queue pairs that are brought up by
 * the node's own offers and then do what no node does. Each case has a flow of its own, on which the node has something to send, and shows
 * a large message. Behind it: the flow went down once and for the right reason, all that was queued came back once, slabs, memory and
 * flows are what they were, all of the node's region is untouched but for slabs that were posted and memory that it reads into, and a
 * third node that has been connected all the time is served.
 *
 * liar LIBRARY DEVICE_0 DEVICE_1 GID_INDEX FLAGS [SLOW]
 */
#include "liar.h"

#define PROTOCOL ZAP_DOWN_PROTOCOL
#define BROKEN ZAP_DOWN_BROKEN

/* ---- heads ---- */

struct head_lie {
  const char *name;
  struct zap_head head;
  uint32_t total; /* bytes that are sent; 0: a head */
  int32_t credits; /* beside the right ones */
};

#define HEAD(...) ((struct zap_head){__VA_ARGS__})

static const struct head_lie head_lies[] = {
    {"a head of kind 0", {.kind = 0}, 64, 0},
    {"a head of kind 6", {.kind = 6}, 64, 0},
    {"a head of the last kind there can be", {.kind = UINT32_MAX}, 64, 0},
    {"an empty send", {.kind = 0}, UINT32_MAX, 0},
    {"a quarter of a head", {.kind = ZAP_HEAD_CREDIT}, 16, 0},
    {"a head without its last byte", {.kind = ZAP_HEAD_CREDIT}, 63, 0},
    {"a message that is shorter than it says", {.kind = ZAP_HEAD_EAGER, .length = 200}, 64 + 100, 0},
    {"a message that is longer than it says", {.kind = ZAP_HEAD_EAGER, .length = 100}, 64 + 200, 0},
    {"a message of no bytes", {.kind = ZAP_HEAD_EAGER}, 64, 0},
    {"a message that says it is larger than any", {.kind = ZAP_HEAD_EAGER, .length = MESSAGE_BYTES + 1}, 64 + 100, 0},
    {"a message that says it is 4 GiB", {.kind = ZAP_HEAD_EAGER, .length = UINT32_MAX}, 64 + 100, 0},
    {"an offer of no bytes", {.kind = ZAP_HEAD_OFFER}, 64, 0},
    {"an offer of more than a message may have", {.kind = ZAP_HEAD_OFFER, .length = MESSAGE_BYTES + 1}, 64, 0},
    {"an offer of 4 GiB", {.kind = ZAP_HEAD_OFFER, .length = UINT32_MAX}, 64, 0},
    {"an offer with bytes behind it", {.kind = ZAP_HEAD_OFFER, .length = 20000}, 64 + 16, 0},
    {"credits with bytes behind them", {.kind = ZAP_HEAD_CREDIT}, 64 + 1, 0},
    {"an end with bytes behind it", {.kind = ZAP_HEAD_FINISH}, 64 + 1, 0},
    {"what was taken with bytes behind it", {.kind = ZAP_HEAD_TAKEN}, 64 + 1, 0},
    {"taken, and never shown", {.kind = ZAP_HEAD_TAKEN, .id = 1}, 64, 0},
    {"taken, of the first number that is none", {.kind = ZAP_HEAD_TAKEN, .id = ZAP_OFFERS}, 64, 0},
    {"taken, of the last number", {.kind = ZAP_HEAD_TAKEN, .id = UINT32_MAX}, 64, 0},
    {"a credit that is taken back", {.kind = ZAP_HEAD_CREDIT}, 64, -1},
    {"all credits taken back", {.kind = ZAP_HEAD_CREDIT}, 64, -(int32_t)GRANTED},
    {"more credits than a queue has room for", {.kind = ZAP_HEAD_CREDIT}, 64, 65537},
    {"credits half way around", {.kind = ZAP_HEAD_CREDIT}, 64, INT32_MAX},
};

static void lie_in_head(const struct head_lie *lie) {
  struct pair pair;
  begin_case(lie->name, &pair, (struct wish){0});
  struct zap_head head = lie->head;
  head.credits = pair.granted + (uint32_t)lie->credits;
  uint32_t total = lie->total == UINT32_MAX ? 0 : lie->total;
  say(&pair, &head, total);
  end_case(&pair, (struct outcome){.reason = PROTOCOL, .slabs = 1});
}

static void say_head(struct pair *pair, struct zap_head head) {
  head.credits = pair->granted;
  say(pair, &head, 64);
}

static void taken_twice(void) {
  struct pair pair;
  begin_case("taken twice", &pair, (struct wish){0});
  say_head(&pair, HEAD(.kind = ZAP_HEAD_TAKEN, .id = pair.shown.id));
  say_head(&pair, HEAD(.kind = ZAP_HEAD_TAKEN, .id = pair.shown.id));
  end_case(&pair, (struct outcome){.reason = PROTOCOL, .shown_done = true});
  begin_case("taken twice, the second time when it is gone", &pair, (struct wish){0});
  say_head(&pair, HEAD(.kind = ZAP_HEAD_TAKEN, .id = pair.shown.id));
  WAIT_UNTIL((pump(), back[SHOWN_TOKEN] == 1));
  say_head(&pair, HEAD(.kind = ZAP_HEAD_TAKEN, .id = pair.shown.id));
  end_case(&pair, (struct outcome){.reason = PROTOCOL, .shown_done = true});
}

/* What the node still shows keeps it from ending in order. */
static void after_the_end(void) {
  static const struct {
    const char *name;
    struct zap_head head;
    uint32_t total;
  } more[] = {
      {"an end, twice", {.kind = ZAP_HEAD_FINISH}, 64},
      {"a message behind the end", {.kind = ZAP_HEAD_EAGER, .length = 100}, 64 + 100},
      {"an offer behind the end", {.kind = ZAP_HEAD_OFFER, .length = 20000}, 64},
  };
  for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
    struct pair pair;
    begin_case(more[i].name, &pair, (struct wish){0});
    say_head(&pair, HEAD(.kind = ZAP_HEAD_FINISH));
    struct zap_head head = more[i].head;
    head.credits = pair.granted;
    say(&pair, &head, more[i].total);
    end_case(&pair, (struct outcome){.reason = PROTOCOL, .slabs = 1});
  }
}

static void too_large_for_a_slab(void) {
  struct pair pair;
  begin_case("a message larger than a slab", &pair, (struct wish){0});
  struct zap_head head = HEAD(.kind = ZAP_HEAD_EAGER, .length = EAGER_BYTES + 1000, .credits = pair.granted);
  CHECK(say(&pair, &head, 64 + EAGER_BYTES + 1000) != IBV_WC_SUCCESS);
  /* The device of the node refuses it: which of its own completions says so, and how, differs. */
  end_case(&pair, (struct outcome){.reason = PROTOCOL, .or_reason = BROKEN, .or_else = ZAP_DOWN_REFUSED, .slabs = 1});
}

/* ---- offers of large messages ---- */

static struct zap_head offer_of(const struct pair *pair, uint32_t length) {
  struct zap_head head = HEAD(.kind = ZAP_HEAD_OFFER, .length = length, .credits = pair->granted, .address = (uintptr_t)liar.source,
                              .rkey = liar.mr->rkey);
  fill(liar.source, length, 3);
  memcpy(head.header, liar.source, sizeof head.header);
  return head;
}

static void bad_offers(void) {
  struct pair pair;
  begin_case("an offer with a key that does not exist", &pair, (struct wish){0});
  struct zap_head head = offer_of(&pair, 20000);
  head.rkey = 0x7fffff00;
  say(&pair, &head, 64);
  end_case(&pair, (struct outcome){.reason = ZAP_DOWN_REFUSED, .status = IBV_WC_REM_ACCESS_ERR});
  begin_case("an offer of memory that is not the peer's", &pair, (struct wish){0});
  head = offer_of(&pair, 20000);
  head.address = (uintptr_t)honest.base;
  say(&pair, &head, 64);
  end_case(&pair, (struct outcome){.reason = ZAP_DOWN_REFUSED, .status = IBV_WC_REM_ACCESS_ERR});
  begin_case("an offer of memory that ends before the message does", &pair, (struct wish){0});
  head = offer_of(&pair, 20000);
  head.address = (uintptr_t)liar.bytes + LIAR_BYTES - 19999;
  say(&pair, &head, 64);
  end_case(&pair, (struct outcome){.reason = ZAP_DOWN_REFUSED, .status = IBV_WC_REM_ACCESS_ERR, .arena = 20000});
  /* Nobody takes the first, so the others find no memory, and wait. */
  begin_case("more than sixteen offers at once", &pair, (struct wish){0});
  keep_messages = true;
  head = offer_of(&pair, MESSAGE_BYTES);
  for (head.id = 0; head.id < ZAP_OFFERS + 2; head.id++) say_later(&pair, &head, 64);
  (void)settled(&pair);
  keep_messages = false;
  end_case(&pair, (struct outcome){.reason = PROTOCOL, .arena = ARENA_BYTES});
}

/* The number of an offer is its sender's own affair: it gets it back as it was. */
static void strange_ids(void) {
  struct pair pair;
  begin_case("offers with numbers out of range, and one number twice", &pair, (struct wish){0});
  static const uint32_t ids[] = {ZAP_OFFERS, UINT32_MAX, 7, 7};
  for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
    struct zap_head head = offer_of(&pair, 20000);
    head.id = ids[i];
    uint32_t before = pair.takens;
    say(&pair, &head, 64);
    WAIT_UNTIL((pump(), pair.takens == before + 1));
    CHECK_EQUAL(pair.taken_id, ids[i]);
  }
  WAIT_UNTIL((pump(), taken_messages == 4));
  MUST(zap_gpudirect_flow_abort(honest.handle, pair.flow));
  end_case(&pair, (struct outcome){.reason = ZAP_DOWN_ABORTED, .arena = 4 * 20000});
}

/* ---- what the header of a message is, in its head and in itself ---- */

static void two_headers(void) {
  struct pair pair;
  begin_case("a message whose own header is not the one in its head", &pair, (struct wish){0});
  struct zap_head head = HEAD(.kind = ZAP_HEAD_EAGER, .length = 100, .credits = pair.granted);
  uint8_t whole[16];
  fill(whole, 16, 0);
  memcpy(whole + 12, &head.length, 4);
  memcpy(head.header, whole, 16);
  payload_is_no_message = true;
  say(&pair, &head, 64 + 100);
  payload_is_no_message = false;
  /* Of an offer, likewise. */
  struct zap_head large = offer_of(&pair, 20000);
  memset(liar.source, 0xee, 16);
  say(&pair, &large, 64);
  WAIT_UNTIL((pump(), pair.takens == 1 || down_count > 0));
  pause_millis(20);
  pump();
  found("a header that is not its message's reaches the consumer", bad_messages > 0);
  if (down_count == 0) MUST(zap_gpudirect_flow_abort(honest.handle, pair.flow));
  end_case(&pair, (struct outcome){.reason = ZAP_DOWN_ABORTED, .or_reason = PROTOCOL, .slabs = 1, .arena = 20000});
}

/* ---- credits ---- */

/* It sends on, whatever it was granted; nobody takes anything. What is queued must stay within what one peer may fill. */
static void ignores_credits(void) {
  struct pair pair;
  begin_case("more messages than credits", &pair, (struct wish){0});
  keep_messages = true;
  zap_gpudirect_stats stats = {0};
  struct zap_head head = HEAD(.kind = ZAP_HEAD_EAGER, .length = 4096, .credits = pair.granted);
  fill(payload_header, 16, 0);
  memcpy(payload_header + 12, &head.length, 4);
  memcpy(head.header, payload_header, 16);
  uint64_t until = zap_now() + 2000000000ull, most = 0;
  uint32_t sent = 0;
  while (zap_now() < until && pair.last == IBV_WC_SUCCESS && sent < SLABS) {
    if (pair.under_way < 32) {
      say_later(&pair, &head, 64 + 4096);
      sent++;
    }
    pump();
    MUST(zap_gpudirect_stats_read(honest.handle, &stats));
    if (stats.queued_bytes > most) most = stats.queued_bytes;
  }
  printf("  %u sent, %llu bytes queued at most of %u, %u slabs left\n", sent, (unsigned long long)most, RECEIVE_BYTES, stats.free_slabs);
  found("a peer that ignores its credits fills more than its share", most > RECEIVE_BYTES + RECEIVES * EAGER_BYTES);
  keep_messages = false;
  pump();
  if (down_count == 0) MUST(zap_gpudirect_flow_abort(honest.handle, pair.flow));
  end_case(&pair, (struct outcome){.reason = PROTOCOL, .or_reason = ZAP_DOWN_ABORTED, .slabs = SLABS});
}

/* It grants what it has not posted: the node's sends wait in its device, for as long as the flow is there. */
static void grants_what_is_not_there(void) {
  struct pair pair;
  begin_case("credits without receives", &pair, (struct wish){.receives = 1, .granted = 1000});
  pause_millis(200);
  pump();
  CHECK_EQUAL(down_count, 0);
  CHECK_EQUAL(back[SHOWN_TOKEN], 0);
  uint64_t start = zap_now();
  MUST(zap_gpudirect_flow_close(honest.handle, pair.flow));
  WAIT_UNTIL((pump(), down_count == 1));
  CHECK(zap_now() - start < (CLOSE_MS + 3000) * 1000000ull);
  end_case(&pair, (struct outcome){.reason = ZAP_DOWN_CLOSED});
}

/* The same, and then it says that it has what it was shown: that must be out of its reach before the sender may touch it again. */
static void stale_behind_a_stall(void) {
  struct pair pair;
  begin_case("a read of what was taken, while the node's sends wait", &pair, (struct wish){.receives = 1, .granted = 1000});
  say_head(&pair, HEAD(.kind = ZAP_HEAD_TAKEN, .id = pair.shown.id));
  bool told = false;
  for (int i = 0; i < 1000 && !told; i++) {
    pump();
    told = back[SHOWN_TOKEN] == 1;
    pause_millis(1);
  }
  bool read_after = false;
  if (told) read_after = attempt(&pair, IBV_WR_RDMA_READ, pair.shown.address, pair.shown.rkey, 4096) == IBV_WC_SUCCESS;
  found("what was taken can be read when it is its sender's again", read_after);
  if (down_count == 0) MUST(zap_gpudirect_flow_abort(honest.handle, pair.flow));
  end_case(&pair, (struct outcome){.reason = ZAP_DOWN_ABORTED, .or_reason = BROKEN, .shown_done = told, .shown_either = !told});
}

/* ---- RDMA ---- */

struct reach {
  const char *name;
  enum ibv_wr_opcode opcode;
  enum { KEY_SHOWN, KEY_PLUS, KEY_MINUS, KEY_NEXT, KEY_BEFORE, KEY_NONE, KEY_REGION } key;
  enum { AT_SHOWN, AT_REGION, AT_POOL, AT_SLABS, AT_BEFORE, AT_BEHIND, AT_ACROSS } at;
  uint32_t length;
  bool devices; /* holds on a device that checks the bounds of windows: soft-RoCE checks those of the region */
};

static const struct reach reaches[] = {
    {"writes into what is shown", IBV_WR_RDMA_WRITE, KEY_SHOWN, AT_SHOWN, 64, false},
    {"writes with a word into what is shown", IBV_WR_RDMA_WRITE_WITH_IMM, KEY_SHOWN, AT_SHOWN, 64, false},
    {"swaps a word of what is shown", IBV_WR_ATOMIC_CMP_AND_SWP, KEY_SHOWN, AT_SHOWN, 8, false},
    {"adds to a word of what is shown", IBV_WR_ATOMIC_FETCH_AND_ADD, KEY_SHOWN, AT_SHOWN, 8, false},
    {"reads with the next key", IBV_WR_RDMA_READ, KEY_PLUS, AT_SHOWN, 64, false},
    {"reads with the key before", IBV_WR_RDMA_READ, KEY_MINUS, AT_SHOWN, 64, false},
    {"reads with the key of the next window", IBV_WR_RDMA_READ, KEY_NEXT, AT_SHOWN, 64, false},
    {"reads with the key of the window before", IBV_WR_RDMA_READ, KEY_BEFORE, AT_SHOWN, 64, false},
    {"reads with key 0", IBV_WR_RDMA_READ, KEY_NONE, AT_SHOWN, 64, false},
    {"reads what is shown with the region's own key", IBV_WR_RDMA_READ, KEY_REGION, AT_SHOWN, 64, false},
    {"reads the rings with the region's own key", IBV_WR_RDMA_READ, KEY_REGION, AT_REGION, 64, false},
    {"reads the slabs with the region's own key", IBV_WR_RDMA_READ, KEY_REGION, AT_SLABS, 64, false},
    {"reads the pool with the region's own key", IBV_WR_RDMA_READ, KEY_REGION, AT_POOL, 64, false},
    {"writes to the rings with the region's own key", IBV_WR_RDMA_WRITE, KEY_REGION, AT_REGION, 64, false},
    {"reads a byte before what is shown", IBV_WR_RDMA_READ, KEY_SHOWN, AT_BEFORE, 64, true},
    {"reads a byte behind what is shown", IBV_WR_RDMA_READ, KEY_SHOWN, AT_ACROSS, 64, true},
    {"reads behind what is shown", IBV_WR_RDMA_READ, KEY_SHOWN, AT_BEHIND, 64, true},
    {"reads the rings with the key of what is shown", IBV_WR_RDMA_READ, KEY_SHOWN, AT_REGION, 64, true},
    {"writes to the rings with the key of what is shown", IBV_WR_RDMA_WRITE, KEY_SHOWN, AT_REGION, 64, false},
};

static uint32_t key_of(const struct reach *reach, const struct pair *pair) {
  switch (reach->key) {
    case KEY_PLUS: return pair->shown.rkey + 1;
    case KEY_MINUS: return pair->shown.rkey - 1;
    case KEY_NEXT: return pair->shown.rkey + 0x100;
    case KEY_BEFORE: return pair->shown.rkey - 0x100;
    case KEY_NONE: return 0;
    case KEY_REGION: return region_key;
    default: return pair->shown.rkey;
  }
}

static uint64_t place_of(const struct reach *reach, const struct pair *pair) {
  uint64_t end = pair->shown.address + SHOWN_BYTES;
  switch (reach->at) {
    case AT_REGION: return honest.node.address + honest.node.handoff_offset;
    case AT_POOL: return honest.node.address + honest.node.pool_offset;
    case AT_SLABS: return honest.node.address + honest.node.eager_offset;
    case AT_BEFORE: return pair->shown.address - 1;
    case AT_BEHIND: return end;
    case AT_ACROSS: return end - reach->length + 1;
    default: return pair->shown.address;
  }
}

static void reach_out(const struct reach *reach) {
  struct pair pair;
  begin_case(reach->name, &pair, (struct wish){0});
  keep_rings();
  enum ibv_wc_status status = attempt(&pair, reach->opcode, place_of(reach, &pair), key_of(reach, &pair), reach->length);
  bool refused = status != IBV_WC_SUCCESS;
  if (windows && reach->devices && !refused) {
    printf("  soft-RoCE: not refused\n");
    MUST(zap_gpudirect_flow_abort(honest.handle, pair.flow));
    end_case(&pair, (struct outcome){.reason = ZAP_DOWN_ABORTED});
    return;
  }
  CHECK(refused);
  if (!refused) MUST(zap_gpudirect_flow_abort(honest.handle, pair.flow));
  else CHECK(target_is_whole());
  end_case(&pair, (struct outcome){.reason = BROKEN, .rings = true});
}

/* What it may do, so that what it may not do is known to fail for the right reason; and the same again when its time is over. */
static void reads_what_is_shown(void) {
  struct pair pair;
  begin_case("reads what is shown, says so, and reads it again", &pair, (struct wish){0});
  CHECK_EQUAL(attempt(&pair, IBV_WR_RDMA_READ, pair.shown.address, pair.shown.rkey, SHOWN_BYTES), IBV_WC_SUCCESS);
  CHECK(memcmp(liar.target, honest.base + honest.node.pool_offset + SHOWN_AT, SHOWN_BYTES) == 0);
  clear_target();
  say_head(&pair, HEAD(.kind = ZAP_HEAD_TAKEN, .id = pair.shown.id));
  WAIT_UNTIL((pump(), back[SHOWN_TOKEN] == 1));
  CHECK(attempt(&pair, IBV_WR_RDMA_READ, pair.shown.address, pair.shown.rkey, SHOWN_BYTES) != IBV_WC_SUCCESS);
  CHECK(target_is_whole());
  end_case(&pair, (struct outcome){.reason = BROKEN, .shown_done = true});
}

/* A key that another peer was given. Windows are bound to a queue pair; a registration is good for all of its protection domain. */
static void reads_by_another_pair(void) {
  struct pair pair, other;
  begin_case("reads by another queue pair", &pair, (struct wish){0});
  bring_up(&other, (struct wish){0}, 1);
  bool read = attempt(&other, IBV_WR_RDMA_READ, pair.shown.address, pair.shown.rkey, 64) == IBV_WC_SUCCESS;
  CHECK_EQUAL(read, !windows);
  printf("  %s: %s\n", windows ? "memory windows" : "registrations", read ? "read" : "refused");
  if (!read) CHECK(target_is_whole());
  if (read) MUST(zap_gpudirect_flow_abort(honest.handle, other.flow));
  WAIT_UNTIL((pump(), down_count == 1));
  CHECK_EQUAL(downs[0].flow, other.flow);
  CHECK_EQUAL(downs[0].reason, read ? (uint32_t)ZAP_DOWN_ABORTED : (uint32_t)BROKEN);
  take_down(&other);
  down_count = 0;
  /* The peer that it was shown to can still have it. */
  CHECK_EQUAL(attempt(&pair, IBV_WR_RDMA_READ, pair.shown.address, pair.shown.rkey, SHOWN_BYTES), IBV_WC_SUCCESS);
  say_head(&pair, HEAD(.kind = ZAP_HEAD_TAKEN, .id = pair.shown.id));
  WAIT_UNTIL((pump(), back[SHOWN_TOKEN] == 1));
  bring_up(&other, (struct wish){0}, 1);
  CHECK(attempt(&other, IBV_WR_RDMA_READ, pair.shown.address, pair.shown.rkey, 64) != IBV_WC_SUCCESS);
  WAIT_UNTIL((pump(), down_count == 1));
  take_down(&other);
  down_count = 0;
  MUST(zap_gpudirect_flow_abort(honest.handle, pair.flow));
  end_case(&pair, (struct outcome){.reason = ZAP_DOWN_ABORTED, .shown_done = true});
}

/*
 * Ends a key with a send. A registration cannot be ended by a peer. A memory window can, by the one that it is bound to; Linux 6.1 panics
 * where soft-RoCE is asked to (in __rxe_put), so with windows it is not tried.
 */
static void invalidates(void) {
  struct pair pair;
  begin_case("ends the region's own key", &pair, (struct wish){0});
  /* Whether the sender learns of it differs; the receiver's queue pair ends, and the key is as good as before: others are served. */
  (void)invalidate(&pair, region_key);
  end_case(&pair, (struct outcome){.reason = BROKEN, .or_reason = PROTOCOL, .or_else = ZAP_DOWN_REFUSED});
  if (windows) return;
  begin_case("ends the key of what it is shown", &pair, (struct wish){0});
  (void)invalidate(&pair, pair.shown.rkey);
  end_case(&pair, (struct outcome){.reason = BROKEN, .or_reason = PROTOCOL, .or_else = ZAP_DOWN_REFUSED});
}

/* ---- offers of queue pairs ---- */

static void bad_queue_pairs(void) {
  static const struct {
    const char *name;
    size_t at;
    uint32_t value;
  } wrong[] = {
      {"magic", offsetof(zap_gpudirect_offer, magic), 0x3244475a},
      {"no magic", offsetof(zap_gpudirect_offer, magic), 0},
      {"no reads", offsetof(zap_gpudirect_offer, reads), 0},
      {"no receives", offsetof(zap_gpudirect_offer, receives), 0},
      {"receives that only do for control", offsetof(zap_gpudirect_offer, receives), 15},
      {"receives without end", offsetof(zap_gpudirect_offer, receives), UINT32_MAX},
      {"slabs of nothing", offsetof(zap_gpudirect_offer, eager_bytes), 0},
      {"slabs of 15 bytes", offsetof(zap_gpudirect_offer, eager_bytes), 15},
      {"InfiniBand", offsetof(zap_gpudirect_offer, ethernet), 0},
  };
  down_count = 0;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    printf("case an offer with: %s\n", wrong[i].name);
    zap_gpudirect_offer ours, theirs = offer_of_nobody();
    memcpy((uint8_t *)&theirs + wrong[i].at, &wrong[i].value, 4);
    int32_t flow = zap_gpudirect_flow_begin(honest.handle, &ours);
    MUST(flow);
    CHECK_EQUAL(zap_gpudirect_flow_accept(honest.handle, (uint32_t)flow, &theirs), ZAP_E_INVALID);
    CHECK_CONTAINS(zap_failure(), "the peer's");
    CHECK_EQUAL(zap_gpudirect_flow_accept(honest.handle, (uint32_t)flow, &theirs), ZAP_E_HANDLE);
    WAIT_UNTIL((pump(), is_quiet()));
  }
  pump();
  /* Nobody was told of them: there never was a connection. */
  CHECK_EQUAL(down_count, 0);
  chat();
}

/* A slab of theirs that is larger than any message, and messages that may have no bytes. */
static void absurd_sizes(void) {
  struct pair pair;
  begin_case("slabs of 4 GiB", &pair, (struct wish){.eager_bytes = UINT32_MAX, .receives = 64});
  /* What is shown to others is sent: into a receive that is too small for it. */
  end_case(&pair, (struct outcome){.reason = ZAP_DOWN_REFUSED});
  begin_case("no message is small enough", &pair, (struct wish){.message_bytes = 15});
  WAIT_UNTIL((pump(), back[SHOWN_TOKEN] != 0));
  MUST(zap_gpudirect_flow_abort(honest.handle, pair.flow));
  end_case(&pair, (struct outcome){.reason = ZAP_DOWN_ABORTED});
}

static void closed_while_brought_up(bool at_once) {
  printf("case closed while it is brought up: %s\n", at_once ? "abort" : "close");
  down_count = 0;
  zap_gpudirect_offer ours, theirs = offer_of_nobody();
  int32_t flow = zap_gpudirect_flow_begin(honest.handle, &ours);
  MUST(flow);
  MUST(at_once ? zap_gpudirect_flow_abort(honest.handle, (uint32_t)flow) : zap_gpudirect_flow_close(honest.handle, (uint32_t)flow));
  CHECK_EQUAL(zap_gpudirect_flow_accept(honest.handle, (uint32_t)flow, &theirs), ZAP_E_HANDLE);
  WAIT_UNTIL((pump(), down_count == 1));
  CHECK_EQUAL(downs[0].flow, flow);
  CHECK_EQUAL(downs[0].reason, ZAP_DOWN_ABORTED);
  WAIT_UNTIL((pump(), is_quiet()));
  down_count = 0;
  chat();
}

/* Its own offer, given back to it: then it talks to itself, and no further. */
static void its_own_offer(void) {
  printf("case its own offer\n");
  down_count = 0;
  zap_gpudirect_offer ours;
  int32_t flow = zap_gpudirect_flow_begin(honest.handle, &ours);
  MUST(flow);
  int32_t status = zap_gpudirect_flow_accept(honest.handle, (uint32_t)flow, &ours);
  printf("  accept: %d\n", (int)status);
  if (status == ZAP_OK) {
    back[SHOWN_TOKEN] = back[SMALL_TOKEN] = 0;
    send_on((uint32_t)flow, SMALL_AT, SMALL_BYTES, SMALL_TOKEN);
    WAIT_UNTIL((pump(), back[SMALL_TOKEN] != 0 || down_count > 0));
    MUST(zap_gpudirect_flow_close(honest.handle, (uint32_t)flow));
    WAIT_UNTIL((pump(), down_count == 1));
    printf("  sent: %s; down: %s\n", back[SMALL_TOKEN] == 1 ? "it got it itself" : "not delivered", reason_text(downs[0].reason));
    CHECK(downs[0].reason == ZAP_DOWN_FINISHED || downs[0].reason == ZAP_DOWN_CLOSED || downs[0].reason == ZAP_DOWN_BROKEN);
  }
  WAIT_UNTIL((pump(), is_quiet()));
  taken_messages = down_count = 0;
  repair();
  chat();
}

/* An address that nobody has: the kernel looks for it for a second or more, and nobody else waits for that. */
static void nobodys_address(void) {
  printf("case an address that nobody has\n");
  zap_gpudirect_offer ours, theirs = offer_of_nobody();
  theirs.gid[14] = 0xde;
  int32_t flow = zap_gpudirect_flow_begin(honest.handle, &ours);
  MUST(flow);
  down_count = 0;
  uint64_t start = zap_now();
  MUST(zap_gpudirect_flow_accept(honest.handle, (uint32_t)flow, &theirs));
  CHECK(zap_now() - start < UINT64_C(500000000));
  /* What is sent before it is up comes back with it. */
  back[SMALL_TOKEN] = 0;
  send_on((uint32_t)flow, SMALL_AT, SMALL_BYTES, SMALL_TOKEN);
  WAIT_UNTIL((pump(), down_count == 1));
  printf("  down after %llu ms: %s\n", (unsigned long long)((zap_now() - start) / 1000000), reason_text(downs[0].reason));
  CHECK_EQUAL(downs[0].reason, ZAP_DOWN_UNREACHABLE);
  CHECK_EQUAL(back[SMALL_TOKEN], 1);
  CHECK(!delivered[SMALL_TOKEN]);
  down_count = 0;
  chat();
  /* And the same while others talk. */
  flow = zap_gpudirect_flow_begin(honest.handle, &ours);
  MUST(flow);
  MUST(zap_gpudirect_flow_accept(honest.handle, (uint32_t)flow, &theirs));
  chat();
  MUST(zap_gpudirect_flow_abort(honest.handle, (uint32_t)flow));
  WAIT_UNTIL((pump(), down_count == 1));
  down_count = 0;
}

/* A queue pair that is not there: what is sent is sent again six times. */
static void nobodys_queue_pair(void) {
  struct pair pair;
  begin_case("a queue pair of nobody's", &pair, (struct wish){.nobody = true});
  uint64_t start = zap_now();
  bool down = await_down(20000);
  uint64_t took = (zap_now() - start) / 1000000;
  CHECK(down && took > 1000 && took < 15000);
  printf("  down after %llu ms\n", (unsigned long long)took);
  end_case(&pair, (struct outcome){.reason = ZAP_DOWN_DEAD, .status = IBV_WC_RETRY_EXC_ERR});
}

int main(int count, char **words) {
  if (count < 6) return 2;
  (void)setvbuf(stdout, NULL, _IOLBF, 0);
  set_up(words[1], words[2], words[3], atoi(words[4]), (uint32_t)atoi(words[5]));
  for (size_t i = 0; i < sizeof head_lies / sizeof *head_lies; i++) lie_in_head(&head_lies[i]);
  taken_twice();
  after_the_end();
  too_large_for_a_slab();
  bad_offers();
  strange_ids();
  two_headers();
  ignores_credits();
  grants_what_is_not_there();
  stale_behind_a_stall();
  reads_what_is_shown();
  for (size_t i = 0; i < sizeof reaches / sizeof *reaches; i++) reach_out(&reaches[i]);
  reads_by_another_pair();
  invalidates();
  bad_queue_pairs();
  absurd_sizes();
  closed_while_brought_up(false);
  closed_while_brought_up(true);
  its_own_offer();
  nobodys_address();
  if (count > 6) nobodys_queue_pair();
  tear_down();
  return checks_done("liar");
}
