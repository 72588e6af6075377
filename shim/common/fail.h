/*
 * The text that goes with a failure.
 *
 * Global state: one text of ZAP_TEXT_BYTES for each thread.
 */
#ifndef ZAP_FAIL_H
#define ZAP_FAIL_H

#include <stddef.h>
#include <stdint.h>

#include "zap_shim.h"

#if defined(__GNUC__)
#define ZAP_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define ZAP_PRINTF(text, first)
#endif

/* Longer texts are cut, never inside a UTF-8 character. Counts the final zero. */
#define ZAP_TEXT_BYTES 512

/* Sets this thread's text and returns `status`: `return zap_fail(ZAP_E_MEMORY, "...")`. No full stop at the end. */
int32_t zap_fail(int32_t status, const char *format, ...) ZAP_PRINTF(2, 3);

/* This thread's text; empty where nothing has failed so far. Holds until the thread's next failure. */
const char *zap_failure(void);

/* The longest start of `text`, at most `limit` bytes, that ends with a whole UTF-8 character. */
size_t zap_text_fit(const char *text, size_t limit);

/* Copies as much of `text` as fits and fills the rest of `to` with zeros: nothing of what was there before stays. */
void zap_text_copy(char *to, size_t capacity, const char *text);

/* What `..._error` of every shim does: copies this thread's text and returns the length of the copy. */
int32_t zap_failure_copy(char *text, uint32_t capacity);

/* The text of a failed system call: `zap_fail_system("socketpair")` reads errno and returns ZAP_E_SYSTEM. */
int32_t zap_fail_system(const char *call);

#endif
