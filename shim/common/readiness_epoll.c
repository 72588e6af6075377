#if defined(__linux__)
#include "readiness.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#define BATCH 64

int zap_readiness_open(void) { return epoll_create1(EPOLL_CLOEXEC); }

int zap_readiness_arm(int set, int fd, uint64_t tag, bool known) {
  struct epoll_event event;
  memset(&event, 0, sizeof event);
  event.events = EPOLLIN | EPOLLRDHUP | EPOLLONESHOT;
  event.data.u64 = tag;
  return epoll_ctl(set, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event);
}

void zap_readiness_forget(int set, int fd) { (void)epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL); }

int zap_readiness_wait(int set, uint64_t *tags, int capacity) {
  struct epoll_event events[BATCH];
  int count = epoll_wait(set, events, capacity < BATCH ? capacity : BATCH, -1);
  if (count < 0) return errno == EINTR ? 0 : -1;
  for (int i = 0; i < count; i++) tags[i] = events[i].data.u64;
  return count;
}
#else
typedef int zap_no_epoll;
#endif
