/* Sending: neighbours, headers, checksums, payload that is lent to the port or copied. */
#include "queue_parts.h"

#include <rte_ethdev.h>

/* Copying so few bytes costs less than a second buffer. */
#define COPY_BELOW 256

/* In the private part of a buffer that stands for payload lying elsewhere. */
struct lent {
  struct rte_mbuf_ext_shared_info shared;
  void (*released)(void *context, void *cookie);
  void *context, *cookie;
  struct zap_queue *queue;
};
_Static_assert(sizeof(struct lent) <= 64, "port.c leaves 64 bytes");

void zap_queue_release(struct zap_queue *queue, void *buffer) {
  (void)queue;
  rte_pktmbuf_free(buffer);
}

void zap_queue_flush(struct zap_queue *queue) {
  if (queue->leaves == 0) return;
  uint64_t bytes[ZAP_QUEUE_BURST];
  uint64_t all = 0;
  for (uint16_t i = 0; i < queue->leaves; i++) bytes[i] = queue->leaving[i]->pkt_len;
  uint16_t sent = rte_eth_tx_burst(queue->port->id, queue->number, queue->leaving, queue->leaves);
  for (uint16_t i = 0; i < sent; i++) all += bytes[i];
  zap_queue_count(&queue->stats.packets_out, sent);
  zap_queue_count(&queue->stats.bytes_out, all);
  queue->leaves = (uint16_t)(queue->leaves - sent);
  for (uint16_t i = 0; i < queue->leaves; i++) queue->leaving[i] = queue->leaving[i + sent];
}

static bool room(struct zap_queue *queue) {
  if (queue->leaves == ZAP_QUEUE_BURST) zap_queue_flush(queue);
  return queue->leaves < ZAP_QUEUE_BURST;
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

void zap_queue_hear(struct zap_queue *queue, const struct zap_packet *packet, uint64_t now) {
  struct zap_port *port = queue->port;
  struct zap_neighbour_news news;
  if (!zap_packet_neighbour(packet, &port->station, &news)) return;
  if (news.told) zap_neighbours_told(&port->neighbours, &news.ip, news.mac, now, news.asks);
  if (!news.asks) return;
  uint8_t frame[ZAP_NEIGHBOUR_FRAME];
  if (send_frame(queue, frame, zap_packet_answer(frame, &port->station, &news))) zap_queue_count(&queue->stats.answered, 1);
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
    if (send_frame(queue, frame, zap_packet_ask(frame, &port->station, hop))) zap_queue_count(&queue->stats.asked, 1);
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
    zap_queue_count(&queue->stats.no_neighbour, 1);
    return ZAP_SENT_WAITING;
  }
  if (!room(queue)) {
    zap_queue_count(&queue->stats.full, 1);
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
    zap_queue_count(&queue->stats.no_buffer, 1);
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
