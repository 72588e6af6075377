#include "queue.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

#include <rte_config.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_pause.h>

#include "../common/fail.h"
#include "../common/thread.h"

#define BURST 32
#define RETURNED 64
/* Copying so few bytes costs less than a second buffer. */
#define COPY_BELOW 256
/* Whoever has just been heard of is likely to be heard of again: nobody sleeps before this long without work. */
#define QUIET_NS UINT64_C(1000000)
/* After this long it sleeps longer, so many times: a node with nothing to do costs next to nothing. */
#define STILL_NS UINT64_C(100000000)
#define STILL_TIMES 10
#define COLLECT_NS UINT64_C(20000)

/* In the private part of a buffer that stands for payload lying elsewhere. */
struct lent {
  struct rte_mbuf_ext_shared_info shared;
  void (*released)(void *context, void *cookie);
  void *context, *cookie;
  struct zap_queue *queue;
};
_Static_assert(sizeof(struct lent) <= 64, "port.c leaves 64 bytes");

struct zap_queue {
  struct zap_port *port;
  struct zap_queue_settings settings;
  uint16_t number;
  bool registered;
  struct rte_mbuf *spare; /* the next head */
  uint32_t lent;          /* payloads that the port has not let go of */
  uint64_t asked_at;      /* and when it was last told to */
  struct rte_mbuf *leaving[BURST];
  uint16_t leaves;
  uint32_t empty;   /* polls in a row */
  uint64_t busy_at; /* the last that was not */
  /* The last neighbour that was sent to. */
  struct zap_ip hop;
  struct zap_neighbour_found found;
  unsigned generation;
  struct zap_queue_stats stats;
  /* For the thread of our own. */
  atomic_bool stop;
  atomic_int started; /* 0: not yet; 1: polls; below: failed with that status */
  atomic_bool ended;
  char text[ZAP_TEXT_BYTES];
};

/* Only this thread writes them; others may look at any time. */
static inline void count(uint64_t *counter, uint64_t by) { __atomic_store_n(counter, *counter + by, __ATOMIC_RELAXED); }

void zap_queue_release(struct zap_queue *queue, void *buffer) {
  (void)queue;
  rte_pktmbuf_free(buffer);
}

void zap_queue_flush(struct zap_queue *queue) {
  if (queue->leaves == 0) return;
  uint64_t bytes[BURST];
  uint64_t all = 0;
  for (uint16_t i = 0; i < queue->leaves; i++) bytes[i] = queue->leaving[i]->pkt_len;
  uint16_t sent = rte_eth_tx_burst(queue->port->id, queue->number, queue->leaving, queue->leaves);
  for (uint16_t i = 0; i < sent; i++) all += bytes[i];
  count(&queue->stats.packets_out, sent);
  count(&queue->stats.bytes_out, all);
  queue->leaves = (uint16_t)(queue->leaves - sent);
  for (uint16_t i = 0; i < queue->leaves; i++) queue->leaving[i] = queue->leaving[i + sent];
}

static bool room(struct zap_queue *queue) {
  if (queue->leaves == BURST) zap_queue_flush(queue);
  return queue->leaves < BURST;
}

/* A frame of up to ZAP_NEIGHBOUR_FRAME bytes; one that finds no buffer or no room is as good as lost on the way. */
static bool send_frame(struct zap_queue *queue, const uint8_t *frame, uint32_t length) {
  if (length == 0 || !room(queue)) return false;
  struct rte_mbuf *buffer = rte_pktmbuf_alloc(queue->port->pool);
  if (buffer == NULL) return false;
  /* Shorter frames are none on Ethernet, and not every software device fills them up. */
  uint32_t padded = length < 60 ? 60 : length;
  uint8_t *at = (uint8_t *)rte_pktmbuf_append(buffer, (uint16_t)padded);
  if (at == NULL) {
    rte_pktmbuf_free(buffer);
    return false;
  }
  memcpy(at, frame, length);
  memset(at + length, 0, padded - length);
  queue->leaving[queue->leaves++] = buffer;
  return true;
}

static void hear(struct zap_queue *queue, const struct zap_packet *packet, uint64_t now) {
  struct zap_port *port = queue->port;
  struct zap_neighbour_news news;
  if (!zap_packet_neighbour(packet, &port->station, &news)) return;
  if (news.told) zap_neighbours_told(&port->neighbours, &news.ip, news.mac, now, news.asks);
  if (!news.asks) return;
  uint8_t frame[ZAP_NEIGHBOUR_FRAME];
  if (send_frame(queue, frame, zap_packet_answer(frame, &port->station, &news))) count(&queue->stats.answered, 1);
}

