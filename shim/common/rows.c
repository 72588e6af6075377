#include "rows.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void zap_row(struct zap_rows *rows, const char *name, bool met, const char *fix, const char *seen, ...) {
  unsigned at = atomic_load_explicit(&rows->count, memory_order_relaxed);
  if (at >= ZAP_ROWS) return;
  zap_prerequisite *row = &rows->row[at];
  char buffer[sizeof row->seen + 8];
  va_list arguments;
  va_start(arguments, seen);
  int wanted = vsnprintf(buffer, sizeof buffer, seen, arguments);
  va_end(arguments);
  if (wanted < 0) buffer[0] = 0;
  zap_text_copy(row->name, sizeof row->name, name);
  zap_text_copy(row->seen, sizeof row->seen, buffer);
  zap_text_copy(row->fix, sizeof row->fix, met || fix == NULL ? "" : fix);
  row->met = met ? 1 : 0;
  row->reserved = 0;
  atomic_store_explicit(&rows->count, at + 1, memory_order_release);
}

uint32_t zap_rows_copy(struct zap_rows *rows, zap_prerequisite *out, uint32_t capacity) {
  unsigned count = atomic_load_explicit(&rows->count, memory_order_acquire);
  if (count > capacity) count = capacity;
  if (count > 0) memcpy(out, rows->row, count * sizeof *out);
  return count;
}
