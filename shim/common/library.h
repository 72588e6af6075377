/* A vendor's library, opened at run time by its absolute path. No global state. */
#ifndef ZAP_LIBRARY_H
#define ZAP_LIBRARY_H

#include <stdbool.h>

#include "fail.h"

/* Opens it. ZAP_E_LIBRARY with what the loader says. */
int32_t zap_library_open(const char *path, void **library);

/* Only before anything of it was called: libraries with threads of their own do not survive to be closed. NULL is fine. */
void zap_library_close(void *library);

/* The function's address into `*function` (a pointer to a function pointer), or NULL there. Says whether there is one. */
bool zap_library_find(void *library, const char *name, void *function);

struct zap_symbol {
  const char *name;
  size_t offset;  /* of the function pointer in the table */
  bool optional;  /* NULL in the table where the library lacks it */
};

/*
 * Fills a table of function pointers, one by one. ZAP_E_SYMBOL names the first that is missing and not optional. `path` and
 * `minimum` ("CUDA 11.0 or newer") are for the text.
 */
int32_t zap_library_fill(void *library, const char *path, const char *minimum, const struct zap_symbol *symbols, size_t count,
                         void *table);

#endif
