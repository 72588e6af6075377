/* The libibverbs double: its objects, and what tests have set. Part of ibverbs.c. */
#ifndef ZAP_IBVERBS_OBJECTS_H
#define ZAP_IBVERBS_OBJECTS_H

enum { DEVICES = 2, SGES = 8, PKEY = 0xffff, GID_PLACES = 16, FAILS = 32, CALL_BYTES = 48 };
enum { MAX_PAIRS = 65536, MAX_REQUESTS = 16384 };

enum setting {
#define X(name, value) SET_##name,
  IBVERBS_DOUBLE_SETTINGS(X)
#undef X
      SETTINGS
};

enum count {
#define X(name) COUNT_##name,
  IBVERBS_DOUBLE_COUNTS(X)
#undef X
      COUNTS
};

struct device {
  struct ibv_device base;
  int number;
  int64_t settings[SETTINGS];
  int64_t counts[COUNTS];
};

/* Something to be read from a file descriptor: an event. */
struct note {
  struct note *next;
  struct ibv_async_event event;
  struct cq *cq; /* of a completion channel */
};

struct line {
  int near, far;
  struct note *first;
};

struct context {
  struct ibv_context base;
  struct context *next;
  struct device *device;
  struct line events;
  int uses;
};

struct pd {
  struct ibv_pd base;
  int uses;
};

struct mr {
  struct ibv_mr base;
  struct mr *next;
  uint64_t iova;
  uint8_t *memory; /* where `iova` lies */
  void *mapping;   /* of a dma-buf */
  size_t mapped;
  unsigned access;
  bool watched; /* the caller's memory at `addr` must stay mapped */
  int windows;  /* bound to it */
};

struct mw {
  struct ibv_mw base;
  struct mw *next;
  uint32_t index; /* upper 24 bits of its keys */
  struct mr *mr;  /* NULL: not bound */
  struct qp *qp;
  uint64_t addr, length;
  uint32_t rkey;
  unsigned access;
};

struct entry {
  struct ibv_wc wc;
  struct qp *qp; /* NULL: it is gone */
  bool send;
  uint32_t number;
};

struct channel {
  struct ibv_comp_channel base;
  struct line line;
};

struct cq {
  struct ibv_cq base;
  struct entry *entries;
  uint32_t first, count;
  enum { UNARMED, ARMED, ARMED_SOLICITED } armed;
  bool broken;
  int uses;
  uint32_t events; /* that were read; base.comp_events_completed and async_events_completed: acknowledged */
  uint32_t async_events;
};

struct request {
  uint64_t wr_id, ready_at;
  enum ibv_wr_opcode opcode;
  unsigned flags;
  int parts;
  struct ibv_sge part[SGES];
  uint8_t *inlined;
  uint32_t length, immediate, rkey;
  uint64_t address;
  struct mw *window;
  struct ibv_mw_bind_info bind;
};

struct receive {
  uint64_t wr_id;
  int parts;
  struct ibv_sge part[SGES];
};

/* Numbers of requests: posted, done, and known to the caller as done. Only then is their place free. */
struct progress {
  uint32_t posted, done, retired, room;
};

enum wait { NO_WAIT, WAIT_RECEIVE, WAIT_ANSWER, WAIT_READY };

struct qp {
  struct ibv_qp base;
  struct qp *next;
  struct device *device;
  struct ibv_qp_init_attr made;
  struct ibv_qp_attr attr;
  struct progress sends, receives;
  struct request *request;
  struct receive *receive;
  uint8_t *inlined;
  enum wait wait;
  uint64_t wait_since, wake_at;
  uint32_t events;
};

/* ---- what there is, all of it under one lock ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed; /* for the thread that is late on purpose, and for whoever waits for an acknowledgement */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct device devices[DEVICES];
static struct context *contexts;
static struct mr *regions;
static struct mw *windows;
static struct qp *pairs;
static uint32_t waiting; /* queue pairs of which a request waits */
static uint32_t next_key = 0x1200, next_pair = 0x11, next_handle = 1;

static int64_t faults_seen;
static char first_fault[256];

static struct {
  int device; /* -1: all */
  char call[CALL_BYTES];
  int number, after;
} fails[FAILS];
static int fails_count;

