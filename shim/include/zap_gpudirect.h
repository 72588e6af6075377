/*
 * RDMA: reliable connections between queue pairs (docs/gpudirect.md), over libibverbs, which is opened at run time.
 *
 * A node is one port of an RDMA device, the memory that is registered with it, one thread that posts and takes completions, and a flow
 * for each peer, which is a queue pair. The memory is one region of the host's for everything; or received messages lie in a second
 * one, in a GPU's own memory, which the NIC alone writes and this library never touches. How two nodes learn of each other's queue pairs
 * is the caller's: `offer` says what the far end has to be told, `accept` takes what it said.
 *
 * The caller's thread and the node's meet in five rings (zap_ring.h has their layout), which lie at the start of the node's region:
 *
 *   handoff   node to caller: a received message: address, length, peer (its flow), stamp, token
 *   returns   caller to node: token of a message that was taken from `handoff` and is no longer needed
 *   sends     caller to node: a message to be sent: address, length, peer (the flow), token (the caller's number for it, below
 *             ZAP_GPUDIRECT_MESSAGES, not used again until it came back)
 *   dones     node to caller: token of such a message whose bytes may be touched again; length is 1 where it was delivered, 0 where not
 *   events    node to caller: zap_gpudirect_event, of ZAP_GPUDIRECT_EVENT_BYTES
 *
 * A node that sleeps has set `armed` in sends and returns: after an entry there, clear it and call zap_gpudirect_kick.
 *
 * Threads: one thread at a time for each side of a ring; every function from any thread. Functions return at once, unless they say how
 * long they may take.
 */
#ifndef ZAP_GPUDIRECT_H
#define ZAP_GPUDIRECT_H

#include "zap_ring.h"
#include "zap_shim.h"

#define ZAP_GPUDIRECT_MESSAGES 65536u
#define ZAP_GPUDIRECT_EVENT_BYTES 64u

/* Bits of zap_gpudirect_settings.flags. */
enum zap_gpudirect_flag {
  ZAP_GPUDIRECT_SPIN = 1,      /* the node's thread polls on; else it sleeps on the completion channel when there is no more work */
  ZAP_GPUDIRECT_NO_WINDOWS = 2, /* registers each large message instead of binding a memory window, as where the device has none */
  ZAP_GPUDIRECT_WINDOWS = 4,   /* binds memory windows on soft-RoCE too, which does it again when it sends something again, and then fails */
  ZAP_GPUDIRECT_DRIVEN = 8     /* the caller polls: it calls zap_gpudirect_kick all the time, and the node's thread is there for what depends on time */
};

/* What the memory is that received messages lie in, and how it was registered. Managed memory cannot be. */
enum zap_gpudirect_method {
  ZAP_GPUDIRECT_DMA_BUF = 1, /* a GPU's own memory, by dma-buf */
  ZAP_GPUDIRECT_PEERMEM = 2, /* the same, by nvidia-peermem or its like */
  ZAP_GPUDIRECT_LOCKED = 3,  /* page-locked host memory of a GPU's runtime */
  ZAP_GPUDIRECT_HOST = 4     /* the process's own, of which no GPU knows */
};

/* How to open a node. Texts end in a zero byte. Zero means the default, unless said otherwise. 448 bytes. */
typedef struct zap_gpudirect_settings {
  char runtime[256];   /* absolute path of libibverbs.so.1 */
  char device[64];     /* name of the RDMA device; empty: the first with an active port */
  uint32_t port;       /* 1 and up; 0: the first active one */
  int32_t gid_index;   /* -1: chosen */
  uint32_t flags;      /* enum zap_gpudirect_flag */
  uint32_t traffic_class;
  uint64_t host_address; /* page-locked memory of the caller's for the region, which a GPU knows; 0: the node maps its own */
  uint64_t host_bytes;   /* of it */
  uint32_t eager_bytes;  /* messages up to this are sent into posted slabs: 8192 */
  uint32_t receives;     /* slabs posted for each peer: 64 */
  uint32_t flows;        /* 256 */
  uint32_t message_bytes; /* largest message, either way: 10 MiB */
  uint64_t eager_area;    /* bytes of the region's parts: slabs, */
  uint64_t message_area;  /* larger messages, */
  uint64_t pool_area;     /* and what the caller has for messages to be sent */
  uint64_t receive_bytes; /* from one peer, not taken by the consumer: 4 MiB. A single larger message passes alone */
  uint64_t total_bytes;   /* from all peers: 256 MiB. Likewise */
  uint64_t versions;      /* up to four message versions of 16 bits each that are taken: 1 */
  uint32_t close_ms;      /* 5000 */
  uint32_t timeout_ms;    /* what is not acknowledged is sent again after this, rounded up to the device's next step, six times: 250 */
  /*
   * Memory of a GPU's own for received messages, slabs and larger ones: whole pages at its device address, which the NIC is given as it
   * is. 0: they lie in the region, too.
   */
  uint64_t device_address;
  uint64_t device_bytes;
  int32_t dma_buf_fd; /* of all of that memory, for DMA_BUF; stays the caller's, who may close it once the node is open. Else -1 */
  uint32_t method;    /* how to register that memory: ZAP_GPUDIRECT_DMA_BUF or ..._PEERMEM. 0, and only then, without such memory */
} zap_gpudirect_settings;

