/*
 * Reliable messages over datagrams: the protocol of docs/wire-dpdk.md as a state machine. This is its whole surface.
 *
 * It reads no clock, makes no system call, has no thread, no lock and no global. Time comes in as nanoseconds of a clock that
 * never goes back, datagrams as bytes with their sender, randomness as a seed. All memory is allocated by create() and bounded
 * by the settings. One thread at a time may be inside an endpoint; a poll-mode thread runs it like this:
 *
 *   for (;;) {
 *     now = clock();
 *     for each datagram received:  zap_endpoint_input(endpoint, now, &from, bytes, length);
 *     zap_endpoint_advance(endpoint, now);
 *     while (there is room to transmit && zap_endpoint_output(endpoint, now, &out)) transmit(&out);
 *     zap_endpoint_deadline(endpoint) says when to be back if nothing arrives and nobody sends;
 *   }
 *
 * Callbacks are made from inside input, advance and destroy only. A callback may call send, dial, cancel, close, abort, ready,
 * the questions (peer, stats), and nothing else.
 */
#ifndef ZAP_FLOW_H
#define ZAP_FLOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of a datagram before the payload of a segment. The port's MTU less IP and UDP headers less this is the payload. */
#define ZAP_FLOW_HEADER 64
/* The longest node id, in bytes. */
#define ZAP_FLOW_ID 60
/* No flow has this handle. */
#define ZAP_NO_FLOW 0u

/* An IP address and a UDP port; IPv4 as ::ffff:a.b.c.d. `port` is a plain number, in the host's order. */
struct zap_flow_address {
  uint8_t ip[16];
  uint16_t port;
};

struct zap_flow_id {
  uint8_t length; /* 1 to ZAP_FLOW_ID */
  uint8_t bytes[ZAP_FLOW_ID];
};

/* Who may be a peer. With `pinned`, that id only at this address (any port where its port is 0). */
struct zap_flow_allowed {
  struct zap_flow_id id;
  bool pinned;
  struct zap_flow_address address;
};

/* Memory for one message, given by its receiver. */
struct zap_flow_buffer {
  uint8_t *bytes; /* room for the length that was asked for */
  void *cookie;   /* the owner's, given back with the buffer */
};

enum zap_flow_status {
  ZAP_FLOW_OK = 0,
  ZAP_FLOW_AGAIN = -1,     /* the queue is full: room() is called when it is not */
  ZAP_FLOW_GONE = -2,      /* no such flow, or it is closing */
  ZAP_FLOW_TOO_LARGE = -3, /* above the peer's or our own limit on messages */
  ZAP_FLOW_INVALID = -4,   /* an argument or setting that cannot be used */
  ZAP_FLOW_MEMORY = -5,
};

/* Why a flow or a dial ended. The numbers are those of CLOSE and REFUSE. */
enum zap_flow_reason {
  ZAP_FLOW_FINISHED = 1,    /* closed by both: everything that was begun arrived */
  ZAP_FLOW_ABORTED = 2,     /* closed at once by one end, or not finished within close_us */
  ZAP_FLOW_DUPLICATE = 3,   /* there is another flow with that node */
  ZAP_FLOW_RESTARTED = 4,   /* the peer came again as a new process */
  ZAP_FLOW_PROTOCOL = 5,    /* the peer sent what no honest peer sends */
  ZAP_FLOW_FULL = 6,        /* no room for a further flow */
  ZAP_FLOW_NOT_ALLOWED = 7, /* not in the allow-list */
  ZAP_FLOW_SELF = 8,        /* it was ourselves */
  ZAP_FLOW_SETTINGS = 9,    /* the two ends' settings cannot work together */
  ZAP_FLOW_DEAD = 64,       /* nothing heard for dead_us; never sent */
  ZAP_FLOW_TIMEOUT = 65,    /* no answer to a dial within handshake_us; never sent */
  ZAP_FLOW_CANCELLED = 66,  /* by cancel() or destroy(); never sent */
};
const char *zap_flow_reason_name(uint32_t reason);

