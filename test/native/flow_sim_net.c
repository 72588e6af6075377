/* The network of the simulations, and the attacker in it. */
#include "flow_sim.h"

/* splitmix64 */
uint64_t sim_random(struct sim *sim) {
  uint64_t z = (sim->random += UINT64_C(0x9e3779b97f4a7c15));
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}

uint64_t sim_below(struct sim *sim, uint64_t bound) { return bound == 0 ? 0 : sim_random(sim) % bound; }

bool sim_chance(struct sim *sim, double probability) {
  return probability > 0 && (double)(sim_random(sim) >> 11) / 9007199254740992.0 < probability;
}

static bool sooner(const struct packet *a, const struct packet *b) {
  return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static void push(struct sim *sim, struct packet packet) {
  if (sim->packet_count == sim->packet_room) {
    sim->packet_room = sim->packet_room == 0 ? 256 : sim->packet_room * 2;
    sim->packets = realloc(sim->packets, sim->packet_room * sizeof *sim->packets);
  }
  packet.order = sim->order++;
  uint32_t at = sim->packet_count++;
  for (; at > 0 && sooner(&packet, &sim->packets[(at - 1) / 2]); at = (at - 1) / 2) sim->packets[at] = sim->packets[(at - 1) / 2];
  sim->packets[at] = packet;
}

bool sim_next_packet(struct sim *sim, struct packet *packet) {
  if (sim->packet_count == 0 || sim->packets[0].at > sim->now) return false;
  *packet = sim->packets[0];
  struct packet last = sim->packets[--sim->packet_count];
  uint32_t at = 0;
  for (;;) {
    uint32_t child = at * 2 + 1;
    if (child >= sim->packet_count) break;
    if (child + 1 < sim->packet_count && sooner(&sim->packets[child + 1], &sim->packets[child])) child++;
    if (!sooner(&sim->packets[child], &last)) break;
    sim->packets[at] = sim->packets[child];
    at = child;
  }
  if (sim->packet_count > 0) sim->packets[at] = last;
  return true;
}

void sim_network_free(struct sim *sim) {
  for (uint32_t i = 0; i < sim->packet_count; i++) free(sim->packets[i].bytes);
  for (int i = 0; i < 64; i++) free(sim->replays[i].bytes);
  free(sim->packets);
}

struct host *sim_host_at(struct sim *sim, const struct zap_flow_address *address) {
  for (int i = 0; i < sim->host_count; i++) {
    if (zap_address_equal(&sim->hosts[i].address, address)) return &sim->hosts[i];
  }
  return NULL;
}

static uint8_t *copy(const uint8_t *bytes, uint32_t length) {
  /* Its own size, so that a read behind its end is seen. */
  uint8_t *to = malloc(length == 0 ? 1 : length);
  memcpy(to, bytes, length);
  return to;
}

void sim_inject(struct sim *sim, const struct zap_flow_address *from, const struct zap_flow_address *to, const uint8_t *bytes,
                uint32_t length, uint64_t at) {
  push(sim, (struct packet){.at = at, .from = *from, .to = *to, .length = length, .bytes = copy(bytes, length)});
}

static uint64_t when(struct sim *sim, struct host *host, uint32_t length) {
  const struct faults *f = &sim->faults;
  uint64_t at = sim->now;
  if (f->rate > 0) {
    if (host->linkfree < at) host->linkfree = at;
    uint64_t waiting = (host->linkfree - at) * f->rate / SECOND;
    if (waiting > f->queue) return 0;
    host->linkfree += length * SECOND / f->rate;
    at = host->linkfree;
  }
  at += f->delay + sim_below(sim, f->jitter);
  if (sim_chance(sim, f->reorder)) at += sim_below(sim, 4 * f->delay + MICRO);
  return at;
}

static void corrupt(struct sim *sim, uint8_t *bytes, uint32_t *length) {
  if (sim_chance(sim, 0.2)) {
    *length = (uint32_t)sim_below(sim, *length);
    return;
  }
  for (uint64_t flips = 1 + sim_below(sim, 8); flips > 0; flips--) {
    uint64_t bit = sim_below(sim, (uint64_t)*length * 8);
    bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
  }
}

void sim_transmit(struct sim *sim, struct host *host, const struct zap_flow_output *out) {
  static uint8_t bytes[ZAP_FLOW_HEAD_MAX + 65536];
  uint32_t length = out->head_length + out->payload_length;
  memcpy(bytes, out->head, out->head_length);
  if (out->payload_length > 0) memcpy(bytes + out->head_length, out->payload, out->payload_length);
  sim->datagrams++;
  const struct faults *f = &sim->faults;
  if (sim_chance(sim, 0.02)) {
    struct packet *kept = &sim->replays[sim_below(sim, 64)];
    free(kept->bytes);
    *kept = (struct packet){.from = host->address, .to = out->to, .length = length, .bytes = copy(bytes, length)};
  }
  const struct host *other = sim_host_at(sim, &out->to);
  if (other != NULL && sim->cut[host->index][other->index]) return;
  int copies = sim_chance(sim, f->duplicate) ? 2 + (int)sim_below(sim, 3) : 1;
  for (int i = 0; i < copies; i++) {
    uint64_t at = when(sim, host, length);
    if (at == 0 || sim_chance(sim, f->loss)) continue;
    struct packet packet = {.at = at, .from = host->address, .to = out->to, .length = length, .bytes = copy(bytes, length)};
    if (sim_chance(sim, f->corrupt)) corrupt(sim, packet.bytes, &packet.length);
    push(sim, packet);
  }
}

/* Off the path: it guesses sessions, and sends again what it once saw; it can say that it is anybody. */
void sim_attack(struct sim *sim) {
  struct host *victim = &sim->hosts[sim_below(sim, (uint64_t)sim->host_count)];
  struct host *other = &sim->hosts[sim_below(sim, (uint64_t)sim->host_count)];
  const struct packet *kept = &sim->replays[sim_below(sim, 64)];
  uint8_t bytes[512] = {0x5a, 0x41, 0x50, 0, 1, (uint8_t)(1 + sim_below(sim, 8))};
  uint32_t length = 64 + (uint32_t)sim_below(sim, sizeof bytes - 64);
  switch (sim_below(sim, 4)) {
    case 0:
      if (kept->bytes != NULL) sim_inject(sim, &kept->from, &kept->to, kept->bytes, kept->length, sim->now);
      return;
    case 1: /* its own fields, and a right checksum */
      for (uint32_t i = 6; i < length; i++) bytes[i] = (uint8_t)sim_random(sim);
      bytes[48] = (uint8_t)(1 + sim_below(sim, 60));
      zap_datagram_seal(bytes, length, NULL, 0);
      break;
    case 2: /* fields of a real one, and another session */
      if (kept->bytes == NULL || kept->length < ZAP_COMMON_BYTES || kept->length > sizeof bytes || kept->bytes[5] > ZAP_DATAGRAM_REFUSE) return;
      length = kept->length;
      memcpy(bytes, kept->bytes, length);
      bytes[16 + sim_below(sim, 8)] ^= (uint8_t)(1 + sim_below(sim, 255));
      if (bytes[5] == ZAP_DATAGRAM_INIT || bytes[5] == ZAP_DATAGRAM_HELLO) bytes[24 + sim_below(sim, 24)] ^= 1;
      zap_datagram_seal(bytes, length, NULL, 0);
      break;
    default:
      for (uint32_t i = 0; i < length; i++) bytes[i] = (uint8_t)sim_random(sim);
  }
  sim_inject(sim, &other->address, &victim->address, bytes, length, sim->now);
}
