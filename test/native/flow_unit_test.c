/* The parts of shim/dpdk/flow one by one, and the handshake by hand. */
#include <stdlib.h>

#include "../../shim/dpdk/flow/bytes.h"
#include "../../shim/dpdk/flow/crc32c.h"
#include "../../shim/dpdk/flow/siphash.h"
#include "../../shim/dpdk/flow/state.h"
#include "check.h"

#define SECOND UINT64_C(1000000000)

static uint32_t ups, downs, dialled, delivered, done, failed, unused, last_reason, last_undelivered, last_flow;
static uint32_t needs, kept;
static bool refusing, in_place;
static const uint8_t *last_whole, *last_bytes;

static void on_up(void *context, uint32_t flow, const struct zap_flow_peer *peer, uint64_t dial) {
  (void)context, (void)peer, (void)dial;
  ups++;
  last_flow = flow;
}
static void on_down(void *context, uint32_t flow, enum zap_flow_reason reason, uint32_t undelivered) {
  (void)context, (void)flow;
  downs++;
  last_reason = reason;
  last_undelivered = undelivered;
}
static void on_dialled(void *context, uint64_t dial, enum zap_flow_reason reason, uint32_t flow) {
  (void)context, (void)dial, (void)flow;
  dialled++;
  last_reason = reason;
}
static bool on_need(void *context, uint32_t flow, uint32_t length, bool next, const uint8_t *whole, struct zap_flow_buffer *buffer) {
  (void)context, (void)flow, (void)next;
  needs++;
  last_whole = whole;
  if (refusing) return false;
  if (in_place && whole != NULL) *buffer = (struct zap_flow_buffer){(uint8_t *)(uintptr_t)whole, &in_place};
  else buffer->bytes = malloc(length);
  return true;
}
static void give_back(const struct zap_flow_buffer *buffer) {
  last_bytes = buffer->bytes;
  if (buffer->cookie == &in_place) kept++;
  else free(buffer->bytes);
}
static void on_delivered(void *context, uint32_t flow, const struct zap_flow_buffer *buffer, uint32_t length) {
  (void)context, (void)flow, (void)length;
  delivered++;
  give_back(buffer);
}
static void on_unused(void *context, uint32_t flow, const struct zap_flow_buffer *buffer) {
  (void)context, (void)flow;
  unused++;
  give_back(buffer);
}
static void on_done(void *context, uint32_t flow, uint64_t message, bool is_delivered) {
  (void)context, (void)flow, (void)message;
  if (is_delivered) done++;
  else failed++;
}
static void on_room(void *context, uint32_t flow) { (void)context, (void)flow; }
static const struct zap_flow_events events = {on_up, on_down, on_dialled, on_need, on_delivered, on_unused, on_done, on_room};

static const struct zap_flow_address here = {.ip = {[15] = 1}, .port = 1000}, there = {.ip = {[15] = 2}, .port = 2000},
                                     elsewhere = {.ip = {[15] = 3}, .port = 3000};

static struct zap_flow_id id_of(const char *text) {
  struct zap_flow_id id = {.length = (uint8_t)strlen(text)};
  memcpy(id.bytes, text, id.length);
  return id;
}

static struct zap_endpoint *make(const char *name, uint8_t seed, const struct zap_flow_settings *more) {
  struct zap_flow_settings settings = more == NULL ? (struct zap_flow_settings){.flows = 4} : *more;
  settings.id = id_of(name);
  uint8_t bytes[32] = {seed, 2, [16] = seed, 3};
  return zap_endpoint_create(&settings, &events, NULL, bytes, SECOND);
}

/* Carries everything between the two until neither has anything; returns the number of datagrams. */
static uint32_t carry(struct zap_endpoint *a, struct zap_endpoint *b, uint64_t now) {
  uint8_t bytes[ZAP_FLOW_HEAD_MAX + 65536];
  struct zap_flow_output out = {.head = bytes};
  uint32_t count = 0;
  for (bool any = true; any && count < 100000;) {
    any = false;
    for (int turn = 0; turn < 2; turn++) {
      struct zap_endpoint *from = turn == 0 ? a : b, *to = turn == 0 ? b : a;
      zap_endpoint_advance(from, now);
      while (zap_endpoint_output(from, now, &out)) {
        if (out.payload_length > 0) memcpy(bytes + out.head_length, out.payload, out.payload_length);
        zap_endpoint_input(to, now, turn == 0 ? &here : &there, bytes, out.head_length + out.payload_length);
        any = true;
        count++;
      }
    }
  }
  return count;
}

