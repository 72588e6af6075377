/* pipe2 is no part of POSIX. */
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif

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
#include <time.h>
#include <unistd.h>

#include "fail.h"
#include "readiness.h"
#include "thread.h"
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
  uint32_t first_free; /* no slot before it is free */
  int32_t *ready; /* slot numbers; each slot at most once, so never more than there are slots */
  uint32_t ready_length;
  bool signalled; /* a wake-up byte is out that `take` has not answered yet */
  bool stopping;
  bool broken; /* the thread has ended by itself: nothing is reported any more */
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

/*
 * One byte, so that the caller's event loop turns to the poller. Should the pair be full, it has bytes to turn to already; should the
 * caller have closed its end, nobody waits. But where the system is short of memory for a moment, a byte that is not sent now would
 * leave the caller asleep for good.
 */
static void wake_caller(zap_poller *poller) {
  while (send(poller->wake, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && (errno == ENOBUFS || errno == ENOMEM || errno == EINTR)) {
    struct timespec millisecond = {.tv_nsec = 1000000};
    nanosleep(&millisecond, NULL);
    pthread_mutex_lock(&poller->lock);
    bool stopping = poller->stopping;
    pthread_mutex_unlock(&poller->lock);
    if (stopping) return;
  }
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
  if (wake) wake_caller(poller);
}

static void *run(void *argument) {
  zap_poller *poller = argument;
  uint64_t tags[WAIT_BATCH];
  zap_thread_name("zap-poller");
  for (;;) {
    int count = zap_readiness_wait(poller->set, tags, WAIT_BATCH);
    if (count < 0) {
      pthread_mutex_lock(&poller->lock);
      poller->broken = true;
      pthread_mutex_unlock(&poller->lock);
      return NULL;
    }
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

/* Two descriptors that do not wait, and that no program that is started meanwhile inherits. */
#if defined(__linux__)
static int open_pipe(int ends[2]) { return pipe2(ends, O_CLOEXEC | O_NONBLOCK); }

static int open_pair(int ends[2]) { return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends); }
#else
/* The system has no call that does it at once. */
static int settle(const int ends[2]) {
  for (int at = 0; at < 2; at++) {
    int flags = fcntl(ends[at], F_GETFL);
    if (flags < 0 || fcntl(ends[at], F_SETFL, flags | O_NONBLOCK) < 0 || fcntl(ends[at], F_SETFD, FD_CLOEXEC) < 0) return -1;
  }
  return 0;
}

static int open_pipe(int ends[2]) { return pipe(ends) < 0 ? -1 : settle(ends); }

static int open_pair(int ends[2]) { return socketpair(AF_UNIX, SOCK_STREAM, 0, ends) < 0 ? -1 : settle(ends); }
#endif

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
  if (pthread_mutex_init(&poller->lock, NULL) != 0) {
    free(poller);
    return zap_fail(ZAP_E_SYSTEM, "pthread_mutex_init failed: out of memory");
  }

  int pair[2] = {-1, -1};
  const char *failed = NULL;
  poller->set = zap_readiness_open();
  if (poller->set < 0) failed = "poller: opening the set of sockets";
  else if (open_pipe(poller->stop) < 0) failed = "poller: pipe";
  else if (open_pair(pair) < 0) failed = "poller: socketpair";
  else if (zap_readiness_arm(poller->set, poller->stop[0], STOP_TAG, false) < 0) failed = "poller: watching a pipe";
  int32_t status = failed == NULL ? ZAP_OK : zap_fail_system(failed);
  poller->wake = pair[0];
  if (status == ZAP_OK) {
    errno = start_thread(poller);
    if (errno != 0) status = zap_fail_system("poller: pthread_create");
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
  pthread_mutex_lock(&poller->lock);
  poller->stopping = true;
  pthread_mutex_unlock(&poller->lock);
  while (write(poller->stop[1], "", 1) < 0 && errno == EINTR) continue;
  pthread_join(poller->thread, NULL);
  destroy(poller);
}

/* Room for one more slot; its index, or a failure without a text. */
static int32_t free_index(zap_poller *poller) {
  if (poller->slots_used < poller->slots_length) {
    for (uint32_t i = poller->first_free; i < poller->slots_length; i++)
      if (poller->slots[i].fd < 0) return (int32_t)i;
  }
  uint32_t before = poller->slots_length;
  if (before >= ZAP_POLLER_SLOTS) return ZAP_E_LIMIT;
  uint32_t after = before == 0 ? FIRST_SLOTS : before * 2;
  slot *slots = realloc(poller->slots, after * sizeof *slots);
  if (slots == NULL) return ZAP_E_MEMORY;
  poller->slots = slots;
  int32_t *ready = realloc(poller->ready, after * sizeof *ready);
  if (ready == NULL) return ZAP_E_MEMORY;
  poller->ready = ready;
  for (uint32_t i = before; i < after; i++) {
    memset(&slots[i], 0, sizeof slots[i]);
    slots[i].fd = -1;
    slots[i].generation = 1;
  }
  poller->slots_length = after;
  return (int32_t)before;
}

int32_t zap_poller_add(zap_poller *poller, int32_t fd) {
  /* A descriptor of our own: the caller's may be closed, and its number used again, at any time. */
  int own = fcntl(fd, F_DUPFD_CLOEXEC, 3);
  if (own < 0) return zap_fail_system("poller: duplicating a socket");
  pthread_mutex_lock(&poller->lock);
  int32_t index = free_index(poller);
  int32_t number = 0;
  if (index >= 0) {
    slot *one = &poller->slots[index];
    one->fd = own;
    one->armed_before = one->reported = one->leaving = false;
    one->readers = 0;
    poller->slots_used++;
    poller->first_free = (uint32_t)index + 1;
    number = number_of(poller, (uint32_t)index);
  }
  pthread_mutex_unlock(&poller->lock);
  if (index >= 0) return number;
  close(own);
  if (index == ZAP_E_MEMORY) return zap_fail(ZAP_E_MEMORY, "poller: out of memory for another socket");
  return zap_fail(ZAP_E_LIMIT, "poller: there is room for %d sockets", ZAP_POLLER_SLOTS);
}

/* With the lock held: lets go of the socket, and makes its number unknown. */
static void vacate(zap_poller *poller, slot *one) {
  if (one->armed_before) zap_readiness_forget(poller->set, one->fd);
  close(one->fd);
  one->fd = -1;
  uint32_t index = (uint32_t)(one - poller->slots);
  if (index < poller->first_free) poller->first_free = index;
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
  bool broken = poller->broken;
  if (one != NULL && !one->reported && !broken) {
    armed = zap_readiness_arm(poller->set, one->fd, (uint64_t)number, one->armed_before);
    error = errno;
    if (armed == 0) one->armed_before = true;
  }
  pthread_mutex_unlock(&poller->lock);
  if (one == NULL) return unknown(number);
  if (broken) return zap_fail(ZAP_E_SYSTEM, "poller: its set of sockets was closed by somebody else in this process");
  errno = error;
  return armed == 0 ? ZAP_OK : zap_fail_system("poller: watching a socket");
}

int32_t zap_poller_take(zap_poller *poller, int32_t *slots, uint32_t capacity) {
  if (slots == NULL && capacity > 0) return zap_fail(ZAP_E_INVALID, "take: a place for %u slots is needed", (unsigned)capacity);
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
  int32_t status = zap_fail_system("recv");
  return reset ? ZAP_E_RESET : status;
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
