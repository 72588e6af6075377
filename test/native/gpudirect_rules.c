/* The libibverbs double by its verbs alone: that it refuses what a device would refuse. gpudirect_rules LIBIBVERBS */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <poll.h>

#include "../../shim/gpudirect/device.h"
#include "../doubles/ibverbs_double.h"
#include "check.h"

#define BYTES 16384u

static struct zap_verbs verbs;
static struct ibverbs_double told;

struct end {
  struct zap_hca hca;
  struct ibv_pd *pd;
  struct ibv_comp_channel *channel;
  struct ibv_cq *cq;
  struct ibv_qp *qp;
  uint8_t *memory;
  struct ibv_mr *mr;
};

static struct end one, two;

static void need(bool so, const char *what) {
  if (so) return;
  fprintf(stderr, "%s failed: %s\n", what, zap_failure());
  exit(1);
}

static void make(struct end *end, const char *device, int entries) {
  *end = (struct end){.memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)};
  need(zap_hca_open(&verbs, &(struct zap_hca_settings){.device = device, .gid_index = -1}, &end->hca) == ZAP_OK, "opening");
  need((end->pd = verbs.alloc_pd(end->hca.context)) != NULL, "ibv_alloc_pd");
  need((end->channel = verbs.create_comp_channel(end->hca.context)) != NULL, "ibv_create_comp_channel");
  need((end->cq = verbs.create_cq(end->hca.context, entries, NULL, end->channel, 0)) != NULL, "ibv_create_cq");
  int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
  need((end->mr = verbs.reg_mr(end->pd, end->memory, BYTES, access)) != NULL, "ibv_reg_mr");
}

static void make_pair(struct end *end, int access) {
  struct ibv_qp_init_attr wanted = {.send_cq = end->cq, .recv_cq = end->cq, .qp_type = IBV_QPT_RC,
                                    .cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 2, .max_recv_sge = 2, .max_inline_data = 64}};
  need((end->qp = verbs.create_qp(end->pd, &wanted)) != NULL, "ibv_create_qp");
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = (unsigned)access};
  CHECK_EQUAL(verbs.modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
}

static void connect_to(struct end *end, const struct end *far, uint8_t rnr_retry) {
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = far->qp->qp_num, .rq_psn = far->qp->qp_num,
                             .max_dest_rd_atomic = 1, .min_rnr_timer = 12, .ah_attr = {.is_global = 1, .port_num = 1}};
  memcpy(attr.ah_attr.grh.dgid.raw, far->hca.gid.raw, 16);
  attr.ah_attr.grh.sgid_index = (uint8_t)end->hca.gid.index;
  CHECK_EQUAL(verbs.modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                                  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), 0);
  attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 6, .rnr_retry = rnr_retry, .sq_psn = end->qp->qp_num,
                              .max_rd_atomic = 1};
  CHECK_EQUAL(verbs.modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                                  IBV_QP_MAX_QP_RD_ATOMIC), 0);
}

static void join(uint8_t rnr_retry) {
  make_pair(&one, 0);
  make_pair(&two, IBV_ACCESS_REMOTE_READ);
  connect_to(&one, &two, rnr_retry);
  connect_to(&two, &one, rnr_retry);
}

static void part(void) {
  CHECK_EQUAL(verbs.destroy_qp(one.qp), 0);
  CHECK_EQUAL(verbs.destroy_qp(two.qp), 0);
}

static int receive(struct end *end, uint64_t id, uint32_t length) {
  struct ibv_sge part_of = {.addr = (uintptr_t)end->memory, .length = length, .lkey = end->mr->lkey};
  struct ibv_recv_wr request = {.wr_id = id, .sg_list = &part_of, .num_sge = 1}, *bad;
  return ibv_post_recv(end->qp, &request, &bad);
}

static int post(struct end *end, struct ibv_send_wr *request, uint64_t id, unsigned flags) {
  struct ibv_send_wr *bad;
  request->wr_id = id;
  request->send_flags = flags;
  return ibv_post_send(end->qp, request, &bad);
}

static int send_bytes(struct end *end, uint64_t id, uint32_t length, uint32_t lkey, unsigned flags) {
  struct ibv_sge part_of = {.addr = (uintptr_t)end->memory, .length = length, .lkey = lkey};
  struct ibv_send_wr request = {.sg_list = &part_of, .num_sge = 1, .opcode = IBV_WR_SEND};
  return post(end, &request, id, flags);
}

