/* Test double support: the behaviour file, the report, and launches that run later. Not a device. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "double.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { NAME_BYTES = 96, VALUE_BYTES = 512 };

/* Settings are never freed before the process ends: a call that hangs, or a text that was handed out, may still need them. */
typedef struct setting {
  struct setting *next;
  char name[NAME_BYTES];
  char value[VALUE_BYTES];
} setting;

static pthread_mutex_t settings_lock = PTHREAD_MUTEX_INITIALIZER;
static setting *settings;
static setting *retired;
static bool was_read;
static uint64_t faults;

static void conf_path(char *path, size_t capacity) {
  Dl_info here;
  path[0] = 0;
  if (dladdr((void *)(uintptr_t)&double_settings_read, &here) == 0 || here.dli_fname == NULL) return;
  const char *slash = strrchr(here.dli_fname, '/');
  int directory = slash == NULL ? 0 : (int)(slash - here.dli_fname + 1);
  (void)snprintf(path, capacity, "%.*sdouble.conf", directory, here.dli_fname);
}

static void settings_add(char *line) {
  line[strcspn(line, "\r\n")] = 0;
  char *equals = strchr(line, '=');
  if (line[0] == '#' || equals == NULL) return;
  *equals = 0;
  setting *one = calloc(1, sizeof *one);
  if (one == NULL) return;
  (void)snprintf(one->name, sizeof one->name, "%.*s", NAME_BYTES - 1, line);
  (void)snprintf(one->value, sizeof one->value, "%.*s", VALUE_BYTES - 1, equals + 1);
  one->next = settings;
  settings = one;
}

static void settings_read_locked(void) {
  char path[4096];
  char line[NAME_BYTES + VALUE_BYTES + 8];
  while (settings != NULL) {
    setting *one = settings;
    settings = one->next;
    one->next = retired;
    retired = one;
  }
  was_read = true;
  conf_path(path, sizeof path);
  FILE *file = fopen(path, "re");
  if (file == NULL) return;
  while (fgets(line, sizeof line, file) != NULL) settings_add(line);
  (void)fclose(file);
}

void double_settings_read(void) {
  pthread_mutex_lock(&settings_lock);
  settings_read_locked();
  pthread_mutex_unlock(&settings_lock);
}

const char *double_text(const char *name, const char *otherwise) {
  const char *value = otherwise;
  pthread_mutex_lock(&settings_lock);
  if (!was_read) settings_read_locked();
  for (setting *one = settings; one != NULL; one = one->next) {
    if (strcmp(one->name, name) == 0) {
      value = one->value;
      break;
    }
  }
  pthread_mutex_unlock(&settings_lock);
  return value;
}

int64_t double_number(const char *name, int64_t otherwise) {
  const char *text = double_text(name, NULL);
  return text == NULL ? otherwise : (int64_t)strtoll(text, NULL, 0);
}

int64_t double_number_of(const char *name, int64_t which, int64_t otherwise) {
  char full[NAME_BYTES];
  (void)snprintf(full, sizeof full, "%s.%lld", name, (long long)which);
  return double_number(full, otherwise);
}

static void sleep_millis(int64_t millis) {
  struct timespec left = {millis / 1000, (millis % 1000) * 1000000};
  while (nanosleep(&left, &left) != 0) continue;
}

/* `after.CALL=N` lets the first N calls pass a `fail.CALL` or `hang.CALL`; the count starts anew when the behaviour file is read. */
static bool may_pass(const char *call) {
  char name[NAME_BYTES];
  bool pass = false;
  (void)snprintf(name, sizeof name, "after.%s", call);
  pthread_mutex_lock(&settings_lock);
  for (setting *one = settings; one != NULL; one = one->next) {
    if (strcmp(one->name, name) != 0) continue;
    long long left = strtoll(one->value, NULL, 0);
    pass = left > 0;
    if (pass) (void)snprintf(one->value, sizeof one->value, "%lld", left - 1);
    break;
  }
  pthread_mutex_unlock(&settings_lock);
  return pass;
}

int64_t double_kernel_millis(void) {
  int64_t millis = double_number("kernel_millis", 0);
  return millis > 0 && may_pass("kernel_millis") ? 0 : millis;
}

static void append(const char *setting_name, const char *line, size_t length) {
  const char *path = double_text(setting_name, NULL);
  if (path == NULL) return;
  int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return;
  ssize_t written = write(fd, line, length);
  (void)written;
  (void)close(fd);
}

