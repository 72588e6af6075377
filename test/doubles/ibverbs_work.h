/* The libibverbs double: posted requests, and how they are done. Part of ibverbs.c. */
#ifndef ZAP_IBVERBS_WORK_H
#define ZAP_IBVERBS_WORK_H

static struct qp *qp_of(struct ibv_qp *qp) { return (struct qp *)(void *)qp; }

/* ---- completions ---- */

static enum ibv_wc_opcode opcode_of(enum ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM: return IBV_WC_RDMA_WRITE;
    case IBV_WR_RDMA_READ: return IBV_WC_RDMA_READ;
    case IBV_WR_BIND_MW: return IBV_WC_BIND_MW;
    case IBV_WR_LOCAL_INV: return IBV_WC_LOCAL_INV;
    default: return IBV_WC_SEND;
  }
}

static void into_error(struct qp *qp);

static void completed_send(struct qp *qp, enum ibv_wc_status status) {
  uint32_t number = qp->sends.done++;
  const struct request *request = &qp->request[number % qp->sends.room];
  if (status == IBV_WC_SUCCESS && (request->flags & IBV_SEND_SIGNALED) == 0 && !qp->made.sq_sig_all) return;
  const struct entry entry = {.qp = qp, .send = true, .number = number, .wc = {
      .wr_id = request->wr_id, .status = status, .opcode = opcode_of(request->opcode), .byte_len = request->length, .qp_num = qp->base.qp_num}};
  if (!complete(cq_of(qp->base.send_cq), &entry, false)) into_error(qp);
}

static void completed_receive(struct qp *qp, const struct ibv_wc *wc, bool solicited) {
  uint32_t number = qp->receives.done++;
  struct entry entry = {.qp = qp, .send = false, .number = number, .wc = *wc};
  entry.wc.wr_id = qp->receive[number % qp->receives.room].wr_id;
  entry.wc.qp_num = qp->base.qp_num;
  if (!complete(cq_of(qp->base.recv_cq), &entry, solicited)) into_error(qp);
}

static void wait_for(struct qp *qp, enum wait wait) {
  if ((qp->wait == NO_WAIT) != (wait == NO_WAIT)) waiting += wait == NO_WAIT ? UINT32_MAX : 1;
  qp->wait = wait;
  if (wait == NO_WAIT) qp->wake_at = 0;
}

/* What is posted comes back, all of it. */
static void into_error(struct qp *qp) {
  if (qp->base.state == IBV_QPS_ERR) return;
  qp->base.state = IBV_QPS_ERR;
  wait_for(qp, NO_WAIT);
  while (qp->receives.done != qp->receives.posted)
    completed_receive(qp, &(struct ibv_wc){.status = IBV_WC_WR_FLUSH_ERR, .opcode = IBV_WC_RECV}, false);
  while (qp->sends.done != qp->sends.posted) completed_send(qp, IBV_WC_WR_FLUSH_ERR);
}

/* ---- the far end ---- */

static void gid_of(const struct device *device, int index, union ibv_gid *gid, uint32_t *type);

static bool is_at(const struct device *device, const struct ibv_ah_attr *path) {
  if (!path->is_global) return setting(device, SET_infiniband) != 0 && path->dlid == setting(device, SET_lid) + device->number;
  for (int index = 0; index < GID_PLACES; index++) {
    union ibv_gid gid;
    uint32_t type;
    gid_of(device, index, &gid, &type);
    if (memcmp(gid.raw, path->grh.dgid.raw, sizeof gid.raw) == 0) return true;
  }
  return false;
}

static bool port_works(const struct device *device) { return setting(device, SET_port_state) == IBV_PORT_ACTIVE; }

/* The far end, or what there is to wait for. It answers only whom it was connected to. */
static struct qp *far_end(const struct qp *qp, enum wait *wait) {
  *wait = WAIT_ANSWER;
  struct qp *peer = pairs;
  while (peer != NULL && peer->base.qp_num != qp->attr.dest_qp_num) peer = peer->next;
  if (peer == NULL || !port_works(qp->device) || !port_works(peer->device) || !is_at(peer->device, &qp->attr.ah_attr)) return NULL;
  enum ibv_qp_state state = peer->base.state;
  if (state == IBV_QPS_RESET || state == IBV_QPS_INIT) *wait = WAIT_READY;
  if (state != IBV_QPS_RTR && state != IBV_QPS_RTS) return NULL;
  bool ours = peer->attr.dest_qp_num == qp->base.qp_num && peer->attr.rq_psn == qp->attr.sq_psn && is_at(qp->device, &peer->attr.ah_attr);
  return ours ? peer : NULL;
}

