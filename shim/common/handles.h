/*
 * Handles: positive numbers for everything that a caller may hold, in one table for all kinds.
 *
 * A handle is a place in the table and the place's generation. Closing it raises the generation, and a place is used again
 * only after ZAP_HANDLES_SPARE others, so a closed handle's number does not come back before 33 million more were opened.
 *
 * Global state: the table and its lock. Its memory grows to the most handles that were ever open at once, and stays.
 */
#ifndef ZAP_HANDLES_H
#define ZAP_HANDLES_H

#include <stdatomic.h>
#include <stdint.h>

/* Handles of all kinds that can be open at once. */
#define ZAP_HANDLES 65536
/* Closed places that are left alone before the oldest of them is used again. */
#define ZAP_HANDLES_SPARE 1024

enum zap_kind { ZAP_KIND_DEVICE = 1, ZAP_KIND_REGION, ZAP_KIND_CHECK, ZAP_KIND_POLLER, ZAP_KIND_SLOT, ZAP_KIND_NODE };

/* The first member of everything that is counted. Born with one reference, its maker's. */
struct zap_object {
  atomic_uint references;
  /* Called with the last reference gone. Frees the whole thing. */
  void (*destroy)(struct zap_object *object);
};

void zap_object_init(struct zap_object *object, void (*destroy)(struct zap_object *object));
void zap_object_keep(struct zap_object *object);
/* NULL is fine. */
void zap_object_release(struct zap_object *object);

/* Puts `object` into the table, which takes a reference of its own. Returns the handle, or fails with ZAP_E_LIMIT or ZAP_E_MEMORY. */
int32_t zap_handle_open(enum zap_kind kind, struct zap_object *object);

/* The object behind an open handle of that kind, with a reference for the caller; else NULL, with ZAP_E_HANDLE's text set. */
struct zap_object *zap_handle_keep(int32_t handle, enum zap_kind kind);

/*
 * Closes the handle; the table's reference passes to the caller. Of several callers one gets it; the others get NULL, with
 * ZAP_E_HANDLE's text set.
 */
struct zap_object *zap_handle_close(int32_t handle, enum zap_kind kind);

/* Closes the handle if it is open, and gives the table's reference back. Sets no text. */
void zap_handle_drop(int32_t handle, enum zap_kind kind);

/* How many are open, of every kind. */
int32_t zap_handles_live(void);

#endif
