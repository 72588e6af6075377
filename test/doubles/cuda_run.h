/* Part of cuda.c: handles, streams, events. All streams are one queue, so an event is done when its ticket is. */

enum thing_kind { STREAM, EVENT, MODULE, FUNCTION };

/* What a handle stands for. Handles are looked up in a list, so a stale one is refused and not followed. */
typedef struct thing {
  struct thing *next;
  enum thing_kind kind;
  context *owner;
  uint64_t ticket;             /* stream: of its last launch; event: what it waits for */
  char *text;                  /* module: its PTX */
  struct thing *module;        /* function */
  const double_kernel *kernel; /* function */
} thing;

static thing *things;

static thing *thing_new(enum thing_kind kind) {
  thing *one = calloc(1, sizeof *one);
  if (one == NULL) return NULL;
  one->kind = kind;
  one->owner = current();
  pthread_mutex_lock(&lock);
  one->next = things;
  things = one;
  pthread_mutex_unlock(&lock);
  return one;
}

static bool is_thing(const char *call, const thing *wanted, enum thing_kind kind) {
  bool found = false;
  pthread_mutex_lock(&lock);
  for (thing *one = things; one != NULL && !found; one = one->next) found = one == wanted && one->kind == kind;
  pthread_mutex_unlock(&lock);
  if (!found) double_report("fault: %s with a handle that is not open", call);
  return found;
}

/* Takes away `gone`, and the functions of a module. */
static void thing_free(const thing *gone) {
  pthread_mutex_lock(&lock);
  for (thing **link = &things; *link != NULL;) {
    thing *one = *link;
    if (one != gone && one->module != gone) {
      link = &one->next;
      continue;
    }
    *link = one->next;
    free(one->text);
    free(one);
  }
  pthread_mutex_unlock(&lock);
}

static void things_free_all(context *owner, uint32_t counts[]) {
  pthread_mutex_lock(&lock);
  for (thing **link = &things; *link != NULL;) {
    thing *one = *link;
    if (one->owner != owner) {
      link = &one->next;
      continue;
    }
    counts[one->kind] += 1;
    *link = one->next;
    free(one->text);
    free(one);
  }
  pthread_mutex_unlock(&lock);
}

/* After a successful wait or query: with everything done, the CPU may have managed memory back. */
static CUresult settled(void) {
  if (double_done(double_submitted())) double_memory_settled();
  return __atomic_load_n(&sticky, __ATOMIC_RELAXED);
}

DOUBLE_EXPORT CUresult cuCtxSynchronize(void) {
  ENTER_CONTEXT("cuCtxSynchronize");
  double_wait(double_submitted());
  return settled();
}

/* The ticket to wait for on a stream; NULL is the default stream, which waits for all. */
static bool stream_ticket(const char *call, thing *stream, uint64_t *ticket) {
  if (stream != NULL && !is_thing(call, stream, STREAM)) return false;
  *ticket = stream == NULL ? double_submitted() : stream->ticket;
  return true;
}

static CUresult stream_new(thing **out, unsigned flags) {
  if (out == NULL || flags > 1) return INVALID_VALUE;
  *out = thing_new(STREAM);
  return *out == NULL ? OUT_OF_MEMORY : SUCCESS;
}
DOUBLE_EXPORT CUresult cuStreamCreate(thing **out, unsigned flags) {
  ENTER_CONTEXT("cuStreamCreate");
  return stream_new(out, flags);
}
DOUBLE_EXPORT CUresult cuStreamCreateWithPriority(thing **out, unsigned flags, int priority) {
  (void)priority;
  ENTER_CONTEXT("cuStreamCreateWithPriority");
  return stream_new(out, flags);
}

DOUBLE_EXPORT CUresult cuStreamDestroy_v2(thing *stream) {
  ENTER_CONTEXT("cuStreamDestroy_v2");
  if (!is_thing("cuStreamDestroy_v2", stream, STREAM)) return INVALID_HANDLE;
  thing_free(stream);
  return SUCCESS;
}

DOUBLE_EXPORT CUresult cuStreamSynchronize(thing *stream) {
  ENTER_CONTEXT("cuStreamSynchronize");
  uint64_t ticket;
  if (!stream_ticket("cuStreamSynchronize", stream, &ticket)) return INVALID_HANDLE;
  double_wait(ticket);
  return settled();
}

DOUBLE_EXPORT CUresult cuStreamQuery(thing *stream) {
  ENTER_CONTEXT("cuStreamQuery");
  uint64_t ticket;
  if (!stream_ticket("cuStreamQuery", stream, &ticket)) return INVALID_HANDLE;
  return double_done(ticket) ? settled() : NOT_READY;
}

DOUBLE_EXPORT CUresult cuStreamWaitEvent(thing *stream, thing *event, unsigned flags) {
  ENTER_CONTEXT("cuStreamWaitEvent");
  uint64_t ticket;
  if (flags > 1) return INVALID_VALUE;
  if (!stream_ticket("cuStreamWaitEvent", stream, &ticket) || !is_thing("cuStreamWaitEvent", event, EVENT))
    return INVALID_HANDLE;
  if (stream != NULL && stream->ticket < event->ticket) stream->ticket = event->ticket;
  return SUCCESS;
}

/* Flags: blocking wait 1, no timing 2, for other processes 4. */
DOUBLE_EXPORT CUresult cuEventCreate(thing **out, unsigned flags) {
  ENTER_CONTEXT("cuEventCreate");
  if (out == NULL || flags > 7) return INVALID_VALUE;
  *out = thing_new(EVENT);
  return *out == NULL ? OUT_OF_MEMORY : SUCCESS;
}

DOUBLE_EXPORT CUresult cuEventDestroy_v2(thing *event) {
  ENTER_CONTEXT("cuEventDestroy_v2");
  if (!is_thing("cuEventDestroy_v2", event, EVENT)) return INVALID_HANDLE;
  thing_free(event);
  return SUCCESS;
}

DOUBLE_EXPORT CUresult cuEventRecord(thing *event, thing *stream) {
  ENTER_CONTEXT("cuEventRecord");
  uint64_t ticket;
  if (!is_thing("cuEventRecord", event, EVENT) || !stream_ticket("cuEventRecord", stream, &ticket)) return INVALID_HANDLE;
  event->ticket = ticket;
  return SUCCESS;
}

DOUBLE_EXPORT CUresult cuEventQuery(thing *event) {
  ENTER_CONTEXT("cuEventQuery");
  if (!is_thing("cuEventQuery", event, EVENT)) return INVALID_HANDLE;
  return double_done(event->ticket) ? settled() : NOT_READY;
}

DOUBLE_EXPORT CUresult cuEventSynchronize(thing *event) {
  ENTER_CONTEXT("cuEventSynchronize");
  if (!is_thing("cuEventSynchronize", event, EVENT)) return INVALID_HANDLE;
  double_wait(event->ticket);
  return settled();
}
