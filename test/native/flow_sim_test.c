/* Worlds by seed: `flow_sim_test FIRST COUNT`, or `flow_sim_test FIRST COUNT loud` to watch one. */
#include <time.h>

#include "flow_sim.h"

static double pick(struct sim *sim, const double *from, uint64_t count) { return from[sim_below(sim, count)]; }

static void arrange(struct sim *sim) {
  static const double losses[] = {0, 0, 0.001, 0.01, 0.05, 0.1, 0.2};
  static const double rare[] = {0, 0, 0, 0.01, 0.1};
  static const uint32_t payloads[] = {128, 256, 1000, 1384}, credits[] = {64, 128, 1024}, longest[] = {30, 300, 3000, 30000, 200000};
  struct faults *f = &sim->faults;
  f->loss = pick(sim, losses, 7);
  f->duplicate = pick(sim, rare, 5);
  f->reorder = pick(sim, rare, 5);
  f->corrupt = pick(sim, rare, 5) / 2;
  f->delay = MICRO << sim_below(sim, 11);
  f->jitter = sim_chance(sim, 0.5) ? 0 : MICRO << sim_below(sim, 11);
  if (sim_chance(sim, 0.25)) {
    f->rate = 1000000 << sim_below(sim, 8);
    f->queue = 4000 << sim_below(sim, 7);
  }
  sim->host_count = sim_chance(sim, 0.7) ? 2 : 2 + (int)sim_below(sim, HOSTS - 1);
  sim->longest = longest[sim_below(sim, sim_chance(sim, 0.9) ? 4 : 5)];
  sim->start_high = sim_chance(sim, 0.5);
  sim->dial_both = sim_chance(sim, 0.5);
  sim->steady = sim_chance(sim, 0.4);
  sim->settings = (struct zap_flow_settings){
      .payload_bytes = payloads[sim_below(sim, 4)],
      .credits = credits[sim_below(sim, 3)],
      .message_bytes = SIM_MESSAGE,
      .queue_messages = 16u << sim_below(sim, 6),
      .queue_bytes = 20000u << sim_below(sim, 6),
      .flows = 8,
      .dials = 8,
      .candidates = 8,
  };
  sim->in_place = sim_chance(sim, 0.3) ? 0 : 0.1 + 0.3 * (double)sim_below(sim, 4);
  int dial_only = sim_chance(sim, 0.2) ? (int)sim_below(sim, (uint64_t)sim->host_count) : HOSTS;
  if (sim_chance(sim, 0.4)) {
    /* All of them, or the first and whoever comes; and one that is not there. */
    sim->settings.strangers = sim_chance(sim, 0.5);
    sim->settings.allow = sim->allow;
    sim->settings.allowed = sim->settings.strangers ? 2 : HOSTS + 1;
    for (int i = 0; i <= HOSTS; i++) {
      struct zap_flow_allowed *entry = &sim->allow[i];
      entry->id = (struct zap_flow_id){.length = 6, .bytes = {(uint8_t)('a' + (i + HOSTS) % (HOSTS + 1)), '-', 'n', 'o', 'd', 'e'}};
      entry->pinned = sim_chance(sim, 0.5);
      entry->address.ip[15] = (uint8_t)((i + HOSTS) % (HOSTS + 1) + 1);
    }
  }
  uint64_t messages = sim_below(sim, 120);
  for (int i = 0; i < sim->host_count; i++) {
    struct host *host = &sim->hosts[i];
    host->sim = sim;
    host->index = i;
    host->dial_only = i == dial_only;
    host->address.ip[15] = (uint8_t)(i + 1);
    host->address.port = 4000;
    host->pool = 10000u << sim_below(sim, 8);
    for (int peer = 0; peer < sim->host_count; peer++) {
      host->to_send[peer] = peer == i ? 0 : (uint32_t)sim_below(sim, messages + 1);
    }
    host_start(host);
  }
}

/* Something that a network or a host does to all others. */
static void trouble(struct sim *sim) {
  struct host *host = &sim->hosts[sim_below(sim, (uint64_t)sim->host_count)];
  uint64_t a = sim_below(sim, (uint64_t)sim->host_count), b = sim_below(sim, (uint64_t)sim->host_count);
  uint64_t dice = sim_below(sim, sim->steady ? 4 : 8);
  if (dice < 2) {
    host->refuse_until = sim->now + sim_below(sim, 50 * MILLI);
  } else if (dice < 4) {
    for (int i = 0; i < 20; i++) sim_attack(sim);
  } else if (dice == 4) {
    sim->cut[a][b] = true;
    if (sim_chance(sim, 0.5)) sim->cut[b][a] = true;
  } else if (dice == 5) {
    memset(sim->cut, 0, sizeof sim->cut);
  } else if (dice == 6) {
    host_stop(host);
    host->back_at = sim->now + 1 + (sim_chance(sim, 0.3) ? sim_below(sim, 8 * SECOND) : sim_below(sim, 50 * MILLI));
    if (sim_chance(sim, 0.3)) host->address.port++;
  } else if (host->endpoint != NULL) {
    struct link *link = &host->links[sim_below(sim, 4)];
    if (link->handle == ZAP_NO_FLOW) return;
    if (sim_chance(sim, 0.5)) zap_endpoint_abort(host->endpoint, link->handle);
    else zap_endpoint_close(host->endpoint, sim->now, link->handle);
    link->closing = true;
  }
}

