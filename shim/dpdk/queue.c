#include "queue_parts.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_pause.h>

#include "../common/thread.h"

#define RETURNED 64
/* Whoever has just been heard of is likely to be heard of again: nobody sleeps before this long without work. */
#define QUIET_NS UINT64_C(1000000)
/* After this long it sleeps longer, so many times: a node with nothing to do costs next to nothing. */
#define STILL_NS UINT64_C(100000000)
#define STILL_TIMES 10
#define COLLECT_NS UINT64_C(20000)

static enum zap_verdict look(const struct zap_queue *queue, const struct rte_mbuf *buffer, struct zap_packet *packet) {
  if (unlikely(buffer->nb_segs != 1)) return ZAP_PACKET_SEGMENTS;
  uint32_t trust = 0;
  if (queue->port->checks) {
    uint64_t ip = buffer->ol_flags & RTE_MBUF_F_RX_IP_CKSUM_MASK, udp = buffer->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK;
    /* A port that calls one bad may have been mistaken about what it is: then it is checked here. */
    if (ip == RTE_MBUF_F_RX_IP_CKSUM_GOOD) trust |= ZAP_TRUST_IP;
    if (udp == RTE_MBUF_F_RX_L4_CKSUM_GOOD) trust |= ZAP_TRUST_UDP;
  }
  return zap_packet_parse(rte_pktmbuf_mtod(buffer, const uint8_t *), buffer->data_len, &queue->port->station, trust, packet);
}

/* Says whether the buffer has found another owner. */
static bool deliver(struct zap_queue *queue, const struct zap_packet *packet, struct rte_mbuf *buffer, uint64_t now, uint32_t *space,
                    uint64_t *verdicts) {
  const struct zap_queue_settings *settings = &queue->settings;
  if (settings->packet != NULL) return settings->packet(settings->context, queue, packet, buffer, now);
  if (settings->handoff == NULL) return false;
  if (unlikely(*space == 0)) {
    verdicts[ZAP_PACKET_GOOD]--;
    verdicts[ZAP_PACKET_RING]++;
    return false;
  }
  (*space)--;
  uint32_t peer = settings->peer == NULL ? 0 : settings->peer(settings->context, packet);
  zap_handoff_push(settings->handoff, buffer, packet->payload, packet->length, peer, now);
  return true;
}

static void receive(struct zap_queue *queue, struct rte_mbuf **burst, uint16_t got, uint64_t now) {
  struct zap_handoff *handoff = queue->settings.packet == NULL ? queue->settings.handoff : NULL;
  uint32_t space = handoff == NULL ? 0 : zap_handoff_room(handoff, got), before = space;
  uint64_t verdicts[ZAP_PACKET_VERDICTS] = {0};
  struct rte_mbuf *done[ZAP_QUEUE_BURST];
  uint16_t done_count = 0;
  uint64_t bytes = 0;
  for (uint16_t i = 0; i < got && i < 4; i++) rte_prefetch0(rte_pktmbuf_mtod(burst[i], void *));
  for (uint16_t i = 0; i < got; i++) {
    if (i + 4 < got) rte_prefetch0(rte_pktmbuf_mtod(burst[i + 4], void *));
    struct zap_packet packet;
    bytes += burst[i]->pkt_len;
    enum zap_verdict verdict = look(queue, burst[i], &packet);
    verdicts[verdict]++;
    bool taken = false;
    if (likely(verdict == ZAP_PACKET_GOOD)) taken = deliver(queue, &packet, burst[i], now, &space, verdicts);
    else if (verdict < ZAP_PACKET_FIRST_DROP) zap_queue_hear(queue, &packet, now);
    if (!taken) done[done_count++] = burst[i];
  }
  if (handoff != NULL && space != before && zap_ring_publish(&handoff->out) && queue->settings.wake != NULL)
    queue->settings.wake(queue->settings.context);
  if (done_count > 0) rte_pktmbuf_free_bulk(done, done_count);
  zap_queue_count(&queue->stats.packets_in, got);
  zap_queue_count(&queue->stats.bytes_in, bytes);
  for (int i = 0; i < ZAP_PACKET_VERDICTS; i++)
    if (verdicts[i] != 0) zap_queue_count(&queue->stats.verdict[i], verdicts[i]);
}

