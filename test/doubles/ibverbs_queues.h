/* The libibverbs double: completion channels and queues. Part of ibverbs.c. */
#ifndef ZAP_IBVERBS_QUEUES_H
#define ZAP_IBVERBS_QUEUES_H

static struct cq *cq_of(struct ibv_cq *cq) { return (struct cq *)(void *)cq; }

/* ---- channels ---- */

IBVERBS(struct ibv_comp_channel *, create_comp_channel, (struct ibv_context * context)) {
  int number = enter_call(device_of(context), "ibv_create_comp_channel");
  if (number != 0) return errno = number, NULL;
  struct channel *channel = calloc(1, sizeof *channel);
  if (channel != NULL && !line_open(&channel->line)) {
    free(channel);
    channel = NULL;
  }
  if (channel != NULL) {
    channel->base = (struct ibv_comp_channel){.context = context, .fd = channel->line.near};
    ((struct context *)(void *)context)->uses++;
    add(device_of(context), COUNT_channels, 1);
  }
  leave();
  return channel == NULL ? NULL : &channel->base;
}

IBVERBS(int, destroy_comp_channel, (struct ibv_comp_channel * base)) {
  struct channel *channel = (struct channel *)(void *)base;
  struct context *context = (struct context *)(void *)base->context;
  int number = enter_call(context->device, "ibv_destroy_comp_channel");
  if (number != 0) return number;
  if (base->refcnt > 0) {
    fault("ibv_destroy_comp_channel with %d queues", base->refcnt);
    leave();
    return EBUSY;
  }
  context->uses--;
  add(context->device, COUNT_channels, -1);
  line_close(&channel->line);
  leave();
  free(channel);
  return 0;
}

IBVERBS(int, get_cq_event, (struct ibv_comp_channel * base, struct ibv_cq **cq, void **cq_context)) {
  struct note note;
  if (line_take(&((struct channel *)(void *)base)->line, &note) != 0) return -1;
  *cq = &note.cq->base;
  *cq_context = note.cq->base.cq_context;
  return 0;
}

IBVERBS(void, ack_cq_events, (struct ibv_cq * cq, unsigned count)) {
  enter();
  cq->comp_events_completed += count;
  if (cq->comp_events_completed > cq_of(cq)->events) fault("ibv_ack_cq_events of more events than there were");
  (void)pthread_cond_broadcast(&changed);
  leave();
}

/* ---- queues ---- */

IBVERBS(struct ibv_cq *, create_cq,
        (struct ibv_context * context, int entries, void *cq_context, struct ibv_comp_channel *channel, int vector)) {
  struct device *device = device_of(context);
  int number = enter_call(device, "ibv_create_cq");
  if (number != 0) return errno = number, NULL;
  bool fits = entries > 0 && entries <= setting(device, SET_completions) && vector == 0;
  struct cq *cq = fits ? calloc(1, sizeof *cq) : NULL;
  if (cq != NULL) cq->entries = calloc((size_t)entries, sizeof *cq->entries);
  if (cq == NULL || cq->entries == NULL) {
    free(cq);
    leave();
    return errno = fits ? ENOMEM : EINVAL, NULL;
  }
  cq->base = (struct ibv_cq){.context = context, .channel = channel, .cq_context = cq_context, .handle = next_handle++, .cqe = entries};
  if (channel != NULL) channel->refcnt++;
  ((struct context *)(void *)context)->uses++;
  add(device, COUNT_queues, 1);
  leave();
  return &cq->base;
}

IBVERBS(int, destroy_cq, (struct ibv_cq * base)) {
  struct cq *cq = cq_of(base);
  struct context *context = (struct context *)(void *)base->context;
  int number = enter_call(context->device, "ibv_destroy_cq");
  if (number != 0) return number;
  if (cq->uses > 0) {
    fault("ibv_destroy_cq with %d uses by queue pairs", cq->uses);
    leave();
    return EBUSY;
  }
  if (base->channel != NULL) line_forget(&((struct channel *)(void *)base->channel)->line, cq);
  line_forget(&context->events, cq);
  bool idle = acknowledged(&cq->events, &base->comp_events_completed, "ibv_destroy_cq") &&
              acknowledged(&cq->async_events, &base->async_events_completed, "ibv_destroy_cq");
  if (!idle) {
    leave();
    return EBUSY;
  }
  if (base->channel != NULL) base->channel->refcnt--;
  context->uses--;
  add(context->device, COUNT_queues, -1);
  leave();
  free(cq->entries);
  free(cq);
  return 0;
}

/* A completion. False where the queue has no place: then it, and the queue pair, are broken. */
static bool complete(struct cq *cq, const struct entry *entry, bool solicited) {
  struct device *device = device_of(cq->base.context);
  bool flushed = entry->wc.status == IBV_WC_WR_FLUSH_ERR;
  if (setting(device, SET_silent) != 0) return true;
  if (cq->broken) return true;
  if (cq->count == (uint32_t)cq->base.cqe) {
    cq->broken = true;
    fault("a completion queue of %d overflowed", cq->base.cqe);
    tell(cq->base.context, (struct ibv_async_event){.element = {.cq = &cq->base}, .event_type = IBV_EVENT_CQ_ERR});
    return false;
  }
  cq->entries[(cq->first + cq->count++) % (uint32_t)cq->base.cqe] = *entry;
  add(device, COUNT_completions, 1);
  if (flushed) add(device, COUNT_flushes, 1);
  else if (entry->wc.status != IBV_WC_SUCCESS) add(device, COUNT_failures, 1);
  if (cq->armed == UNARMED || (cq->armed == ARMED_SOLICITED && !solicited && entry->wc.status == IBV_WC_SUCCESS)) return true;
  cq->armed = UNARMED;
  if (cq->base.channel != NULL) line_put(&((struct channel *)(void *)cq->base.channel)->line, &(struct note){.cq = cq});
  return true;
}

/* Those of a queue pair that goes are nobody's. */
static void forget_completions(struct cq *cq, const struct qp *qp) {
  uint32_t room = (uint32_t)cq->base.cqe, kept = 0;
  for (uint32_t i = 0; i < cq->count; i++) {
    const struct entry *entry = &cq->entries[(cq->first + i) % room];
    if (entry->qp != qp) cq->entries[(cq->first + kept++) % room] = *entry;
  }
  cq->count = kept;
}

static int poll_cq(struct ibv_cq *base, int most, struct ibv_wc *out) {
  struct cq *cq = cq_of(base);
  enter();
  if (failing(device_of(base->context), "ibv_poll_cq") != 0) {
    leave();
    return -1;
  }
  int got = cq->broken && cq->count == 0 ? -1 : 0;
  while (got >= 0 && got < most && cq->count > 0) {
    const struct entry *entry = &cq->entries[cq->first];
    cq->first = (cq->first + 1) % (uint32_t)base->cqe;
    cq->count--;
    out[got++] = entry->wc;
    struct progress *of = entry->send ? &entry->qp->sends : &entry->qp->receives;
    of->retired = entry->number + 1;
  }
  leave();
  return got;
}

static int req_notify_cq(struct ibv_cq *base, int solicited_only) {
  struct cq *cq = cq_of(base);
  enter();
  int number = failing(device_of(base->context), "ibv_req_notify_cq");
  if (number == 0 && cq->armed != ARMED) cq->armed = solicited_only ? ARMED_SOLICITED : ARMED;
  leave();
  return number;
}

#endif
