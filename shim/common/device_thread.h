/*
 * The device's thread: the only one that calls into a vendor's library for a device. Callers hand it jobs and wait, but not
 * for ever: one call that hangs costs the device, not its callers.
 *
 * A job lives on the heap and is counted, so that a call that comes back after its caller has left touches nothing freed.
 * Global state: for each thread, which device's thread it is.
 */
#ifndef ZAP_DEVICE_THREAD_H
#define ZAP_DEVICE_THREAD_H

#include "fail.h"
#include "handles.h"

typedef struct zap_device_thread zap_device_thread;

/* The start of a bigger structure with the job's arguments and results. Made by zap_job_new, zeroed. */
struct zap_job {
  struct zap_object object;
  /* Runs on the device's thread. What it returns, and the text of a failure, go to the caller. */
  int32_t (*run)(struct zap_job *job);
  /* Also true where the caller gave up before: whoever sees it on the device's thread may undo what nobody will take. */
  atomic_bool abandoned;
  /* The device thread's own, under its lock. */
  int32_t status;
  int32_t state;
  struct zap_job *next;
  char text[ZAP_TEXT_BYTES];
};

/*
 * A job of `bytes` (the bigger structure's size). `destroy` frees what it owns beside itself, and may be NULL; it may run on
 * either thread. NULL where out of memory, with the text set. Its maker gives its reference back by zap_object_release.
 */
void *zap_job_new(size_t bytes, int32_t (*run)(struct zap_job *job), void (*destroy)(struct zap_object *object));

/*
 * Starts a thread. `last(context)` will run on it as the last thing, after zap_device_thread_stop: where it was abandoned, as late
 * as its call comes back, or never. So `context` must stay until then.
 */
int32_t zap_device_thread_start(void (*last)(void *context), void *context, zap_device_thread **thread);

/*
 * Runs a job and waits at most `timeout_ms` for it; returns its status with its text, or ZAP_E_TIMEOUT. After the first timeout
 * every call answers ZAP_E_TIMEOUT at once, and jobs that have not begun never will.
 */
int32_t zap_device_thread_run(zap_device_thread *thread, struct zap_job *job, uint32_t timeout_ms);

/* Lets a job run without waiting for it. Fails with ZAP_E_HANDLE after the end, ZAP_E_TIMEOUT where the thread is lost. */
int32_t zap_device_thread_post(zap_device_thread *thread, struct zap_job *job);

/* What has come of a posted job: ZAP_E_AGAIN, its status with its text, or ZAP_E_TIMEOUT where the thread is lost. */
int32_t zap_device_thread_poll(zap_device_thread *thread, struct zap_job *job);

/* ZAP_OK, or ZAP_E_TIMEOUT where the thread is lost. */
int32_t zap_device_thread_check(zap_device_thread *thread);

/*
 * Lets the running job end, refuses all others with ZAP_E_HANDLE, runs `last` and ends the thread. Waits at most `timeout_ms`, then
 * abandons it and returns ZAP_E_TIMEOUT; at once where it is lost already. Not on the thread itself.
 */
int32_t zap_device_thread_stop(zap_device_thread *thread, uint32_t timeout_ms);

/* Gives back what zap_device_thread_start gave, once it was stopped and no call waits on it. NULL is fine. */
void zap_device_thread_release(zap_device_thread *thread);

/* On a device's thread, before each call that might hang: its name for the text of the timeout. A literal. */
void zap_calling(const char *name);

#endif
