#include "handles.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include "fail.h"

/* 16 bits of place and 15 of generation make 31: a handle is positive. Generation 0 is never given, so neither is handle 0. */
#define PLACE_BITS 16
#define GENERATIONS (1u << 15)
#define NO_PLACE UINT32_MAX

struct place {
  struct zap_object *object; /* NULL while closed */
  uint32_t generation;
  uint32_t kind;
  uint32_t next; /* of the queue of closed places */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct place *places;
static uint32_t capacity, used, live;
/* Closed places, the longest closed first. */
static uint32_t oldest = NO_PLACE, newest = NO_PLACE, closed;

void zap_object_init(struct zap_object *object, void (*destroy)(struct zap_object *object)) {
  atomic_init(&object->references, 1);
  object->destroy = destroy;
}

void zap_object_keep(struct zap_object *object) {
  atomic_fetch_add_explicit(&object->references, 1, memory_order_relaxed);
}

void zap_object_release(struct zap_object *object) {
  if (object == NULL) return;
  if (atomic_fetch_sub_explicit(&object->references, 1, memory_order_acq_rel) == 1) object->destroy(object);
}

static const char *name_of(enum zap_kind kind) {
  switch (kind) {
    case ZAP_KIND_DEVICE: return "device";
    case ZAP_KIND_REGION: return "region";
    case ZAP_KIND_CHECK: return "job";
    case ZAP_KIND_POLLER: return "poller";
    case ZAP_KIND_SLOT: return "slot";
    case ZAP_KIND_NODE: return "node";
  }
  return "thing";
}

static bool grow(void) {
  if (used < capacity) return true;
  uint32_t wanted = capacity == 0 ? 64 : capacity * 2;
  if (wanted > ZAP_HANDLES) wanted = ZAP_HANDLES;
  struct place *more = realloc(places, wanted * sizeof *more);
  if (more == NULL) return false;
  places = more;
  capacity = wanted;
  return true;
}

static uint32_t reuse(void) {
  uint32_t index = oldest;
  oldest = places[index].next;
  if (oldest == NO_PLACE) newest = NO_PLACE;
  closed--;
  return index;
}

int32_t zap_handle_open(enum zap_kind kind, struct zap_object *object) {
  int32_t handle = ZAP_E_LIMIT;
  pthread_mutex_lock(&lock);
  uint32_t index = NO_PLACE;
  if (closed > ZAP_HANDLES_SPARE || (closed > 0 && used == ZAP_HANDLES)) {
    index = reuse();
  } else if (used < ZAP_HANDLES) {
    if (grow()) {
      index = used++;
      places[index] = (struct place){.generation = 0};
    } else if (closed > 0) {
      index = reuse();
    } else {
      handle = ZAP_E_MEMORY;
    }
  }
  if (index != NO_PLACE) {
    struct place *place = &places[index];
    place->generation = place->generation + 1 < GENERATIONS ? place->generation + 1 : 1;
    place->kind = kind;
    place->object = object;
    zap_object_keep(object);
    live++;
    handle = (int32_t)(place->generation << PLACE_BITS | index);
  }
  pthread_mutex_unlock(&lock);
  if (handle == ZAP_E_LIMIT) return zap_fail(handle, "%d handles are open, and no more are possible: close some", ZAP_HANDLES);
  if (handle == ZAP_E_MEMORY) return zap_fail(handle, "out of memory for the table of handles");
  return handle;
}

/* Under the lock. */
static struct place *find(int32_t handle, enum zap_kind kind) {
  if (handle <= 0) return NULL;
  uint32_t index = (uint32_t)handle & ((1u << PLACE_BITS) - 1);
  if (index >= used) return NULL;
  struct place *place = &places[index];
  if (place->object == NULL || place->kind != (uint32_t)kind) return NULL;
  return place->generation == (uint32_t)handle >> PLACE_BITS ? place : NULL;
}

static void refuse(int32_t handle, enum zap_kind kind) {
  (void)zap_fail(ZAP_E_HANDLE, "%d is no open %s: it was closed, or never was one", (int)handle, name_of(kind));
}

struct zap_object *zap_handle_keep(int32_t handle, enum zap_kind kind) {
  pthread_mutex_lock(&lock);
  struct place *place = find(handle, kind);
  struct zap_object *object = place == NULL ? NULL : place->object;
  if (object != NULL) zap_object_keep(object);
  pthread_mutex_unlock(&lock);
  if (object == NULL) refuse(handle, kind);
  return object;
}

static struct zap_object *take_out(int32_t handle, enum zap_kind kind) {
  struct zap_object *object = NULL;
  pthread_mutex_lock(&lock);
  struct place *place = find(handle, kind);
  if (place != NULL) {
    uint32_t index = (uint32_t)(place - places);
    object = place->object;
    place->object = NULL;
    place->next = NO_PLACE;
    if (newest == NO_PLACE) oldest = index;
    else places[newest].next = index;
    newest = index;
    closed++;
    live--;
  }
  pthread_mutex_unlock(&lock);
  return object;
}

struct zap_object *zap_handle_close(int32_t handle, enum zap_kind kind) {
  struct zap_object *object = take_out(handle, kind);
  if (object == NULL) refuse(handle, kind);
  return object;
}

void zap_handle_drop(int32_t handle, enum zap_kind kind) { zap_object_release(take_out(handle, kind)); }

int32_t zap_handles_live(void) {
  pthread_mutex_lock(&lock);
  int32_t count = (int32_t)live;
  pthread_mutex_unlock(&lock);
  return count;
}