static bool take_back(struct zap_queue *queue) {
  struct zap_handoff *handoff = queue->settings.handoff;
  if (handoff == NULL) return false;
  void *back[RETURNED];
  uint32_t returned = zap_handoff_take(handoff, back, RETURNED);
  if (returned == 0) return false;
  rte_pktmbuf_free_bulk((struct rte_mbuf **)back, returned);
  if (handoff->nonsense != queue->stats.tokens_wrong) zap_queue_count(&queue->stats.tokens_wrong, handoff->nonsense - queue->stats.tokens_wrong);
  return true;
}

static void idle(struct zap_queue *queue, uint64_t now) {
  const struct zap_queue_settings *settings = &queue->settings;
  if (settings->idle == ZAP_IDLE_SPIN) return;
  if (queue->empty < settings->idle_polls) {
    rte_pause();
    return;
  }
  zap_queue_count(&queue->stats.idles, 1);
  uint64_t quiet = now - queue->busy_at;
  if (settings->idle == ZAP_IDLE_PAUSE || quiet < QUIET_NS) {
    (void)sched_yield();
    return;
  }
  long us = (long)settings->sleep_us * (quiet < STILL_NS ? 1 : STILL_TIMES);
  (void)nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000}, NULL);
}

/*
 * Most cards let go of what they have sent only when they need its place for something else: a whole ring later, or never on a link that
 * has fallen quiet.
 */
static void collect(struct zap_queue *queue, uint64_t now) {
  if (now - queue->asked_at < COLLECT_NS) return;
  queue->asked_at = now;
  (void)rte_eth_tx_done_cleanup(queue->port->id, queue->number, 0);
}

bool zap_queue_poll(struct zap_queue *queue) {
  struct rte_mbuf *burst[ZAP_QUEUE_BURST];
  uint16_t got = rte_eth_rx_burst(queue->port->id, queue->number, burst, ZAP_QUEUE_BURST);
  uint64_t now = zap_now();
  bool busy = got > 0;
  zap_queue_count(&queue->stats.polls, 1);
  if (got > 0) receive(queue, burst, got, now);
  else zap_queue_count(&queue->stats.empty_polls, 1);
  if (take_back(queue)) busy = true;
  if (queue->settings.turn != NULL && queue->settings.turn(queue->settings.context, queue, now)) busy = true;
  if (queue->leaves > 0) {
    zap_queue_flush(queue);
    busy = true;
  }
  if (queue->lent > 0) collect(queue, now);
  if (busy) {
    queue->empty = 0;
    queue->busy_at = now;
  } else {
    if (queue->empty < UINT32_MAX) queue->empty++;
    idle(queue, now);
  }
  return busy;
}

static struct zap_queue *make(struct zap_port *port, uint16_t number, const struct zap_queue_settings *settings) {
  if (number >= port->queues) {
    (void)zap_fail(ZAP_E_INVALID, "%s has %u queues, and no number %u", port->name, port->queues, number);
    return NULL;
  }
  if (settings->sleep_us > 100000 || settings->idle > ZAP_IDLE_SLEEP) {
    (void)zap_fail(ZAP_E_INVALID, "a back-off of kind %u and %u microseconds: at most 100000", (unsigned)settings->idle, settings->sleep_us);
    return NULL;
  }
  struct zap_queue *queue = calloc(1, sizeof *queue);
  if (queue == NULL) {
    (void)zap_fail(ZAP_E_MEMORY, "out of memory for a queue");
    return NULL;
  }
  queue->port = port;
  queue->number = number;
  queue->settings = *settings;
  if (queue->settings.idle_polls == 0) queue->settings.idle_polls = 64;
  if (queue->settings.sleep_us == 0) queue->settings.sleep_us = 50;
  return queue;
}

