/*
 * Something that is opened and closed on a thread of its own, so that nobody waits for a driver: its states, its handle, its lock, and the
 * socket pair that wakes the caller. No global state beside the table of handles.
 */
#ifndef ZAP_SERVICE_H
#define ZAP_SERVICE_H

#include <pthread.h>
#include <stdbool.h>

#include "fail.h"
#include "handles.h"

struct zap_service;

struct zap_service_kind {
  enum zap_kind kind;
  /* On a thread of its own. What fails leaves nothing behind. */
  int32_t (*open)(struct zap_service *service);
  /* Likewise. `unseen`: nobody has learnt that it was open, nor of anything that outlives it. */
  int32_t (*close)(struct zap_service *service, bool unseen);
  /* Fills the caller's structure; `wake_fd` is his from now on. */
  void (*show)(struct zap_service *service, void *out, int wake_fd);
  /* With the last reference: frees the structure and what it owns. */
  void (*destroy)(struct zap_service *service);
};

enum zap_service_state { ZAP_SERVICE_OPENING, ZAP_SERVICE_OPEN, ZAP_SERVICE_FAILED, ZAP_SERVICE_CLOSING, ZAP_SERVICE_CLOSED };

/* The first member of what it is about. */
struct zap_service {
  struct zap_object object;
  const struct zap_service_kind *kind;
  /* Of what follows; held by whoever uses an open one, so that it is not closed meanwhile. */
  pthread_mutex_t lock;
  enum zap_service_state state;
  bool unwanted; /* close was asked for */
  int32_t status;
  char text[ZAP_TEXT_BYTES];
  int wake[2]; /* ours, the caller's */
};

/* Begins to open a zeroed one; returns its handle. It is destroyed where that fails, and the caller has no reference afterwards. */
int32_t zap_service_start(struct zap_service *service, const struct zap_service_kind *kind);
/* ZAP_E_AGAIN while it opens, ZAP_OK with `out` shown, or why it failed: then the handle is gone. */
int32_t zap_service_opened(int32_t handle, const struct zap_service_kind *kind, void *out);
int32_t zap_service_close(int32_t handle, const struct zap_service_kind *kind);
/* ZAP_E_AGAIN while it closes; else the handle is gone. */
int32_t zap_service_closed(int32_t handle, const struct zap_service_kind *kind);
/* Keeps it open until zap_service_release. NULL with the text set where it is not. */
struct zap_service *zap_service_use(int32_t handle, const struct zap_service_kind *kind);
void zap_service_release(struct zap_service *service);

#endif