static int64_t setting(const struct device *device, enum setting which) { return device->settings[which]; }
static void add(struct device *device, enum count which, int64_t value) { device->counts[which] += value; }
static struct device *device_of(struct ibv_context *context) { return ((struct context *)(void *)context)->device; }

static uint64_t clock_now(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void fault(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void fault(const char *format, ...) {
  char text[256];
  va_list values;
  va_start(values, format);
  (void)vsnprintf(text, sizeof text, format, values);
  va_end(values);
  if (faults_seen++ == 0) memcpy(first_fault, text, sizeof text);
  double_report("fault: %s", text);
}

/* ---- settings ---- */

static const char *const setting_names[] = {
#define X(name, value) #name,
    IBVERBS_DOUBLE_SETTINGS(X)
#undef X
};

static const char *const count_names[] = {
#define X(name) #name,
    IBVERBS_DOUBLE_COUNTS(X)
#undef X
};

/* ZAP_DOUBLE_IBVERBS_ and what follows, in capitals. */
static const char *environment(const char *first, const char *second) {
  char name[128];
  (void)snprintf(name, sizeof name, "ZAP_DOUBLE_IBVERBS_%s%s", first, second);
  for (char *at = name; *at != 0; at++)
    if (*at >= 'a' && *at <= 'z') *at = (char)(*at - 'a' + 'A');
  return getenv(name);
}

static int fail_from_now(int device, const char *call, size_t length, int number, int after) {
  if (length >= CALL_BYTES) return -1;
  int at = 0;
  while (at < fails_count && (fails[at].device != device || strncmp(fails[at].call, call, length) != 0 || fails[at].call[length] != 0)) at++;
  if (at == FAILS) return -1;
  if (at == fails_count) fails_count++;
  fails[at].device = device;
  memcpy(fails[at].call, call, length);
  fails[at].call[length] = 0;
  fails[at].number = number;
  fails[at].after = after;
  return 0;
}

static void reset_locked(void) {
  static const int64_t values[] = {
#define X(name, value) value,
      IBVERBS_DOUBLE_SETTINGS(X)
#undef X
  };
  for (int at = 0; at < DEVICES; at++) {
    char own[32];
    (void)snprintf(own, sizeof own, "double%d_", at);
    for (int which = 0; which < SETTINGS; which++) {
      const char *text = environment(own, setting_names[which]);
      if (text == NULL) text = environment("", setting_names[which]);
      devices[at].settings[which] = text == NULL ? values[which] : strtoll(text, NULL, 0);
    }
  }
  fails_count = 0;
  const char *each = environment("", "fail");
  while (each != NULL && *each != 0) {
    const char *equals = strchr(each, '=');
    if (equals == NULL) break;
    char *end;
    long number = strtol(equals + 1, &end, 0), after = 0;
    if (*end == '@') after = strtol(end + 1, &end, 0);
    (void)fail_from_now(-1, each, (size_t)(equals - each), (int)number, (int)after);
    each = *end == ',' ? end + 1 : NULL;
  }
  faults_seen = 0;
  first_fault[0] = 0;
}

static void begin(void) {
  pthread_condattr_t attributes;
  (void)pthread_condattr_init(&attributes);
  (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  (void)pthread_cond_init(&changed, &attributes);
  (void)pthread_condattr_destroy(&attributes);
  for (int at = 0; at < DEVICES; at++) {
    struct device *device = &devices[at];
    device->number = at;
    device->base.node_type = IBV_NODE_CA;
    device->base.transport_type = IBV_TRANSPORT_IB;
    (void)snprintf(device->base.name, sizeof device->base.name, "double%d", at);
    (void)snprintf(device->base.dev_name, sizeof device->base.dev_name, "uverbsdouble%d", at);
    (void)snprintf(device->base.dev_path, sizeof device->base.dev_path, "/sys/class/infiniband_verbs/uverbsdouble%d", at);
    (void)snprintf(device->base.ibdev_path, sizeof device->base.ibdev_path, "/sys/class/infiniband/double%d", at);
  }
  reset_locked();
}

static void enter(void) {
  (void)pthread_once(&once, begin);
  pthread_mutex_lock(&lock);
}

static void leave(void) { pthread_mutex_unlock(&lock); }

/* With the lock: 0, or the errno that this call is to fail with. */
static int failing(const struct device *device, const char *call) {
  for (int at = 0; at < fails_count; at++) {
    if (strcmp(fails[at].call, call) != 0 || fails[at].number == 0) continue;
    if (fails[at].device >= 0 && (device == NULL || fails[at].device != device->number)) continue;
    if (fails[at].after-- > 0) return 0;
    fails[at].after = 0;
    return fails[at].number;
  }
  return 0;
}

/* Every function of the library starts here. Takes the lock and returns 0, or returns the errno that it is to fail with. */
static int enter_call(const struct device *device, const char *call) {
  int number = (int)double_enter(call);
  if (number != 0) return number;
  enter();
  number = failing(device, call);
  if (number != 0) leave();
  return number;
}

/* ---- events ---- */

static bool line_open(struct line *line) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return false;
  *line = (struct line){.near = ends[0], .far = ends[1]};
  return true;
}

static void line_put(struct line *line, const struct note *wanted) {
  struct note *note = malloc(sizeof *note), **end = &line->first;
  if (note == NULL) return;
  *note = *wanted;
  note->next = NULL;
  while (*end != NULL) end = &(*end)->next;
  *end = note;
  if (send(line->far, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) != 1) fault("nobody reads events");
}

/* Waits, as its file descriptor is set. 0, or -1 with errno. */
static int line_take(struct line *line, struct note *out) {
  for (;;) {
    char byte;
    ssize_t got = recv(line->near, &byte, 1, 0);
    if (got < 0) return -1;
    if (got == 0) return errno = EBADF, -1;
    enter();
    struct note *note = line->first;
    if (note != NULL) {
      line->first = note->next;
      *out = *note;
      /* Who is asked to wait for acknowledgements has to know of it at once. */
      struct ibv_async_event *event = &out->event;
      if (note->cq != NULL) note->cq->events++;
      else if (event->event_type == IBV_EVENT_CQ_ERR) ((struct cq *)(void *)event->element.cq)->async_events++;
      else if (event->event_type <= IBV_EVENT_QP_ACCESS_ERR) ((struct qp *)(void *)event->element.qp)->events++;
    }
    leave();
    free(note);
    if (note != NULL) return 0;
  }
}

/* Drops what is about something that is going. */
static void line_forget(struct line *line, const void *what) {
  struct note **at = &line->first;
  while (*at != NULL) {
    struct note *note = *at;
    bool about = note->cq != NULL ? (const void *)note->cq == what
                                  : note->event.event_type <= IBV_EVENT_QP_ACCESS_ERR && (const void *)note->event.element.qp == what;
    if (!about) {
      at = &note->next;
      continue;
    }
    char byte;
    *at = note->next;
    free(note);
    (void)!recv(line->near, &byte, 1, MSG_DONTWAIT);
  }
}

static void line_close(struct line *line) {
  while (line->first != NULL) {
    struct note *note = line->first;
    line->first = note->next;
    free(note);
  }
  (void)close(line->near);
  (void)close(line->far);
}

static void tell(struct ibv_context *context, struct ibv_async_event event) {
  line_put(&((struct context *)(void *)context)->events, &(struct note){.event = event});
}

static void tell_of_pair(struct qp *qp, enum ibv_event_type type) {
  tell(qp->base.context, (struct ibv_async_event){.element = {.qp = &qp->base}, .event_type = type});
}

/* As the library does: what has unacknowledged events does not go. With a limit, so that a test ends. */
static bool acknowledged(const uint32_t *read, const uint32_t *done, const char *what) {
  uint64_t until = clock_now() + 5000000000u;
  while (*read != *done) {
    struct timespec deadline = {.tv_sec = (time_t)(until / 1000000000u), .tv_nsec = (long)(until % 1000000000u)};
    if (clock_now() >= until) {
      fault("%s with %u events that were not acknowledged", what, *read - *done);
      return false;
    }
    (void)pthread_cond_timedwait(&changed, &lock, &deadline);
  }
  return true;
}

#endif