static uint64_t answer_limit(const struct qp *qp, bool alive) {
  int64_t millis = setting(qp->device, SET_retry_ms);
  if (millis >= 0 && !alive) return (uint64_t)millis * 1000000u;
  if (qp->attr.timeout == 0) return UINT64_MAX;
  return (UINT64_C(4096) << qp->attr.timeout) * (qp->attr.retry_cnt + 1u);
}

static uint64_t limit_of(const struct qp *qp) {
  if (qp->wait != WAIT_RECEIVE) return answer_limit(qp, qp->wait == WAIT_READY);
  return qp->attr.rnr_retry == 7 ? UINT64_MAX : (qp->attr.rnr_retry + 1u) * UINT64_C(10000000);
}

/* ---- moving bytes ---- */

static void copy(struct piece *to, const struct piece *from, uint64_t bytes) {
  uint64_t at_from = 0, at_to = 0;
  while (bytes > 0) {
    while (at_from == from->bytes) from++, at_from = 0;
    while (at_to == to->bytes) to++, at_to = 0;
    uint64_t part = from->bytes - at_from < to->bytes - at_to ? from->bytes - at_from : to->bytes - at_to;
    if (part > bytes) part = bytes;
    memmove(to->at + at_to, from->at + at_from, part);
    at_from += part;
    at_to += part;
    bytes -= part;
  }
}

static bool gather(const struct qp *qp, const struct request *request, struct piece *pieces) {
  pieces[0] = (struct piece){.at = request->inlined, .bytes = request->length};
  if (request->inlined != NULL) return true;
  for (int i = 0; i < request->parts; i++)
    if (!reach_own(qp, &request->part[i], request->opcode == IBV_WR_RDMA_READ, &pieces[i])) return false;
  return true;
}

/* The responder's side has failed, and is at its end. */
static enum ibv_wc_status refused(struct qp *peer, enum ibv_event_type why, enum ibv_wc_status status) {
  tell_of_pair(peer, why);
  into_error(peer);
  return status;
}

/* A receive of the peer's takes them, or with `from` NULL only what goes with them. */
static enum ibv_wc_status deliver(struct qp *peer, const struct request *request, const struct piece *from) {
  const struct receive *receive = &peer->receive[peer->receives.done % peer->receives.room];
  struct ibv_wc wc = {.status = IBV_WC_SUCCESS, .opcode = from == NULL ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV, .byte_len = request->length};
  struct piece to[SGES];
  uint64_t room = 0;
  bool reached = true;
  for (int i = 0; i < receive->parts; i++) {
    if (!reach_own(peer, &receive->part[i], true, &to[i])) reached = false;
    room += receive->part[i].length;
  }
  if (!reached || (from != NULL && room < request->length)) {
    wc.status = reached ? IBV_WC_LOC_LEN_ERR : IBV_WC_LOC_PROT_ERR;
    completed_receive(peer, &wc, false);
    into_error(peer);
    return reached ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_REM_OP_ERR;
  }
  if (from != NULL) copy(to, from, request->length);
  if (request->opcode == IBV_WR_SEND_WITH_IMM || request->opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
    wc.wc_flags = IBV_WC_WITH_IMM;
    wc.imm_data = request->immediate;
  } else if (request->opcode == IBV_WR_SEND_WITH_INV) {
    if (!invalidate(peer, request->immediate)) return refused(peer, IBV_EVENT_QP_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR);
    wc.wc_flags = IBV_WC_WITH_INV;
    wc.invalidated_rkey = request->immediate;
  }
  add(peer->device, COUNT_receives, 1);
  completed_receive(peer, &wc, (request->flags & IBV_SEND_SOLICITED) != 0);
  return IBV_WC_SUCCESS;
}

static enum ibv_wc_status touch(struct qp *qp, struct qp *peer, const struct request *request, struct piece *own) {
  bool reads = request->opcode == IBV_WR_RDMA_READ;
  unsigned access = reads ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
  if ((peer->attr.qp_access_flags & access) == 0 || (reads && peer->attr.max_dest_rd_atomic == 0))
    return refused(peer, IBV_EVENT_QP_REQ_ERR, IBV_WC_REM_INV_REQ_ERR);
  struct piece theirs = {.bytes = request->length};
  if (request->length > 0) {
    theirs.at = reach_shown(peer, request->rkey, request->address, request->length, access);
    if (theirs.at == NULL) return refused(peer, IBV_EVENT_QP_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR);
  }
  copy(reads ? own : &theirs, reads ? &theirs : own, request->length);
  add(qp->device, reads ? COUNT_reads : COUNT_writes, 1);
  return request->opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? deliver(peer, request, NULL) : IBV_WC_SUCCESS;
}

/* A status that a test wants once. */
static enum ibv_wc_status wanted_failure(struct device *device, enum setting which) {
  enum ibv_wc_status status = (enum ibv_wc_status)setting(device, which);
  device->settings[which] = 0;
  return status;
}