static int touch(struct end *end, uint64_t id, enum ibv_wr_opcode opcode, uint64_t at, uint32_t length, uint32_t rkey) {
  struct ibv_sge part_of = {.addr = (uintptr_t)end->memory, .length = length, .lkey = end->mr->lkey};
  struct ibv_send_wr request = {.sg_list = &part_of, .num_sge = 1, .opcode = opcode};
  request.wr.rdma.remote_addr = at;
  request.wr.rdma.rkey = rkey;
  return post(end, &request, id, IBV_SEND_SIGNALED);
}

/* The next completion is this one. */
static void completes(struct end *end, uint64_t id, enum ibv_wc_status status) {
  struct ibv_wc wc = {.wr_id = 0};
  int got = 0;
  for (int i = 0; i < 5000 && (got = ibv_poll_cq(end->cq, 1, &wc)) == 0; i++) pause_millis(1);
  CHECK_EQUAL(got, 1);
  CHECK_EQUAL(wc.wr_id, id);
  CHECK_EQUAL(wc.status, status);
}

static void nothing_more(struct end *end) {
  struct ibv_wc wc;
  CHECK_EQUAL(ibv_poll_cq(end->cq, 1, &wc), 0);
}

static void hears(struct end *end, enum ibv_event_type type) {
  struct pollfd waiting = {.fd = end->hca.context->async_fd, .events = POLLIN};
  struct ibv_async_event event;
  CHECK_EQUAL(poll(&waiting, 1, 5000), 1);
  if (waiting.revents == 0) return;
  CHECK_EQUAL(verbs.get_async_event(end->hca.context, &event), 0);
  CHECK_EQUAL(event.event_type, type);
  verbs.ack_async_event(&event);
}

static enum ibv_qp_state state_of(const struct end *end) {
  struct ibv_qp_attr attr;
  struct ibv_qp_init_attr made;
  CHECK_EQUAL(verbs.query_qp(end->qp, &attr, IBV_QP_STATE, &made), 0);
  return attr.qp_state;
}

/* ---- */

static void states(void) {
  make_pair(&one, 0);
  CHECK_EQUAL(send_bytes(&one, 1, 8, one.mr->lkey, 0), EINVAL);
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};
  CHECK_EQUAL(verbs.modify_qp(one.qp, &attr, IBV_QP_STATE), EINVAL);
  CHECK_EQUAL(receive(&one, 1, 64), 0);
  attr.qp_state = IBV_QPS_ERR;
  CHECK_EQUAL(verbs.modify_qp(one.qp, &attr, IBV_QP_STATE), 0);
  completes(&one, 1, IBV_WC_WR_FLUSH_ERR);
  CHECK_EQUAL(receive(&one, 2, 64), 0);
  completes(&one, 2, IBV_WC_WR_FLUSH_ERR);
  CHECK_EQUAL(send_bytes(&one, 3, 8, one.mr->lkey, 0), 0);
  completes(&one, 3, IBV_WC_WR_FLUSH_ERR);
  CHECK_EQUAL(verbs.destroy_qp(one.qp), 0);
}

/* In order; only what asks for it completes; its places are free when that was seen. */
static void sends(void) {
  join(7);
  memcpy(one.memory, "ordered", 8);
  for (uint64_t id = 1; id <= 4; id++) CHECK_EQUAL(receive(&two, id, 64), 0);
  for (uint64_t id = 1; id <= 3; id++) CHECK_EQUAL(send_bytes(&one, id, 8, one.mr->lkey, id == 3 ? IBV_SEND_SIGNALED : 0), 0);
  completes(&one, 3, IBV_WC_SUCCESS);
  nothing_more(&one);
  for (uint64_t id = 1; id <= 3; id++) completes(&two, id, IBV_WC_SUCCESS);
  CHECK(memcmp(two.memory, "ordered", 8) == 0);
  /* Inside the request: the memory may change at once, and needs no key. */
  CHECK_EQUAL(send_bytes(&one, 4, 65, 0, IBV_SEND_INLINE), EINVAL);
  memcpy(one.memory, "inlined", 8);
  CHECK_EQUAL(send_bytes(&one, 5, 8, 0, IBV_SEND_INLINE), 0);
  memset(one.memory, 0, 8);
  completes(&two, 4, IBV_WC_SUCCESS);
  CHECK(memcmp(two.memory, "inlined", 8) == 0);
  /* Nobody has a receive: it waits for one. Eight is all there is room for. */
  int64_t waits = told.count("double0", "waits");
  for (uint64_t id = 6; id <= 12; id++) CHECK_EQUAL(send_bytes(&one, id, 8, one.mr->lkey, IBV_SEND_SIGNALED), 0);
  CHECK_EQUAL(send_bytes(&one, 13, 8, one.mr->lkey, 0), ENOMEM);
  pause_millis(400);
  nothing_more(&one);
  CHECK_EQUAL(told.count("double0", "waits"), waits + 1);
  CHECK_EQUAL(ibv_req_notify_cq(two.cq, 0), 0);
  CHECK_EQUAL(receive(&two, 6, 64), 0);
  completes(&one, 6, IBV_WC_SUCCESS);
  struct pollfd waiting = {.fd = two.channel->fd, .events = POLLIN};
  struct ibv_cq *cq = NULL;
  void *context;
  CHECK_EQUAL(poll(&waiting, 1, 1000), 1);
  CHECK_EQUAL(verbs.get_cq_event(two.channel, &cq, &context), 0);
  CHECK(cq == two.cq);
  verbs.ack_cq_events(cq, 1);
  completes(&two, 6, IBV_WC_SUCCESS);
  /* One that is too small ends both. */
  CHECK_EQUAL(receive(&two, 7, 4), 0);
  completes(&one, 7, IBV_WC_REM_INV_REQ_ERR);
  completes(&two, 7, IBV_WC_LOC_LEN_ERR);
  for (uint64_t id = 8; id <= 12; id++) completes(&one, id, IBV_WC_WR_FLUSH_ERR);
  CHECK_EQUAL(state_of(&one), IBV_QPS_ERR);
  CHECK_EQUAL(state_of(&two), IBV_QPS_ERR);
  part();
}

