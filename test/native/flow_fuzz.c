/*
 * Fuzzing of the datagram parser and the state machine; how to run it is said in fuzz_driver.c.
 *
 * An input is a row of steps: a byte that says what happens, and for datagrams u16 length and bytes. A datagram's session, checksum and
 * acknowledgement are mended where the step says so, as no mutation finds those by itself.
 */
#include <stdlib.h>

#include "../../shim/dpdk/flow/bytes.h"
#include "../../shim/dpdk/flow/state.h"
#include "fuzz_driver.h"

#define MILLI UINT64_C(1000000)

static uint64_t held;
static uint8_t message[20000];
static bool refusing;
/* The datagram that is being input, of which every second message that can is kept where it lies. */
static uint8_t *input;
static bool input_kept;
static uint32_t needs;
#define IN_PLACE (UINT64_C(1) << 32)

static void on_up(void *context, uint32_t flow, const struct zap_flow_peer *peer, uint64_t dial) {
  (void)context, (void)flow, (void)peer, (void)dial;
}
static void on_down(void *context, uint32_t flow, enum zap_flow_reason reason, uint32_t undelivered) {
  (void)context, (void)flow, (void)reason, (void)undelivered;
}
static void on_dialled(void *context, uint64_t dial, enum zap_flow_reason reason, uint32_t flow) {
  (void)context, (void)dial, (void)reason, (void)flow;
}
static bool on_need(void *context, uint32_t flow, uint32_t length, bool next, const uint8_t *whole, struct zap_flow_buffer *buffer) {
  (void)context, (void)flow, (void)next;
  if (whole != NULL && (input == NULL || whole != input + ZAP_FLOW_HEADER)) abort();
  if (refusing) return false;
  held += length;
  if (whole != NULL && !input_kept && needs++ % 2 == 0) {
    input_kept = true;
    *buffer = (struct zap_flow_buffer){input + ZAP_FLOW_HEADER, (void *)(uintptr_t)(IN_PLACE | length)};
  } else {
    *buffer = (struct zap_flow_buffer){malloc(length), (void *)(uintptr_t)length};
  }
  return true;
}
static void on_unused(void *context, uint32_t flow, const struct zap_flow_buffer *buffer) {
  (void)context, (void)flow;
  uint64_t cookie = (uintptr_t)buffer->cookie;
  held -= (uint32_t)cookie;
  free(cookie & IN_PLACE ? buffer->bytes - ZAP_FLOW_HEADER : buffer->bytes);
}
static void on_delivered(void *context, uint32_t flow, const struct zap_flow_buffer *buffer, uint32_t length) {
  if (length != (uint32_t)(uintptr_t)buffer->cookie) abort();
  /* All of it can be read. */
  static volatile uint8_t sum;
  for (uint32_t i = 0; i < length; i++) sum = (uint8_t)(sum + buffer->bytes[i]);
  on_unused(context, flow, buffer);
}
static void on_done(void *context, uint32_t flow, uint64_t which, bool delivered) {
  (void)context, (void)flow, (void)which, (void)delivered;
}
static void on_room(void *context, uint32_t flow) { (void)context, (void)flow; }
static const struct zap_flow_events events = {on_up, on_down, on_dialled, on_need, on_delivered, on_unused, on_done, on_room};

static const struct zap_flow_address addresses[2] = {{.ip = {[15] = 1}, .port = 1000}, {.ip = {[15] = 2}, .port = 2000}};

struct pair {
  struct zap_endpoint *ends[2];
  uint64_t now;
};

/* Takes the datagram's memory, which is of its own size, so that a read behind its end is seen. */
static void put_in(struct pair *pair, int to, uint8_t *datagram, uint32_t length) {
  input = datagram;
  input_kept = false;
  zap_endpoint_input(pair->ends[to], pair->now, &addresses[!to], datagram, length);
  if (!input_kept) free(datagram);
  input = NULL;
}

static void pump(struct pair *pair, int rounds, int deaf) {
  uint8_t bytes[ZAP_FLOW_HEAD_MAX];
  struct zap_flow_output out = {.head = bytes};
  for (int i = 0; i < rounds; i++) {
    for (int from = 0; from < 2; from++) {
      zap_endpoint_advance(pair->ends[from], pair->now);
      for (int n = 0; n < 300 && zap_endpoint_output(pair->ends[from], pair->now, &out); n++) {
        if (deaf == from) continue;
        uint8_t *datagram = malloc(out.head_length + out.payload_length);
        memcpy(datagram, bytes, out.head_length);
        if (out.payload_length > 0) memcpy(datagram + out.head_length, out.payload, out.payload_length);
        put_in(pair, !from, datagram, out.head_length + out.payload_length);
      }
    }
  }
}

static struct zap_flow *flow_of(struct zap_endpoint *e) {
  for (uint32_t i = 0; i < e->settings.flows; i++) {
    if (e->flows[i].used && !e->flows[i].ending) return &e->flows[i];
  }
  return NULL;
}