/*
 * A node that is open. Offsets count from `address`, but for those of the two areas of received messages where they lie in a GPU's memory:
 * these then count from `device_address`, and what `handoff` says of a message is an address there. What is to be sent has to lie in the
 * region, from `eager_offset` on, or where that is the GPU's from `pool_offset` on: what was received there cannot be sent as it is.
 * 296 bytes.
 */
typedef struct zap_gpudirect_node {
  uint64_t address; /* of the region */
  uint64_t bytes;
  uint64_t page_bytes;
  uint32_t handoff_offset; /* the rings */
  uint32_t returns_offset;
  uint32_t sends_offset;
  uint32_t dones_offset;
  uint32_t events_offset;
  uint32_t event_slots;
  uint64_t eager_offset; /* the areas; without device memory, what lies between here and the end may hold messages */
  uint64_t message_offset;
  uint64_t pool_offset;
  uint64_t pool_bytes;
  uint64_t registered_bytes; /* of the region */
  int32_t region;  /* its handle: the region outlives the node */
  int32_t wake_fd; /* readable when something has come into a ring of which `armed` was set; the caller's to close */
  uint32_t method; /* enum zap_gpudirect_method */
  uint32_t eager_bytes;
  uint32_t port;
  uint32_t gid_index;
  uint32_t windows; /* 1: large messages are shown to peers by memory windows, else registered one by one */
  uint32_t mtu;     /* bytes */
  uint32_t ethernet; /* 1: RoCE; 0: InfiniBand */
  uint32_t lid;
  uint8_t gid[16];
  char device[64];
  char firmware[64];
  uint64_t device_address; /* of the GPU's memory that messages are received into; 0: it is the region */
  uint64_t device_bytes;   /* registered by `method` */
  uint32_t region_method;  /* what the region is: ZAP_GPUDIRECT_LOCKED or ..._HOST */
  uint32_t reserved;
} zap_gpudirect_node;

/* What the far end has to be told of a queue pair, as it is. 80 bytes. */
typedef struct zap_gpudirect_offer {
  uint32_t magic; /* "ZGD1" */
  uint32_t queue_pair;
  uint32_t sequence;
  uint32_t lid;
  uint32_t mtu;
  uint32_t ethernet;
  uint32_t eager_bytes;
  uint32_t receives;
  uint32_t message_bytes;
  uint32_t reads; /* RDMA reads that it answers at once */
  uint8_t gid[16];
  uint8_t reserved[24];
} zap_gpudirect_offer;

enum zap_gpudirect_event_kind {
  ZAP_GPUDIRECT_DOWN = 1, /* a flow is gone: flow, reason, status, undelivered. All its messages and dones were written before */
  ZAP_GPUDIRECT_PORT = 2, /* the port went down or came up: reason is 1 where it is up */
  ZAP_GPUDIRECT_UP = 3    /* a flow that was accepted: it receives, and sends what was given for it before and from now on */
};

/* 64 bytes. Reasons by zap_gpudirect_name. */
typedef struct zap_gpudirect_event {
  uint64_t messages; /* entries of `handoff` that were written before this event */
  uint32_t kind;     /* enum zap_gpudirect_event_kind */
  uint32_t flow;
  uint32_t reason;
  uint32_t status;      /* of the completion that failed, as libibverbs numbers them; 0: none */
  uint32_t undelivered; /* messages that were accepted and failed; an upper bound */
  uint32_t error;       /* errno of the call that failed; 0: none */
  uint32_t reserved[8];
} zap_gpudirect_event;

/* What the node counts. All of it since it was opened, but for the last five. 272 bytes. */
typedef struct zap_gpudirect_stats {
  uint64_t message_drops[8]; /* messages that are none, by zap_gpudirect_name(ZAP_GPUDIRECT_MESSAGE, i) */
  uint64_t messages_in;      /* handed over */
  uint64_t bytes_in;         /* of them */
  uint64_t messages_out;     /* delivered */
  uint64_t bytes_out;
  uint64_t undelivered;
  uint64_t sends;       /* work requests posted: messages and control, */
  uint64_t inline_sends; /* of them with their bytes inside, */
  uint64_t reads;       /* RDMA reads, */
  uint64_t receives;    /* and receives */
  uint64_t completions;
  uint64_t polls;
  uint64_t sleeps;
  uint64_t stalls;      /* times that a message waited for a credit */
  uint64_t failures;    /* completions with an error, those of flushed requests not counted */
  uint64_t retries_exceeded;
  uint64_t rnr_exceeded; /* the far end had no receive posted: never, between two nodes of ours */
  uint64_t port_events;
  uint64_t unusable;    /* entries of `sends` that made no sense, and tokens of `returns` */
  uint64_t held_bytes;  /* now, of the message area */
  uint64_t queued_messages; /* now, in `handoff` */
  uint64_t queued_bytes;
  uint32_t flows;
  uint32_t free_slabs;
  uint64_t reserved[4];
} zap_gpudirect_stats;