static void goodbye(struct sim *sim) {
  for (int i = 0; i < sim->host_count; i++) {
    for (int l = 0; l < 64; l++) {
      struct link *link = &sim->hosts[i].links[l];
      if (link->handle == ZAP_NO_FLOW) continue;
      if (sim_chance(sim, 0.7)) zap_endpoint_close(sim->hosts[i].endpoint, sim->now, link->handle);
      link->closing = true;
    }
  }
  sim_run(sim, sim->now + 8 * SECOND, false);
}

/* What was played, all worlds together. */
struct totals {
  uint64_t millis, messages, datagrams, kept, dial_only, strangers;
};

static bool play(uint64_t seed, bool loud, struct totals *totals) {
  struct sim *sim = calloc(1, sizeof *sim);
  sim->seed = seed;
  sim->random = seed * 77777;
  sim->now = SECOND;
  sim->loud = loud;
  arrange(sim);
  uint64_t end = sim->now + 2 * SECOND, pause = MILLI << sim_below(sim, 10);
  while (sim->now < end && !sim->failed) {
    sim_run(sim, sim->now + 1 + sim_below(sim, pause), false);
    if (sim_chance(sim, 0.8)) trouble(sim);
  }
  memset(sim->cut, 0, sizeof sim->cut);
  if (!sim->steady) {
    sim->faults = (struct faults){.delay = sim->faults.delay};
    for (int i = 0; i < sim->host_count; i++) {
      if (sim->hosts[i].endpoint == NULL) sim->hosts[i].back_at = sim->now;
    }
  }
  uint64_t limit = sim->now + (sim->steady ? 600 : 30) * SECOND;
  sim_run(sim, limit, true);
  SIM_CHECK(sim, sim->now < limit);
  for (int i = 0; i < sim->host_count; i++) SIM_CHECK(sim, sim->failed || host_idle(&sim->hosts[i]));
  if (!sim->failed) {
    sim->calm = true;
    goodbye(sim);
  }
  for (int i = 0; i < sim->host_count; i++) {
    if (!sim->failed && sim->hosts[i].endpoint != NULL) {
      struct zap_flow_stats stats;
      zap_endpoint_stats(sim->hosts[i].endpoint, &stats);
      if (loud) {
        printf("%c: %llu datagrams, %llu again, %llu timeouts, %llu losses, %llu spurious, %llu messages in\n", 'a' + i,
               (unsigned long long)stats.datagrams_out, (unsigned long long)stats.segments_again, (unsigned long long)stats.timeouts,
               (unsigned long long)stats.losses, (unsigned long long)stats.spurious, (unsigned long long)stats.messages_in);
      }
    }
    if (sim->hosts[i].endpoint != NULL) host_stop(&sim->hosts[i]);
  }
  if (!sim->failed) sim_streams_check(sim);
  if (sim->steady && !sim->failed) SIM_CHECK(sim, sim->lost_messages == 0);
  bool failed = sim->failed;
  if (loud) {
    printf("seed %llu: %.3f s, %d hosts, loss %g, longest %u, %s, %llu messages, %llu lost, %llu datagrams\n", (unsigned long long)seed,
           (double)sim->now / 1e9, sim->host_count, sim->faults.loss, sim->longest, sim->steady ? "steady" : "rough",
           (unsigned long long)sim->done_messages, (unsigned long long)sim->lost_messages, (unsigned long long)sim->datagrams);
  }
  totals->millis += sim->now / MILLI;
  totals->messages += sim->done_messages;
  totals->datagrams += sim->datagrams;
  totals->kept += sim->kept_messages;
  totals->dial_only += sim->dial_only_drops;
  totals->strangers += sim->stranger_flows;
  sim_network_free(sim);
  for (uint32_t i = 0; i < sim->sent_count; i++) free(sim->sent[i].bytes);
  free(sim->sent);
  free(sim->streams);
  free(sim);
  return !failed;
}

int main(int count, char **words) {
  uint64_t first = count > 1 ? strtoull(words[1], NULL, 10) : 1, seeds = count > 2 ? strtoull(words[2], NULL, 10) : 200;
  uint64_t failures = 0;
  struct totals totals = {0};
  for (uint64_t seed = first; seed < first + seeds; seed++) {
    if (!play(seed, count > 3, &totals) && ++failures == 10) break;
  }
  /* In so many worlds everything has happened, or these are not the worlds that were meant. */
  bool all = seeds < 100 || (totals.kept > 0 && totals.dial_only > 0 && totals.strangers > 0);
  printf("%llu seeds, %.1f h simulated, %llu messages (%llu in place), %llu datagrams, %llu dials in vain, %llu strangers: %s\n",
         (unsigned long long)seeds, (double)totals.millis / 3.6e6, (unsigned long long)totals.messages, (unsigned long long)totals.kept,
         (unsigned long long)totals.datagrams, (unsigned long long)totals.dial_only, (unsigned long long)totals.strangers,
         failures == 0 && all ? "ok" : "FAILED");
  return failures == 0 && all ? 0 : 1;
}
