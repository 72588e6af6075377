#include "eal.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_config.h>
#include <rte_alarm.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_log.h>

#include "../common/device_thread.h"
#include "../common/fail.h"
#include "log.h"

#define ARGUMENTS 48
#define ARGUMENT 1024

enum state { NOT_STARTED, RUNNING, FAILED };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static enum state state;
static zap_device_thread *thread;
static bool with_pci;
static char why[ZAP_TEXT_BYTES];

struct start {
  struct zap_job job;
  int count;
  char *words[ARGUMENTS + 1];
};

static void free_start(struct zap_object *object) {
  struct start *start = (struct start *)object;
  for (int i = 0; i < start->count; i++) free(start->words[i]);
  free(start);
}

static void add(struct start *start, const char *format, ...) ZAP_PRINTF(2, 3);
static void add(struct start *start, const char *format, ...) {
  char word[ARGUMENT];
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(word, sizeof word, format, arguments);
  va_end(arguments);
  char *copy = start->count < ARGUMENTS ? strdup(word) : NULL;
  if (copy != NULL) start->words[start->count++] = copy;
}

void zap_eal_mark(void) { zap_log_mark(); }

int32_t zap_eal_fail(int32_t status, int number, const char *what) {
  char log[320];
  zap_log_tail(log, sizeof log);
  char reason[96] = "";
  if (number != 0) (void)snprintf(reason, sizeof reason, " with error %d (%s)", number, rte_strerror(number));
  return zap_fail(status, "%s%s%s%s", what, reason, log[0] == 0 ? "" : ": ", log);
}

/*
 * DPDK writes its fatal errors to stderr beside its log, and a page on its usage to stdout. Both variables name a stream that leads nowhere
 * meanwhile: the descriptors stay as they are, and whoever writes to those still does.
 */
static int32_t run_start(struct zap_job *job) {
  struct start *start = (struct start *)job;
  FILE *log = zap_log_stream(), *sink = zap_log_sink();
  if (log == NULL || sink == NULL) return zap_fail(ZAP_E_MEMORY, "out of memory for DPDK's log");
  zap_log_mark();
  if (rte_openlog_stream(log) != 0) return zap_fail(ZAP_E_DRIVER, "DPDK does not take a stream for its log");
  zap_calling("rte_eal_init");
#if defined(__GLIBC__)
  FILE *out = stdout, *error = stderr;
  stdout = sink;
  stderr = sink;
#endif
  /* DPDK keeps pointers into the words and changes their order. */
  static char *words[ARGUMENTS + 1];
  for (int i = 0; i < start->count; i++) words[i] = strdup(start->words[i]);
  rte_errno = 0;
  int used = rte_eal_init(start->count, words);
  int number = rte_errno;
#if defined(__GLIBC__)
  stdout = out;
  stderr = error;
#endif
  if (used >= 0) return ZAP_OK;
  return zap_eal_fail(ZAP_E_DRIVER, number, "rte_eal_init failed");
}

static void nothing(void *context) { (void)context; }

/* MiB of free hugepages of all sizes. */
static uint64_t free_hugepages(void) {
  uint64_t kib = 0;
  DIR *folder = opendir("/sys/kernel/mm/hugepages");
  if (folder == NULL) return 0;
  for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
    unsigned long size = 0, count = 0;
    if (sscanf(entry->d_name, "hugepages-%lukB", &size) != 1) continue;
    char path[320];
    (void)snprintf(path, sizeof path, "/sys/kernel/mm/hugepages/%s/free_hugepages", entry->d_name);
    FILE *file = fopen(path, "re");
    if (file == NULL) continue;
    if (fscanf(file, "%lu", &count) == 1) kib += (uint64_t)size * count;
    (void)fclose(file);
  }
  (void)closedir(folder);
  return kib / 1024;
}

/* Where this thread may run, as "0-3,8". */
static int32_t own_cpus(char *text, size_t capacity) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return zap_fail_system("sched_getaffinity");
  size_t at = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    if (!CPU_ISSET(cpu, &set)) continue;
    int last = cpu;
    while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, &set)) last++;
    int wrote = last == cpu ? snprintf(text + at, capacity - at, "%s%d", at > 0 ? "," : "", cpu)
                            : snprintf(text + at, capacity - at, "%s%d-%d", at > 0 ? "," : "", cpu, last);
    if (wrote < 0 || (size_t)wrote >= capacity - at) return zap_fail(ZAP_E_LIMIT, "this thread may run on more CPUs than DPDK can be told");
    at += (size_t)wrote;
    cpu = last;
  }
  return ZAP_OK;
}

