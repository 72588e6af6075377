/*
 * What tests tell the libibverbs double, and ask it. The double has devices "double0" and "double1", and joins their queue pairs within one process;
 * README.md says what it holds to. Where `device` is NULL, all of them are meant.
 *
 * Each setting can be given by the environment too, read when the double is first used: ZAP_DOUBLE_IBVERBS_RETRY_MS=50, for one device
 * ZAP_DOUBLE_IBVERBS_DOUBLE1_RETRY_MS=50, and ZAP_DOUBLE_IBVERBS_FAIL=ibv_alloc_pd=12,ibv_create_qp=12@3 (an errno, and how many calls pass before).
 */
#ifndef ZAP_IBVERBS_DOUBLE_H
#define ZAP_IBVERBS_DOUBLE_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* X(name, default) */
#define IBVERBS_DOUBLE_SETTINGS(X)                                                                                                     \
  X(devices, 2)         /* how many there are: 0 to 2 (of all, not of one) */                                                        \
  X(port_state, 4)      /* enum ibv_port_state; without events: see `port` below */                                                  \
  X(infiniband, 0)      /* 1: the link layer is InfiniBand */                                                                        \
  X(lid, 7)             /* of double0 there, and one more of double1 */                                                              \
  X(mtu, 3)             /* enum ibv_mtu */                                                                                           \
  X(gids, 4)            /* of a RoCE port: v1 and v2 link-local, v1 and v2 of an IPv4 address; how many of them, 0 to 4 */           \
  X(windows, 65536)     /* max_mw; 0: the device has none */                                                                         \
  X(inline_bytes, 256)  /* the most inside a request; 0: none. ibv_create_qp refuses more with EINVAL, */                            \
  X(inline_trims, 0)    /* or with 1 gives what there is */                                                                          \
  X(reads, 16)          /* max_qp_rd_atom and max_qp_init_rd_atom */                                                                 \
  X(completions, 1048576) /* max_cqe */                                                                                              \
  X(message_bytes, 1073741824) /* max_msg_sz */                                                                                      \
  X(reg_errno, 0)       /* ibv_reg_mr fails with it, of regions */                                                                   \
  X(reg_above, 0)       /* of more bytes than this */                                                                                \
  X(dmabuf_errno, 0)    /* ibv_reg_dmabuf_mr fails with it, whatever its fd */                                                       \
  X(peermem, 0)         /* 1: ibv_reg_mr takes PROT_NONE memory of which zap_double_cuda_backing knows */                            \
  X(destroy_ms, 0)      /* how long ibv_destroy_qp takes */                                                                          \
  X(silent, 0)          /* 1: no completion comes any more, of flushed requests neither */                                           \
  X(delay_us, 0)        /* a request is done that long after it was posted, by a thread of the double's; 0: at once, by the poster */ \
  X(retry_ms, 300)      /* how long nobody answers before IBV_WC_RETRY_EXC_ERR; -1: as the queue pair's timeout and retries say */   \
  X(send_status, 0)     /* the next SEND fails with it at its sender, once */                                                        \
  X(read_status, 0)     /* the next READ likewise */

/*
 * What can be counted. Now: contexts, domains, regions, region_bytes, windows, pairs, queues, channels. Ever: sends, inline_sends, reads, writes,
 * binds, invalidations, receives, waits (for a receive of the peer), completions, failures (those with an error, but for flushed ones), flushes.
 */
#define IBVERBS_DOUBLE_COUNTS(X)                                                                                                       \
  X(contexts) X(domains) X(regions) X(region_bytes) X(windows) X(pairs) X(queues) X(channels)                                          \
  X(sends) X(inline_sends) X(reads) X(writes) X(binds) X(invalidations) X(receives) X(waits) X(completions) X(failures) X(flushes)

/* X(result, name without "ibverbs_double_", parameters). Those of int answer 0, or -1 where there is no such device, name or call. */
#define IBVERBS_DOUBLE_CALLS(X)                                                                                                        \
  X(int, set, (const char *device, const char *name, int64_t value))                                                                   \
  /* After so many calls more, this one fails with errno `number` from then on: "ibv_create_qp", also "ibv_post_send", "ibv_alloc_mw". 0: no more */ \
  X(int, fail, (const char *device, const char *call, int number, int after))                                                          \
  /* Takes the port down, or up again: what is sent meanwhile waits for an answer, and every context hears of it. */                   \
  X(int, port, (const char *device, int up))                                                                                           \
  /* The queue pair of that number, 0: all, is in error, with an event IBV_EVENT_QP_FATAL. */                                          \
  X(int, break_pair, (const char *device, uint32_t number))                                                                            \
  X(int64_t, count, (const char *device, const char *what))                                                                            \
  /* Misuse since the double was loaded or told `reset`: how often, and the text of the first. */                                     \
  X(int64_t, faults, (char *text, uint32_t capacity))                                                                                  \
  /* All settings as at the start, no calls that fail, no faults. Counts stay. */                                                      \
  X(void, reset, (void))

#define IBVERBS_DOUBLE_MEMBER(result, name, parameters) result(*name) parameters;
struct ibverbs_double {
  IBVERBS_DOUBLE_CALLS(IBVERBS_DOUBLE_MEMBER)
};
#undef IBVERBS_DOUBLE_MEMBER

/* Fills the table from the double at `path`, which stays open. */
static inline bool ibverbs_double_load(const char *path, struct ibverbs_double *table) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return false;
  void *address;
  bool all = true;
#define IBVERBS_DOUBLE_FIND(result, name, parameters)    \
  address = dlsym(library, "ibverbs_double_" #name);     \
  memcpy(&table->name, &address, sizeof address);        \
  all = all && address != NULL;
  IBVERBS_DOUBLE_CALLS(IBVERBS_DOUBLE_FIND)
#undef IBVERBS_DOUBLE_FIND
  return all;
}

#endif
