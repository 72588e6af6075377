#include "poller.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "fail.h"
#include "readiness.h"
#include "zap_shim.h"

#define STOP_TAG UINT64_MAX
#define GENERATION_MAX 0x7fff
#define FIRST_SLOTS 64
#define WAIT_BATCH 64

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0
#endif

typedef struct slot {
  int fd; /* -1: free */
  uint16_t generation;
  bool armed_before;
  bool reported; /* in `ready` */
  bool leaving;  /* removed while somebody reads: the last reader closes it */
  uint32_t readers;
} slot;

struct zap_poller {
  pthread_t thread;
  pthread_mutex_t lock; /* guards everything below */
  slot *slots;
  uint32_t slots_length;
  uint32_t slots_used;
  int32_t *ready; /* slot numbers; each slot at most once, so never more than there are slots */
  uint32_t ready_length;
  bool signalled; /* a wake-up byte is out that `take` has not answered yet */
  int set;
  int wake;    /* our end of the pair that wakes the caller */
  int stop[2]; /* a byte in [1] ends the thread */
};

static int32_t number_of(const zap_poller *poller, uint32_t index) {
  return (int32_t)(((uint32_t)poller->slots[index].generation << 16) | index);
}

/* The slot of a number, or null where it is none of ours any more. */
static slot *find(zap_poller *poller, int32_t number) {
  if (number <= 0) return NULL;
  uint32_t index = (uint32_t)number & 0xffff;
  if (index >= poller->slots_length) return NULL;
  slot *found = &poller->slots[index];
  return found->fd >= 0 && !found->leaving && number_of(poller, index) == number ? found : NULL;
}

static int32_t unknown(int32_t number) {
  return zap_fail(ZAP_E_HANDLE, "poller: no slot %d is open", (int)number);
}

static int32_t system_failure(const char *what) {
  return zap_fail(ZAP_E_SYSTEM, "poller: %s: %s", what, strerror(errno));
}

static void report(zap_poller *poller, const uint64_t *tags, int count) {
  pthread_mutex_lock(&poller->lock);
  for (int i = 0; i < count; i++) {
    slot *one = find(poller, (int32_t)tags[i]);
    if (one == NULL || one->reported) continue;
    one->reported = true;
    poller->ready[poller->ready_length++] = (int32_t)tags[i];
  }
  bool wake = poller->ready_length > 0 && !poller->signalled;
  if (wake) poller->signalled = true;
  pthread_mutex_unlock(&poller->lock);
  /* Should the pair be full, the caller has bytes to wake up to already. */
  if (wake) (void)!send(poller->wake, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void *run(void *argument) {
  zap_poller *poller = argument;
  uint64_t tags[WAIT_BATCH];
  for (;;) {
    int count = zap_readiness_wait(poller->set, tags, WAIT_BATCH);
    if (count < 0) return NULL;
    for (int i = 0; i < count; i++)
      if (tags[i] == STOP_TAG) return NULL;
    report(poller, tags, count);
  }
}

/* The new thread inherits this thread's signal mask: none may reach it, they are the host program's. */
static int start_thread(zap_poller *poller) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int failed = pthread_create(&poller->thread, NULL, run, poller);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return failed;
}

static int nonblocking(int fd) {
  return fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) | fcntl(fd, F_SETFD, FD_CLOEXEC);
}

static void close_if_open(int fd) {
  if (fd >= 0) close(fd);
}

static void destroy(zap_poller *poller) {
  for (uint32_t i = 0; i < poller->slots_length; i++) close_if_open(poller->slots[i].fd);
  close_if_open(poller->set);
  close_if_open(poller->wake);
  close_if_open(poller->stop[0]);
  close_if_open(poller->stop[1]);
  pthread_mutex_destroy(&poller->lock);
  free(poller->slots);
  free(poller->ready);
  free(poller);
}

