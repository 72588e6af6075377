/*
 * DPDK: a network device driven from user space, and reliable messages over it (docs/wire-dpdk.md).
 *
 * A node is one port, the threads that poll its queues, and the flows with its peers. It lives in a region of memory of its own, mapped
 * when it is opened: packets land there, whole messages are handed over there, and messages to be sent lie there.
 *
 * The caller's thread and the node's meet in five rings (zap_ring.h has their layout), which lie at the start of that region:
 *
 *   handoff   node to caller: a received message: address, length, peer (its flow), stamp, token
 *   returns   caller to node: token of a message that was taken from `handoff` and is no longer needed
 *   sends     caller to node: a message to be sent: address, length, peer (the flow), token (the caller's number for it, below
 *             ZAP_DPDK_MESSAGES, not used again until it came back)
 *   dones     node to caller: token of such a message whose bytes may be touched again; length is 1 where it was delivered, 0 where not
 *   events    node to caller: zap_dpdk_event, of ZAP_DPDK_EVENT_BYTES
 *
 * The message ring's consumer may be another than the caller, a kernel on a GPU for example: whoever polls `handoff` fills `returns`.
 * A message counts as queued until `head` of `handoff` has passed it, and as held until its token came back.
 *
 * Threads: one thread at a time for each side of a ring; every function from any thread. Functions return at once, unless they say how
 * long they may take.
 */
#ifndef ZAP_DPDK_H
#define ZAP_DPDK_H

#include "zap_ring.h"
#include "zap_shim.h"

/* Messages that can be on their way out at once, and those that can be held by a consumer. */
#define ZAP_DPDK_MESSAGES 65536u
#define ZAP_DPDK_EVENT_BYTES 128u

/* Bits of zap_dpdk_settings.flags. */
enum zap_dpdk_flag {
  ZAP_DPDK_HUGEPAGES = 1, /* the region, and DPDK's own memory, of hugepages; else of ordinary ones, for software devices alone */
  ZAP_DPDK_LISTEN = 2,    /* answers dials */
  ZAP_DPDK_STRANGERS = 4, /* also nodes that are not in the allow-list; entries of it that are pinned bind their own id alone */
  ZAP_DPDK_IP4 = 8,       /* ip4 and prefix4 are ours */
  ZAP_DPDK_IP6 = 16,
  ZAP_DPDK_GATEWAY4 = 32, /* for addresses beyond the prefix */
  ZAP_DPDK_GATEWAY6 = 64,
  ZAP_DPDK_COPY = 128     /* what is sent is always copied, never lent to the device */
};

enum zap_dpdk_idle {
  ZAP_DPDK_SPIN = 0,  /* polls on: the shortest delay, and a core for each queue */
  ZAP_DPDK_YIELD = 1, /* gives way to other threads after 64 polls that found nothing */
  ZAP_DPDK_SLEEP = 2  /* gives way at first, and sleeps for `sleep_us` after a millisecond without work, ten times as long after 100 ms */
};

/* How to open a node. Texts end in a zero byte. Zero means the default, unless said otherwise. 1504 bytes. */
typedef struct zap_dpdk_settings {
  char device[512];     /* "0000:01:00.0", or a software device with its arguments: "net_memif0,role=client,..." */
  char pci[256];        /* network cards that this process may ever open, separated by commas. Looked at by the first node alone */
  char cpus[256];       /* where DPDK's own thread may run, such as "0-3,8"; empty: where the caller may. By the first alone */
  char queue_cpus[256]; /* one CPU for each queue's thread, separated by commas; empty: anywhere */
  uint8_t id[60];       /* our node id */
  uint8_t ip4[4];
  uint8_t ip6[16];
  uint8_t gateway4[4];
  uint8_t gateway6[16];
  uint8_t id_length; /* 1 to 60 */
  uint8_t prefix4;   /* bits; with 0 every address is on the link */
  uint8_t prefix6;
  uint8_t socket;    /* NUMA node of the region and of DPDK's own memory, plus 1; 0: wherever. DPDK's by the first alone */
  uint16_t udp_port; /* needed */
  uint16_t mtu;      /* the device's own */
  uint32_t flags;    /* enum zap_dpdk_flag */
  uint32_t queues;   /* 1 */
  uint32_t slots;    /* of each queue: 1024 */
  uint32_t idle;     /* enum zap_dpdk_idle; 0 is to spin */
  uint32_t sleep_us; /* 50 */
  uint32_t memory_mib; /* for DPDK's own objects: 64 */
  uint32_t start_ms;   /* how long to try to start the port: 1000 */
  uint32_t message_bytes; /* largest message, either way: 10 MiB */
  uint32_t flows;         /* 1024 */
  uint32_t candidates;    /* handshakes at once: 64 */
  uint32_t handshake_ms;  /* 5000 */
  uint32_t keepalive_ms;  /* 1000 */
  uint32_t dead_ms;       /* 5000 */
  uint32_t close_ms;      /* 5000 */
  uint32_t queue_messages; /* to one peer, not acknowledged: 1024; a power of two */
  uint64_t queue_bytes;    /* the same in bytes: 16 MiB. A single larger message passes alone */
  uint64_t receive_bytes;  /* from one peer, not taken by the consumer: 4 MiB. Likewise */
  uint64_t total_bytes;    /* from all peers: 256 MiB. Likewise */
  uint64_t packet_area;    /* bytes of the region's parts: where packets land, */
  uint64_t message_area;   /* where messages of several segments are put together, */
  uint64_t pool_area;      /* and what the caller has for messages to be sent */
  uint64_t versions;       /* up to four message versions of 16 bits each that are taken: 1 */
} zap_dpdk_settings;

