/* pthread_setname_np and its like are no part of POSIX. */
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif

#include "thread.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <time.h>

#include "fail.h"

/* Drivers compile kernels on the calling thread; musl's 128 KiB would not do. Only what is touched becomes real. */
#define STACK_BYTES (8u << 20)
#define SECOND 1000000000u

static void stay_loaded(void) {
  static const char here;
  Dl_info info;
  /* NOLOAD: the file itself may be gone by now. In a program, rather than a library, this fails, which is fine. */
  if (dladdr(&here, &info) != 0 && info.dli_fname != NULL) (void)dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
}

int32_t zap_thread_start(void *(*run)(void *), void *context) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_attr_t attributes;
  /* Not later: a driver that hangs may do so with the loader's lock in its hand. */
  (void)pthread_once(&once, stay_loaded);
  int failed = pthread_attr_init(&attributes);
  if (failed == 0) {
    sigset_t all, before;
    pthread_t thread;
    sigfillset(&all);
    (void)pthread_attr_setstacksize(&attributes, STACK_BYTES);
    (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    /* The new thread inherits the mask: there is no moment in which it would take a signal that is meant for others. */
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&thread, &attributes, run, context);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
  }
  if (failed == 0) return ZAP_OK;
  errno = failed;
  return zap_fail_system("pthread_create");
}

void zap_thread_name(const char *name) {
#if defined(__APPLE__)
  (void)pthread_setname_np(name);
#else
  (void)pthread_setname_np(pthread_self(), name);
#endif
}

uint64_t zap_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

bool zap_condition_init(pthread_cond_t *condition) {
#if defined(__APPLE__)
  return pthread_cond_init(condition, NULL) == 0;
#else
  pthread_condattr_t attributes;
  if (pthread_condattr_init(&attributes) != 0) return false;
  (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  int failed = pthread_cond_init(condition, &attributes);
  pthread_condattr_destroy(&attributes);
  return failed == 0;
#endif
}

void zap_condition_wait(pthread_cond_t *condition, pthread_mutex_t *mutex, uint64_t deadline) {
#if defined(__APPLE__)
  /* macOS cannot wait by the monotonic clock, only for a time. */
  uint64_t now = zap_now();
  uint64_t rest = deadline > now ? deadline - now : 0;
  struct timespec time = {.tv_sec = (time_t)(rest / SECOND), .tv_nsec = (long)(rest % SECOND)};
  (void)pthread_cond_timedwait_relative_np(condition, mutex, &time);
#else
  struct timespec time = {.tv_sec = (time_t)(deadline / SECOND), .tv_nsec = (long)(deadline % SECOND)};
  (void)pthread_cond_timedwait(condition, mutex, &time);
#endif
}
