/* The applications of the simulations: what they send can be told from everything else, and what arrives is held against it. */
#include "flow_sim.h"

#define MARK 24 /* bytes at the start of a stream's first message: its number */

static uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t z = a * UINT64_C(0x9e3779b97f4a7c15) ^ (b + UINT64_C(0x7f4a7c15f39cc060)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 31) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 29;
}

static uint32_t length_of(const struct sim *sim, uint64_t stream, uint32_t index) {
  uint64_t dice = mix(stream, index);
  uint32_t bound = dice % 100 < 60 ? 200 : dice % 100 < 95 ? 4000 : sim->longest;
  uint32_t length = 1 + (uint32_t)((dice >> 16) % (bound < sim->longest ? bound : sim->longest));
  return index == 0 && length < MARK ? MARK : length;
}

static void fill(uint8_t *bytes, uint32_t length, uint64_t stream, uint32_t index) {
  uint64_t word = mix(stream, UINT64_C(1) << 40 | index);
  uint32_t at = 0;
  for (; at + 8 <= length; at += 8, word = word * 6364136223846793005u + 1442695040888963407u) memcpy(bytes + at, &word, 8);
  for (; at < length; at++) bytes[at] = (uint8_t)(word >> (8 * (at & 7)));
  if (index == 0) memcpy(bytes, &stream, sizeof stream);
}

static bool same(const uint8_t *bytes, uint32_t length, uint64_t stream, uint32_t index) {
  static uint8_t wanted[SIM_MESSAGE];
  fill(wanted, length, stream, index);
  return memcmp(bytes, wanted, length) == 0;
}

static struct link *link_of(struct host *host, uint32_t handle) {
  for (int i = 0; i < 64; i++) {
    if (host->links[i].handle == handle) return &host->links[i];
  }
  SIM_CHECK(host->sim, !"an event of a flow that is not");
  abort();
}

static void on_up(void *context, uint32_t flow, const struct zap_flow_peer *peer, uint64_t dial) {
  struct host *host = context;
  struct sim *sim = host->sim;
  struct link *link = link_of(host, ZAP_NO_FLOW);
  *link = (struct link){.handle = flow, .out = sim->stream_count};
  link->peer = peer->id.bytes[0] - 'a';
  SIM_CHECK(sim, !host->dial_only || peer->dialled);
  if (sim->settings.strangers && link->peer > 0) sim->stranger_flows++;
  for (int i = 0; i < 64; i++) {
    const struct link *other = &host->links[i];
    SIM_CHECK(sim, other == link || other->handle == ZAP_NO_FLOW || other->peer != link->peer);
  }
  if (sim->loud) printf("%.6f %c: up with %c, dial %d\n", (double)sim->now / 1e9, 'a' + host->index, 'a' + link->peer, (int)dial);
  if (dial != 0) host->dialling[dial - 1] = false;
  if (sim->stream_count == sim->stream_room) {
    sim->stream_room = sim->stream_room == 0 ? 64 : sim->stream_room * 2;
    sim->streams = realloc(sim->streams, sim->stream_room * sizeof *sim->streams);
  }
  sim->streams[sim->stream_count++] = (struct stream){.id = mix(sim->seed, sim->stream_count)};
}

static void on_down(void *context, uint32_t flow, enum zap_flow_reason reason, uint32_t undelivered) {
  struct host *host = context;
  struct sim *sim = host->sim;
  struct link *link = link_of(host, flow);
  struct stream *stream = &sim->streams[link->out];
  if (sim->loud) {
    printf("%.6f %c: flow with %c down: %s\n", (double)sim->now / 1e9, 'a' + host->index, 'a' + link->peer, zap_flow_reason_name(reason));
  }
  SIM_CHECK(sim, stream->failed == undelivered);
  SIM_CHECK(sim, stream->succeeded + stream->failed == stream->accepted);
  SIM_CHECK(sim, !sim->steady || link->closing || reason == ZAP_FLOW_FINISHED || reason == ZAP_FLOW_CANCELLED);
  SIM_CHECK(sim, reason != ZAP_FLOW_PROTOCOL);
  stream->over = true;
  link->handle = ZAP_NO_FLOW;
  host->redial_at[link->peer] = sim->now + 20 * MILLI + sim_below(sim, 100 * MILLI);
}