static void test_codes(void) {
  const uint8_t *nine = (const uint8_t *)"123456789";
  CHECK_EQUAL(zap_crc32c(0, nine, 9), 0xe3069283u);
  static uint8_t bytes[4000];
  for (uint32_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(i * 7 + (i >> 8));
  for (uint32_t n = 0; n < 3990; n += n < 300 ? 1 : 37) {
    CHECK_EQUAL(zap_crc32c(5, bytes + n % 8, n), zap_crc32c_portable(5, bytes + n % 8, n));
    CHECK_EQUAL(zap_crc32c(zap_crc32c(0, bytes, n / 3), bytes + n / 3, n - n / 3), zap_crc32c(0, bytes, n));
  }
  uint8_t key[16], out[16];
  for (uint8_t i = 0; i < 16; i++) key[i] = i;
  for (uint8_t i = 0; i < 15; i++) bytes[i] = i;
  CHECK_EQUAL(zap_siphash(key, bytes, 15), UINT64_C(0xa129ca6149be45e5));
  CHECK_EQUAL(zap_siphash(key, bytes, 0), UINT64_C(0x726fdb47dd0e0e31));
  zap_siphash128(key, bytes, 0, out);
  static const uint8_t wanted[16] = {0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6, 0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55, 0x02, 0x93};
  CHECK(memcmp(out, wanted, 16) == 0);
}

static void test_layout(void) {
  uint8_t bytes[256] = {0};
  struct zap_datagram d = {.kind = ZAP_DATAGRAM_DATA, .session = 0x1122334455667788, .epoch = 9, .flags = 1};
  d.segment = 0xfffffffe, d.message = 3, d.length = 100, d.offset = 96, d.ack = 5, d.limit = 69, d.sack = 6, d.number = 7, d.echo = 8;
  const uint8_t payload[4] = {1, 2, 3, 4};
  CHECK_EQUAL(zap_datagram_write(&d, bytes), 64);
  memcpy(bytes + 64, payload, 4);
  zap_datagram_seal(bytes, 64, payload, 4);
  static const uint8_t start[8] = {0x5a, 0x41, 0x50, 0, 1, 5, 1, 0};
  CHECK(memcmp(bytes, start, 8) == 0);
  CHECK_EQUAL(get32(bytes + 12), 9);
  CHECK_EQUAL(get64(bytes + 16), d.session);
  CHECK_EQUAL(get32(bytes + 24), d.segment);
  CHECK_EQUAL(get32(bytes + 60), 8);
  struct zap_datagram read;
  enum zap_flow_drop why;
  CHECK(zap_datagram_read(&read, bytes, 68, &why));
  CHECK(read.segment == d.segment && read.limit == 69 && read.sack == 6 && read.payload_length == 4 && read.payload[3] == 4);
  for (uint32_t length = 0; length < 68; length++) CHECK(!zap_datagram_read(&read, bytes, length, &why));
  for (uint32_t bit = 0; bit < 68 * 8; bit++) {
    bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    CHECK(!zap_datagram_read(&read, bytes, 68, &why));
    bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
  }
  /* Fields that cannot be, under a right checksum. */
  struct zap_datagram wrong = d;
  wrong.offset = 97;
  (void)zap_datagram_write(&wrong, bytes);
  zap_datagram_seal(bytes, 64, payload, 4);
  CHECK(!zap_datagram_read(&read, bytes, 68, &why) && why == ZAP_DROP_LAYOUT);
  wrong = d;
  wrong.limit = wrong.ack + 32769;
  (void)zap_datagram_write(&wrong, bytes);
  zap_datagram_seal(bytes, 64, payload, 4);
  CHECK(!zap_datagram_read(&read, bytes, 68, &why) && why == ZAP_DROP_LAYOUT);
}

static void test_table(void) {
  struct zap_table_entry entries[64] = {0};
  struct zap_table table = {entries, 63};
  /* All of them want one of four places. */
  for (uint64_t i = 1; i <= 32; i++) zap_table_add(&table, i << 8 | (60 + i % 4), (uint32_t)i);
  for (uint64_t i = 1; i <= 32; i += 2) zap_table_remove(&table, i << 8 | (60 + i % 4));
  for (uint64_t i = 1; i <= 32; i++) {
    uint32_t what = 0;
    CHECK_EQUAL(zap_table_find(&table, i << 8 | (60 + i % 4), &what), i % 2 == 0);
    CHECK(i % 2 == 1 || what == i);
  }
}

static void test_messages(void) {
  struct zap_endpoint *a = make("a", 1, NULL), *b = make("b", 2, NULL);
  ups = delivered = done = failed = downs = 0;
  CHECK_EQUAL(zap_endpoint_dial(a, SECOND, &there, NULL, 7), ZAP_FLOW_OK);
  CHECK_EQUAL(carry(a, b, SECOND), 6);
  CHECK_EQUAL(ups, 2);
  struct zap_flow *f = zap_flow_with(a, &(struct zap_flow_id){.length = 1, .bytes = "b"});
  uint32_t flow = zap_flow_handle(f);
  static uint8_t message[3000000];
  CHECK_EQUAL(zap_endpoint_send(a, flow, message, sizeof message, 1), ZAP_FLOW_OK);
  CHECK_EQUAL(zap_endpoint_send(a, flow, message, 1, 2), ZAP_FLOW_OK);
  CHECK_EQUAL(zap_endpoint_send(a, flow, message, 11 << 20, 3), ZAP_FLOW_TOO_LARGE);
  CHECK_EQUAL(zap_endpoint_send(a, flow + 1, message, 1, 3), ZAP_FLOW_GONE);
  CHECK_EQUAL(zap_endpoint_send(a, flow, message, 0, 3), ZAP_FLOW_INVALID);
  uint64_t now = SECOND;
  for (int i = 0; i < 1000 && done < 2; i++) (void)carry(a, b, now += 100000);
  CHECK_EQUAL(delivered, 2);
  CHECK_EQUAL(done, 2);
  /* A receiver without memory stops the sender, and nothing else happens to them. */
  refusing = true;
  for (uint32_t i = 0; i < 10; i++) CHECK_EQUAL(zap_endpoint_send(a, flow, message, 5000, i), ZAP_FLOW_OK);
  for (int i = 0; i < 3000; i++) (void)carry(a, b, now += 10000000);
  CHECK_EQUAL(delivered, 2);
  CHECK_EQUAL(downs, 0);
  struct zap_flow_stats stats;
  zap_endpoint_stats(a, &stats);
  CHECK(stats.segments_again < 100);
  refusing = false;
  zap_endpoint_ready(b, now);
  for (int i = 0; i < 10; i++) (void)carry(a, b, now += 1000000);
  CHECK_EQUAL(delivered, 12);
  /* A goodbye delivers what was queued; the end of the other is the peer's. */
  for (uint32_t i = 0; i < 10; i++) CHECK_EQUAL(zap_endpoint_send(a, flow, message, 50000, i), ZAP_FLOW_OK);
  zap_endpoint_close(a, now, flow);
  CHECK_EQUAL(zap_endpoint_send(a, flow, message, 1, 3), ZAP_FLOW_GONE);
  for (int i = 0; i < 100; i++) (void)carry(a, b, now += 1000000);
  CHECK_EQUAL(delivered, 22);
  CHECK_EQUAL(done, 22);
  CHECK_EQUAL(downs, 2);
  CHECK_EQUAL(last_reason, ZAP_FLOW_FINISHED);
  CHECK_EQUAL(last_undelivered, 0);
  CHECK_EQUAL(zap_endpoint_send(a, flow, message, 1, 3), ZAP_FLOW_GONE);
  zap_endpoint_destroy(a);
  zap_endpoint_destroy(b);
  CHECK_EQUAL(failed, 0);
}

static void test_silence(void) {
  struct zap_endpoint *a = make("a", 1, NULL), *b = make("b", 2, NULL);
  failed = downs = 0;
  (void)zap_endpoint_dial(a, SECOND, &there, NULL, 7);
  (void)carry(a, b, SECOND);
  uint32_t flow = zap_flow_handle(zap_flow_with(a, &(struct zap_flow_id){.length = 1, .bytes = "b"}));
  static uint8_t message[100];
  for (uint64_t i = 0; i < 5; i++) CHECK_EQUAL(zap_endpoint_send(a, flow, message, 100, i), ZAP_FLOW_OK);
  /* Nobody carries anything: dead after five seconds, but not by a pause of ours. */
  uint8_t head[ZAP_FLOW_HEAD_MAX];
  struct zap_flow_output out = {.head = head};
  zap_endpoint_advance(a, 61 * SECOND);
  CHECK_EQUAL(downs, 0);
  uint64_t now = 61 * SECOND;
  for (; downs == 0 && now < 90 * SECOND; now += SECOND / 100) {
    zap_endpoint_advance(a, now);
    while (zap_endpoint_output(a, now, &out)) continue;
  }
  CHECK_EQUAL(downs, 1);
  CHECK_EQUAL(last_reason, ZAP_FLOW_DEAD);
  CHECK_EQUAL(last_undelivered, 5);
  CHECK_EQUAL(failed, 5);
  CHECK(now >= 65 * SECOND && now < 67 * SECOND);
  zap_endpoint_destroy(a);
  zap_endpoint_destroy(b);
}

/* Whoever has not shown that it receives where it says it is leaves nothing behind, and is answered with less than it sent. */
static void test_strangers(void) {
  struct zap_flow_allowed allow[2] = {{.id = id_of("a"), .pinned = true, .address = here}, {.id = id_of("c")}};
  struct zap_flow_settings settings = {.allow = allow, .allowed = 2, .flows = 2, .candidates = 4};
  struct zap_endpoint *b = make("b", 2, &settings);
  uint8_t bytes[2048], head[ZAP_FLOW_HEAD_MAX];
  struct zap_flow_output out = {.head = head};
  struct zap_datagram d = {.kind = ZAP_DATAGRAM_INIT, .client = 1, .id = id_of("c")};
  struct zap_flow_stats stats;
  for (uint32_t i = 0; i < 10000; i++) {
    struct zap_flow_address from = {.ip = {[15] = (uint8_t)i}, .port = (uint16_t)(1 + i)};
    d.client = i + 1;
    uint32_t length = zap_datagram_write(&d, bytes);
    zap_datagram_seal(bytes, length, NULL, 0);
    zap_endpoint_input(b, SECOND, &from, bytes, length);
    uint32_t answered = 0;
    while (zap_endpoint_output(b, SECOND, &out)) answered += out.head_length + out.payload_length;
    CHECK(answered < length);
  }
  struct zap_datagram cookie;
  enum zap_flow_drop why;
  CHECK(zap_datagram_read(&cookie, head, ZAP_COOKIE_BYTES, &why));
  struct zap_flow_address last = {.ip = {[15] = (uint8_t)9999}, .port = (uint16_t)10000};
  struct zap_datagram hello = d;
  hello.kind = ZAP_DATAGRAM_HELLO;
  hello.slot = cookie.slot;
  memcpy(hello.mac, cookie.mac, 16);
  hello.terms = (struct zap_terms){128, 64, 5, 1000};
  uint32_t length = zap_datagram_write(&hello, bytes);
  zap_datagram_seal(bytes, length, NULL, 0);
  /* From elsewhere, altered, or too late: not good. */
  zap_endpoint_input(b, SECOND, &elsewhere, bytes, length);
  zap_endpoint_input(b, 60 * SECOND, &last, bytes, length);
  hello.mac[3] ^= 1;
  (void)zap_datagram_write(&hello, bytes);
  zap_datagram_seal(bytes, length, NULL, 0);
  zap_endpoint_input(b, 60 * SECOND, &last, bytes, length);
  zap_endpoint_stats(b, &stats);
  CHECK_EQUAL(stats.drops[ZAP_DROP_COOKIE], 3);
  CHECK_EQUAL(stats.candidates + stats.flows, 0);
  CHECK(!zap_endpoint_output(b, 60 * SECOND, &out));
  zap_endpoint_destroy(b);

  /* The allow-list: a node id that is not there, and one from the wrong address. */
  b = make("b", 2, &settings);
  struct zap_endpoint *z = make("z", 3, NULL);
  dialled = ups = 0;
  (void)zap_endpoint_dial(z, SECOND, &there, NULL, 7);
  (void)carry(z, b, SECOND);
  CHECK_EQUAL(dialled, 1);
  CHECK_EQUAL(last_reason, ZAP_FLOW_NOT_ALLOWED);
  zap_endpoint_destroy(z);
  struct zap_endpoint *a = make("a", 4, NULL);
  (void)zap_endpoint_dial(a, SECOND, &there, NULL, 7);
  (void)carry(a, b, SECOND);
  CHECK_EQUAL(ups, 2);
  zap_endpoint_destroy(a);
  zap_endpoint_stats(b, &stats);
  CHECK_EQUAL(stats.drops[ZAP_DROP_ALLOW], 1);
  zap_endpoint_destroy(b);
}

/* An honest peer's HELLO that somebody sends again does not end the flow that it has now. */
static void test_replayed_hello(void) {
  struct zap_endpoint *a = make("a", 1, NULL), *b = make("b", 2, NULL);
  uint8_t bytes[4096], hello[4096];
  uint32_t hello_length = 0;
  struct zap_flow_output out = {.head = bytes};
  (void)zap_endpoint_dial(a, SECOND, &there, NULL, 7);
  for (int turn = 0; turn < 8; turn++) {
    struct zap_endpoint *from = turn % 2 == 0 ? a : b, *to = turn % 2 == 0 ? b : a;
    while (zap_endpoint_output(from, SECOND, &out)) {
      if (out.payload_length > 0) memcpy(bytes + out.head_length, out.payload, out.payload_length);
      uint32_t length = out.head_length + out.payload_length;
      if (bytes[5] == ZAP_DATAGRAM_HELLO) memcpy(hello, bytes, hello_length = length);
      zap_endpoint_input(to, SECOND, turn % 2 == 0 ? &here : &there, bytes, length);
    }
  }
  CHECK(hello_length > ZAP_HELLO_BYTES);
  /* The dialler starts anew and gets a flow; then the old HELLO comes again. */
  zap_endpoint_destroy(a);
  a = make("a", 9, NULL);
  downs = 0;
  (void)zap_endpoint_dial(a, 2 * SECOND, &there, NULL, 7);
  (void)carry(a, b, 2 * SECOND);
  CHECK_EQUAL(downs, 1);
  CHECK_EQUAL(last_reason, ZAP_FLOW_RESTARTED);
  zap_endpoint_input(b, 2 * SECOND, &here, hello, hello_length);
  (void)carry(a, b, 2 * SECOND);
  CHECK_EQUAL(downs, 1);
  struct zap_flow_stats stats;
  zap_endpoint_stats(b, &stats);
  CHECK_EQUAL(stats.flows, 1);
  zap_endpoint_destroy(a);
  zap_endpoint_destroy(b);
}

static uint32_t handle_with(struct zap_endpoint *e, const char *name) {
  struct zap_flow_id id = id_of(name);
  struct zap_flow *f = zap_flow_with(e, &id);
  CHECK(f != NULL);
  return f == NULL ? ZAP_NO_FLOW : zap_flow_handle(f);
}

/* What the peer of one that closes had queued and not begun comes back at once; what it had begun arrives. */
static void test_half_done(void) {
  struct zap_flow_settings settings = {.flows = 2, .credits = 64, .payload_bytes = 128};
  struct zap_endpoint *a = make("a", 1, &settings), *b = make("b", 2, &settings);
  (void)zap_endpoint_dial(a, SECOND, &there, NULL, 7);
  (void)carry(a, b, SECOND);
  static uint8_t message[128 * 20];
  delivered = done = failed = downs = 0;
  uint32_t flow = handle_with(b, "a");
  for (uint64_t i = 0; i < 10; i++) CHECK_EQUAL(zap_endpoint_send(b, flow, message, sizeof message, i), ZAP_FLOW_OK);
  /* The first window of 32 segments leaves: two messages are begun. */
  uint8_t head[ZAP_FLOW_HEAD_MAX];
  struct zap_flow_output out = {.head = head};
  while (zap_endpoint_output(b, SECOND, &out)) continue;
  zap_endpoint_close(a, SECOND, handle_with(a, "b"));
  uint64_t now = SECOND;
  for (int i = 0; i < 100 && downs < 2; i++) (void)carry(a, b, now += 5000000);
  CHECK_EQUAL(downs, 2);
  CHECK_EQUAL(last_reason, ZAP_FLOW_FINISHED);
  CHECK_EQUAL(delivered, 2);
  CHECK_EQUAL(done, 2);
  CHECK_EQUAL(failed, 8);
  zap_endpoint_destroy(a);
  zap_endpoint_destroy(b);
}

/* A message of one segment stays where its datagram lies, if its owner says so. */
static void test_in_place(void) {
  struct zap_flow_settings settings = {.flows = 2, .credits = 64, .payload_bytes = 128};
  struct zap_endpoint *a = make("a", 1, &settings), *b = make("b", 2, &settings);
  (void)zap_endpoint_dial(a, SECOND, &there, NULL, 7);
  (void)carry(a, b, SECOND);
  static uint8_t messages[3][200], datagrams[4][192];
  static const uint32_t sizes[3] = {100, 128, 200};
  for (uint32_t i = 0; i < 3; i++) {
    memset(messages[i], (int)i + 1, sizes[i]);
    CHECK_EQUAL(zap_endpoint_send(a, handle_with(a, "b"), messages[i], sizes[i], i), ZAP_FLOW_OK);
  }
  uint32_t count = 0, lengths[4] = {0};
  for (struct zap_flow_output out; count < 4; count++) {
    out.head = datagrams[count];
    if (!zap_endpoint_output(a, SECOND, &out)) break;
    memcpy(out.head + out.head_length, out.payload, out.payload_length);
    lengths[count] = out.head_length + out.payload_length;
  }
  CHECK_EQUAL(count, 4);
  in_place = true;
  delivered = unused = kept = needs = 0;
  /* The second one first. It waits where it is, and comes back as there is nothing for the one before it. */
  zap_endpoint_input(b, SECOND, &here, datagrams[1], lengths[1]);
  CHECK(last_whole == datagrams[1] + ZAP_FLOW_HEADER);
  CHECK_EQUAL(delivered + unused, 0);
  refusing = true;
  zap_endpoint_input(b, SECOND, &here, datagrams[0], lengths[0]);
  CHECK(last_whole == datagrams[0] + ZAP_FLOW_HEADER);
  CHECK(last_bytes == datagrams[1] + ZAP_FLOW_HEADER);
  CHECK_EQUAL(unused, 1);
  CHECK_EQUAL(kept, 1);
  /* Asked again there is no datagram any more. */
  refusing = false;
  zap_endpoint_ready(b, SECOND);
  zap_endpoint_advance(b, SECOND);
  CHECK_EQUAL(needs, 3);
  CHECK(last_whole == NULL);
  zap_endpoint_input(b, SECOND, &here, datagrams[0], lengths[0]);
  CHECK_EQUAL(delivered, 1);
  CHECK_EQUAL(kept, 1);
  zap_endpoint_input(b, SECOND, &here, datagrams[1], lengths[1]);
  CHECK_EQUAL(delivered, 2);
  CHECK_EQUAL(kept, 2);
  CHECK(last_bytes == datagrams[1] + ZAP_FLOW_HEADER && last_bytes[0] == 2 && last_bytes[127] == 2);
  /* Two segments have to be put together. */
  zap_endpoint_input(b, SECOND, &here, datagrams[3], lengths[3]);
  CHECK(last_whole == NULL);
  zap_endpoint_input(b, SECOND, &here, datagrams[2], lengths[2]);
  CHECK_EQUAL(delivered, 3);
  CHECK_EQUAL(kept, 2);
  CHECK_EQUAL(needs, 5);
  in_place = false;
  zap_endpoint_destroy(a);
  zap_endpoint_destroy(b);
}

/* Whoever only dials says nothing to those who dial it. */
static void test_dial_only(void) {
  struct zap_flow_settings settings = {.flows = 4, .dial_only = true};
  struct zap_endpoint *a = make("a", 1, NULL), *b = make("b", 2, &settings), *c = make("c", 3, NULL);
  uint8_t head[ZAP_FLOW_HEAD_MAX];
  struct zap_flow_output out = {.head = head};
  struct zap_flow_stats stats;
  ups = dialled = 0;
  (void)zap_endpoint_dial(a, SECOND, &there, NULL, 1);
  for (uint64_t now = SECOND; dialled == 0 && now < 9 * SECOND; now += SECOND / 100) (void)carry(a, b, now);
  CHECK_EQUAL(dialled, 1);
  CHECK_EQUAL(last_reason, ZAP_FLOW_TIMEOUT);
  zap_endpoint_stats(b, &stats);
  CHECK(stats.drops[ZAP_DROP_DIAL_ONLY] > 1);
  CHECK_EQUAL(stats.drops[ZAP_DROP_DIAL_ONLY], stats.datagrams_in);
  CHECK_EQUAL(stats.datagrams_out, 0);
  /* A HELLO with a cookie, as if it had been given one: as little. */
  struct zap_datagram hello = {.kind = ZAP_DATAGRAM_HELLO, .client = 1, .id = id_of("a"), .terms = {128, 64, 5, 1000}};
  uint32_t length = zap_datagram_write(&hello, head);
  zap_datagram_seal(head, length, NULL, 0);
  zap_endpoint_input(b, 9 * SECOND, &here, head, length);
  zap_endpoint_stats(b, &stats);
  CHECK_EQUAL(stats.drops[ZAP_DROP_DIAL_ONLY], stats.datagrams_in);
  CHECK_EQUAL(stats.drops[ZAP_DROP_COOKIE], 0);
  CHECK(!zap_endpoint_output(b, 9 * SECOND, &out));
  (void)zap_endpoint_dial(b, 9 * SECOND, &here, NULL, 2);
  (void)carry(c, b, 9 * SECOND);
  CHECK_EQUAL(ups, 2);
  CHECK_EQUAL(dialled, 1);
  zap_endpoint_destroy(a);
  zap_endpoint_destroy(b);
  zap_endpoint_destroy(c);
}

/* A list that keeps some ids for those whom they belong to, and lets all others in. */
static void test_pinned(void) {
  struct zap_flow_allowed allow[3] = {
      {.id = id_of("a"), .pinned = true, .address = elsewhere}, {.id = id_of("c"), .pinned = true, .address = here}, {.id = id_of("d")}};
  struct zap_flow_settings settings = {.flows = 8, .allow = allow, .allowed = 3, .strangers = true};
  struct zap_endpoint *b = make("b", 9, &settings);
  struct zap_flow_stats stats;
  static const char *const names[] = {"a", "c", "d", "z"};
  for (uint32_t i = 0; i < 4; i++) {
    struct zap_endpoint *peer = make(names[i], (uint8_t)i, NULL);
    ups = dialled = 0;
    (void)zap_endpoint_dial(peer, SECOND, &there, NULL, 7);
    (void)carry(peer, b, SECOND);
    CHECK_EQUAL(ups, i == 0 ? 0 : 2);
    CHECK_EQUAL(dialled, i == 0);
    if (i == 0) CHECK_EQUAL(last_reason, ZAP_FLOW_NOT_ALLOWED);
    zap_endpoint_destroy(peer);
  }
  zap_endpoint_stats(b, &stats);
  CHECK_EQUAL(stats.drops[ZAP_DROP_ALLOW], 1);
  CHECK_EQUAL(stats.flows, 3);
  /* The same where it is we who dial, and somebody answers with that id. */
  struct zap_endpoint *a = make("a", 1, NULL);
  ups = dialled = 0;
  (void)zap_endpoint_dial(b, SECOND, &here, NULL, 8);
  (void)carry(a, b, SECOND);
  CHECK_EQUAL(ups, 0);
  CHECK_EQUAL(dialled, 1);
  CHECK_EQUAL(last_reason, ZAP_FLOW_NOT_ALLOWED);
  zap_endpoint_destroy(a);
  zap_endpoint_destroy(b);
}

static void test_dials(void) {
  struct zap_flow_settings one = {.flows = 1, .dials = 1};
  struct zap_endpoint *a = make("a", 1, NULL), *b = make("b", 2, &one), *c = make("c", 3, NULL), *twin = make("a", 4, NULL);
  struct zap_flow_id wrong = id_of("x");
  ups = downs = dialled = 0;
  /* Ourselves, somebody else than expected, given up, and one too many. */
  (void)zap_endpoint_dial(a, SECOND, &there, NULL, 1);
  (void)carry(a, twin, SECOND);
  CHECK_EQUAL(last_reason, ZAP_FLOW_SELF);
  (void)zap_endpoint_dial(a, SECOND, &there, &wrong, 2);
  (void)carry(a, b, SECOND);
  CHECK_EQUAL(last_reason, ZAP_FLOW_NOT_ALLOWED);
  (void)zap_endpoint_dial(b, SECOND, &here, NULL, 3);
  CHECK_EQUAL(zap_endpoint_dial(b, SECOND, &here, NULL, 4), ZAP_FLOW_AGAIN);
  CHECK_EQUAL(zap_endpoint_dial(b, SECOND, &here, NULL, 0), ZAP_FLOW_INVALID);
  zap_endpoint_cancel(b, 3);
  zap_endpoint_advance(b, SECOND);
  CHECK_EQUAL(last_reason, ZAP_FLOW_CANCELLED);
  CHECK_EQUAL(dialled, 3);
  uint8_t head[ZAP_FLOW_HEAD_MAX];
  struct zap_flow_output out = {.head = head};
  while (zap_endpoint_output(b, SECOND, &out)) continue;
  (void)zap_endpoint_dial(a, 2 * SECOND, &there, NULL, 5);
  (void)carry(a, b, 2 * SECOND);
  CHECK_EQUAL(ups, 2);
  CHECK_EQUAL(downs, 0);
  /* A node that we have a flow with: the dial leads to that one. */
  (void)zap_endpoint_dial(a, 2 * SECOND, &there, NULL, 6);
  for (uint64_t now = 2 * SECOND; now < 3 * SECOND; now += SECOND / 100) (void)carry(a, b, now);
  CHECK_EQUAL(dialled, 4);
  CHECK_EQUAL(last_reason, ZAP_FLOW_DUPLICATE);
  CHECK_EQUAL(downs, 0);
  /* No place for a second peer. */
  (void)zap_endpoint_dial(c, 3 * SECOND, &there, NULL, 8);
  (void)carry(c, b, 3 * SECOND);
  CHECK_EQUAL(dialled, 5);
  CHECK_EQUAL(last_reason, ZAP_FLOW_FULL);
  CHECK_EQUAL(downs, 0);
  /* Nobody there. */
  (void)zap_endpoint_dial(c, 3 * SECOND, &elsewhere, NULL, 9);
  for (uint64_t now = 3 * SECOND; now < 9 * SECOND; now += SECOND / 100) {
    zap_endpoint_advance(c, now);
    while (zap_endpoint_output(c, now, &out)) continue;
  }
  CHECK_EQUAL(dialled, 6);
  CHECK_EQUAL(last_reason, ZAP_FLOW_TIMEOUT);
  zap_endpoint_destroy(a);
  zap_endpoint_destroy(b);
  zap_endpoint_destroy(c);
  zap_endpoint_destroy(twin);
}

/* Datagrams of the flow that are wrong under a right checksum and session: ignored, or the end of that flow. */
static void test_wrong_peer(void) {
  struct zap_endpoint *a = make("a", 1, NULL), *b = make("b", 2, NULL);
  (void)zap_endpoint_dial(a, SECOND, &there, NULL, 7);
  (void)carry(a, b, SECOND);
  const struct zap_flow *f = zap_flow_of(b, handle_with(b, "a"));
  struct zap_datagram d = {.kind = ZAP_DATAGRAM_DATA, .session = f->setup.local, .segment = f->receiver.ack, .message = f->receiver.next};
  d.length = 10, d.ack = f->sender.una + 1, d.limit = d.ack + 64, d.number = d.segment, d.echo = f->sender.number - 1;
  uint8_t bytes[128] = {0};
  struct zap_flow_stats stats;
  downs = delivered = unused = 0;
  (void)zap_datagram_write(&d, bytes);
  zap_datagram_seal(bytes, 74, NULL, 0);
  zap_endpoint_input(b, SECOND, &here, bytes, 74);
  zap_endpoint_stats(b, &stats);
  CHECK_EQUAL(stats.drops[ZAP_DROP_ACK], 1);
  d.ack--, d.limit--;
  (void)zap_datagram_write(&d, bytes);
  zap_datagram_seal(bytes, 74, NULL, 0);
  zap_endpoint_input(b, SECOND, &elsewhere, bytes, 74);
  zap_endpoint_stats(b, &stats);
  CHECK_EQUAL(stats.drops[ZAP_DROP_ADDRESS], 1);
  d.segment += 2000;
  (void)zap_datagram_write(&d, bytes);
  zap_datagram_seal(bytes, 74, NULL, 0);
  zap_endpoint_input(b, SECOND, &here, bytes, 74);
  zap_endpoint_stats(b, &stats);
  CHECK_EQUAL(stats.drops[ZAP_DROP_WINDOW], 1);
  CHECK_EQUAL(downs, 0);
  d.segment -= 2000;
  d.length = 11; /* no full segment, and not the last */
  (void)zap_datagram_write(&d, bytes);
  zap_datagram_seal(bytes, 74, NULL, 0);
  zap_endpoint_input(b, SECOND, &here, bytes, 74);
  CHECK_EQUAL(downs, 1);
  CHECK_EQUAL(last_reason, ZAP_FLOW_PROTOCOL);
  (void)carry(a, b, SECOND);
  CHECK_EQUAL(downs, 2);
  CHECK_EQUAL(delivered, 0);
  zap_endpoint_destroy(a);
  zap_endpoint_destroy(b);
}

static void test_settings(void) {
  struct zap_flow_settings settings = {.id = id_of("a"), .credits = 100};
  const char *fault = NULL;
  CHECK_EQUAL(zap_flow_settings_resolve(&settings, &fault), ZAP_FLOW_INVALID);
  CHECK_CONTAINS(fault, "credits");
  settings.credits = 0;
  CHECK_EQUAL(zap_flow_settings_resolve(&settings, &fault), ZAP_FLOW_OK);
  CHECK_EQUAL(settings.credits, 1024);
  printf("an endpoint of %u flows: %zu KiB\n", settings.flows, zap_endpoint_bytes(&settings) / 1024);
  for (uint32_t i = 0; i < ZAP_DROPS; i++) CHECK(strcmp(zap_flow_drop_name(i), "unknown") != 0);
}

int main(void) {
  test_codes();
  test_layout();
  test_table();
  test_messages();
  test_silence();
  test_strangers();
  test_replayed_hello();
  test_half_done();
  test_in_place();
  test_dial_only();
  test_pinned();
  test_dials();
  test_wrong_peer();
  test_settings();
  return checks_done("flow");
}
