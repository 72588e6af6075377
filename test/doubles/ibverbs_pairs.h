/* The libibverbs double: queue pairs and their states. Part of ibverbs.c. */
#ifndef ZAP_IBVERBS_PAIRS_H
#define ZAP_IBVERBS_PAIRS_H

static void free_pair(struct qp *qp) {
  free(qp->request);
  free(qp->receive);
  free(qp->inlined);
  free(qp);
}

/* What is asked for beyond what the device has; trims what may be inside a request, where it does so. */
static int pair_fault(const struct device *device, const struct ibv_pd *pd, struct ibv_qp_init_attr *wanted) {
  struct ibv_qp_cap *cap = &wanted->cap;
  uint32_t most = (uint32_t)setting(device, SET_inline_bytes);
  if (wanted->qp_type != IBV_QPT_RC || wanted->srq != NULL || wanted->send_cq == NULL || wanted->recv_cq == NULL) return EINVAL;
  if (wanted->send_cq->context != pd->context || wanted->recv_cq->context != pd->context) return EINVAL;
  if (cap->max_send_wr == 0 || cap->max_send_wr > MAX_REQUESTS || cap->max_recv_wr == 0 || cap->max_recv_wr > MAX_REQUESTS) return EINVAL;
  if (cap->max_send_sge > SGES || cap->max_recv_sge > SGES) return EINVAL;
  if (cap->max_inline_data > most && setting(device, SET_inline_trims) == 0) return EINVAL;
  if (cap->max_inline_data > most) cap->max_inline_data = most;
  return 0;
}

IBVERBS(struct ibv_qp *, create_qp, (struct ibv_pd * pd, struct ibv_qp_init_attr *wanted)) {
  struct device *device = device_of(pd->context);
  int number = enter_call(device, "ibv_create_qp");
  if (number != 0) return errno = number, NULL;
  number = pair_fault(device, pd, wanted);
  struct qp *qp = number == 0 ? calloc(1, sizeof *qp) : NULL;
  if (qp != NULL) {
    qp->request = calloc(wanted->cap.max_send_wr, sizeof *qp->request);
    qp->receive = calloc(wanted->cap.max_recv_wr, sizeof *qp->receive);
    qp->inlined = calloc(wanted->cap.max_send_wr, (size_t)wanted->cap.max_inline_data + 1);
  }
  if (qp == NULL || qp->request == NULL || qp->receive == NULL || qp->inlined == NULL) {
    if (qp != NULL) free_pair(qp);
    leave();
    return errno = number == 0 ? ENOMEM : number, NULL;
  }
  qp->device = device;
  qp->made = *wanted;
  qp->sends.room = wanted->cap.max_send_wr;
  qp->receives.room = wanted->cap.max_recv_wr;
  /* Numbers are not used again soon. */
  next_pair = (next_pair + 1) & 0xffffff;
  qp->base = (struct ibv_qp){.context = pd->context, .qp_context = wanted->qp_context, .pd = pd, .send_cq = wanted->send_cq,
                             .recv_cq = wanted->recv_cq, .handle = next_handle++, .qp_num = next_pair, .state = IBV_QPS_RESET,
                             .qp_type = wanted->qp_type};
  cq_of(wanted->send_cq)->uses++;
  cq_of(wanted->recv_cq)->uses++;
  ((struct pd *)(void *)pd)->uses++;
  qp->next = pairs;
  pairs = qp;
  add(device, COUNT_pairs, 1);
  leave();
  return &qp->base;
}

/* ---- states ---- */

struct step {
  enum ibv_qp_state from, to;
  int must, may; /* beside IBV_QP_STATE */
};

static const struct step steps[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
    {IBV_QPS_INIT, IBV_QPS_RTR,
     IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
     IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS},
    {IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
     IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER},
};

static bool step_allowed(enum ibv_qp_state from, enum ibv_qp_state to, int mask) {
  int rest = mask & ~IBV_QP_STATE;
  if (to == IBV_QPS_ERR || to == IBV_QPS_RESET) return rest == 0;
  for (size_t at = 0; at < sizeof steps / sizeof *steps; at++)
    if (steps[at].from == from && steps[at].to == to)
      return (rest & steps[at].must) == steps[at].must && (rest & ~(steps[at].must | steps[at].may)) == 0;
  return false;
}

static bool path_fits(const struct device *device, const struct ibv_ah_attr *path) {
  static const union ibv_gid none;
  union ibv_gid own;
  uint32_t type;
  if (path->port_num != 1) return false;
  if (!path->is_global) return setting(device, SET_infiniband) != 0 && path->dlid != 0;
  if (path->grh.sgid_index >= GID_PLACES) return false;
  gid_of(device, path->grh.sgid_index, &own, &type);
  return memcmp(own.raw, none.raw, sizeof own.raw) != 0 && memcmp(path->grh.dgid.raw, none.raw, sizeof none.raw) != 0;
}

