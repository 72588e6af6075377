/*
 * Two RDMA devices, one reliable connection between them, both ends in this process: a SEND, then an RDMA READ of 1 MiB, every byte of both
 * checked. What the verbs tests need of a guest, over libibverbs alone.
 *
 * verbs_ping DEVICE_0 DEVICE_1 GID_INDEX
 */
#include <infiniband/verbs.h>
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PORT 1
#define SEND_BYTES 300u
#define READ_BYTES (1u << 20)
/* One after the other in the same region. */
#define REGION_BYTES (SEND_BYTES + READ_BYTES)
#define WAIT_SECONDS 20

struct end {
  struct ibv_context *context;
  struct ibv_pd *pd;
  struct ibv_cq *cq;
  struct ibv_qp *qp;
  struct ibv_mr *mr;
  uint8_t *bytes;
  union ibv_gid gid;
  struct ibv_port_attr port;
};

__attribute__((format(printf, 1, 2), noreturn)) static void fail(const char *format, ...) {
  int error = errno;
  va_list values;
  va_start(values, format);
  (void)fputs("verbs_ping: ", stderr);
  (void)vfprintf(stderr, format, values);
  (void)fprintf(stderr, " (errno %d: %s)\n", error, strerror(error));
  va_end(values);
  exit(1);
}

/* Verbs that answer with an errno, as opposed to those that set it. */
static void must(int error, const char *what) {
  if (error == 0) return;
  errno = error > 0 ? error : errno;
  fail("%s", what);
}

static struct ibv_context *open_device(const char *name) {
  int count = 0;
  struct ibv_device **list = ibv_get_device_list(&count);
  if (list == NULL) fail("no list of devices");
  struct ibv_context *context = NULL;
  for (int at = 0; at < count && context == NULL; at++)
    if (strcmp(ibv_get_device_name(list[at]), name) == 0 && (context = ibv_open_device(list[at])) == NULL) fail("open %s", name);
  ibv_free_device_list(list);
  if (context == NULL) fail("no device %s among %d", name, count);
  return context;
}

static void set_up(struct end *end, const char *name, int gid_index) {
  end->context = open_device(name);
  must(ibv_query_port(end->context, PORT, &end->port), "query the port");
  if (end->port.state != IBV_PORT_ACTIVE) fail("the port of %s is %s", name, ibv_port_state_str(end->port.state));
  must(ibv_query_gid(end->context, PORT, gid_index, &end->gid), "query the GID");
  if ((end->pd = ibv_alloc_pd(end->context)) == NULL) fail("a protection domain on %s", name);
  if ((end->bytes = calloc(1, REGION_BYTES)) == NULL) fail("memory");
  end->mr = ibv_reg_mr(end->pd, end->bytes, REGION_BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
  if (end->mr == NULL) fail("register %u bytes on %s", REGION_BYTES, name);
  if ((end->cq = ibv_create_cq(end->context, 16, NULL, NULL, 0)) == NULL) fail("a completion queue on %s", name);
  struct ibv_qp_init_attr wanted = {
      .send_cq = end->cq,
      .recv_cq = end->cq,
      .cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1},
      .qp_type = IBV_QPT_RC,
  };
  if ((end->qp = ibv_create_qp(end->pd, &wanted)) == NULL) fail("a queue pair on %s", name);
  struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = PORT, .qp_access_flags = IBV_ACCESS_REMOTE_READ};
  must(ibv_modify_qp(end->qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "move to INIT");
}