/* One node that may be a peer. 84 bytes. */
typedef struct zap_dpdk_allowed {
  uint8_t id[60];
  uint8_t ip[16]; /* IPv4 as ::ffff:a.b.c.d */
  uint16_t port;  /* 0: any */
  uint8_t id_length;
  uint8_t pinned; /* only from `ip` and `port` */
  uint32_t reserved;
} zap_dpdk_allowed;

/* A node that is open. Offsets count from `address`. 280 bytes. */
typedef struct zap_dpdk_node {
  uint64_t address;  /* of the region */
  uint64_t bytes;    /* of it; what lies between `packet_offset` and the end may hold messages */
  uint64_t page_bytes;
  uint32_t handoff_offset; /* the rings */
  uint32_t returns_offset;
  uint32_t sends_offset;
  uint32_t dones_offset;
  uint32_t events_offset;
  uint32_t event_slots;
  uint64_t packet_offset; /* the three areas */
  uint64_t message_offset;
  uint64_t pool_offset;
  uint64_t pool_bytes;
  int32_t region;  /* its handle: the region outlives the node */
  int32_t wake_fd; /* readable when something has come into a ring of which `armed` was set; the caller's to close */
  uint32_t payload_bytes; /* of one segment: a message up to this size can be handed over where its packet landed */
  uint32_t queues;
  uint32_t own_memory; /* 1: the device does not take our memory, packets lie in DPDK's and messages are copied out of there */
  uint32_t lends;      /* 1: messages of the pool area are sent in place */
  uint32_t buffers;    /* packets that the area has room for */
  uint16_t mtu;
  uint8_t mac[6];
  char driver[32];
  char name[64];
  char version[32]; /* of DPDK, as it runs */
  uint8_t reserved[36];
} zap_dpdk_node;

/* A dial. 84 bytes. */
typedef struct zap_dpdk_dial {
  uint8_t id[60]; /* whom to expect */
  uint8_t ip[16]; /* IPv4 as ::ffff:a.b.c.d */
  uint16_t port;
  uint8_t id_length; /* 0: anybody that is allowed */
  uint8_t reserved;
  uint32_t number; /* comes back with the event; not 0 */
} zap_dpdk_dial;

enum zap_dpdk_event_kind {
  ZAP_DPDK_UP = 1,      /* a peer is there: flow, number (of our dial that led to it, or 0), id, ip, port, dialled */
  ZAP_DPDK_DOWN = 2,    /* it is gone: flow, reason, undelivered. All its messages and dones were written before */
  ZAP_DPDK_DIALLED = 3  /* a dial ended without a new flow: number, reason, flow (the one that exists, for reason 3, else 0) */
};

/* 128 bytes. Reasons are those of docs/wire-dpdk.md; zap_dpdk_name has their names. */
typedef struct zap_dpdk_event {
  uint64_t messages; /* entries of `handoff` that were written before this event */
  uint32_t kind;     /* enum zap_dpdk_event_kind */
  uint32_t flow;
  uint32_t number;
  uint32_t reason;
  uint32_t undelivered; /* messages that were accepted and failed; an upper bound */
  uint16_t port;
  uint8_t dialled;
  uint8_t id_length;
  uint8_t ip[16];
  uint8_t id[60];
  uint32_t payload_bytes; /* agreed with this peer */
  uint8_t reserved[16];
} zap_dpdk_event;

/* What the node counts. All of it since it was opened, but for the last seven. 736 bytes. */
typedef struct zap_dpdk_stats {
  uint64_t verdicts[24];      /* frames, by zap_dpdk_name(ZAP_DPDK_FRAME, i): good ones first */
  uint64_t datagram_drops[24]; /* by zap_dpdk_name(ZAP_DPDK_DATAGRAM, i) */
  uint64_t message_drops[8];  /* messages that are none, by zap_dpdk_name(ZAP_DPDK_MESSAGE, i) */
  uint64_t messages_in;       /* handed over */
  uint64_t bytes_in;          /* of them */
  uint64_t messages_out;      /* acknowledged */
  uint64_t bytes_copied;      /* of received messages, from packets to where the message is handed over */
  uint64_t in_place;          /* messages handed over where their packet landed */
  uint64_t segments_out;
  uint64_t segments_again;    /* sent once more */
  uint64_t losses;            /* segments taken for lost */
  uint64_t timeouts;
  uint64_t undelivered;
  uint64_t not_sent;          /* datagrams that found no neighbour, or that the port did not take: as good as lost on the way */
  uint64_t unusable_sends;    /* entries of `sends` that made no sense, and tokens of `returns` */
  uint64_t missed;            /* by the device, for want of room */
  uint64_t no_buffers;
  uint64_t device_errors;
  uint64_t held_bytes;        /* now, of the message area */
  uint64_t queued_messages;   /* now, in `handoff` */
  uint64_t queued_bytes;
  uint32_t flows;
  uint32_t dials;
  uint32_t candidates;
  uint32_t buffers_free;
  uint32_t link;              /* 1: up */
  uint32_t mbit;              /* 0: unknown */
  uint64_t reserved[15];
} zap_dpdk_stats;