int32_t zap_poller_start(zap_poller **out, int32_t *wake_fd) {
  zap_poller *poller = calloc(1, sizeof *poller);
  if (poller == NULL) return zap_fail(ZAP_E_MEMORY, "poller: out of memory");
  poller->set = poller->wake = poller->stop[0] = poller->stop[1] = -1;
  pthread_mutex_init(&poller->lock, NULL);

  int pair[2] = {-1, -1};
  const char *failed = NULL;
  poller->set = zap_readiness_open();
  if (poller->set < 0) failed = "cannot open the set of sockets";
  else if (pipe(poller->stop) < 0 || nonblocking(poller->stop[0]) < 0 || nonblocking(poller->stop[1]) < 0)
    failed = "cannot open a pipe";
  else if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0 || nonblocking(pair[0]) < 0 || nonblocking(pair[1]) < 0)
    failed = "cannot open a socket pair";
  else if (zap_readiness_arm(poller->set, poller->stop[0], STOP_TAG, false) < 0) failed = "cannot watch a pipe";
  poller->wake = pair[0];
  int32_t status = failed == NULL ? ZAP_OK : system_failure(failed);
  if (status == ZAP_OK) {
    errno = start_thread(poller);
    if (errno != 0) status = system_failure("cannot start a thread");
  }
  if (status != ZAP_OK) {
    close_if_open(pair[1]);
    destroy(poller);
    return status;
  }
  *wake_fd = pair[1];
  *out = poller;
  return ZAP_OK;
}

void zap_poller_stop(zap_poller *poller) {
  while (write(poller->stop[1], "", 1) < 0 && errno == EINTR) continue;
  pthread_join(poller->thread, NULL);
  destroy(poller);
}

/* Room for one more slot; its index, or -1. */
static int64_t free_index(zap_poller *poller) {
  if (poller->slots_used < poller->slots_length) {
    for (uint32_t i = 0; i < poller->slots_length; i++)
      if (poller->slots[i].fd < 0) return i;
  }
  uint32_t before = poller->slots_length;
  if (before >= ZAP_POLLER_SLOTS) return -1;
  uint32_t after = before == 0 ? FIRST_SLOTS : before * 2;
  slot *slots = realloc(poller->slots, after * sizeof *slots);
  if (slots == NULL) return -1;
  poller->slots = slots;
  int32_t *ready = realloc(poller->ready, after * sizeof *ready);
  if (ready == NULL) return -1;
  poller->ready = ready;
  for (uint32_t i = before; i < after; i++) {
    memset(&slots[i], 0, sizeof slots[i]);
    slots[i].fd = -1;
    slots[i].generation = 1;
  }
  poller->slots_length = after;
  return before;
}

int32_t zap_poller_add(zap_poller *poller, int32_t fd) {
  /* A descriptor of our own: the caller's may be closed, and its number used again, at any time. */
  int own = fcntl(fd, F_DUPFD_CLOEXEC, 3);
  if (own < 0) return system_failure("cannot duplicate a socket");
  pthread_mutex_lock(&poller->lock);
  int64_t index = free_index(poller);
  int32_t number = 0;
  if (index >= 0) {
    slot *one = &poller->slots[index];
    one->fd = own;
    one->armed_before = one->reported = one->leaving = false;
    one->readers = 0;
    poller->slots_used++;
    number = number_of(poller, (uint32_t)index);
  }
  pthread_mutex_unlock(&poller->lock);
  if (index >= 0) return number;
  close(own);
  return zap_fail(ZAP_E_LIMIT, "poller: there is room for %d sockets", ZAP_POLLER_SLOTS);
}

/* With the lock held: lets go of the socket, and makes its number unknown. */
static void vacate(zap_poller *poller, slot *one) {
  close(one->fd);
  one->fd = -1;
  one->generation = one->generation == GENERATION_MAX ? 1 : (uint16_t)(one->generation + 1);
  poller->slots_used--;
}

static void forget_report(zap_poller *poller, int32_t number) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < poller->ready_length; i++)
    if (poller->ready[i] != number) poller->ready[kept++] = poller->ready[i];
  poller->ready_length = kept;
}

