/*
 * The RDMA devices of this host as shim/gpudirect/device.c sees them, and every function of the table that it fills tried on two of them: a
 * reliable connection, a message with events for it, a read through a memory window, one after the window's end, which must fail, and the
 * end of DEVICE_1's port.
 *
 * hca LIBRARY DEVICE_0 DEVICE_1 GID_INDEX COMMAND_THAT_TAKES_THE_PORT_DOWN
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../shim/gpudirect/device.h"

#define BYTES 8192u
#define WAIT_MS 20000

static struct zap_verbs verbs;

struct end {
  struct zap_hca hca;
  struct ibv_pd *pd;
  struct ibv_mr *mr;
  struct ibv_comp_channel *channel;
  struct ibv_cq *cq;
  struct ibv_qp *qp;
  uint8_t *bytes;
};

__attribute__((noreturn)) static void fail(const char *what) {
  (void)fprintf(stderr, "hca: %s: %s\n", what, zap_failure());
  exit(1);
}

static void must(int answer, const char *what) {
  if (answer == 0) return;
  (void)zap_verbs_fail(what, "the test", zap_verbs_errno(answer));
  fail(what);
}

#define MADE(pointer, what) must((pointer) == NULL ? -1 : 0, what)

/* ---- what there is ---- */

static void show(const struct zap_hca *hca) {
  printf("%s port %u %s%s mtu %d gid %d type %u ", hca->name, hca->port, hca->ethernet ? "RoCE" : "InfiniBand",
         hca->routed ? " routed" : "", 128 << hca->mtu, hca->gid.index, hca->gid.type);
  for (int at = 0; at < 16; at++) printf("%02x", hca->gid.raw[at]);
  printf("\n  reads %d %d sge %d windows %s requests %d completions %d message %u\n", hca->max_reads_in, hca->max_reads_out, hca->max_sge,
         hca->max_windows > 0 ? "yes" : "no", hca->max_requests, hca->max_completions, hca->max_message);
}

static void list(void) {
  struct zap_hca_row rows[8];
  int32_t count = zap_hca_list(&verbs, rows, 8);
  if (count < 0) fail("zap_hca_list");
  for (int32_t at = 0; at < count && at < 8; at++)
    printf("row %s port %u %s %s gids %u lid %u fault \"%s\" firmware \"%s\"\n", rows[at].device, rows[at].port,
           verbs.port_state_str(rows[at].state), zap_hca_layer(rows[at].link_layer), rows[at].gids, rows[at].lid, rows[at].fault,
           rows[at].firmware);
}

static void expect_refused(const char *device, uint8_t port, int gid) {
  struct zap_hca hca;
  if (zap_hca_open(&verbs, &(struct zap_hca_settings){.device = device, .port = port, .gid_index = gid}, &hca) >= 0) fail("was opened");
  printf("refused: %s\n", zap_failure());
}

/* ---- one connection ---- */

static void open_end(struct end *end, const char *device, int gid) {
  if (zap_hca_open(&verbs, &(struct zap_hca_settings){.device = device, .gid_index = gid}, &end->hca) < 0) fail(device);
  show(&end->hca);
  struct ibv_context *context = end->hca.context;
  uint16_t key = 0;
  must(verbs.query_pkey(context, end->hca.port, 0, &key), "ibv_query_pkey");
  if (key == 0) fail("no partition key");
  MADE(end->pd = verbs.alloc_pd(context), "ibv_alloc_pd");
  MADE(end->bytes = aligned_alloc(4096, BYTES), "aligned_alloc");
  memset(end->bytes, 0, BYTES);
  int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND | IBV_ACCESS_RELAXED_ORDERING;
  MADE(end->mr = zap_verbs_register(&verbs, end->pd, end->bytes, BYTES, access), "ibv_reg_mr");
  MADE(end->channel = verbs.create_comp_channel(context), "ibv_create_comp_channel");
  MADE(end->cq = verbs.create_cq(context, 16, end, end->channel, 0), "ibv_create_cq");
  struct ibv_qp_init_attr wanted = {
      .send_cq = end->cq,
      .recv_cq = end->cq,
      .cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 64},
      .qp_type = IBV_QPT_RC,
  };
  MADE(end->qp = verbs.create_qp(end->pd, &wanted), "ibv_create_qp");
  struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = end->hca.port, .qp_access_flags = IBV_ACCESS_REMOTE_READ};
  must(verbs.modify_qp(end->qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "ibv_modify_qp to INIT");
}

