/*
 * libibverbs, opened at run time. No global state of ours.
 *
 * A call that answers with a number answers 0, or an errno, or -1 with errno set; one that answers with a pointer answers NULL with errno
 * set. What goes through a queue (posts, polls) is in verbs_abi.h: it never passes through the library.
 */
#ifndef ZAP_VERBS_H
#define ZAP_VERBS_H

#include "../common/fail.h"
#include "verbs_abi.h"

/* What every libibverbs.so.1 has. X(result, name without "ibv_", parameters) */
#define ZAP_VERBS_REQUIRED(X)                                                                                              \
  X(struct ibv_device **, get_device_list, (int *count))                                                                   \
  X(void, free_device_list, (struct ibv_device **list))                                                                    \
  X(const char *, get_device_name, (struct ibv_device *device))                                                            \
  X(unsigned long long, get_device_guid, (struct ibv_device *device)) /* in network byte order */                          \
  X(struct ibv_context *, open_device, (struct ibv_device *device))                                                        \
  X(int, close_device, (struct ibv_context *context))                                                                      \
  X(int, get_async_event, (struct ibv_context *context, struct ibv_async_event *event))                                    \
  X(void, ack_async_event, (struct ibv_async_event *event))                                                                \
  X(int, query_device, (struct ibv_context *context, struct ibv_device_attr *attributes))                                  \
  X(int, query_port, (struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *start)) /* zap_verbs_port */ \
  X(int, query_gid, (struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid))                            \
  X(int, query_pkey, (struct ibv_context *context, uint8_t port, int index, uint16_t *key)) /* in network byte order */    \
  X(struct ibv_pd *, alloc_pd, (struct ibv_context *context))                                                              \
  X(int, dealloc_pd, (struct ibv_pd *pd))                                                                                  \
  X(struct ibv_mr *, reg_mr, (struct ibv_pd *pd, void *address, size_t bytes, int access))                                 \
  X(int, dereg_mr, (struct ibv_mr *mr))                                                                                    \
  X(struct ibv_comp_channel *, create_comp_channel, (struct ibv_context *context))                                         \
  X(int, destroy_comp_channel, (struct ibv_comp_channel *channel))                                                         \
  X(struct ibv_cq *, create_cq,                                                                                            \
    (struct ibv_context *context, int entries, void *cq_context, struct ibv_comp_channel *channel, int vector))            \
  X(int, destroy_cq, (struct ibv_cq *cq))                                                                                  \
  X(int, get_cq_event, (struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context))                          \
  X(void, ack_cq_events, (struct ibv_cq *cq, unsigned int count))                                                          \
  X(struct ibv_qp *, create_qp, (struct ibv_pd *pd, struct ibv_qp_init_attr *wanted))                                      \
  X(int, modify_qp, (struct ibv_qp *qp, struct ibv_qp_attr *attributes, int mask))                                         \
  X(int, query_qp, (struct ibv_qp *qp, struct ibv_qp_attr *attributes, int mask, struct ibv_qp_init_attr *wanted))         \
  X(int, destroy_qp, (struct ibv_qp *qp))                                                                                  \
  X(const char *, wc_status_str, (enum ibv_wc_status status))                                                              \
  X(const char *, event_type_str, (enum ibv_event_type type))                                                              \
  X(const char *, node_type_str, (enum ibv_node_type type))                                                                \
  X(const char *, port_state_str, (enum ibv_port_state state))

/* What newer ones have; NULL in the table otherwise. */
#define ZAP_VERBS_OPTIONAL(X)                                                                                              \
  X(struct ibv_mr *, reg_mr_iova2,                                                                                         \
    (struct ibv_pd *pd, void *address, size_t bytes, uint64_t iova, unsigned int access))                                  \
  X(struct ibv_mr *, reg_dmabuf_mr, (struct ibv_pd *pd, uint64_t offset, size_t bytes, uint64_t iova, int fd, int access))

#define ZAP_VERBS_MEMBER(result, name, parameters) result(*name) parameters;
struct zap_verbs {
  ZAP_VERBS_REQUIRED(ZAP_VERBS_MEMBER)
  ZAP_VERBS_OPTIONAL(ZAP_VERBS_MEMBER)
  /* `_ibv_query_gid_ex`, newer too. ENODATA where the entry is empty. `bytes`: those of the entry, so that it may grow. */
  int (*query_gid_ex)(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry, uint32_t flags,
                      size_t bytes);
};
#undef ZAP_VERBS_MEMBER

/*
 * Opens libibverbs at `path` and fills the table. It stays open from then on, as its providers do: see library.h. It writes warnings of
 * its own to standard error when it first looks for devices.
 */
int32_t zap_verbs_load(const char *path, struct zap_verbs *verbs);

/* What a port says of itself; what the library does not know is 0. Returns 0 or an errno. */
int zap_verbs_port(const struct zap_verbs *verbs, struct ibv_context *context, uint8_t port, struct ibv_port_attr *attributes);

/*
 * ibv_reg_mr, or where `access` has optional flags ibv_reg_mr_iova2, which drops those that this kernel does not know; without that
 * function we drop them. NULL with errno.
 */
struct ibv_mr *zap_verbs_register(const struct zap_verbs *verbs, struct ibv_pd *pd, void *address, size_t bytes, int access);

/* The errno in what a call answered that did not answer 0. */
int zap_verbs_errno(int answer);

/* "EACCES"; "errno" where it has no name that we know. */
const char *zap_verbs_errno_name(int number);

/*
 * The failure of a call: its text names the call, what it was about ("rxe0 port 1"), the errno and what to do. Returns the status that the
 * errno means.
 */
int32_t zap_verbs_fail(const char *call, const char *about, int number);

#endif
