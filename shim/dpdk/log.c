#include "log.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <string.h>

#define KEPT 4096

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char kept[KEPT];
static size_t length;
static FILE *stream, *sink;

static ssize_t keep(void *cookie, const char *bytes, size_t count) {
  (void)cookie;
  size_t all = count;
  pthread_mutex_lock(&lock);
  if (count > KEPT) {
    bytes += count - KEPT;
    count = KEPT;
  }
  if (length + count > KEPT) {
    size_t gone = length + count - KEPT;
    memmove(kept, kept + gone, length - gone);
    length -= gone;
  }
  memcpy(kept + length, bytes, count);
  length += count;
  pthread_mutex_unlock(&lock);
  return (ssize_t)all;
}

static ssize_t drop(void *cookie, const char *bytes, size_t count) {
  (void)cookie;
  (void)bytes;
  return (ssize_t)count;
}

static void make(void) {
  sink = fopencookie(NULL, "w", (cookie_io_functions_t){.write = drop});
  stream = fopencookie(NULL, "w", (cookie_io_functions_t){.write = keep});
  if (stream != NULL) (void)setvbuf(stream, NULL, _IOLBF, 1024);
}

FILE *zap_log_stream(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  (void)pthread_once(&once, make);
  return stream;
}

FILE *zap_log_sink(void) {
  (void)zap_log_stream();
  return sink;
}

void zap_log_mark(void) {
  if (stream != NULL) (void)fflush(stream);
  pthread_mutex_lock(&lock);
  length = 0;
  pthread_mutex_unlock(&lock);
}

void zap_log_tail(char *text, size_t capacity) {
  if (stream != NULL) (void)fflush(stream);
  pthread_mutex_lock(&lock);
  size_t from = length > capacity - 1 ? length - (capacity - 1) : 0;
  /* Begin with a whole line. */
  while (from > 0 && from < length && kept[from - 1] != '\n') from++;
  size_t at = 0;
  for (size_t i = from; i < length; i++) {
    char each = kept[i];
    if (each == '\n') {
      if (i + 1 == length) break;
      each = ';';
    }
    text[at++] = each;
    if (each == ';' && at < capacity - 1) text[at++] = ' ';
    if (at >= capacity - 1) break;
  }
  text[at] = 0;
  pthread_mutex_unlock(&lock);
}

typedef int (*bpf_print)(int level, const char *format, va_list arguments);

static int keep_print(int level, const char *format, va_list arguments) {
  /* Warnings; the rest is of no use. */
  if (level != 0 || stream == NULL) return 0;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  return vfprintf(stream, format, arguments);
#pragma GCC diagnostic pop
}

static void take_over(const char *library, const char *name) {
  void *loaded = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
  if (loaded == NULL) return;
  bpf_print (*set)(bpf_print);
  void *symbol = dlsym(loaded, name);
  memcpy(&set, &symbol, sizeof set);
  if (symbol != NULL) (void)set(keep_print);
  (void)dlclose(loaded);
}

void zap_log_take_bpf(void) {
  (void)zap_log_stream();
  take_over("libbpf.so.1", "libbpf_set_print");
  take_over("libxdp.so.1", "libxdp_set_print");
}