static void on_dialled(void *context, uint64_t dial, enum zap_flow_reason reason, uint32_t flow) {
  struct host *host = context;
  (void)flow;
  if (host->sim->loud) {
    printf("%.6f %c: dial of %c: %s\n", (double)host->sim->now / 1e9, 'a' + host->index, (int)('a' + dial - 1), zap_flow_reason_name(reason));
  }
  host->dialling[dial - 1] = false;
  host->redial_at[dial - 1] = host->sim->now + 20 * MILLI + sim_below(host->sim, 100 * MILLI);
}

/* In a buffer's cookie, beside its length: it lies in its datagram. */
#define IN_PLACE (UINT64_C(1) << 32)

static bool on_need(void *context, uint32_t flow, uint32_t length, bool next, const uint8_t *whole, struct zap_flow_buffer *buffer) {
  struct host *host = context;
  struct sim *sim = host->sim;
  (void)flow;
  (void)next;
  const struct packet *input = sim->input;
  if (whole != NULL) SIM_CHECK(sim, input != NULL && whole == input->bytes + ZAP_FLOW_HEADER && length == input->length - ZAP_FLOW_HEADER);
  if (sim->now < host->refuse_until || (host->held > 0 && host->held + length > host->pool)) return false;
  host->held += length;
  if (whole != NULL && !sim->input_kept && sim_chance(sim, sim->in_place)) {
    sim->input_kept = true;
    sim->kept_messages++;
    *buffer = (struct zap_flow_buffer){input->bytes + ZAP_FLOW_HEADER, (void *)(uintptr_t)(IN_PLACE | length)};
  } else {
    *buffer = (struct zap_flow_buffer){malloc(length), (void *)(uintptr_t)length};
  }
  return true;
}

static void give_back(struct host *host, const struct zap_flow_buffer *buffer) {
  uint64_t cookie = (uintptr_t)buffer->cookie;
  host->held -= (uint32_t)cookie;
  free(cookie & IN_PLACE ? buffer->bytes - ZAP_FLOW_HEADER : buffer->bytes);
}

static void on_unused(void *context, uint32_t flow, const struct zap_flow_buffer *buffer) {
  (void)flow;
  give_back(context, buffer);
}

static void on_delivered(void *context, uint32_t flow, const struct zap_flow_buffer *buffer, uint32_t length) {
  struct host *host = context;
  struct sim *sim = host->sim;
  struct link *link = link_of(host, flow);
  SIM_CHECK(sim, length == (uint32_t)(uintptr_t)buffer->cookie);
  if (!link->has_in) {
    uint64_t id = 0;
    if (length >= sizeof id) memcpy(&id, buffer->bytes, sizeof id);
    for (uint32_t i = sim->stream_count; i > 0 && !link->has_in; i--) {
      if (sim->streams[i - 1].id != id) continue;
      link->in = i - 1;
      link->has_in = true;
    }
  }
  SIM_CHECK(sim, link->has_in);
  if (link->has_in) {
    struct stream *stream = &sim->streams[link->in];
    SIM_CHECK(sim, stream->delivered < stream->accepted);
    SIM_CHECK(sim, length == length_of(sim, stream->id, stream->delivered));
    SIM_CHECK(sim, length > SIM_MESSAGE || same(buffer->bytes, length, stream->id, stream->delivered));
    stream->delivered++;
  }
  if (host->unread_count < 256 && sim_chance(sim, 0.5)) host->unread[host->unread_count++] = *buffer;
  else give_back(host, buffer);
}

static void on_done(void *context, uint32_t flow, uint64_t message, bool delivered) {
  struct host *host = context;
  struct sim *sim = host->sim;
  struct link *link = link_of(host, flow);
  struct sent *sent = &sim->sent[message];
  struct stream *stream = &sim->streams[link->out];
  SIM_CHECK(sim, sent->live && sent->stream == link->out);
  if (delivered) {
    SIM_CHECK(sim, sent->index == stream->succeeded && stream->delivered > sent->index);
    stream->succeeded++;
    sim->done_messages++;
  } else {
    SIM_CHECK(sim, sent->index >= stream->succeeded);
    SIM_CHECK(sim, !sim->steady || link->closing || sim->calm);
    stream->failed++;
    sim->lost_messages++;
  }
  /* At once: nothing may look at it any more. */
  free(sent->bytes);
  sent->bytes = NULL;
  sent->live = false;
}