/* Does it, unless *wait says for what it has to wait. */
static enum ibv_wc_status execute(struct qp *qp, const struct request *request, enum wait *wait) {
  *wait = NO_WAIT;
  if (request->opcode == IBV_WR_BIND_MW) return bind_window(qp, request);
  if (request->opcode == IBV_WR_LOCAL_INV) return invalidate(qp, request->immediate) ? IBV_WC_SUCCESS : IBV_WC_LOC_QP_OP_ERR;
  bool sends = opcode_of(request->opcode) == IBV_WC_SEND, consumes = sends || request->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  struct piece own[SGES];
  if (!gather(qp, request, own)) return IBV_WC_LOC_PROT_ERR;
  if (request->length > setting(qp->device, SET_message_bytes)) return IBV_WC_LOC_LEN_ERR;
  if (request->opcode == IBV_WR_RDMA_READ && qp->attr.max_rd_atomic == 0) return IBV_WC_LOC_QP_OP_ERR;
  enum ibv_wc_status status = IBV_WC_SUCCESS;
  if (sends) status = wanted_failure(qp->device, SET_send_status);
  else if (request->opcode == IBV_WR_RDMA_READ) status = wanted_failure(qp->device, SET_read_status);
  if (status != IBV_WC_SUCCESS) return status;
  struct qp *peer = far_end(qp, wait);
  if (peer == NULL) return IBV_WC_RETRY_EXC_ERR;
  *wait = consumes && peer->receives.done == peer->receives.posted ? WAIT_RECEIVE : NO_WAIT;
  if (*wait != NO_WAIT) return IBV_WC_RNR_RETRY_EXC_ERR;
  if (!sends) return touch(qp, peer, request, own);
  add(qp->device, COUNT_sends, 1);
  if (request->inlined != NULL) add(qp->device, COUNT_inline_sends, 1);
  return deliver(peer, request, own);
}

/* ---- a thread for what is to be done later ---- */

static bool proceed(struct qp *qp);

/* Everything that may go on: what one request has done, another may have waited for. */
static void proceed_all(void) {
  bool any = waiting > 0;
  while (any) {
    any = false;
    for (struct qp *qp = pairs; qp != NULL; qp = qp->next)
      if (qp->wait != NO_WAIT && proceed(qp)) any = true;
  }
}

static void *be_late(void *unused) {
  (void)unused;
  enter();
  for (;;) {
    uint64_t now = clock_now(), next = UINT64_MAX;
    bool any = false;
    for (struct qp *qp = pairs; qp != NULL; qp = qp->next)
      if (qp->wake_at != 0 && qp->wake_at <= now && proceed(qp)) any = true;
    if (any) proceed_all();
    for (struct qp *qp = pairs; qp != NULL; qp = qp->next)
      if (qp->wake_at != 0 && qp->wake_at < next) next = qp->wake_at;
    const struct timespec deadline = {.tv_sec = (time_t)(next / 1000000000u), .tv_nsec = (long)(next % 1000000000u)};
    if (next == UINT64_MAX) (void)pthread_cond_wait(&changed, &lock);
    else (void)pthread_cond_timedwait(&changed, &lock, &deadline);
  }
  return NULL;
}

static void wake_at(struct qp *qp, uint64_t when) {
  static bool runs;
  qp->wake_at = when;
  if (!runs) {
    Dl_info here;
    pthread_t thread;
    sigset_t all, before;
    /* The thread never ends, so this library has to stay. */
    if (dladdr((void *)(uintptr_t)&be_late, &here) != 0) (void)dlopen(here.dli_fname, RTLD_NOLOAD | RTLD_NODELETE | RTLD_NOW);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    runs = pthread_create(&thread, NULL, be_late, NULL) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (runs) (void)pthread_detach(thread);
    else fault("no thread for what is to be done later");
  }
  (void)pthread_cond_broadcast(&changed);
}

/* In order, as far as it goes. True where anything was done. */
static bool proceed(struct qp *qp) {
  bool any = false;
  while (qp->base.state == IBV_QPS_RTS && qp->sends.done != qp->sends.posted) {
    const struct request *request = &qp->request[qp->sends.done % qp->sends.room];
    uint64_t now = clock_now();
    if (request->ready_at > now) {
      wake_at(qp, request->ready_at);
      break;
    }
    enum wait wait;
    enum ibv_wc_status status = execute(qp, request, &wait);
    /* It may have been its own peer. */
    if (qp->base.state != IBV_QPS_RTS) return true;
    if (wait != NO_WAIT) {
      if (qp->wait != wait) {
        qp->wait_since = now;
        if (wait == WAIT_RECEIVE) add(qp->device, COUNT_waits, 1);
      }
      wait_for(qp, wait);
      qp->wake_at = 0;
      uint64_t limit = limit_of(qp);
      if (limit == UINT64_MAX) break;
      if (now - qp->wait_since < limit) {
        wake_at(qp, qp->wait_since + limit);
        break;
      }
    }
    wait_for(qp, NO_WAIT);
    completed_send(qp, status);
    if (status != IBV_WC_SUCCESS) into_error(qp);
    any = true;
  }
  return any;
}