/* Makes the datagram look like one of the flow's peer. */
static void mend(struct zap_endpoint *e, uint8_t *bytes, uint32_t length, uint8_t how) {
  if (length < ZAP_COMMON_BYTES) return;
  static const uint8_t start[5] = {0x5a, 0x41, 0x50, 0, 1};
  memcpy(bytes, start, sizeof start);
  const struct zap_flow *f = flow_of(e);
  if (f != NULL) put64(bytes + 16, f->setup.local);
  if (f != NULL && length >= ZAP_FLOW_HEADER && (how & 1)) {
    put32(bytes + 12, get32(bytes + 12) % 4 + f->sender.epoch);
    put32(bytes + 24, get32(bytes + 24) % 200 + f->receiver.ack - 4);
    put32(bytes + 28, get32(bytes + 28) % 70 + f->receiver.next);
    put32(bytes + 36, get32(bytes + 36) / f->receiver.payload * f->receiver.payload);
    put32(bytes + 40, get32(bytes + 40) % (f->sender.nxt - f->sender.una + 1) + f->sender.una);
    put32(bytes + 44, get32(bytes + 40) + get32(bytes + 44) % 70);
    put32(bytes + 60, f->sender.number - 1 - get32(bytes + 60) % 8);
  }
  zap_datagram_seal(bytes, length, NULL, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  struct pair pair = {.now = 1000 * MILLI};
  /* The first end pins ids, or only dials, as the length of the input has it: the fuzzer changes that soon enough. */
  const struct zap_flow_allowed allow[2] = {{.id = {.length = 1, .bytes = "b"}, .pinned = size % 3 > 0, .address = addresses[size % 3 > 1]},
                                            {.id = {.length = 1, .bytes = "x"}}};
  for (int i = 0; i < 2; i++) {
    struct zap_flow_settings settings = {.payload_bytes = 128, .credits = 64, .message_bytes = 20000, .queue_messages = 64};
    settings.flows = settings.dials = settings.candidates = 2;
    settings.id = (struct zap_flow_id){.length = 1, .bytes = {(uint8_t)('a' + i)}};
    if (i == 0 && size % 4 == 1) settings.dial_only = true;
    if (i == 0 && size % 4 >= 2) {
      settings.allow = allow;
      settings.allowed = 2 - (uint32_t)(size % 8 / 4);
      settings.strangers = size % 4 == 3;
    }
    uint8_t seed[32] = {(uint8_t)(i + 1), [16] = (uint8_t)(i + 1)};
    pair.ends[i] = zap_endpoint_create(&settings, &events, NULL, seed, pair.now);
    zap_endpoint_start_at(pair.ends[i], UINT32_MAX - 20);
  }
  refusing = false;
  needs = 0;
  uint64_t cookie = 0;
  for (size_t at = 0; at < size;) {
    uint8_t step = bytes[at++];
    struct zap_endpoint *e = pair.ends[step & 1];
    struct zap_flow *f = flow_of(e);
    switch (step >> 1 & 7) {
      case 0: (void)zap_endpoint_dial(e, pair.now, &addresses[!(step & 1)], NULL, 1); break;
      case 1: pump(&pair, 1 + (step >> 6), -1); break;
      case 2: pump(&pair, 1, step >> 4 & 1); break;
      case 3: pair.now += MILLI << (step >> 4); break;
      case 4:
        if (f != NULL) (void)zap_endpoint_send(e, zap_flow_handle(f), message, 1 + (uint32_t)(step >> 4) * (step >> 4) * 80, cookie++);
        break;
      case 5:
        refusing = step >> 4 & 1;
        if (!refusing) zap_endpoint_ready(e, pair.now);
        if (f != NULL && (step >> 5) == 7) zap_endpoint_close(e, pair.now, zap_flow_handle(f));
        if (f != NULL && (step >> 5) == 6) zap_endpoint_abort(e, zap_flow_handle(f));
        break;
      default: {
        if (size - at < 2) break;
        uint32_t length = (uint32_t)(bytes[at] | bytes[at + 1] << 8) % 2048;
        at += 2;
        if (length > size - at) length = (uint32_t)(size - at);
        uint8_t *datagram = malloc(length == 0 ? 1 : length);
        memcpy(datagram, bytes + at, length);
        at += length;
        if (step & 16) mend(e, datagram, length, (uint8_t)(step >> 5));
        put_in(&pair, step & 1, datagram, length);
      }
    }
    for (int i = 0; i < 2; i++) {
      struct zap_flow_peer peer;
      f = flow_of(pair.ends[i]);
      if (f == NULL || !zap_endpoint_peer(pair.ends[i], zap_flow_handle(f), &peer)) continue;
      if (peer.flying > 64 || f->sender.nxt - f->sender.una > 64 || peer.held_bytes > 64 * 128 + 2 * 20000) abort();
    }
  }
  zap_endpoint_destroy(pair.ends[0]);
  zap_endpoint_destroy(pair.ends[1]);
  if (held != 0) abort();
  return 0;
}

#ifndef FUZZ_LIBFUZZER
/* Steps that lead somewhere: a handshake, messages, then datagrams of every kind. */
bool fuzz_example(uint32_t number, char name[64], uint8_t *to, uint32_t *length) {
  if (number >= 16) return false;
  (void)snprintf(name, 64, "seed-%02u", number);
  uint32_t at = 0, which = number;
  to[at++] = 0;
  if (which & 1) to[at++] = 1;
  to[at++] = 0xc2;
  for (uint32_t i = 0; i < 6; i++) to[at++] = (uint8_t)(8 | (i & 1) | (i << 4));
  if (which & 2) to[at++] = 0x1a; /* refuse */
  to[at++] = which & 4 ? 4 : 0xc2;
  for (uint8_t kind = 1; kind <= 8; kind++) {
    uint32_t size = 152 + which * 5;
    to[at++] = (uint8_t)(0x0c | (kind & 1) | (which & 8 ? 0x10 : 0x30));
    to[at++] = (uint8_t)size;
    to[at++] = (uint8_t)(size >> 8);
    for (uint32_t i = 0; i < size; i++) to[at + i] = (uint8_t)(fuzz_dice(4) == 0 ? fuzz_dice(256) : 0);
    to[at + 5] = (uint8_t)((kind - 1 + which) % 8 + 1);
    to[at + 33] = (uint8_t)fuzz_dice(20);
    at += size;
    to[at++] = (uint8_t)(kind & 1 ? 0x42 : 0x36);
  }
  *length = at;
  return true;
}
#endif