static void on_room(void *context, uint32_t flow) { link_of(context, flow)->starved = false; }

void host_start(struct host *host) {
  struct sim *sim = host->sim;
  static const struct zap_flow_events events = {on_up, on_down, on_dialled, on_need, on_delivered, on_unused, on_done, on_room};
  uint8_t seed[32];
  for (int i = 0; i < 32; i++) seed[i] = (uint8_t)sim_random(sim);
  struct zap_flow_settings settings = sim->settings;
  host->id = (struct zap_flow_id){.length = 6};
  memcpy(host->id.bytes, (uint8_t[]){(uint8_t)('a' + host->index), '-', 'n', 'o', 'd', 'e'}, 6);
  settings.id = host->id;
  settings.dial_only = host->dial_only;
  host->endpoint = zap_endpoint_create(&settings, &events, host, seed, sim->now);
  if (host->endpoint == NULL) abort();
  if (sim->start_high) zap_endpoint_start_at(host->endpoint, UINT32_MAX - (uint32_t)sim_below(sim, 200));
  memset(host->links, 0, sizeof host->links);
  memset(host->dialling, 0, sizeof host->dialling);
  for (int i = 0; i < HOSTS; i++) host->redial_at[i] = sim->now + sim_below(sim, 2) * sim_below(sim, MILLI);
  host->back_at = 0;
}

void host_stop(struct host *host) {
  if (host->endpoint == NULL) return;
  struct zap_flow_stats stats;
  zap_endpoint_stats(host->endpoint, &stats);
  host->sim->dial_only_drops += stats.drops[ZAP_DROP_DIAL_ONLY];
  bool steady = host->sim->steady;
  host->sim->steady = false;
  zap_endpoint_destroy(host->endpoint);
  host->sim->steady = steady;
  host->endpoint = NULL;
  while (host->unread_count > 0) give_back(host, &host->unread[--host->unread_count]);
  SIM_CHECK(host->sim, host->held == 0);
}

void host_drain(struct host *host) {
  uint8_t head[ZAP_FLOW_HEAD_MAX];
  struct zap_flow_output out = {.head = head};
  while (zap_endpoint_output(host->endpoint, host->sim->now, &out)) {
    if (out.has_message) {
      const struct sent *sent = &host->sim->sent[out.message];
      SIM_CHECK(host->sim, sent->live && out.payload >= sent->bytes && out.payload + out.payload_length <= sent->bytes + sent->length);
      const struct zap_flow *f = zap_flow_of(host->endpoint, out.flow);
      uint32_t segment = (uint32_t)head[24] | (uint32_t)head[25] << 8 | (uint32_t)head[26] << 16 | (uint32_t)head[27] << 24;
      SIM_CHECK(host->sim, f != NULL && (int32_t)(segment - f->sender.limit) < 0 && segment - f->sender.una <= f->sender.mask);
    }
    sim_transmit(host->sim, host, &out);
  }
}

static void send_some(struct host *host, struct link *link) {
  struct sim *sim = host->sim;
  struct stream *stream = &sim->streams[link->out];
  for (int i = 0; i < 16 && host->to_send[link->peer] > 0; i++) {
    uint32_t length = length_of(sim, stream->id, stream->accepted);
    if (sim->sent_count == sim->sent_room) {
      sim->sent_room = sim->sent_room == 0 ? 256 : sim->sent_room * 2;
      sim->sent = realloc(sim->sent, sim->sent_room * sizeof *sim->sent);
    }
    struct sent *sent = &sim->sent[sim->sent_count];
    *sent = (struct sent){.bytes = malloc(length), .length = length, .stream = link->out, .index = stream->accepted, .live = true};
    fill(sent->bytes, length, stream->id, stream->accepted);
    enum zap_flow_status status = zap_endpoint_send(host->endpoint, link->handle, sent->bytes, length, sim->sent_count);
    if (status != ZAP_FLOW_OK) {
      SIM_CHECK(sim, status == ZAP_FLOW_AGAIN || status == ZAP_FLOW_GONE);
      free(sent->bytes);
      link->starved = true;
      return;
    }
    sim->sent_count++;
    stream->accepted++;
    host->to_send[link->peer]--;
  }
}

