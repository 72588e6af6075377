/* Part of hip.c: streams and events. Nothing runs on them, so all is done at once. */

typedef struct thing {
  struct thing *next;
  bool is_event;
} thing;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static thing *things;

static hipError_t thing_new(bool is_event, thing **out) {
  if (out == NULL) return INVALID_VALUE;
  thing *one = calloc(1, sizeof *one);
  if (one == NULL) return OUT_OF_MEMORY;
  one->is_event = is_event;
  pthread_mutex_lock(&lock);
  one->next = things;
  things = one;
  pthread_mutex_unlock(&lock);
  *out = one;
  return SUCCESS;
}

static hipError_t thing_use(const char *call, thing *wanted, bool is_event, bool take) {
  if (wanted == NULL && !is_event && !take) return SUCCESS; /* the default stream */
  hipError_t code = INVALID_HANDLE;
  pthread_mutex_lock(&lock);
  for (thing **link = &things; *link != NULL; link = &(*link)->next) {
    if (*link != wanted || wanted->is_event != is_event) continue;
    code = SUCCESS;
    if (take) {
      *link = wanted->next;
      free(wanted);
    }
    break;
  }
  pthread_mutex_unlock(&lock);
  if (code != SUCCESS) double_report("fault: %s with a handle that is not open", call);
  return code;
}

DOUBLE_EXPORT hipError_t hipStreamCreate(thing **out) {
  ENTER("hipStreamCreate");
  return thing_new(false, out);
}
DOUBLE_EXPORT hipError_t hipStreamCreateWithFlags(thing **out, unsigned flags) {
  ENTER("hipStreamCreateWithFlags");
  return flags > 1 ? INVALID_VALUE : thing_new(false, out);
}
DOUBLE_EXPORT hipError_t hipStreamDestroy(thing *stream) {
  ENTER("hipStreamDestroy");
  return thing_use("hipStreamDestroy", stream, false, true);
}
DOUBLE_EXPORT hipError_t hipStreamSynchronize(thing *stream) {
  ENTER("hipStreamSynchronize");
  return thing_use("hipStreamSynchronize", stream, false, false);
}
DOUBLE_EXPORT hipError_t hipStreamQuery(thing *stream) {
  ENTER("hipStreamQuery");
  return thing_use("hipStreamQuery", stream, false, false);
}
DOUBLE_EXPORT hipError_t hipEventCreate(thing **out) {
  ENTER("hipEventCreate");
  return thing_new(true, out);
}
DOUBLE_EXPORT hipError_t hipEventCreateWithFlags(thing **out, unsigned flags) {
  (void)flags;
  ENTER("hipEventCreateWithFlags");
  return thing_new(true, out);
}
DOUBLE_EXPORT hipError_t hipEventRecord(thing *event, thing *stream) {
  ENTER("hipEventRecord");
  hipError_t code = thing_use("hipEventRecord", event, true, false);
  return code != SUCCESS ? code : thing_use("hipEventRecord", stream, false, false);
}
DOUBLE_EXPORT hipError_t hipEventQuery(thing *event) {
  ENTER("hipEventQuery");
  return thing_use("hipEventQuery", event, true, false);
}
DOUBLE_EXPORT hipError_t hipEventSynchronize(thing *event) {
  ENTER("hipEventSynchronize");
  return thing_use("hipEventSynchronize", event, true, false);
}
DOUBLE_EXPORT hipError_t hipEventDestroy(thing *event) {
  ENTER("hipEventDestroy");
  return thing_use("hipEventDestroy", event, true, true);
}