/* Why a datagram, or one segment, was dropped. */
enum zap_flow_drop {
  ZAP_DROP_SHORT,     /* less than a header */
  ZAP_DROP_MAGIC,     /* does not start with the magic */
  ZAP_DROP_VERSION,   /* of this wire */
  ZAP_DROP_KIND,      /* no kind of datagram that we know */
  ZAP_DROP_CHECKSUM,  /* CRC-32C is wrong */
  ZAP_DROP_LAYOUT,    /* too long, too short, or a field that cannot be */
  ZAP_DROP_SESSION,   /* for a session that we do not have */
  ZAP_DROP_ADDRESS,   /* of a session that we have, from elsewhere */
  ZAP_DROP_COOKIE,    /* a HELLO without a fresh cookie of ours, or an answer without our nonce */
  ZAP_DROP_ALLOW,     /* not in the allow-list */
  ZAP_DROP_FULL,      /* no place for a further flow */
  ZAP_DROP_TWIN,      /* of a second flow with a node that we have one with */
  ZAP_DROP_ACK,       /* acknowledges what was never sent */
  ZAP_DROP_DUPLICATE, /* a segment that is here already */
  ZAP_DROP_WINDOW,    /* a segment without a credit */
  ZAP_DROP_REFUSED,   /* need() gave no buffer */
  ZAP_DROP_REPLY,     /* our own: no room for an answer */
  ZAP_DROP_DIAL_ONLY, /* INIT and HELLO, where nobody may dial us */
  ZAP_DROPS
};
/* Short and stable, for example "checksum". */
const char *zap_flow_drop_name(uint32_t drop);

/* Zero means the default. Times are microseconds. */
struct zap_flow_settings {
  struct zap_flow_id id;                 /* our node id; needed */
  const struct zap_flow_allowed *allow;  /* copied; NULL: everybody */
  uint32_t allowed;                      /* entries of `allow` */
  bool strangers;                        /* ids that are not in `allow` may be peers too: it then binds pinned ids to their addresses */
  bool dial_only;                        /* nobody can dial us: INIT and HELLO are dropped. Peers must not try: docs/wire-dpdk.md */
  uint32_t message_bytes;                /* largest message, either way: 10 MiB; at most 1 GiB */
  uint32_t payload_bytes;                /* of one segment: 1384; 128 to 65,000, cut to a multiple of 8 */
  uint32_t credits;                      /* segments in flight, either way: 1024; a power of two, 64 to 32,768 */
  uint32_t queue_messages;               /* accepted by send and not acknowledged, per flow: 1024; a power of two, up to 65,536 */
  uint64_t queue_bytes;                  /* the same in bytes: 16 MiB. A single larger message passes alone */
  uint32_t flows;                        /* 1024; at most 65,535 */
  uint32_t dials;                        /* at once: 64 */
  uint32_t candidates;                   /* verified and not confirmed: 64; one more pushes out the oldest */
  uint32_t handshake_us;                 /* how long a dial tries: 5 s */
  uint32_t keepalive_us;                 /* silence before we ask: 1 s */
  uint32_t dead_us;                      /* silence before a peer is dead: 5 s */
  uint32_t close_us;                     /* how long close() flushes: 5 s */
  uint32_t ack_us;                       /* longest wait before an acknowledgement: 100 us */
  uint32_t rto_min_us, rto_max_us;       /* 1 ms, 1 s */
  uint32_t challenge_us;                 /* how long a peer has to answer when its node id comes from another address: 500 ms */
};

