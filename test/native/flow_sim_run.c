/* The loop of a simulation. */
#include "flow_sim.h"

static bool idle(const struct sim *sim) {
  for (int i = 0; i < sim->host_count; i++) {
    if (!host_idle(&sim->hosts[i])) return false;
  }
  return true;
}

void sim_run(struct sim *sim, uint64_t until, bool until_idle) {
  uint64_t turns = 0;
  uint64_t wake[HOSTS] = {0};
  while (sim->now <= until && !sim->failed) {
    struct packet packet;
    while (sim_next_packet(sim, &packet)) {
      struct host *host = sim_host_at(sim, &packet.to);
      if (host != NULL && host->endpoint != NULL) {
        sim->input = &packet;
        zap_endpoint_input(host->endpoint, sim->now, &packet.from, packet.bytes, packet.length);
        sim->input = NULL;
        wake[host->index] = 0;
      }
      if (!sim->input_kept) free(packet.bytes);
      sim->input_kept = false;
    }
    uint64_t next = sim->packet_count > 0 ? sim->packets[0].at : UINT64_MAX;
    for (int i = 0; i < sim->host_count; i++) {
      struct host *host = &sim->hosts[i];
      if (host->endpoint == NULL) {
        if (host->back_at != 0 && host->back_at <= sim->now) host_start(host);
        else if (host->back_at != 0 && host->back_at < next) next = host->back_at;
        if (host->endpoint == NULL) continue;
      }
      if (wake[i] <= sim->now) {
        zap_endpoint_advance(host->endpoint, sim->now);
        uint64_t work = host_work(host);
        host_drain(host);
        if (turns % 16 == 0) host_check(host);
        uint64_t deadline = zap_endpoint_deadline(host->endpoint);
        wake[i] = work < deadline ? work : deadline;
      }
      if (wake[i] < next) next = wake[i];
    }
    if (until_idle && idle(sim)) return;
    if (++turns > 20000000) {
      SIM_CHECK(sim, !"an end of it");
      return;
    }
    if (sim->packet_count > 0 && sim->packets[0].at < next) next = sim->packets[0].at;
    if (next > until) {
      sim->now = until + 1;
      break;
    }
    if (next > sim->now) sim->now = next;
    else if (next <= sim->now && (turns & 7) == 0) sim->now += 1;
  }
}
