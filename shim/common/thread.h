/*
 * Threads and waiting, the same on Linux and macOS.
 *
 * Global state: this library stays loaded once it has started a thread, because a driver may never give that thread back.
 */
#ifndef ZAP_THREAD_H
#define ZAP_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Starts a detached thread with all signals blocked and a stack as large as vendors' libraries expect. Or ZAP_E_SYSTEM. */
int32_t zap_thread_start(void *(*run)(void *), void *context);

/* What debuggers show for the calling thread; at most 15 bytes. */
void zap_thread_name(const char *name);

/* Nanoseconds of the monotonic clock. */
uint64_t zap_now(void);

/* A condition whose waits follow the monotonic clock. Returns false where the system has none left. */
bool zap_condition_init(pthread_cond_t *condition);

/* Waits for a signal, or until zap_now() has reached `deadline`. May also return for no reason. */
void zap_condition_wait(pthread_cond_t *condition, pthread_mutex_t *mutex, uint64_t deadline);

#endif
