#include "device_thread.h"

#include <stdlib.h>

#include "thread.h"

enum job_state { JOB_NEW, JOB_QUEUED, JOB_RUNNING, JOB_DONE };

struct zap_device_thread {
  struct zap_object object; /* the owner's reference and the thread's */
  pthread_mutex_t lock;
  pthread_cond_t work; /* for the thread: a job, or the end */
  pthread_cond_t done; /* for the callers: a job is done, or the thread is lost or has ended */
  struct zap_job *first, *last_job;
  void (*last)(void *context);
  void *context;
  bool lost, stopping, ended;
  _Atomic(const char *) calling;
};

static _Thread_local zap_device_thread *current;

void zap_calling(const char *name) {
  if (current != NULL) atomic_store_explicit(&current->calling, name, memory_order_relaxed);
}

static void free_job(struct zap_object *object) { free(object); }

void *zap_job_new(size_t bytes, int32_t (*run)(struct zap_job *job), void (*destroy)(struct zap_object *object)) {
  struct zap_job *job = calloc(1, bytes);
  if (job == NULL) {
    (void)zap_fail(ZAP_E_MEMORY, "out of memory for a call of %zu bytes", bytes);
    return NULL;
  }
  zap_object_init(&job->object, destroy == NULL ? free_job : destroy);
  job->run = run;
  return job;
}

static void destroy_thread(struct zap_object *object) {
  zap_device_thread *thread = (zap_device_thread *)object;
  pthread_cond_destroy(&thread->work);
  pthread_cond_destroy(&thread->done);
  pthread_mutex_destroy(&thread->lock);
  free(thread);
}

/* Under the lock. */
static struct zap_job *take(zap_device_thread *thread) {
  struct zap_job *job = thread->first;
  if (job == NULL) return NULL;
  thread->first = job->next;
  if (thread->first == NULL) thread->last_job = NULL;
  job->next = NULL;
  return job;
}

/* Under the lock. */
static void finish(struct zap_job *job, int32_t status, const char *text) {
  job->status = status;
  zap_text_copy(job->text, sizeof job->text, text);
  job->state = JOB_DONE;
}

static void *serve(void *context) {
  zap_device_thread *thread = context;
  current = thread;
  zap_thread_name("zap-device");
  pthread_mutex_lock(&thread->lock);
  for (;;) {
    struct zap_job *job = take(thread);
    if (job == NULL) {
      if (thread->stopping) break;
      pthread_cond_wait(&thread->work, &thread->lock);
      continue;
    }
    if (thread->lost || thread->stopping) {
      /* A lost thread's callers have all left. */
      finish(job, ZAP_E_HANDLE, "the device was closed");
    } else {
      job->state = JOB_RUNNING;
      zap_calling("the driver");
      pthread_mutex_unlock(&thread->lock);
      int32_t status = job->run(job);
      pthread_mutex_lock(&thread->lock);
      finish(job, status, status < 0 ? zap_failure() : "");
    }
    pthread_cond_broadcast(&thread->done);
    pthread_mutex_unlock(&thread->lock);
    zap_object_release(&job->object);
    pthread_mutex_lock(&thread->lock);
  }
  pthread_mutex_unlock(&thread->lock);
  zap_calling("closing the device");
  thread->last(thread->context);
  pthread_mutex_lock(&thread->lock);
  thread->ended = true;
  pthread_cond_broadcast(&thread->done);
  pthread_mutex_unlock(&thread->lock);
  current = NULL;
  zap_object_release(&thread->object);
  return NULL;
}

int32_t zap_device_thread_start(void (*last)(void *context), void *context, zap_device_thread **out) {
  zap_device_thread *thread = calloc(1, sizeof *thread);
  if (thread == NULL) return zap_fail(ZAP_E_MEMORY, "out of memory for a device's thread");
  zap_object_init(&thread->object, destroy_thread);
  thread->last = last;
  thread->context = context;
  atomic_init(&thread->calling, "the driver");
  if (pthread_mutex_init(&thread->lock, NULL) != 0) {
    free(thread);
    return zap_fail(ZAP_E_SYSTEM, "pthread_mutex_init failed: out of memory");
  }
  if (!zap_condition_init(&thread->work)) {
    pthread_mutex_destroy(&thread->lock);
    free(thread);
    return zap_fail(ZAP_E_SYSTEM, "pthread_cond_init failed: out of memory");
  }
  if (!zap_condition_init(&thread->done)) {
    pthread_cond_destroy(&thread->work);
    pthread_mutex_destroy(&thread->lock);
    free(thread);
    return zap_fail(ZAP_E_SYSTEM, "pthread_cond_init failed: out of memory");
  }
  zap_object_keep(&thread->object);
  int32_t status = zap_thread_start(serve, thread);
  if (status < 0) {
    destroy_thread(&thread->object);
    return status;
  }
  *out = thread;
  return ZAP_OK;
}