/* ---- posting ---- */

static int take_request(struct qp *qp, const struct ibv_send_wr *wr) {
  struct progress *of = &qp->sends;
  enum ibv_qp_state state = qp->base.state;
  if (state != IBV_QPS_RTS && state != IBV_QPS_ERR) return EINVAL;
  if (of->posted - of->retired >= of->room) return ENOMEM;
  bool about_memory = wr->opcode != IBV_WR_BIND_MW && wr->opcode != IBV_WR_LOCAL_INV, inlined = (wr->send_flags & IBV_SEND_INLINE) != 0;
  if (wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || (unsigned)wr->opcode > IBV_WR_SEND_WITH_INV)
    return EINVAL;
  if (about_memory && (wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->made.cap.max_send_sge)) return EINVAL;
  if (inlined && wr->opcode == IBV_WR_RDMA_READ) return EINVAL;
  uint32_t place = of->posted % of->room;
  struct request *request = &qp->request[place];
  *request = (struct request){.wr_id = wr->wr_id, .opcode = wr->opcode, .flags = wr->send_flags, .immediate = wr->imm_data};
  int64_t delay = setting(qp->device, SET_delay_us);
  if (delay > 0) request->ready_at = clock_now() + (uint64_t)delay * 1000;
  if (wr->opcode == IBV_WR_BIND_MW) {
    if (wr->bind_mw.mw == NULL || wr->bind_mw.mw->type != IBV_MW_TYPE_2) return EINVAL;
    request->window = (struct mw *)(void *)wr->bind_mw.mw;
    request->rkey = wr->bind_mw.rkey;
    request->bind = wr->bind_mw.bind_info;
  } else if (about_memory) {
    request->parts = wr->num_sge;
    uint64_t length = 0;
    for (int i = 0; i < wr->num_sge; i++) {
      request->part[i] = wr->sg_list[i];
      length += wr->sg_list[i].length;
    }
    if (length > UINT32_MAX || (inlined && length > qp->made.cap.max_inline_data)) return EINVAL;
    request->length = (uint32_t)length;
    request->address = wr->wr.rdma.remote_addr;
    request->rkey = wr->wr.rdma.rkey;
    if (inlined) request->inlined = qp->inlined + (size_t)place * qp->made.cap.max_inline_data;
    uint8_t *to = request->inlined;
    for (int i = 0; inlined && i < wr->num_sge; to += wr->sg_list[i++].length)
      memcpy(to, (const void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
  }
  of->posted++;
  return 0;
}

static int post_send(struct ibv_qp *base, struct ibv_send_wr *wr, struct ibv_send_wr **bad) {
  struct qp *qp = qp_of(base);
  int number = 0;
  enter();
  for (; wr != NULL && number == 0; wr = wr->next) {
    *bad = wr;
    number = failing(qp->device, "ibv_post_send");
    if (number == 0) number = take_request(qp, wr);
  }
  if (base->state == IBV_QPS_ERR)
    while (qp->sends.done != qp->sends.posted) completed_send(qp, IBV_WC_WR_FLUSH_ERR);
  (void)proceed(qp);
  proceed_all();
  leave();
  return number;
}

static int post_recv(struct ibv_qp *base, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
  struct qp *qp = qp_of(base);
  struct progress *of = &qp->receives;
  int number = 0;
  enter();
  for (; wr != NULL && number == 0; wr = wr->next) {
    *bad = wr;
    number = failing(qp->device, "ibv_post_recv");
    if (number == 0 && base->state == IBV_QPS_RESET) number = EINVAL;
    if (number == 0 && (wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->made.cap.max_recv_sge)) number = EINVAL;
    if (number == 0 && of->posted - of->retired >= of->room) number = ENOMEM;
    if (number != 0) break;
    struct receive *receive = &qp->receive[of->posted++ % of->room];
    receive->wr_id = wr->wr_id;
    receive->parts = wr->num_sge;
    for (int i = 0; i < wr->num_sge; i++) receive->part[i] = wr->sg_list[i];
  }
  if (base->state == IBV_QPS_ERR)
    while (of->done != of->posted) completed_receive(qp, &(struct ibv_wc){.status = IBV_WC_WR_FLUSH_ERR, .opcode = IBV_WC_RECV}, false);
  proceed_all();
  leave();
  return number;
}

#endif