static void join(struct end *end, const struct end *peer) {
  struct ibv_qp_attr next = {
      .qp_state = IBV_QPS_RTR,
      .path_mtu = end->hca.mtu < peer->hca.mtu ? end->hca.mtu : peer->hca.mtu,
      .dest_qp_num = peer->qp->qp_num,
      .max_dest_rd_atomic = 1,
      .min_rnr_timer = 12,
      .ah_attr = {.is_global = end->hca.routed, .port_num = end->hca.port, .dlid = peer->hca.lid},
  };
  next.ah_attr.grh = (struct ibv_global_route){.sgid_index = (uint8_t)end->hca.gid.index, .hop_limit = 64};
  memcpy(next.ah_attr.grh.dgid.raw, peer->hca.gid.raw, 16);
  must(verbs.modify_qp(end->qp, &next,
                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                           IBV_QP_MIN_RNR_TIMER),
       "ibv_modify_qp to RTR");
  struct ibv_qp_attr last = {.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
  must(verbs.modify_qp(end->qp, &last,
                       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
       "ibv_modify_qp to RTS");
}

static enum ibv_qp_state state_of(struct end *end) {
  struct ibv_qp_attr now = {.qp_state = IBV_QPS_UNKNOWN};
  struct ibv_qp_init_attr made;
  must(verbs.query_qp(end->qp, &now, IBV_QP_STATE, &made), "ibv_query_qp");
  return now.qp_state;
}

static void wait_readable(int fd, const char *what) {
  struct pollfd waits = {.fd = fd, .events = POLLIN};
  if (poll(&waits, 1, WAIT_MS) != 1) fail(what);
}

static void arm(struct end *end) { must(ibv_req_notify_cq(end->cq, 0), "ibv_req_notify_cq"); }

/* To be armed before. */
static void await_event(struct end *end) {
  wait_readable(end->channel->fd, "no completion event");
  struct ibv_cq *cq = NULL;
  void *context = NULL;
  must(verbs.get_cq_event(end->channel, &cq, &context), "ibv_get_cq_event");
  if (cq != end->cq || context != end) fail("an event of something else");
  verbs.ack_cq_events(cq, 1);
}

static struct ibv_wc complete(struct end *end) {
  struct ibv_wc wc = {.wr_id = 0};
  int count = 0;
  for (int tries = 0; count == 0 && tries < WAIT_MS; tries++) {
    if ((count = ibv_poll_cq(end->cq, 1, &wc)) == 0) (void)poll(NULL, 0, 1);
  }
  if (count < 0) must(count, "ibv_poll_cq");
  if (count == 0) fail("no completion");
  return wc;
}

/* Of the device; others may come before. */
static void await_port_error(struct end *end) {
  struct ibv_async_event event;
  do {
    wait_readable(end->hca.context->async_fd, "no event of the port");
    must(verbs.get_async_event(end->hca.context, &event), "ibv_get_async_event");
    verbs.ack_async_event(&event);
  } while (event.event_type != IBV_EVENT_PORT_ERR);
  printf("event of %s port %d: %s\n", end->hca.name, event.element.port_num, verbs.event_type_str(event.event_type));
}

static void post(struct end *end, struct ibv_send_wr *wr) {
  struct ibv_send_wr *bad = NULL;
  wr->send_flags |= IBV_SEND_SIGNALED;
  must(ibv_post_send(end->qp, wr, &bad), "ibv_post_send");
}

static void expect(struct end *end, enum ibv_wc_opcode opcode, const char *what) {
  struct ibv_wc wc = complete(end);
  if (wc.status == IBV_WC_SUCCESS && wc.opcode == opcode) return;
  (void)zap_fail(ZAP_E_DRIVER, "%s, opcode %d", verbs.wc_status_str(wc.status), (int)wc.opcode);
  fail(what);
}

static void send_one(struct end *from, struct end *to) {
  struct ibv_sge target = {.addr = (uintptr_t)to->bytes, .length = 64, .lkey = to->mr->lkey};
  struct ibv_recv_wr receive = {.wr_id = 5, .sg_list = &target, .num_sge = 1}, *bad = NULL;
  must(ibv_post_recv(to->qp, &receive, &bad), "ibv_post_recv");
  char text[] = "inline, by our own ABI";
  struct ibv_sge source = {.addr = (uintptr_t)text, .length = sizeof text};
  struct ibv_send_wr send = {.sg_list = &source, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_IMM, .send_flags = IBV_SEND_INLINE};
  send.imm_data = 77;
  arm(from);
  arm(to);
  post(from, &send);
  await_event(from);
  await_event(to);
  expect(from, IBV_WC_SEND, "send");
  struct ibv_wc wc = complete(to);
  if (wc.status != IBV_WC_SUCCESS || wc.opcode != IBV_WC_RECV || wc.wr_id != 5 || wc.byte_len != sizeof text || wc.imm_data != 77 ||
      (wc.wc_flags & IBV_WC_WITH_IMM) == 0 || wc.qp_num != to->qp->qp_num || memcmp(to->bytes, text, sizeof text) != 0)
    fail("what was received");
}

static void read_window(struct end *reader, struct end *owner) {
  struct ibv_mw *window = ibv_alloc_mw(owner->pd, IBV_MW_TYPE_2);
  MADE(window, "ibv_alloc_mw");
  memset(owner->bytes, 0xa5, BYTES);
  uint32_t key = ibv_inc_rkey(window->rkey);
  struct ibv_send_wr bind = {.opcode = IBV_WR_BIND_MW};
  bind.bind_mw.mw = window;
  bind.bind_mw.rkey = key;
  bind.bind_mw.bind_info = (struct ibv_mw_bind_info){
      .mr = owner->mr, .addr = (uintptr_t)owner->bytes + 1000, .length = 100, .mw_access_flags = IBV_ACCESS_REMOTE_READ};
  post(owner, &bind);
  expect(owner, IBV_WC_BIND_MW, "bind");
  struct ibv_sge target = {.addr = (uintptr_t)reader->bytes + 4096, .length = 100, .lkey = reader->mr->lkey};
  struct ibv_send_wr read = {.sg_list = &target, .num_sge = 1, .opcode = IBV_WR_RDMA_READ};
  read.wr.rdma.remote_addr = (uintptr_t)owner->bytes + 1000;
  read.wr.rdma.rkey = key;
  post(reader, &read);
  expect(reader, IBV_WC_RDMA_READ, "read");
  if (reader->bytes[4095] == 0xa5 || reader->bytes[4096] != 0xa5 || reader->bytes[4195] != 0xa5 || reader->bytes[4196] == 0xa5)
    fail("what was read");
  post(owner, &(struct ibv_send_wr){.opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = key});
  expect(owner, IBV_WC_LOCAL_INV, "invalidate");
  post(reader, &read);
  struct ibv_wc wc = complete(reader);
  printf("read after the window's end: %s\n", verbs.wc_status_str(wc.status));
  if (wc.status == IBV_WC_SUCCESS) fail("a window that had ended was read");
  must(ibv_dealloc_mw(window), "ibv_dealloc_mw");
}

static void close_end(struct end *end) {
  must(verbs.destroy_qp(end->qp), "ibv_destroy_qp");
  must(verbs.destroy_cq(end->cq), "ibv_destroy_cq");
  must(verbs.destroy_comp_channel(end->channel), "ibv_destroy_comp_channel");
  must(verbs.dereg_mr(end->mr), "ibv_dereg_mr");
  must(verbs.dealloc_pd(end->pd), "ibv_dealloc_pd");
  free(end->bytes);
  zap_hca_close(&end->hca);
}

int main(int count, char **words) {
  if (count != 6) {
    (void)fprintf(stderr, "usage: hca LIBRARY DEVICE_0 DEVICE_1 GID_INDEX COMMAND\n");
    return 2;
  }
  (void)setvbuf(stdout, NULL, _IOLBF, 0);
  if (zap_verbs_load(words[1], &verbs) < 0) fail("loading");
  printf("newer functions: %d%d%d\n", verbs.reg_mr_iova2 != NULL, verbs.reg_dmabuf_mr != NULL, verbs.query_gid_ex != NULL);
  list();
  struct zap_hca hca;
  if (zap_hca_open(&verbs, &(struct zap_hca_settings){.gid_index = -1}, &hca) < 0) fail("the first device");
  printf("chosen: ");
  show(&hca);
  zap_hca_close(&hca);
  /* The same by sysfs, as with an older library. */
  struct zap_verbs older = verbs;
  older.query_gid_ex = NULL;
  if (zap_hca_open(&older, &(struct zap_hca_settings){.device = words[2], .gid_index = -1}, &hca) < 0) fail("by an older library");
  printf("older: gid %d type %u\n", hca.gid.index, hca.gid.type);
  zap_hca_close(&hca);
  expect_refused("rxe9", 0, -1);
  expect_refused(words[2], 2, -1);
  expect_refused(words[2], 0, 200);
  struct end one = {.pd = NULL}, two = {.pd = NULL};
  open_end(&one, words[2], atoi(words[4]));
  open_end(&two, words[3], atoi(words[4]));
  join(&one, &two);
  join(&two, &one);
  if (state_of(&one) != IBV_QPS_RTS) fail("not in RTS");
  send_one(&one, &two);
  read_window(&two, &one);
  if (system(words[5]) != 0) fail("the command");
  await_port_error(&two);
  close_end(&one);
  close_end(&two);
  printf("hca: ok\n");
  return 0;
}