static const uint8_t *neighbour(struct zap_queue *queue, const struct zap_ip *to, uint64_t now) {
  struct zap_port *port = queue->port;
  const struct zap_ip *hop = zap_port_hop(port, to);
  unsigned generation = atomic_load_explicit(&port->neighbours.generation, memory_order_acquire);
  if (queue->found.known && queue->generation == generation && now < queue->found.until && memcmp(&queue->hop, hop, sizeof *hop) == 0)
    return queue->found.mac;
  zap_neighbours_find(&port->neighbours, hop, now, &queue->found);
  queue->hop = *hop;
  queue->generation = generation;
  if (queue->found.ask) {
    uint8_t frame[ZAP_NEIGHBOUR_FRAME];
    if (send_frame(queue, frame, zap_packet_ask(frame, &port->station, hop))) count(&queue->stats.asked, 1);
  }
  return queue->found.known ? queue->found.mac : NULL;
}

uint8_t *zap_queue_head(struct zap_queue *queue, uint32_t *bytes) {
  if (queue->spare == NULL) queue->spare = rte_pktmbuf_alloc(queue->port->pool);
  if (queue->spare == NULL) return NULL;
  *bytes = rte_pktmbuf_tailroom(queue->spare);
  return rte_pktmbuf_mtod(queue->spare, uint8_t *);
}

static void free_lent(void *address, void *opaque) {
  (void)address;
  struct lent *lent = opaque;
  lent->queue->lent--;
  lent->released(lent->context, lent->cookie);
}

static void forget_lent(void *address, void *opaque) {
  (void)address;
  (void)opaque;
}

/* A buffer that stands for the payload, or NULL. */
static struct rte_mbuf *lend(struct zap_queue *queue, const struct zap_outbound *datagram) {
  struct rte_mbuf *tail = rte_pktmbuf_alloc(queue->port->heads);
  if (tail == NULL) return NULL;
  struct lent *lent = rte_mbuf_to_priv(tail);
  *lent = (struct lent){.released = datagram->released, .context = datagram->context, .cookie = datagram->cookie, .queue = queue};
  lent->shared.free_cb = free_lent;
  lent->shared.fcb_opaque = lent;
  rte_mbuf_ext_refcnt_set(&lent->shared, 1);
  /* Never written through: drivers only read what they send. */
  void *payload = (void *)(uintptr_t)datagram->payload;
  rte_pktmbuf_attach_extbuf(tail, payload, (rte_iova_t)(uintptr_t)payload, (uint16_t)datagram->payload_length, &lent->shared);
  tail->data_len = (uint16_t)datagram->payload_length;
  tail->pkt_len = datagram->payload_length;
  return tail;
}

/* The buffer that the head is in, with room before it for the other headers. */
static struct rte_mbuf *take_head(struct zap_queue *queue, const struct zap_outbound *datagram, bool chained) {
  bool in_place = queue->spare != NULL && datagram->head == rte_pktmbuf_mtod(queue->spare, const uint8_t *);
  struct rte_mbuf *head = in_place ? queue->spare : rte_pktmbuf_alloc(chained ? queue->port->heads : queue->port->pool);
  if (head == NULL) return NULL;
  if (in_place) queue->spare = NULL;
  else if (datagram->head_length > 0) memcpy(rte_pktmbuf_mtod(head, uint8_t *), datagram->head, datagram->head_length);
  head->data_len = (uint16_t)datagram->head_length;
  head->pkt_len = datagram->head_length;
  return head;
}

static bool chains(const struct zap_queue *queue, const struct zap_outbound *datagram) {
  if (!queue->port->chains || datagram->released == NULL || datagram->payload_length < COPY_BELOW) return false;
  return datagram->head_length <= 384;
}

static void write_headers(const struct zap_queue *queue, const struct zap_outbound *datagram, const uint8_t *mac, struct rte_mbuf *head,
                          uint32_t length) {
  const struct zap_port *port = queue->port;
  bool is4 = zap_ip_is4(&datagram->ip);
  uint64_t sum = 0;
  if (!port->sums_udp) {
    const uint8_t *at = rte_pktmbuf_mtod(head, const uint8_t *);
    sum = zap_checksum_add(0, at, head->data_len);
    if (head->next != NULL) {
      uint64_t rest = zap_checksum_add(0, datagram->payload, datagram->payload_length);
      /* After an odd number of bytes all others have changed places. */
      uint16_t folded = zap_checksum_fold(rest);
      sum += head->data_len & 1u ? (uint16_t)(folded << 8 | folded >> 8) : folded;
    }
  }
  uint8_t *at = (uint8_t *)rte_pktmbuf_prepend(head, is4 ? ZAP_HEADERS4 : ZAP_HEADERS6);
  (void)zap_packet_headers(at, &port->station, mac, &datagram->ip, datagram->port, length, port->sums_udp ? NULL : &sum, !port->sums_ip);
  head->l2_len = 14;
  head->l3_len = is4 ? 20 : 40;
  if (is4 && port->sums_ip) head->ol_flags |= RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_IP_CKSUM;
  if (port->sums_udp) head->ol_flags |= (is4 ? RTE_MBUF_F_TX_IPV4 : RTE_MBUF_F_TX_IPV6) | RTE_MBUF_F_TX_UDP_CKSUM;
}