static bool only(const char *text, const char *these) { return text[0] != 0 && text[strspn(text, these)] == 0; }

/* A failure to start is for good: a CPU that is not there must not bring it about. */
static int32_t check_cpus(const char *list) {
  for (const char *at = list; *at != 0;) {
    char *end;
    unsigned long first = strtoul(at, &end, 10), last = first;
    if (end != at && *end == '-') last = strtoul(at = end + 1, &end, 10);
    if (end == at || (*end != 0 && *end != ',')) return zap_fail(ZAP_E_INVALID, "\"%.60s\" is no list of CPUs such as 0-3,8", list);
    for (unsigned long cpu = first < last ? first : last; cpu <= first || cpu <= last; cpu++) {
      char path[64];
      (void)snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%lu", cpu);
      if (cpu >= CPU_SETSIZE || access(path, F_OK) != 0)
        return zap_fail(ZAP_E_INVALID, "\"%.60s\" is where DPDK's own thread may run, and there is no CPU %lu", list, cpu);
    }
    at = *end == ',' ? end + 1 : end;
  }
  return ZAP_OK;
}

static int32_t check(const struct zap_eal_settings *settings) {
  if (settings->cpus != NULL && (!only(settings->cpus, "0123456789,-") || strlen(settings->cpus) > 512))
    return zap_fail(ZAP_E_INVALID, "\"%.60s\" is no list of CPUs such as 0-3,8", settings->cpus);
  int32_t status = settings->cpus == NULL ? ZAP_OK : check_cpus(settings->cpus);
  if (status != ZAP_OK) return status;
  if (settings->pci_count > 16) return zap_fail(ZAP_E_INVALID, "%u network cards are more than the 16 that are possible", settings->pci_count);
  for (uint32_t i = 0; i < settings->pci_count; i++)
    if (!only(settings->pci[i], "0123456789abcdefABCDEF:.") || strlen(settings->pci[i]) > 16)
      return zap_fail(ZAP_E_INVALID, "\"%.60s\" is no PCI address such as 0000:01:00.0", settings->pci[i]);
  if (!settings->hugepages) return ZAP_OK;
  uint64_t wanted = settings->memory_mib == 0 ? 64 : settings->memory_mib, free_mib = free_hugepages();
  if (free_mib >= wanted) return ZAP_OK;
  return zap_fail(ZAP_E_MEMORY, "%llu MiB of hugepages are free, and %llu MiB are needed: reserve more in /sys/kernel/mm/hugepages",
                  (unsigned long long)free_mib, (unsigned long long)wanted);
}

static struct start *prepare(const struct zap_eal_settings *settings) {
  char cpus[ARGUMENT - 16];
  if (settings->cpus != NULL) (void)snprintf(cpus, sizeof cpus, "%s", settings->cpus);
  else if (own_cpus(cpus, sizeof cpus) != ZAP_OK) return NULL;
  struct start *start = zap_job_new(sizeof *start, run_start, free_start);
  if (start == NULL) return NULL;
  add(start, "zap");
  /* Not -l: that would pin the thread to one CPU. */
  add(start, "--lcores=0@(%s)", cpus);
  /* As root the default is physical addresses, which not every host gives. */
  add(start, "--iova-mode=va");
  add(start, "--no-telemetry");
  add(start, "--file-prefix=zap");
  uint32_t mib = settings->memory_mib == 0 ? 64 : settings->memory_mib;
  if (settings->hugepages && settings->socket > 0) {
    char list[64] = "";
    for (uint32_t node = 1; node < settings->socket && node < 16; node++) (void)strncat(list, "0,", sizeof list - strlen(list) - 1);
    add(start, "--socket-mem=%s%u", list, mib);
  } else {
    add(start, "-m");
    add(start, "%u", mib);
  }
  if (settings->hugepages) {
    add(start, "--in-memory");
  } else {
    add(start, "--no-huge");
    add(start, "--no-shconf");
  }
  if (settings->pci_count == 0) add(start, "--no-pci");
  for (uint32_t i = 0; i < settings->pci_count; i++) {
    add(start, "-a");
    add(start, "%s", settings->pci[i]);
  }
  return start;
}