static void no_answer(void) {
  join(0);
  CHECK_EQUAL(send_bytes(&one, 1, 8, one.mr->lkey, 0), 0);
  completes(&one, 1, IBV_WC_RNR_RETRY_EXC_ERR);
  part();
  join(7);
  CHECK_EQUAL(verbs.destroy_qp(two.qp), 0);
  CHECK_EQUAL(send_bytes(&one, 1, 8, one.mr->lkey, 0), 0);
  completes(&one, 1, IBV_WC_RETRY_EXC_ERR);
  CHECK_EQUAL(verbs.destroy_qp(one.qp), 0);
  join(7);
  CHECK_EQUAL(send_bytes(&one, 1, 8, one.mr->lkey ^ 0x33, 0), 0);
  completes(&one, 1, IBV_WC_LOC_PROT_ERR);
  CHECK_EQUAL(state_of(&two), IBV_QPS_RTS);
  part();
}

/* A window over 4096 bytes in the middle, and what is asked of it. */
static void window(enum ibv_wr_opcode opcode, int64_t offset, uint32_t length, uint32_t key, bool hidden, enum ibv_wc_status wanted) {
  join(7);
  uint64_t at = (uintptr_t)two.memory + 4096;
  struct ibv_mw *mw = ibv_alloc_mw(two.pd, IBV_MW_TYPE_2);
  need(mw != NULL, "ibv_alloc_mw");
  struct ibv_send_wr bind = {.opcode = IBV_WR_BIND_MW};
  bind.bind_mw.mw = mw;
  bind.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
  bind.bind_mw.bind_info = (struct ibv_mw_bind_info){.mr = two.mr, .addr = at, .length = 4096, .mw_access_flags = IBV_ACCESS_REMOTE_READ};
  uint32_t rkey = bind.bind_mw.rkey;
  CHECK_EQUAL(post(&two, &bind, 1, IBV_SEND_SIGNALED), 0);
  completes(&two, 1, IBV_WC_SUCCESS);
  if (hidden) {
    struct ibv_send_wr end = {.opcode = IBV_WR_LOCAL_INV};
    end.invalidate_rkey = rkey;
    CHECK_EQUAL(post(&two, &end, 2, IBV_SEND_SIGNALED), 0);
    completes(&two, 2, IBV_WC_SUCCESS);
  }
  memset(two.memory, 7, BYTES);
  memset(one.memory, 0, BYTES);
  if (key == 1) rkey = two.mr->lkey;
  else if (key == 2) rkey = two.mr->rkey;
  else if (key == 3) rkey++;
  CHECK_EQUAL(touch(&one, 9, opcode, at + (uint64_t)offset, length, rkey), 0);
  completes(&one, 9, wanted);
  if (wanted == IBV_WC_SUCCESS) {
    CHECK(one.memory[0] == 7 && one.memory[length - 1] == 7 && one.memory[length] == 0);
  } else {
    CHECK(one.memory[0] == 0 && two.memory[4096] == 7);
    hears(&two, opcode == IBV_WR_RDMA_WRITE ? IBV_EVENT_QP_REQ_ERR : IBV_EVENT_QP_ACCESS_ERR);
    CHECK_EQUAL(state_of(&two), IBV_QPS_ERR);
  }
  if (!hidden) CHECK_EQUAL(verbs.dereg_mr(two.mr), EBUSY);
  part();
  CHECK_EQUAL(ibv_dealloc_mw(mw), 0);
}

