#include "service.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "thread.h"

static void destroy(struct zap_object *object) {
  struct zap_service *service = (struct zap_service *)object;
  for (int i = 0; i < 2; i++)
    if (service->wake[i] >= 0) (void)close(service->wake[i]);
  (void)pthread_mutex_destroy(&service->lock);
  service->kind->destroy(service);
}

static void settle(struct zap_service *service, enum zap_service_state state, int32_t status) {
  pthread_mutex_lock(&service->lock);
  service->state = state;
  service->status = status;
  if (status != ZAP_OK) zap_text_copy(service->text, sizeof service->text, zap_failure());
  pthread_mutex_unlock(&service->lock);
}

static void *run_close(void *context) {
  struct zap_service *service = context;
  zap_thread_name("zap-close");
  settle(service, ZAP_SERVICE_CLOSED, service->kind->close(service, false));
  zap_object_release(&service->object);
  return NULL;
}

static void *run_open(void *context) {
  struct zap_service *service = context;
  zap_thread_name("zap-open");
  int32_t status = service->kind->open(service);
  bool unwanted = false;
  if (status != ZAP_OK) {
    settle(service, ZAP_SERVICE_FAILED, status);
  } else {
    pthread_mutex_lock(&service->lock);
    unwanted = service->unwanted;
    service->state = unwanted ? ZAP_SERVICE_CLOSING : ZAP_SERVICE_OPEN;
    pthread_mutex_unlock(&service->lock);
  }
  if (unwanted) settle(service, ZAP_SERVICE_CLOSED, service->kind->close(service, true));
  zap_object_release(&service->object);
  return NULL;
}

static bool make_pair(int ends[2]) {
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0) return true;
  ends[0] = ends[1] = -1;
  return false;
}

int32_t zap_service_start(struct zap_service *service, const struct zap_service_kind *kind) {
  zap_object_init(&service->object, destroy);
  service->kind = kind;
  (void)pthread_mutex_init(&service->lock, NULL);
  int32_t status = make_pair(service->wake) ? zap_handle_open(kind->kind, &service->object) : zap_fail_system("socketpair");
  if (status > 0) {
    zap_object_keep(&service->object);
    int32_t started = zap_thread_start(run_open, service);
    if (started != ZAP_OK) {
      zap_object_release(&service->object);
      zap_handle_drop(status, kind->kind);
      status = started;
    }
  }
  zap_object_release(&service->object);
  return status;
}

static struct zap_service *find(int32_t handle, const struct zap_service_kind *kind) {
  return (struct zap_service *)zap_handle_keep(handle, kind->kind);
}

int32_t zap_service_opened(int32_t handle, const struct zap_service_kind *kind, void *out) {
  struct zap_service *service = find(handle, kind);
  if (service == NULL) return ZAP_E_HANDLE;
  pthread_mutex_lock(&service->lock);
  enum zap_service_state state = service->state;
  int32_t status = ZAP_E_AGAIN;
  if (state == ZAP_SERVICE_OPEN) {
    status = ZAP_OK;
    kind->show(service, out, service->wake[1]);
    service->wake[1] = -1;
  } else if (state == ZAP_SERVICE_FAILED) {
    status = zap_fail(service->status, "%s", service->text);
  } else if (state != ZAP_SERVICE_OPENING) {
    status = zap_fail(ZAP_E_HANDLE, "it was closed");
  }
  pthread_mutex_unlock(&service->lock);
  if (state == ZAP_SERVICE_FAILED) zap_handle_drop(handle, kind->kind);
  zap_object_release(&service->object);
  return status;
}

int32_t zap_service_close(int32_t handle, const struct zap_service_kind *kind) {
  struct zap_service *service = find(handle, kind);
  if (service == NULL) return ZAP_E_HANDLE;
  pthread_mutex_lock(&service->lock);
  bool begin = service->state == ZAP_SERVICE_OPEN;
  if (begin) service->state = ZAP_SERVICE_CLOSING;
  service->unwanted = true;
  pthread_mutex_unlock(&service->lock);
  if (begin) {
    zap_object_keep(&service->object);
    /* Where no thread can be had it is done here, however long that takes. */
    if (zap_thread_start(run_close, service) != ZAP_OK) (void)run_close(service);
  }
  zap_object_release(&service->object);
  return ZAP_OK;
}

int32_t zap_service_closed(int32_t handle, const struct zap_service_kind *kind) {
  struct zap_service *service = find(handle, kind);
  if (service == NULL) return ZAP_E_HANDLE;
  pthread_mutex_lock(&service->lock);
  enum zap_service_state state = service->state;
  int32_t status = service->status;
  if (state == ZAP_SERVICE_OPEN) status = zap_fail(ZAP_E_INVALID, "it is open, and was not told to close");
  else if (state == ZAP_SERVICE_OPENING || state == ZAP_SERVICE_CLOSING) status = ZAP_E_AGAIN;
  else if (state == ZAP_SERVICE_FAILED) status = ZAP_OK;
  else if (status != ZAP_OK) (void)zap_fail(status, "%s", service->text);
  pthread_mutex_unlock(&service->lock);
  if (state == ZAP_SERVICE_CLOSED || state == ZAP_SERVICE_FAILED) zap_handle_drop(handle, kind->kind);
  zap_object_release(&service->object);
  return status;
}

struct zap_service *zap_service_use(int32_t handle, const struct zap_service_kind *kind) {
  struct zap_service *service = find(handle, kind);
  if (service == NULL) return NULL;
  pthread_mutex_lock(&service->lock);
  if (service->state == ZAP_SERVICE_OPEN) return service;
  pthread_mutex_unlock(&service->lock);
  zap_object_release(&service->object);
  (void)zap_fail(ZAP_E_HANDLE, "it is not open");
  return NULL;
}

void zap_service_release(struct zap_service *service) {
  pthread_mutex_unlock(&service->lock);
  zap_object_release(&service->object);
}