/* One queue of the port, and the thread that polls it. 80 bytes. */
typedef struct zap_dpdk_queue {
  uint64_t packets_in;
  uint64_t packets_out;
  uint64_t bytes_in;
  uint64_t bytes_out;
  uint64_t polls;
  uint64_t empty_polls;
  uint64_t idles;        /* times that it gave way or slept */
  uint64_t no_neighbour; /* datagrams for whom nobody was known */
  uint64_t no_buffer;
  uint64_t full;
} zap_dpdk_queue;

/* ZAP_ABI_VERSION of this library. Its meaning never changes. */
ZAP_EXPORT uint32_t zap_dpdk_abi(void);

/* The text of this thread's last failure, cut to `capacity` bytes with the final zero; returns its length. */
ZAP_EXPORT int32_t zap_dpdk_error(char *text, uint32_t capacity);

/* Fills at most `capacity` rows and returns their number. Fails only for arguments that cannot be used. */
ZAP_EXPORT int32_t zap_dpdk_probe(zap_prerequisite *rows, uint32_t capacity);

/*
 * Begins to open a node on a thread of its own; returns its handle. DPDK's environment is started with the first node of the process and
 * stays. `allow` has `allowed` entries (NULL and 0: everybody may be a peer); all is copied.
 */
ZAP_EXPORT int32_t zap_dpdk_open(const zap_dpdk_settings *settings, const zap_dpdk_allowed *allow, uint32_t allowed);

/* ZAP_E_AGAIN while it is being opened; ZAP_OK with `node` filled in; or why it failed: then the handle is gone, and all else. */
ZAP_EXPORT int32_t zap_dpdk_opened(int32_t handle, zap_dpdk_node *node);

/*
 * Begins to close it, also while it is being opened: flows are aborted, threads end, the port is removed. The rings are not to be touched
 * any more. zap_dpdk_flow_close comes before, where messages are to arrive.
 */
ZAP_EXPORT int32_t zap_dpdk_close(int32_t handle);

/* ZAP_E_AGAIN while it is being closed; else the handle is gone: ZAP_OK, or what went wrong. The region stays. */
ZAP_EXPORT int32_t zap_dpdk_closed(int32_t handle);

/* Unmaps the region of a node that is closed. Nobody may look at it any more. */
ZAP_EXPORT int32_t zap_dpdk_region_free(int32_t region);

/* ZAP_E_LIMIT: too many dials. */
ZAP_EXPORT int32_t zap_dpdk_dial_begin(int32_t handle, const zap_dpdk_dial *dial);
/* Gives a dial up; its event follows, unless it has just become a flow. */
ZAP_EXPORT int32_t zap_dpdk_dial_cancel(int32_t handle, uint32_t number);

/* Delivers what was accepted, tells the peer, and ends with ZAP_DPDK_DOWN; after close_ms at the latest. ZAP_OK also where it is gone. */
ZAP_EXPORT int32_t zap_dpdk_flow_close(int32_t handle, uint32_t flow);
/* Ends it now. */
ZAP_EXPORT int32_t zap_dpdk_flow_abort(int32_t handle, uint32_t flow);

/* A neighbour's MAC address, so that it need not be asked for. `ip` has 16 bytes, `mac` 6. */
ZAP_EXPORT int32_t zap_dpdk_neighbour(int32_t handle, const uint8_t *ip, const uint8_t *mac);

ZAP_EXPORT int32_t zap_dpdk_stats_read(int32_t handle, zap_dpdk_stats *stats);
/* Of queue `number`; ZAP_E_INVALID beyond the last. */
ZAP_EXPORT int32_t zap_dpdk_queue_read(int32_t handle, uint32_t number, zap_dpdk_queue *queue);

enum zap_dpdk_names { ZAP_DPDK_FRAME = 0, ZAP_DPDK_DATAGRAM = 1, ZAP_DPDK_MESSAGE = 2, ZAP_DPDK_REASON = 3 };

/* The short and stable name of number `index` of that list, as a text; returns its length, 0 beyond the end. */
ZAP_EXPORT int32_t zap_dpdk_name(uint32_t list, uint32_t index, char *text, uint32_t capacity);

/* Handles that are open now, of every kind: nodes and regions. 0 when nothing is left. */
ZAP_EXPORT int32_t zap_dpdk_live(void);

#endif