static void windows(void) {
  window(IBV_WR_RDMA_READ, 0, 4096, 0, false, IBV_WC_SUCCESS);
  window(IBV_WR_RDMA_READ, 4000, 96, 0, false, IBV_WC_SUCCESS);
  CHECK_EQUAL(told.faults(NULL, 0), 2); /* deregistering under a window, twice */
  told.reset();
  window(IBV_WR_RDMA_READ, 1, 4096, 0, false, IBV_WC_REM_ACCESS_ERR);
  window(IBV_WR_RDMA_READ, -1, 8, 0, false, IBV_WC_REM_ACCESS_ERR);
  window(IBV_WR_RDMA_READ, 0, 8, 0, true, IBV_WC_REM_ACCESS_ERR);
  for (uint32_t key = 1; key <= 3; key++) window(IBV_WR_RDMA_READ, 0, 8, key, false, IBV_WC_REM_ACCESS_ERR);
  window(IBV_WR_RDMA_WRITE, 0, 8, 0, false, IBV_WC_REM_INV_REQ_ERR);
  told.reset();
}

static void memory(void) {
  uint8_t *closed = mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(verbs.reg_mr(one.pd, closed, 8192, IBV_ACCESS_LOCAL_WRITE) == NULL && errno == EFAULT);
  CHECK_EQUAL(told.set("double0", "peermem", 1), 0);
  CHECK(verbs.reg_mr(one.pd, closed, 8192, IBV_ACCESS_LOCAL_WRITE) == NULL && errno == EFAULT);
  CHECK(verbs.reg_dmabuf_mr(one.pd, 0, 4096, 0, -1, IBV_ACCESS_LOCAL_WRITE) == NULL && errno == EBADF);
  CHECK_EQUAL(mprotect(closed, 8192, PROT_READ | PROT_WRITE), 0);
  struct ibv_mr *mr = verbs.reg_mr(one.pd, closed, 8192, IBV_ACCESS_LOCAL_WRITE);
  need(mr != NULL, "ibv_reg_mr");
  CHECK_EQUAL(munmap(closed, 8192), 0);
  CHECK_EQUAL(told.faults(NULL, 0), 0);
  CHECK_EQUAL(verbs.dereg_mr(mr), 0);
  char text[256];
  CHECK_EQUAL(told.faults(text, sizeof text), 1);
  CHECK_CONTAINS(text, "ibv_dereg_mr of 8192 bytes at 0x");
  CHECK_CONTAINS(text, "not mapped any more");
  CHECK_EQUAL(verbs.dealloc_pd(one.pd), EBUSY);
  told.reset();
}

/* A queue of four: the fifth breaks it, and the queue pair. */
static void overflow(void) {
  join(7);
  for (uint64_t id = 1; id <= 5; id++) {
    CHECK_EQUAL(receive(&two, id, 64), 0);
    CHECK_EQUAL(send_bytes(&one, id, 8, one.mr->lkey, 0), 0);
  }
  hears(&two, IBV_EVENT_CQ_ERR);
  CHECK_EQUAL(state_of(&two), IBV_QPS_ERR);
  for (uint64_t id = 1; id <= 4; id++) completes(&two, id, IBV_WC_SUCCESS);
  struct ibv_wc wc;
  CHECK_EQUAL(ibv_poll_cq(two.cq, 1, &wc), -1);
  CHECK_EQUAL(told.faults(NULL, 0), 1);
  told.reset();
  part();
}

static void drop(struct end *end) {
  CHECK_EQUAL(verbs.dereg_mr(end->mr), 0);
  CHECK_EQUAL(verbs.destroy_cq(end->cq), 0);
  CHECK_EQUAL(verbs.destroy_comp_channel(end->channel), 0);
  CHECK_EQUAL(verbs.dealloc_pd(end->pd), 0);
  zap_hca_close(&end->hca);
  CHECK_EQUAL(munmap(end->memory, BYTES), 0);
}

int main(int count, char **words) {
  if (count < 2 || !ibverbs_double_load(words[1], &told)) return 2;
  need(zap_verbs_load(words[1], &verbs) == ZAP_OK, "loading");
  make(&one, "double0", 64);
  make(&two, "double1", 64);
  states();
  sends();
  no_answer();
  windows();
  memory();
  drop(&two);
  make(&two, "double1", 4);
  overflow();
  drop(&two);
  drop(&one);
  CHECK_EQUAL(told.count(NULL, "contexts"), 0);
  CHECK_EQUAL(told.count(NULL, "region_bytes"), 0);
  CHECK_EQUAL(told.faults(NULL, 0), 0);
  return checks_done("rules");
}