/* Under the lock. */
static int32_t start_now(const struct zap_eal_settings *settings) {
  int32_t status = check(settings);
  if (status != ZAP_OK) return status;
  struct start *start = prepare(settings);
  if (start == NULL) return ZAP_E_MEMORY;
  zap_device_thread *fresh = NULL;
  status = zap_device_thread_start(nothing, NULL, &fresh);
  if (status == ZAP_OK) {
    status = zap_device_thread_run(fresh, &start->job, settings->timeout_ms == 0 ? 30000 : settings->timeout_ms);
    if (status == ZAP_OK) {
      thread = fresh;
      state = RUNNING;
      with_pci = settings->pci_count > 0;
    } else {
      state = FAILED;
      zap_text_copy(why, sizeof why, zap_failure());
      if (status != ZAP_E_TIMEOUT) (void)zap_device_thread_stop(fresh, 1000);
      zap_device_thread_release(fresh);
      (void)zap_fail(status, "%s; another try needs a fresh process", why);
    }
  }
  zap_object_release(&start->job.object);
  return status;
}

int32_t zap_eal_start(const struct zap_eal_settings *settings) {
  int32_t status = ZAP_OK;
  pthread_mutex_lock(&lock);
  if (state == FAILED) status = zap_fail(ZAP_E_DRIVER, "DPDK has failed in this process, and another try needs a fresh one: %s", why);
  else if (state == NOT_STARTED) status = start_now(settings);
  pthread_mutex_unlock(&lock);
  return status;
}

bool zap_eal_running(void) {
  pthread_mutex_lock(&lock);
  bool running = state == RUNNING;
  pthread_mutex_unlock(&lock);
  return running;
}

bool zap_eal_has_pci(void) {
  pthread_mutex_lock(&lock);
  bool has = with_pci;
  pthread_mutex_unlock(&lock);
  return has;
}

struct call {
  struct zap_job job;
  int32_t (*run)(void *context);
  void *context;
};

static int32_t run_call(struct zap_job *job) {
  struct call *call = (struct call *)job;
  zap_log_mark();
  return call->run(call->context);
}

int32_t zap_eal_run(int32_t (*run)(void *context), void *context, uint32_t timeout_ms) {
  if (!zap_eal_running()) return zap_fail(ZAP_E_DRIVER, "DPDK's environment does not run");
  struct call *call = zap_job_new(sizeof *call, run_call, NULL);
  if (call == NULL) return ZAP_E_MEMORY;
  call->run = run;
  call->context = context;
  int32_t status = zap_device_thread_run(thread, &call->job, timeout_ms);
  zap_object_release(&call->job.object);
  return status;
}

struct between {
  int32_t (*run)(void *context);
  void *context;
  int32_t status;
  char text[ZAP_TEXT_BYTES];
  bool done;
  pthread_mutex_t lock;
  pthread_cond_t changed;
};

static void run_between(void *argument) {
  struct between *call = argument;
  /* All that was written before it was asked for is to be seen here, and a sanitizer is to see that it is. */
  pthread_mutex_lock(&call->lock);
  pthread_mutex_unlock(&call->lock);
  int32_t status = call->run(call->context);
  pthread_mutex_lock(&call->lock);
  call->status = status;
  if (status != ZAP_OK) zap_text_copy(call->text, sizeof call->text, zap_failure());
  call->done = true;
  pthread_cond_signal(&call->changed);
  pthread_mutex_unlock(&call->lock);
}

int32_t zap_eal_run_between(int32_t (*run)(void *context), void *context) {
  struct between call = {.run = run, .context = context, .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
  pthread_mutex_lock(&call.lock);
  int result = rte_eal_alarm_set(1, run_between, &call);
  if (result != 0) {
    pthread_mutex_unlock(&call.lock);
    return zap_eal_fail(ZAP_E_DRIVER, -result, "rte_eal_alarm_set failed");
  }
  /* However long: the caller of zap_eal_run has the limit. */
  while (!call.done) pthread_cond_wait(&call.changed, &call.lock);
  pthread_mutex_unlock(&call.lock);
  return call.status == ZAP_OK ? ZAP_OK : zap_fail(call.status, "%s", call.text);
}
