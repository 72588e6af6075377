/* Handles for pollers (poller.h). A call that is under way keeps its poller, whoever closes it meanwhile. */
#include <stdlib.h>
#include <unistd.h>

#include "fail.h"
#include "handles.h"
#include "poller.h"
#include "zap_uma.h"

struct poller_entry {
  struct zap_object object;
  zap_poller *poller;
};

/* Slots of all pollers. */
static atomic_int slots;

static void free_poller(struct zap_object *object) {
  struct poller_entry *entry = (struct poller_entry *)object;
  if (entry->poller != NULL) {
    atomic_fetch_sub(&slots, zap_poller_count(entry->poller));
    zap_poller_stop(entry->poller);
  }
  free(entry);
}

static struct poller_entry *keep(int32_t handle) { return (struct poller_entry *)zap_handle_keep(handle, ZAP_KIND_POLLER); }

int32_t ZAP_UMA(live)(void) { return zap_handles_live() + atomic_load(&slots); }

int32_t ZAP_UMA(poller_open)(int32_t *wake_fd) {
  if (wake_fd == NULL) return zap_fail(ZAP_E_INVALID, "a poller needs a place for its wake descriptor");
  struct poller_entry *entry = calloc(1, sizeof *entry);
  if (entry == NULL) return zap_fail(ZAP_E_MEMORY, "out of memory for a poller");
  zap_object_init(&entry->object, free_poller);
  int32_t fd = -1;
  int32_t status = zap_poller_start(&entry->poller, &fd);
  if (status < 0) entry->poller = NULL;
  else status = zap_handle_open(ZAP_KIND_POLLER, &entry->object);
  if (status > 0) *wake_fd = fd;
  else if (fd >= 0) close(fd);
  zap_object_release(&entry->object);
  return status;
}

int32_t ZAP_UMA(poller_close)(int32_t poller) {
  struct zap_object *entry = zap_handle_close(poller, ZAP_KIND_POLLER);
  if (entry == NULL) return ZAP_E_HANDLE;
  zap_object_release(entry);
  return ZAP_OK;
}

int32_t ZAP_UMA(poller_add)(int32_t poller, int32_t fd) {
  struct poller_entry *entry = keep(poller);
  if (entry == NULL) return ZAP_E_HANDLE;
  int32_t status = zap_poller_add(entry->poller, fd);
  if (status > 0) atomic_fetch_add(&slots, 1);
  zap_object_release(&entry->object);
  return status;
}

int32_t ZAP_UMA(poller_remove)(int32_t poller, int32_t slot) {
  struct poller_entry *entry = keep(poller);
  if (entry == NULL) return ZAP_E_HANDLE;
  int32_t status = zap_poller_remove(entry->poller, slot);
  if (status >= 0) atomic_fetch_sub(&slots, 1);
  zap_object_release(&entry->object);
  return status;
}

int32_t ZAP_UMA(poller_arm)(int32_t poller, int32_t slot) {
  struct poller_entry *entry = keep(poller);
  if (entry == NULL) return ZAP_E_HANDLE;
  int32_t status = zap_poller_arm(entry->poller, slot);
  zap_object_release(&entry->object);
  return status;
}

int32_t ZAP_UMA(poller_take)(int32_t poller, int32_t *taken, uint32_t capacity) {
  struct poller_entry *entry = keep(poller);
  if (entry == NULL) return ZAP_E_HANDLE;
  int32_t status = zap_poller_take(entry->poller, taken, capacity);
  zap_object_release(&entry->object);
  return status;
}

int32_t ZAP_UMA(poller_recv)(int32_t poller, int32_t slot, void *first, uint32_t first_bytes, void *second,
                             uint32_t second_bytes) {
  struct poller_entry *entry = keep(poller);
  if (entry == NULL) return ZAP_E_HANDLE;
  int32_t status = zap_poller_recv(entry->poller, slot, first, first_bytes, second, second_bytes);
  zap_object_release(&entry->object);
  return status;
}