struct zap_flow_peer {
  struct zap_flow_id id;
  struct zap_flow_address address;
  bool dialled;           /* by us */
  uint32_t payload_bytes; /* agreed */
  uint32_t window;        /* segments: congestion window */
  uint32_t credits;       /* segments that the peer lets us send now, those in flight included */
  uint32_t flying;        /* segments sent and neither acknowledged nor given up */
  uint32_t rtt_us, rttvar_us;
  uint32_t queued_messages; /* accepted by send and not acknowledged */
  uint64_t queued_bytes;
  uint64_t held_bytes; /* of buffers for messages that are not complete */
};

struct zap_flow_stats {
  uint64_t datagrams_in, datagrams_out, bytes_in, bytes_out; /* whole UDP payloads */
  uint64_t segments_in;                                      /* accepted */
  uint64_t segments_out, segments_again;                     /* sent for the first time, and once more */
  uint64_t messages_in, messages_out;                        /* delivered, and acknowledged */
  uint64_t undelivered;                                      /* accepted by send and failed */
  uint64_t timeouts, losses, spurious;                       /* retransmission timeouts, segments taken for lost, wrongly */
  uint64_t drops[ZAP_DROPS];
  uint32_t flows, dials, candidates; /* now */
};

struct zap_flow_events {
  /*
   * A peer is there, admitted and reachable both ways. `dial` is the cookie of our dial that led to it, or 0. A flow handle is
   * never used again before 65,535 others of its place were.
   */
  void (*up)(void *context, uint32_t flow, const struct zap_flow_peer *peer, uint64_t dial);
  /*
   * It is gone, and so is the handle. Before this, done() was called for every message; `undelivered` of them failed. The number is
   * an upper bound: the far end may have taken messages whose acknowledgement did not come through; they are the first of these.
   */
  void (*down)(void *context, uint32_t flow, enum zap_flow_reason reason, uint32_t undelivered);
  /* A dial ended without a new flow. `flow` is the one that exists with that node, for ZAP_FLOW_DUPLICATE, else ZAP_NO_FLOW. */
  void (*dialled)(void *context, uint64_t dial, enum zap_flow_reason reason, uint32_t flow);
  /*
   * Memory for a message of `length` bytes (1 to message_bytes) of which the first segment has come. Returns false for "not now":
   * the peer is told to wait, and the question is put again after ready(), or a millisecond later. Every buffer comes back
   * by delivered() or by unused(). `next` says that this message is the next one to be delivered: while one of those is refused, the flow
   * holds no buffer at all, so flows never wait for each other.
   *
   * `whole`: where the message lies, all of it, in the datagram that is being input; NULL where it has several segments, and where the
   * question is put again. An owner that can keep the datagram's memory answers with exactly this pointer as `buffer->bytes`: nothing is
   * copied then, and that memory has to stay as it is, beyond the call of input, until the buffer comes back.
   */
  bool (*need)(void *context, uint32_t flow, uint32_t length, bool next, const uint8_t *whole, struct zap_flow_buffer *buffer);
  /* A whole message, in order, once. The buffer is the owner's again. */
  void (*delivered)(void *context, uint32_t flow, const struct zap_flow_buffer *buffer, uint32_t length);
  /* A buffer whose message will not be completed in it. */
  void (*unused)(void *context, uint32_t flow, const struct zap_flow_buffer *buffer);
  /*
   * A message given to send is done with: delivered to the far end's owner, or not (see down). The state machine reads its bytes no more; but
   * datagrams that output() gave out may still point into it: who transmits without copying counts those by their `message`.
   */
  void (*done)(void *context, uint32_t flow, uint64_t message, bool delivered);
  /* After ZAP_FLOW_AGAIN: half of the queue is free. */
  void (*room)(void *context, uint32_t flow);
};

