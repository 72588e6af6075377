#if defined(__APPLE__)
#include "readiness.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/event.h>
#include <unistd.h>

#define BATCH 64

int zap_readiness_open(void) {
  int set = kqueue();
  if (set >= 0) fcntl(set, F_SETFD, FD_CLOEXEC);
  return set;
}

int zap_readiness_arm(int set, int fd, uint64_t tag, bool known) {
  struct kevent change;
  (void)known;
  EV_SET(&change, (uintptr_t)fd, EVFILT_READ, EV_ADD | EV_ONESHOT, 0, 0, (void *)(uintptr_t)tag);
  return kevent(set, &change, 1, 0, 0, 0);
}

void zap_readiness_forget(int set, int fd) {
  struct kevent change;
  EV_SET(&change, (uintptr_t)fd, EVFILT_READ, EV_DELETE, 0, 0, 0);
  /* What was reported has left by itself. */
  (void)kevent(set, &change, 1, 0, 0, 0);
}

int zap_readiness_wait(int set, uint64_t *tags, int capacity) {
  struct kevent events[BATCH];
  int count = kevent(set, 0, 0, events, capacity < BATCH ? capacity : BATCH, 0);
  if (count < 0) return errno == EINTR ? 0 : -1;
  for (int i = 0; i < count; i++) tags[i] = (uint64_t)(uintptr_t)events[i].udata;
  return count;
}
#else
typedef int zap_no_kqueue;
#endif
