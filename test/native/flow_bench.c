/*
 * What the protocol costs and carries, without a network: `flow_bench`. Nanoseconds per datagram, output and input together, on one core;
 * and simulated goodput against loss. Figures to look at, nothing is asserted.
 */
#include <time.h>

#include "flow_sim.h"

static double seconds(void) {
  struct timespec time;
  (void)clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static uint32_t flow_of[2];
static uint8_t slab[1 << 20];
static uint8_t message[1 << 20];
static uint64_t delivered;

static void on_up(void *context, uint32_t flow, const struct zap_flow_peer *peer, uint64_t dial) {
  (void)peer, (void)dial;
  *(uint32_t *)context = flow;
}
static void on_down(void *context, uint32_t flow, enum zap_flow_reason reason, uint32_t undelivered) {
  (void)context, (void)flow, (void)reason, (void)undelivered;
}
static void on_dialled(void *context, uint64_t dial, enum zap_flow_reason reason, uint32_t flow) {
  (void)context, (void)dial, (void)reason, (void)flow;
}
static bool on_need(void *context, uint32_t flow, uint32_t length, bool next, const uint8_t *whole, struct zap_flow_buffer *buffer) {
  (void)context, (void)flow, (void)length, (void)next, (void)whole;
  buffer->bytes = slab;
  return true;
}
static void on_buffer(void *context, uint32_t flow, const struct zap_flow_buffer *buffer, uint32_t length) {
  (void)context, (void)flow, (void)buffer, (void)length;
  delivered++;
}
static void on_unused(void *context, uint32_t flow, const struct zap_flow_buffer *buffer) { (void)context, (void)flow, (void)buffer; }
static void on_done(void *context, uint32_t flow, uint64_t which, bool is_delivered) {
  (void)context, (void)flow, (void)which, (void)is_delivered;
}
static void on_room(void *context, uint32_t flow) { (void)context, (void)flow; }

static void cost(uint32_t payload, uint32_t length) {
  static const struct zap_flow_events events = {on_up, on_down, on_dialled, on_need, on_buffer, on_unused, on_done, on_room};
  static const struct zap_flow_address addresses[2] = {{.ip = {[15] = 1}, .port = 1}, {.ip = {[15] = 2}, .port = 2}};
  struct zap_endpoint *ends[2];
  uint64_t now = SECOND;
  for (int i = 0; i < 2; i++) {
    struct zap_flow_settings settings = {.flows = 8, .payload_bytes = payload};
    settings.id = (struct zap_flow_id){.length = 1, .bytes = {(uint8_t)('a' + i)}};
    uint8_t seed[32] = {(uint8_t)i, [16] = (uint8_t)i};
    ends[i] = zap_endpoint_create(&settings, &events, &flow_of[i], seed, now);
    flow_of[i] = ZAP_NO_FLOW;
  }
  (void)zap_endpoint_dial(ends[0], now, &addresses[1], NULL, 1);
  static uint8_t bytes[32][ZAP_FLOW_HEAD_MAX + 65536];
  uint64_t data = 0;
  delivered = 0;
  double began = 0;
  for (uint64_t turn = 0;; turn++) {
    if (turn == 1000) {
      began = seconds();
      data = delivered = 0;
    }
    if (turn > 1000 && turn % 64 == 0 && seconds() - began > 1) break;
    now += 5 * MICRO;
    for (int i = 0; i < 2; i++) {
      if (i == 0 && flow_of[0] != ZAP_NO_FLOW) {
        while (zap_endpoint_send(ends[0], flow_of[0], message, length, 1) == ZAP_FLOW_OK) continue;
      }
      zap_endpoint_advance(ends[i], now);
      uint32_t burst = 0, lengths[32];
      for (struct zap_flow_output out; burst < 32; burst++) {
        out.head = bytes[burst];
        if (!zap_endpoint_output(ends[i], now, &out)) break;
        /* The copy stands for the DMA of a card; the payload is read by the checksum anyway. */
        if (out.payload_length > 0) memcpy(bytes[burst] + out.head_length, out.payload, out.payload_length);
        lengths[burst] = out.head_length + out.payload_length;
      }
      for (uint32_t n = 0; n < burst; n++) zap_endpoint_input(ends[!i], now, &addresses[i], bytes[n], lengths[n]);
      if (i == 0) data += burst;
    }
  }
  double took = seconds() - began;
  printf("payload %5u, messages of %7u: %6.0f ns per DATA datagram (output, input, its share of ACKs), %.2f GB/s, %.2f M messages/s\n", payload,
         length, took / (double)data * 1e9, (double)delivered * length / took / 1e9, (double)delivered / took / 1e6);
  zap_endpoint_destroy(ends[0]);
  zap_endpoint_destroy(ends[1]);
}

static void goodput(double loss, uint64_t delay, uint64_t rate) {
  struct sim *sim = calloc(1, sizeof *sim);
  sim->seed = sim->random = 7;
  sim->now = SECOND;
  sim->host_count = 2;
  sim->longest = 4000;
  sim->steady = true;
  sim->faults = (struct faults){.loss = loss, .delay = delay, .rate = rate, .queue = 500000};
  sim->settings = (struct zap_flow_settings){.message_bytes = SIM_MESSAGE, .flows = 4, .credits = 1024, .candidates = 8, .queue_bytes = 16 << 20};
  for (int i = 0; i < 2; i++) {
    struct host *host = &sim->hosts[i];
    host->sim = sim;
    host->index = i;
    host->address = (struct zap_flow_address){.ip = {[15] = (uint8_t)(i + 1)}, .port = 4000};
    host->pool = 1 << 30;
    host->to_send[1 - i] = i == 0 ? 20000 : 0;
    host_start(host);
  }
  while (sim->sent_count == 0 && !sim->failed) sim_run(sim, sim->now + MILLI, false);
  uint64_t began = sim->now;
  sim_run(sim, sim->now + 5 * SECOND, true);
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < sim->sent_count; i++) bytes += sim->sent[i].live ? 0 : sim->sent[i].length;
  struct zap_flow_stats stats;
  zap_endpoint_stats(sim->hosts[0].endpoint, &stats);
  printf("loss %4.1f %%, one way %4.0f us, link %5.0f MB/s: goodput %6.1f MB/s, sent again %.1f %%, timeouts %llu, spurious %llu\n", loss * 100,
         (double)delay / 1e3, (double)rate / 1e6, (double)bytes / ((double)(sim->now - began) / 1e9) / 1e6,
         100.0 * (double)stats.segments_again / (double)stats.segments_out, (unsigned long long)stats.timeouts,
         (unsigned long long)stats.spurious);
  host_stop(&sim->hosts[0]);
  host_stop(&sim->hosts[1]);
  sim_network_free(sim);
  for (uint32_t i = 0; i < sim->sent_count; i++) free(sim->sent[i].bytes);
  free(sim->sent);
  free(sim->streams);
  free(sim);
}

int main(void) {
  cost(1384, 64);
  cost(1384, 1384);
  cost(1384, 100000);
  cost(8872, 1000000);
  static const double losses[] = {0, 0.001, 0.01, 0.02, 0.05, 0.1, 0.2};
  for (int i = 0; i < 7; i++) goodput(losses[i], 10 * MICRO, 1250000000);
  for (int i = 0; i < 7; i++) goodput(losses[i], 500 * MICRO, 125000000);
  return 0;
}