int32_t zap_poller_remove(zap_poller *poller, int32_t number) {
  pthread_mutex_lock(&poller->lock);
  slot *one = find(poller, number);
  if (one != NULL) {
    if (one->reported) forget_report(poller, number);
    if (one->readers > 0) one->leaving = true;
    else vacate(poller, one);
  }
  pthread_mutex_unlock(&poller->lock);
  return one == NULL ? unknown(number) : ZAP_OK;
}

int32_t zap_poller_arm(zap_poller *poller, int32_t number) {
  pthread_mutex_lock(&poller->lock);
  slot *one = find(poller, number);
  int armed = 0;
  int error = 0;
  if (one != NULL && !one->reported) {
    armed = zap_readiness_arm(poller->set, one->fd, (uint64_t)number, one->armed_before);
    error = errno;
    if (armed == 0) one->armed_before = true;
  }
  pthread_mutex_unlock(&poller->lock);
  if (one == NULL) return unknown(number);
  errno = error;
  return armed == 0 ? ZAP_OK : system_failure("cannot watch a socket");
}

int32_t zap_poller_take(zap_poller *poller, int32_t *slots, uint32_t capacity) {
  pthread_mutex_lock(&poller->lock);
  uint32_t count = poller->ready_length < capacity ? poller->ready_length : capacity;
  for (uint32_t i = 0; i < count; i++) {
    slots[i] = poller->ready[i];
    slot *one = find(poller, slots[i]);
    if (one != NULL) one->reported = false;
  }
  poller->ready_length -= count;
  if (poller->ready_length == 0) poller->signalled = false;
  else memmove(poller->ready, poller->ready + count, poller->ready_length * sizeof *poller->ready);
  pthread_mutex_unlock(&poller->lock);
  return (int32_t)count;
}

static int32_t result_of(ssize_t received) {
  if (received >= 0) return (int32_t)received;
  if (errno == EAGAIN || errno == EWOULDBLOCK) return ZAP_E_AGAIN;
  bool reset = errno == ECONNRESET || errno == EPIPE || errno == ETIMEDOUT;
  return zap_fail(reset ? ZAP_E_RESET : ZAP_E_SYSTEM, "recv: %s", strerror(errno));
}

int32_t zap_poller_recv(zap_poller *poller, int32_t number, void *first, uint32_t first_bytes, void *second,
                        uint32_t second_bytes) {
  if (first == NULL || first_bytes == 0 || (second == NULL && second_bytes > 0) || 
      (uint64_t)first_bytes + second_bytes > INT32_MAX)
    return zap_fail(ZAP_E_INVALID, "recv: an address and 1 to %d bytes are needed", INT32_MAX);
  pthread_mutex_lock(&poller->lock);
  slot *one = find(poller, number);
  int fd = one == NULL ? -1 : one->fd;
  if (one != NULL) one->readers++;
  pthread_mutex_unlock(&poller->lock);
  if (fd < 0) return unknown(number);

  struct iovec parts[2] = {{.iov_base = first, .iov_len = first_bytes}, {.iov_base = second, .iov_len = second_bytes}};
  struct msghdr message;
  memset(&message, 0, sizeof message);
  message.msg_iov = parts;
  message.msg_iovlen = second_bytes > 0 ? 2 : 1;
  ssize_t received;
  do received = recvmsg(fd, &message, MSG_DONTWAIT);
  while (received < 0 && errno == EINTR);
  int32_t result = result_of(received);

  pthread_mutex_lock(&poller->lock);
  /* The table may have moved meanwhile; the slot cannot have been given to anybody else. */
  one = &poller->slots[(uint32_t)number & 0xffff];
  if (--one->readers == 0 && one->leaving) {
    one->leaving = false;
    vacate(poller, one);
  }
  pthread_mutex_unlock(&poller->lock);
  return result;
}

int32_t zap_poller_count(zap_poller *poller) {
  pthread_mutex_lock(&poller->lock);
  uint32_t used = poller->slots_used;
  pthread_mutex_unlock(&poller->lock);
  return (int32_t)used;
}