/* ZAP_ABI_VERSION of this library. Its meaning never changes. */
ZAP_EXPORT uint32_t zap_gpudirect_abi(void);

/* The text of this thread's last failure, cut to `capacity` bytes with the final zero; returns its length. */
ZAP_EXPORT int32_t zap_gpudirect_error(char *text, uint32_t capacity);

/*
 * Looks at the host: opens libibverbs at the absolute path `runtime`, each device, allocates a protection domain and registers a small
 * region, and closes all again. `device`, `port` and `gid_index` as in the settings. Fills at most `capacity` rows and returns their number.
 */
ZAP_EXPORT int32_t zap_gpudirect_probe(const char *runtime, const char *device, uint32_t port, int32_t gid_index, zap_prerequisite *rows,
                                        uint32_t capacity);

/*
 * Opens that device, registers `bytes` of memory at `address` by that method (enum zap_gpudirect_method; DMA_BUF: `dma_buf_fd` is one of
 * all of it, else -1), deregisters it and closes all again. ZAP_OK; or why not, with call, errno, size, address, method and the likely
 * cause in the text. ZAP_E_TIMEOUT where it was registered and cannot be deregistered: the memory has to stay for as long as the process lives.
 */
ZAP_EXPORT int32_t zap_gpudirect_probe_memory(const char *runtime, const char *device, uint32_t method, uint64_t address, uint64_t bytes,
                                              int32_t dma_buf_fd);

/* Begins to open a node on a thread of its own; returns its handle. */
ZAP_EXPORT int32_t zap_gpudirect_open(const zap_gpudirect_settings *settings);

/*
 * ZAP_E_AGAIN while it is being opened; ZAP_OK with `node` filled in; or why it failed: then the handle is gone, and all else. Only with
 * ZAP_E_TIMEOUT the device has not let go of all: memory of the caller's has to stay for as long as the process lives.
 */
ZAP_EXPORT int32_t zap_gpudirect_opened(int32_t handle, zap_gpudirect_node *node);

/* Begins to close it, also while it is being opened: flows end at once, memory is deregistered. The rings are dead from now on. */
ZAP_EXPORT int32_t zap_gpudirect_close(int32_t handle);

/*
 * ZAP_E_AGAIN while it is being closed; else the handle is gone: ZAP_OK, or what went wrong: then the device may still reach the memory,
 * and what is the caller's has to stay for as long as the process lives. The region stays.
 */
ZAP_EXPORT int32_t zap_gpudirect_closed(int32_t handle);

/* Unmaps the region of a node that is closed, unless it was the caller's. Nobody may look at it any more. */
ZAP_EXPORT int32_t zap_gpudirect_region_free(int32_t region);

/* Makes a queue pair with posted receives and fills `offer`. Returns the flow; ZAP_E_LIMIT where there are too many. */
ZAP_EXPORT int32_t zap_gpudirect_flow_begin(int32_t handle, zap_gpudirect_offer *offer);

/*
 * What the far end offered. A flow that fails here is gone. Else the queue pair is brought up on a thread of its own, as the kernel may look for
 * the far end's address for seconds, and ends with ZAP_GPUDIRECT_UP or ZAP_GPUDIRECT_DOWN. What is sent before goes once it is up.
 */
ZAP_EXPORT int32_t zap_gpudirect_flow_accept(int32_t handle, uint32_t flow, const zap_gpudirect_offer *offer);

/* Delivers what was accepted, tells the peer, and ends with ZAP_GPUDIRECT_DOWN; after close_ms at the latest. ZAP_OK also where it is gone. */
ZAP_EXPORT int32_t zap_gpudirect_flow_close(int32_t handle, uint32_t flow);
/* Ends it now. */
ZAP_EXPORT int32_t zap_gpudirect_flow_abort(int32_t handle, uint32_t flow);

/*
 * For a node that sleeps: does what there is to do on the calling thread, without waiting for anything, or has the node's own thread do it where that
 * is awake.
 */
ZAP_EXPORT int32_t zap_gpudirect_kick(int32_t handle);

ZAP_EXPORT int32_t zap_gpudirect_stats_read(int32_t handle, zap_gpudirect_stats *stats);

enum zap_gpudirect_names { ZAP_GPUDIRECT_MESSAGE = 0, ZAP_GPUDIRECT_REASON = 1, ZAP_GPUDIRECT_STATUS = 2 };

/* The short and stable name of number `index` of that list, as a text; returns its length, 0 beyond the end. */
ZAP_EXPORT int32_t zap_gpudirect_name(uint32_t list, uint32_t index, char *text, uint32_t capacity);

/* Handles that are open now, of every kind: nodes and regions. 0 when nothing is left. */
ZAP_EXPORT int32_t zap_gpudirect_live(void);

#endif
