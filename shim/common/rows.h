/* The rows of a probe. No global state. */
#ifndef ZAP_ROWS_H
#define ZAP_ROWS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "fail.h"

/* More rows than any probe has. */
#define ZAP_ROWS 16

/*
 * Rows that a device's thread adds while the caller may stop waiting at any time: a row is whole before `count` includes
 * it, and never changes afterwards.
 */
struct zap_rows {
  atomic_uint count;
  zap_prerequisite row[ZAP_ROWS];
};

/* Adds a row. `fix` is dropped where `met`; may be NULL. Both texts: see zap_prerequisite. */
void zap_row(struct zap_rows *rows, const char *name, bool met, const char *fix, const char *seen, ...) ZAP_PRINTF(5, 6);

/* Copies the rows that are whole into `out` and returns their number. */
uint32_t zap_rows_copy(struct zap_rows *rows, zap_prerequisite *out, uint32_t capacity);

#endif