static void join(struct end *end, const struct end *peer, uint8_t gid_index) {
  struct ibv_qp_attr rtr = {
      .qp_state = IBV_QPS_RTR,
      .path_mtu = end->port.active_mtu < peer->port.active_mtu ? end->port.active_mtu : peer->port.active_mtu,
      .dest_qp_num = peer->qp->qp_num,
      .max_dest_rd_atomic = 1,
      .min_rnr_timer = 12,
      .ah_attr = {.is_global = 1, .port_num = PORT, .grh = {.dgid = peer->gid, .sgid_index = gid_index, .hop_limit = 1}},
  };
  must(ibv_modify_qp(end->qp, &rtr,
                     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                         IBV_QP_MIN_RNR_TIMER),
       "move to RTR");
  struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
  must(ibv_modify_qp(end->qp, &rts,
                     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
       "move to RTS");
}

/* Waits for one completion, which must be a good one of `opcode`. */
static void complete(struct end *end, enum ibv_wc_opcode opcode, uint32_t length, const char *what) {
  struct ibv_wc wc = {0};
  time_t limit = time(NULL) + WAIT_SECONDS;
  int count = 0;
  while ((count = ibv_poll_cq(end->cq, 1, &wc)) == 0 && time(NULL) <= limit) continue;
  if (count != 1) fail("%s: no completion within %d s (%d)", what, WAIT_SECONDS, count);
  if (wc.status != IBV_WC_SUCCESS) fail("%s: %s", what, ibv_wc_status_str(wc.status));
  if (wc.opcode != opcode) fail("%s: opcode %d", what, (int)wc.opcode);
  /* The length of what was sent is the receiver's to know. */
  if (opcode == IBV_WC_RECV && wc.byte_len != length) fail("%s: %u bytes, not %u", what, wc.byte_len, length);
}

static uint8_t pattern(uint32_t at, uint32_t seed) { return (uint8_t)((at * 2654435761u + seed) >> 13); }

static void check(const uint8_t *bytes, uint32_t length, uint32_t seed, const char *what) {
  for (uint32_t at = 0; at < length; at++)
    if (bytes[at] != pattern(at, seed)) fail("%s: byte %u is %u", what, at, bytes[at]);
}

static struct ibv_sge piece(const struct end *end, uint32_t offset, uint32_t length) {
  return (struct ibv_sge){.addr = (uintptr_t)end->bytes + offset, .length = length, .lkey = end->mr->lkey};
}

static void send_and_receive(struct end *from, struct end *to) {
  for (uint32_t at = 0; at < SEND_BYTES; at++) from->bytes[at] = pattern(at, 1);
  struct ibv_sge target = piece(to, 0, SEND_BYTES), source = piece(from, 0, SEND_BYTES);
  struct ibv_recv_wr receive = {.sg_list = &target, .num_sge = 1}, *bad_receive = NULL;
  must(ibv_post_recv(to->qp, &receive, &bad_receive), "post the receive");
  struct ibv_send_wr send = {.sg_list = &source, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad_send = NULL;
  must(ibv_post_send(from->qp, &send, &bad_send), "post the send");
  complete(from, IBV_WC_SEND, SEND_BYTES, "send");
  complete(to, IBV_WC_RECV, SEND_BYTES, "receive");
  check(to->bytes, SEND_BYTES, 1, "what was sent");
}

static void read_remote(struct end *reader, struct end *owner) {
  for (uint32_t at = 0; at < READ_BYTES; at++) owner->bytes[SEND_BYTES + at] = pattern(at, 2);
  struct ibv_sge target = piece(reader, SEND_BYTES, READ_BYTES);
  struct ibv_send_wr read = {
      .sg_list = &target,
      .num_sge = 1,
      .opcode = IBV_WR_RDMA_READ,
      .send_flags = IBV_SEND_SIGNALED,
      .wr.rdma = {.remote_addr = (uintptr_t)owner->bytes + SEND_BYTES, .rkey = owner->mr->rkey},
  };
  struct ibv_send_wr *bad = NULL;
  must(ibv_post_send(reader->qp, &read, &bad), "post the read");
  complete(reader, IBV_WC_RDMA_READ, READ_BYTES, "read");
  check(reader->bytes + SEND_BYTES, READ_BYTES, 2, "what was read");
}

static void tear_down(struct end *end) {
  must(ibv_destroy_qp(end->qp), "destroy the queue pair");
  must(ibv_destroy_cq(end->cq), "destroy the completion queue");
  must(ibv_dereg_mr(end->mr), "deregister");
  free(end->bytes);
  must(ibv_dealloc_pd(end->pd), "give the protection domain back");
  must(ibv_close_device(end->context), "close");
}

int main(int count, char **words) {
  if (count != 4) {
    (void)fprintf(stderr, "usage: verbs_ping DEVICE_0 DEVICE_1 GID_INDEX\n");
    return 2;
  }
  struct end one = {0}, two = {0};
  uint8_t gid_index = (uint8_t)atoi(words[3]);
  set_up(&one, words[1], gid_index);
  set_up(&two, words[2], gid_index);
  join(&one, &two, gid_index);
  join(&two, &one, gid_index);
  send_and_receive(&one, &two);
  read_remote(&two, &one);
  tear_down(&one);
  tear_down(&two);
  (void)printf("verbs_ping: ok: sent %u bytes from %s to %s, read %u back\n", SEND_BYTES, words[1], words[2], READ_BYTES);
  return 0;
}