/* One datagram to transmit: head, then payload; together at most ZAP_FLOW_HEADER + payload_bytes. With a message the head has 64 bytes. */
struct zap_flow_output {
  struct zap_flow_address to;
  uint32_t head_length;    /* at most ZAP_FLOW_HEAD_MAX */
  uint32_t payload_length; /* may be 0 */
  const uint8_t *payload;  /* inside the message that was given to send, or inside the endpoint (padding) */
  bool has_message;        /* the payload belongs to a message */
  uint32_t flow;           /* of that message */
  uint64_t message;        /* its cookie */
  uint8_t *head;           /* set by the caller: where to write the head */
};
#define ZAP_FLOW_HEAD_MAX (ZAP_FLOW_HEADER + 4096)

struct zap_endpoint;

/* Fills in the defaults; ZAP_FLOW_INVALID names the setting in *fault (static text). */
enum zap_flow_status zap_flow_settings_resolve(struct zap_flow_settings *settings, const char **fault);

/* `seed` must be 32 bytes that nobody can guess. NULL where memory or settings are wanting: resolve first to learn which. */
struct zap_endpoint *zap_endpoint_create(const struct zap_flow_settings *settings, const struct zap_flow_events *events, void *context,
                                         const uint8_t seed[32], uint64_t now);
/* Ends all flows without a word to the peers (close or abort first), with the callbacks, and frees. NULL is fine. */
void zap_endpoint_destroy(struct zap_endpoint *endpoint);
/* Bytes that create() allocates for these settings; pages of unused flows are never touched. */
size_t zap_endpoint_bytes(const struct zap_flow_settings *resolved);

/*
 * One received UDP payload. Nothing of it is kept, as segments are copied to their place in the message's buffer; but where need() has
 * answered with `whole`, its caller has made this memory a buffer of its own.
 */
void zap_endpoint_input(struct zap_endpoint *endpoint, uint64_t now, const struct zap_flow_address *from, const uint8_t *bytes,
                        uint32_t length);
/* Timers, and the end of flows that were closed. */
void zap_endpoint_advance(struct zap_endpoint *endpoint, uint64_t now);
/* The next datagram to transmit; false when there is none now. `out->head` must have ZAP_FLOW_HEAD_MAX bytes. */
bool zap_endpoint_output(struct zap_endpoint *endpoint, uint64_t now, struct zap_flow_output *out);
/* When advance() and output() want to be called next; a time that is past means now, UINT64_MAX never. May be early, never late. */
uint64_t zap_endpoint_deadline(const struct zap_endpoint *endpoint);

/* Dials an address. Ends by up() or dialled() with this cookie (not 0). AGAIN: too many dials. `expected` may be NULL: any node that is allowed. */
enum zap_flow_status zap_endpoint_dial(struct zap_endpoint *endpoint, uint64_t now, const struct zap_flow_address *to,
                                       const struct zap_flow_id *expected, uint64_t dial);
/* Gives the dial up; dialled() follows, unless it just became a flow. */
void zap_endpoint_cancel(struct zap_endpoint *endpoint, uint64_t dial);

/* Queues a message of 1 byte or more. On OK its bytes must stay as they are until done(). */
enum zap_flow_status zap_endpoint_send(struct zap_endpoint *endpoint, uint32_t flow, const uint8_t *bytes, uint32_t length,
                                       uint64_t message);
/*
 * Takes no more messages, delivers those that it has, waits until the peer has finished what it began, and ends with down().
 * The peer does the same by itself; messages of its queue that had not begun fail there at once.
 */
void zap_endpoint_close(struct zap_endpoint *endpoint, uint64_t now, uint32_t flow);
/* Ends the flow at the next advance() or input(), with one word to the peer. */
void zap_endpoint_abort(struct zap_endpoint *endpoint, uint32_t flow);
/* Memory has become free: asks again for messages that need() refused. */
void zap_endpoint_ready(struct zap_endpoint *endpoint, uint64_t now);

/* False where there is no such flow. */
bool zap_endpoint_peer(const struct zap_endpoint *endpoint, uint32_t flow, struct zap_flow_peer *peer);
void zap_endpoint_stats(const struct zap_endpoint *endpoint, struct zap_flow_stats *stats);

#endif