int64_t double_enter(const char *call) {
  char name[NAME_BYTES];
  if (double_text("trace", NULL) != NULL) {
    int length = snprintf(name, sizeof name, "%s\n", call);
    append("trace", name, (size_t)length);
  }
  (void)snprintf(name, sizeof name, "delay.%s", call);
  int64_t delay = double_number(name, 0);
  if (delay > 0) sleep_millis(delay);
  (void)snprintf(name, sizeof name, "hang.%s", call);
  bool hang = double_number(name, 0) != 0;
  (void)snprintf(name, sizeof name, "fail.%s", call);
  int64_t code = double_number(name, 0);
  if ((hang || code != 0) && may_pass(call)) return 0;
  while (hang) sleep_millis(3600000);
  return code;
}

void double_report(const char *format, ...) {
  char line[1024];
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(line, sizeof line - 1, format, arguments);
  va_end(arguments);
  if (length < 0) return;
  if ((size_t)length > sizeof line - 2) length = (int)sizeof line - 2;
  if (strncmp(line, "fault", 5) == 0) __atomic_fetch_add(&faults, 1, __ATOMIC_RELAXED);
  line[length] = '\n';
  append("report", line, (size_t)length + 1);
}

void double_die(const char *library, const char *format, ...) {
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  double_report("fault: %s", text);
  (void)fprintf(stderr, "%s double: %s\n", library, text);
  abort();
}

uint64_t double_faults(void) { return __atomic_load_n(&faults, __ATOMIC_RELAXED); }

/* ---- launches ---- */

typedef struct launch {
  struct launch *next;
  void (*run)(void *);
  void *job;
  int64_t millis;
} launch;

static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t queue_changed = PTHREAD_COND_INITIALIZER;
static launch *queue_first;
static launch **queue_end = &queue_first;
static uint64_t submitted;
static uint64_t completed;
static pthread_t worker;
static bool worker_runs;
static bool worker_stop;

static void *work(void *unused) {
  (void)unused;
  pthread_mutex_lock(&queue_lock);
  for (;;) {
    while (queue_first == NULL && !worker_stop) pthread_cond_wait(&queue_changed, &queue_lock);
    if (queue_first == NULL) break;
    launch *one = queue_first;
    queue_first = one->next;
    if (queue_first == NULL) queue_end = &queue_first;
    pthread_mutex_unlock(&queue_lock);
    sleep_millis(one->millis);
    one->run(one->job);
    free(one);
    pthread_mutex_lock(&queue_lock);
    completed += 1;
    pthread_cond_broadcast(&queue_changed);
  }
  pthread_mutex_unlock(&queue_lock);
  return NULL;
}

uint64_t double_submit(void (*run)(void *), void *job, int64_t millis) {
  pthread_mutex_lock(&queue_lock);
  uint64_t ticket = ++submitted;
  /* With launches still waiting, a launch without a delay has to come after them all the same. */
  if (millis <= 0 && completed + 1 == submitted) {
    run(job);
    completed += 1;
    pthread_cond_broadcast(&queue_changed);
    pthread_mutex_unlock(&queue_lock);
    return ticket;
  }
  launch *one = calloc(1, sizeof *one);
  if (one == NULL) abort();
  *one = (launch){NULL, run, job, millis};
  *queue_end = one;
  queue_end = &one->next;
  if (!worker_runs) {
    sigset_t all;
    sigset_t before;
    worker_stop = false;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&worker, NULL, work, NULL) != 0) abort();
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    worker_runs = true;
  }
  pthread_cond_broadcast(&queue_changed);
  pthread_mutex_unlock(&queue_lock);
  return ticket;
}

bool double_done(uint64_t ticket) {
  pthread_mutex_lock(&queue_lock);
  bool done = completed >= ticket;
  pthread_mutex_unlock(&queue_lock);
  return done;
}

void double_wait(uint64_t ticket) {
  pthread_mutex_lock(&queue_lock);
  while (completed < ticket) pthread_cond_wait(&queue_changed, &queue_lock);
  pthread_mutex_unlock(&queue_lock);
}

uint64_t double_submitted(void) {
  pthread_mutex_lock(&queue_lock);
  uint64_t last = submitted;
  pthread_mutex_unlock(&queue_lock);
  return last;
}

/* Also when the library is unloaded: a thread must not be left in code that goes. */
__attribute__((destructor)) void double_drain(void) {
  pthread_mutex_lock(&queue_lock);
  bool had = worker_runs;
  worker_runs = false;
  worker_stop = true;
  pthread_cond_broadcast(&queue_changed);
  pthread_mutex_unlock(&queue_lock);
  if (had) (void)pthread_join(worker, NULL);
}

__attribute__((destructor)) static void forget(void) {
  pthread_mutex_lock(&settings_lock);
  for (int pass = 0; pass < 2; pass++) {
    setting **list = pass == 0 ? &settings : &retired;
    while (*list != NULL) {
      setting *one = *list;
      *list = one->next;
      free(one);
    }
  }
  pthread_mutex_unlock(&settings_lock);
}
