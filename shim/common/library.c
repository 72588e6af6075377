#include "library.h"

#include <dlfcn.h>
#include <string.h>

int32_t zap_library_open(const char *path, void **library) {
  void *opened = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (opened == NULL) {
    const char *reason = dlerror();
    return zap_fail(ZAP_E_LIBRARY, "%s cannot be opened: %s", path, reason == NULL ? "no reason given" : reason);
  }
  *library = opened;
  return ZAP_OK;
}

void zap_library_close(void *library) {
  if (library != NULL) dlclose(library);
}

bool zap_library_find(void *library, const char *name, void *function) {
  void *address = dlsym(library, name);
  /* ISO C has no conversion from object to function pointers; POSIX says that they look alike. */
  memcpy(function, &address, sizeof address);
  return address != NULL;
}

int32_t zap_library_fill(void *library, const char *path, const char *minimum, const struct zap_symbol *symbols, size_t count,
                         void *table) {
  for (size_t at = 0; at < count; at++) {
    bool found = zap_library_find(library, symbols[at].name, (char *)table + symbols[at].offset);
    if (!found && !symbols[at].optional) {
      return zap_fail(ZAP_E_SYMBOL, "%s has no %s: it is too old; %s is needed", path, symbols[at].name, minimum);
    }
  }
  return ZAP_OK;
}