enum zap_sent zap_queue_send(struct zap_queue *queue, const struct zap_outbound *datagram, uint64_t now) {
  const struct zap_port *port = queue->port;
  bool is4 = zap_ip_is4(&datagram->ip);
  uint32_t longest = is4 ? port->longest : port->longest - 20u;
  if (datagram->head_length > longest || datagram->payload_length > longest - datagram->head_length) return ZAP_SENT_TOO_LONG;
  if (is4 ? !port->station.has4 : !port->station.has6) return ZAP_SENT_NO_ADDRESS;
  const uint8_t *mac = neighbour(queue, &datagram->ip, now);
  if (mac == NULL) {
    count(&queue->stats.no_neighbour, 1);
    return ZAP_SENT_WAITING;
  }
  if (!room(queue)) {
    count(&queue->stats.full, 1);
    return ZAP_SENT_FULL;
  }
  bool chained = chains(queue, datagram);
  struct rte_mbuf *tail = chained ? lend(queue, datagram) : NULL;
  struct rte_mbuf *head = chained && tail == NULL ? NULL : take_head(queue, datagram, chained);
  if (head == NULL) {
    /* Not sent, so not released either. */
    if (tail != NULL) {
      ((struct lent *)rte_mbuf_to_priv(tail))->shared.free_cb = forget_lent;
      rte_pktmbuf_free(tail);
    }
    count(&queue->stats.no_buffer, 1);
    return ZAP_SENT_NO_BUFFER;
  }
  uint32_t length = datagram->head_length + datagram->payload_length;
  if (chained) {
    head->next = tail;
    head->nb_segs = 2;
    head->pkt_len = length;
  } else if (datagram->payload_length > 0) {
    uint8_t *at = (uint8_t *)rte_pktmbuf_append(head, (uint16_t)datagram->payload_length);
    memcpy(at, datagram->payload, datagram->payload_length);
  }
  write_headers(queue, datagram, mac, head, length);
  if (!chained && head->pkt_len < 60) {
    uint32_t missing = 60 - head->pkt_len;
    memset(rte_pktmbuf_append(head, (uint16_t)missing), 0, missing);
  }
  queue->leaving[queue->leaves++] = head;
  if (chained) queue->lent++;
  if (!chained && datagram->released != NULL) datagram->released(datagram->context, datagram->cookie);
  return ZAP_SENT;
}

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
  struct rte_mbuf *done[BURST];
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
    else if (verdict < ZAP_PACKET_FIRST_DROP) hear(queue, &packet, now);
    if (!taken) done[done_count++] = burst[i];
  }
  if (handoff != NULL && space != before && zap_ring_publish(&handoff->out) && queue->settings.wake != NULL)
    queue->settings.wake(queue->settings.context);
  if (done_count > 0) rte_pktmbuf_free_bulk(done, done_count);
  count(&queue->stats.packets_in, got);
  count(&queue->stats.bytes_in, bytes);
  for (int i = 0; i < ZAP_PACKET_VERDICTS; i++)
    if (verdicts[i] != 0) count(&queue->stats.verdict[i], verdicts[i]);
}

static bool take_back(struct zap_queue *queue) {
  struct zap_handoff *handoff = queue->settings.handoff;
  if (handoff == NULL) return false;
  void *back[RETURNED];
  uint32_t returned = zap_handoff_take(handoff, back, RETURNED);
  if (returned == 0) return false;
  rte_pktmbuf_free_bulk((struct rte_mbuf **)back, returned);
  if (handoff->nonsense != queue->stats.tokens_wrong) count(&queue->stats.tokens_wrong, handoff->nonsense - queue->stats.tokens_wrong);
  return true;
}

static void idle(struct zap_queue *queue, uint64_t now) {
  const struct zap_queue_settings *settings = &queue->settings;
  if (settings->idle == ZAP_IDLE_SPIN) return;
  if (queue->empty < settings->idle_polls) {
    rte_pause();
    return;
  }
  count(&queue->stats.idles, 1);
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
  struct rte_mbuf *burst[BURST];
  uint16_t got = rte_eth_rx_burst(queue->port->id, queue->number, burst, BURST);
  uint64_t now = zap_now();
  bool busy = got > 0;
  count(&queue->stats.polls, 1);
  if (got > 0) receive(queue, burst, got, now);
  else count(&queue->stats.empty_polls, 1);
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