static bool has_link(const struct host *host, int peer) {
  for (int i = 0; i < 64; i++) {
    if (host->links[i].handle != ZAP_NO_FLOW && host->links[i].peer == peer) return true;
  }
  return false;
}

uint64_t host_work(struct host *host) {
  struct sim *sim = host->sim;
  uint64_t next = UINT64_MAX;
  for (int i = 0; i < 64; i++) {
    struct link *link = &host->links[i];
    if (link->handle == ZAP_NO_FLOW || link->starved || link->closing || host->to_send[link->peer] == 0) continue;
    send_some(host, link);
    if (!link->starved && host->to_send[link->peer] > 0) next = sim->now + sim_below(sim, 200 * MICRO);
  }
  for (int peer = 0; peer < sim->host_count && !sim->calm; peer++) {
    if (peer == host->index || host->dialling[peer] || has_link(host, peer)) continue;
    if (sim->hosts[peer].dial_only) continue;
    if (!sim->dial_both && peer < host->index && !host->dial_only) continue;
    if (host->redial_at[peer] > sim->now) {
      if (host->redial_at[peer] < next) next = host->redial_at[peer];
      continue;
    }
    host->dialling[peer] = zap_endpoint_dial(host->endpoint, sim->now, &sim->hosts[peer].address, NULL, (uint64_t)peer + 1) == ZAP_FLOW_OK;
  }
  if (host->unread_count > 0) {
    if (host->read_at <= sim->now) {
      while (host->unread_count > 0) give_back(host, &host->unread[--host->unread_count]);
      zap_endpoint_ready(host->endpoint, sim->now);
      host->read_at = sim->now + sim_below(sim, 2 * MILLI);
    }
    if (host->unread_count > 0 && host->read_at < next) next = host->read_at;
  }
  return next;
}

bool host_idle(const struct host *host) {
  if (host->endpoint == NULL) return false;
  for (int peer = 0; peer < host->sim->host_count; peer++) {
    if (peer != host->index && host->to_send[peer] > 0) return false;
  }
  for (int i = 0; i < 64; i++) {
    const struct link *link = &host->links[i];
    if (link->handle == ZAP_NO_FLOW) continue;
    const struct stream *stream = &host->sim->streams[link->out];
    if (stream->accepted != stream->succeeded + stream->failed) return false;
  }
  return true;
}

void host_check(struct host *host) {
  struct sim *sim = host->sim;
  struct zap_flow_stats stats;
  zap_endpoint_stats(host->endpoint, &stats);
  SIM_CHECK(sim, stats.flows < HOSTS && stats.candidates <= sim->settings.candidates && stats.dials < HOSTS);
  for (int i = 0; i < 64; i++) {
    struct zap_flow_peer peer;
    if (host->links[i].handle == ZAP_NO_FLOW || !zap_endpoint_peer(host->endpoint, host->links[i].handle, &peer)) continue;
    SIM_CHECK(sim, peer.flying <= sim->settings.credits);
    SIM_CHECK(sim, peer.held_bytes <= (uint64_t)sim->settings.credits * peer.payload_bytes + 2 * (uint64_t)sim->settings.message_bytes);
    SIM_CHECK(sim, peer.queued_bytes <= sim->settings.queue_bytes + sim->settings.message_bytes);
  }
}

/* What was delivered lies between what is known to have arrived and what was ever given. */
void sim_streams_check(struct sim *sim) {
  for (uint32_t i = 0; i < sim->stream_count; i++) {
    const struct stream *stream = &sim->streams[i];
    SIM_CHECK(sim, stream->succeeded <= stream->delivered);
    SIM_CHECK(sim, stream->delivered <= stream->accepted);
    SIM_CHECK(sim, stream->succeeded + stream->failed == stream->accepted);
  }
  for (uint32_t i = 0; i < sim->sent_count; i++) SIM_CHECK(sim, !sim->sent[i].live);
}