static uint64_t deadline_after(uint32_t timeout_ms) { return zap_now() + (uint64_t)timeout_ms * 1000000u; }

static int32_t timed_out(zap_device_thread *thread) {
  return zap_fail(ZAP_E_TIMEOUT,
                  "%s did not come back in time: the driver hangs, and this device is of no more use here (look at dmesg; reset "
                  "the device or restart the host)",
                  atomic_load_explicit(&thread->calling, memory_order_relaxed));
}

/* Under the lock. */
static void enqueue(zap_device_thread *thread, struct zap_job *job) {
  zap_object_keep(&job->object);
  job->state = JOB_QUEUED;
  if (thread->last_job == NULL) thread->first = job;
  else thread->last_job->next = job;
  thread->last_job = job;
  pthread_cond_signal(&thread->work);
}

int32_t zap_device_thread_post(zap_device_thread *thread, struct zap_job *job) {
  pthread_mutex_lock(&thread->lock);
  bool stopping = thread->stopping, lost = thread->lost;
  if (!stopping && !lost) enqueue(thread, job);
  pthread_mutex_unlock(&thread->lock);
  if (lost) return timed_out(thread);
  return stopping ? zap_fail(ZAP_E_HANDLE, "the device was closed") : ZAP_OK;
}

int32_t zap_device_thread_poll(zap_device_thread *thread, struct zap_job *job) {
  pthread_mutex_lock(&thread->lock);
  bool done = job->state == JOB_DONE, lost = thread->lost;
  int32_t status = job->status;
  pthread_mutex_unlock(&thread->lock);
  if (!done) return lost ? timed_out(thread) : ZAP_E_AGAIN;
  return status < 0 ? zap_fail(status, "%s", job->text) : status;
}

int32_t zap_device_thread_run(zap_device_thread *thread, struct zap_job *job, uint32_t timeout_ms) {
  uint64_t deadline = deadline_after(timeout_ms);
  pthread_mutex_lock(&thread->lock);
  if (thread->stopping) {
    pthread_mutex_unlock(&thread->lock);
    return zap_fail(ZAP_E_HANDLE, "the device was closed");
  }
  if (!thread->lost) {
    enqueue(thread, job);
    while (job->state != JOB_DONE && !thread->lost) {
      if (zap_now() >= deadline) {
        thread->lost = true;
        pthread_cond_broadcast(&thread->done);
      } else {
        zap_condition_wait(&thread->done, &thread->lock, deadline);
      }
    }
  }
  bool done = job->state == JOB_DONE;
  int32_t status = job->status;
  if (!done) atomic_store(&job->abandoned, true);
  pthread_mutex_unlock(&thread->lock);
  if (!done) return timed_out(thread);
  return status < 0 && status != ZAP_E_AGAIN ? zap_fail(status, "%s", job->text) : status;
}

int32_t zap_device_thread_check(zap_device_thread *thread) {
  pthread_mutex_lock(&thread->lock);
  bool lost = thread->lost;
  pthread_mutex_unlock(&thread->lock);
  return lost ? timed_out(thread) : ZAP_OK;
}

int32_t zap_device_thread_stop(zap_device_thread *thread, uint32_t timeout_ms) {
  uint64_t deadline = deadline_after(timeout_ms);
  pthread_mutex_lock(&thread->lock);
  thread->stopping = true;
  pthread_cond_signal(&thread->work);
  while (!thread->ended && !thread->lost && zap_now() < deadline) {
    zap_condition_wait(&thread->done, &thread->lock, deadline);
  }
  bool ended = thread->ended;
  if (!ended) {
    thread->lost = true;
    pthread_cond_broadcast(&thread->done);
  }
  pthread_mutex_unlock(&thread->lock);
  return ended ? ZAP_OK : timed_out(thread);
}

void zap_device_thread_release(zap_device_thread *thread) {
  if (thread != NULL) zap_object_release(&thread->object);
}