static bool values_fit(const struct qp *qp, const struct ibv_qp_attr *new, int mask) {
  const struct device *device = qp->device;
  if ((mask & IBV_QP_PORT) != 0 && new->port_num != 1) return false;
  if ((mask & IBV_QP_PKEY_INDEX) != 0 && new->pkey_index != 0) return false;
  if ((mask & IBV_QP_PATH_MTU) != 0 && (new->path_mtu < IBV_MTU_256 || new->path_mtu > (enum ibv_mtu)setting(device, SET_mtu))) return false;
  if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0 && new->max_dest_rd_atomic > setting(device, SET_reads)) return false;
  if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0 && new->max_rd_atomic > setting(device, SET_reads)) return false;
  if (((mask & IBV_QP_RQ_PSN) != 0 && new->rq_psn > 0xffffff) || ((mask & IBV_QP_SQ_PSN) != 0 && new->sq_psn > 0xffffff)) return false;
  if ((mask & IBV_QP_TIMEOUT) != 0 && new->timeout > 31) return false;
  if (((mask & IBV_QP_RETRY_CNT) != 0 && new->retry_cnt > 7) || ((mask & IBV_QP_RNR_RETRY) != 0 && new->rnr_retry > 7)) return false;
  return (mask & IBV_QP_AV) == 0 || path_fits(device, &new->ah_attr);
}

static void take_values(struct ibv_qp_attr *attr, const struct ibv_qp_attr *new, int mask) {
#define TAKE(bit, member) \
  if ((mask & (bit)) != 0) attr->member = new->member
  TAKE(IBV_QP_ACCESS_FLAGS, qp_access_flags);
  TAKE(IBV_QP_PORT, port_num);
  TAKE(IBV_QP_AV, ah_attr);
  TAKE(IBV_QP_PATH_MTU, path_mtu);
  TAKE(IBV_QP_DEST_QPN, dest_qp_num);
  TAKE(IBV_QP_RQ_PSN, rq_psn);
  TAKE(IBV_QP_SQ_PSN, sq_psn);
  TAKE(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
  TAKE(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
  TAKE(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
  TAKE(IBV_QP_TIMEOUT, timeout);
  TAKE(IBV_QP_RETRY_CNT, retry_cnt);
  TAKE(IBV_QP_RNR_RETRY, rnr_retry);
#undef TAKE
}

static void unbind_all(const struct qp *qp) {
  for (struct mw *mw = windows; mw != NULL; mw = mw->next)
    if (mw->qp == qp) unbind(mw);
}

/* Nothing of what was posted comes back. */
static void into_reset(struct qp *qp) {
  forget_completions(cq_of(qp->base.send_cq), qp);
  forget_completions(cq_of(qp->base.recv_cq), qp);
  unbind_all(qp);
  wait_for(qp, NO_WAIT);
  qp->sends.done = qp->sends.retired = qp->sends.posted;
  qp->receives.done = qp->receives.retired = qp->receives.posted;
  memset(&qp->attr, 0, sizeof qp->attr);
  qp->base.state = IBV_QPS_RESET;
}

IBVERBS(int, modify_qp, (struct ibv_qp * base, struct ibv_qp_attr *new, int mask)) {
  struct qp *qp = qp_of(base);
  int number = enter_call(qp->device, "ibv_modify_qp");
  if (number != 0) return number;
  enum ibv_qp_state to = (mask & IBV_QP_STATE) != 0 ? new->qp_state : base->state;
  if (!step_allowed(base->state, to, mask) || !values_fit(qp, new, mask)) {
    leave();
    return EINVAL;
  }
  take_values(&qp->attr, new, mask);
  if (to == IBV_QPS_ERR) into_error(qp);
  else if (to == IBV_QPS_RESET) into_reset(qp);
  else base->state = to;
  proceed_all();
  leave();
  return 0;
}

IBVERBS(int, query_qp, (struct ibv_qp * base, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *wanted)) {
  struct qp *qp = qp_of(base);
  (void)mask;
  int number = enter_call(qp->device, "ibv_query_qp");
  if (number != 0) return number;
  *attr = qp->attr;
  attr->qp_state = attr->cur_qp_state = base->state;
  attr->cap = qp->made.cap;
  *wanted = qp->made;
  leave();
  return 0;
}

IBVERBS(int, destroy_qp, (struct ibv_qp * base)) {
  struct qp *qp = qp_of(base);
  struct context *context = (struct context *)(void *)base->context;
  enter();
  int64_t millis = setting(qp->device, SET_destroy_ms);
  leave();
  if (millis > 0) (void)nanosleep(&(struct timespec){.tv_sec = millis / 1000, .tv_nsec = (long)(millis % 1000) * 1000000}, NULL);
  int number = enter_call(qp->device, "ibv_destroy_qp");
  if (number != 0) return number;
  line_forget(&context->events, base);
  if (!acknowledged(&qp->events, &base->events_completed, "ibv_destroy_qp")) {
    leave();
    return EBUSY;
  }
  struct qp **at = &pairs;
  while (*at != qp) at = &(*at)->next;
  *at = qp->next;
  into_reset(qp);
  cq_of(base->send_cq)->uses--;
  cq_of(base->recv_cq)->uses--;
  ((struct pd *)(void *)base->pd)->uses--;
  add(qp->device, COUNT_pairs, -1);
  proceed_all();
  leave();
  free_pair(qp);
  return 0;
}

#endif