/* On the thread that will poll. */
static int32_t enter(struct zap_queue *queue) {
  if (queue->settings.cpu >= 0) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (queue->settings.cpu < CPU_SETSIZE) CPU_SET((unsigned)queue->settings.cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0) return zap_fail(ZAP_E_INVALID, "no thread can run on CPU %d", queue->settings.cpu);
  }
  /* Else the kernel adds 50 us to every sleep. */
  if (queue->settings.idle == ZAP_IDLE_SLEEP) (void)prctl(PR_SET_TIMERSLACK, 1000ul, 0ul, 0ul, 0ul);
  /* Gives it a number, and with it a cache of buffers. */
  if (rte_lcore_id() == LCORE_ID_ANY) {
    if (rte_thread_register() != 0) return zap_fail(ZAP_E_LIMIT, "DPDK has no number left for a further thread (%d)", RTE_MAX_LCORE);
    queue->registered = true;
  }
  return ZAP_OK;
}

static void leave(struct zap_queue *queue) {
  for (int tries = 0; queue->leaves > 0 && tries < 100; tries++) zap_queue_flush(queue);
  for (uint16_t i = 0; i < queue->leaves; i++) rte_pktmbuf_free(queue->leaving[i]);
  queue->leaves = 0;
  rte_pktmbuf_free(queue->spare);
  queue->spare = NULL;
  while (take_back(queue)) continue;
  if (queue->registered) rte_thread_unregister();
}

int32_t zap_queue_attach(struct zap_port *port, uint16_t number, const struct zap_queue_settings *settings, struct zap_queue **out) {
  struct zap_queue *queue = make(port, number, settings);
  if (queue == NULL) return ZAP_E_INVALID;
  int32_t status = enter(queue);
  if (status != ZAP_OK) {
    free(queue);
    return status;
  }
  atomic_fetch_add(&port->threads, 1);
  *out = queue;
  return ZAP_OK;
}

void zap_queue_detach(struct zap_queue *queue) {
  leave(queue);
  atomic_fetch_sub(&queue->port->threads, 1);
  free(queue);
}

static void *serve(void *context) {
  struct zap_queue *queue = context;
  zap_thread_name("zap-dpdk");
  int32_t status = enter(queue);
  if (status != ZAP_OK) zap_text_copy(queue->text, sizeof queue->text, zap_failure());
  atomic_store(&queue->started, status == ZAP_OK ? 1 : status);
  if (status == ZAP_OK) {
    while (!atomic_load_explicit(&queue->stop, memory_order_relaxed)) (void)zap_queue_poll(queue);
    leave(queue);
  }
  atomic_store(&queue->ended, true);
  return NULL;
}

static bool wait_for(const atomic_bool *flag, uint64_t until) {
  while (!atomic_load(flag)) {
    if (zap_now() > until) return false;
    (void)nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
  }
  return true;
}

int32_t zap_queue_start(struct zap_port *port, uint16_t number, const struct zap_queue_settings *settings, struct zap_queue **out) {
  struct zap_queue *queue = make(port, number, settings);
  if (queue == NULL) return ZAP_E_INVALID;
  atomic_fetch_add(&port->threads, 1);
  int32_t status = zap_thread_start(serve, queue);
  while (status == ZAP_OK && atomic_load(&queue->started) == 0) (void)nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
  if (status == ZAP_OK && atomic_load(&queue->started) < 0) {
    status = zap_fail(atomic_load(&queue->started), "%s", queue->text);
    (void)wait_for(&queue->ended, UINT64_MAX);
  }
  if (status != ZAP_OK) {
    atomic_fetch_sub(&port->threads, 1);
    free(queue);
    return status;
  }
  *out = queue;
  return ZAP_OK;
}

int32_t zap_queue_stop(struct zap_queue *queue, uint32_t timeout_ms) {
  atomic_store(&queue->stop, true);
  if (!wait_for(&queue->ended, zap_now() + timeout_ms * 1000000ull))
    return zap_fail(ZAP_E_TIMEOUT, "the thread that polls %s does not end", queue->port->name);
  atomic_fetch_sub(&queue->port->threads, 1);
  free(queue);
  return ZAP_OK;
}

void zap_queue_stats(const struct zap_queue *queue, struct zap_queue_stats *stats) {
  const uint64_t *from = (const uint64_t *)&queue->stats;
  uint64_t *to = (uint64_t *)stats;
  for (size_t i = 0; i < sizeof *stats / sizeof *to; i++) to[i] = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
}
