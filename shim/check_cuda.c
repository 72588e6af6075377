/*
 * Tries the CUDA part on a real GPU, without Bun: allocates or registers, writes on the CPU, runs the kernels, reads back. One line for
 * each step; exit code 0 where all of them hold. Takes little memory: a GPU that is at work need not mind.
 *
 *   check-cuda [path of libcuda.so.1] [number of the GPU]
 */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "check_cuda.h"
#include "common/fail.h"
#include "kernels/check_headers.h"
#include "zap_uma.h"

#define MESSAGES 1024u
#define STRIDE 250u /* not a multiple of anything: most messages are not aligned */
#define ROUNDS 100

static struct check_state state;

void check_say(const char *verdict, const char *step, const char *text) {
  printf("%-6s %-22s %s\n", verdict, step, text);
  fflush(stdout);
}

int check_wrong(const char *step, const char *text) {
  check_say("FAILED", step, text);
  state.failed++;
  return 0;
}

int check_failure(const char *step) {
  char text[512];
  (void)ZAP_UMA(error)(text, sizeof text);
  return check_wrong(step, text);
}

/* Where the loader finds the driver by itself. */
static const char *find_driver(void) {
  static char path[PATH_MAX];
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  Dl_info info;
  if (library == NULL || dladdr(dlsym(library, "cuInit"), &info) == 0 || realpath(info.dli_fname, path) == NULL) return NULL;
  return path;
}

/* The shim takes absolute paths alone. A path that leads nowhere stays as it is, for the message. */
static const char *absolute(const char *given) {
  static char path[PATH_MAX];
  return realpath(given, path) != NULL ? path : given;
}

static void describe(const zap_uma_device *about) {
  static const struct {
    uint32_t flag;
    const char *name;
  } names[] = {{ZAP_UMA_MANAGED, "managed"},         {ZAP_UMA_CONCURRENT, "concurrent"},   {ZAP_UMA_PAGEABLE, "pageable"},
               {ZAP_UMA_INTEGRATED, "integrated"},   {ZAP_UMA_DMA_BUF, "dma-buf"},         {ZAP_UMA_GPUDIRECT_RDMA, "gpudirect-rdma"},
               {ZAP_UMA_HOST_DMA_BUF, "host-dma-buf"}, {ZAP_UMA_KERNELS, "kernels"},     {ZAP_UMA_VERIFY, "verify"}};
  char text[512];
  int length = snprintf(text, sizeof text, "%s (%u of %u), CUDA %u.%u, compute capability %u.%u, %llu MiB:", about->name,
                        (unsigned)about->index, (unsigned)about->count, (unsigned)about->driver / 1000,
                        (unsigned)about->driver % 1000 / 10, (unsigned)about->capability / 10, (unsigned)about->capability % 10,
                        (unsigned long long)about->memory_bytes >> 20);
  for (size_t at = 0; at < sizeof names / sizeof names[0]; at++) {
    if ((about->flags & names[at].flag) == 0 || length < 0 || (size_t)length >= sizeof text) continue;
    length += snprintf(text + length, sizeof text - (size_t)length, " %s", names[at].name);
  }
  check_say("ok", "open the device", text);
}

/* Message `at` has the fault at % 6, as a verdict; `salt` changes which. */
static uint8_t write_message(uint8_t *to, uint32_t at, uint32_t salt) {
  uint8_t fault = (uint8_t)((at + salt) % 6);
  uint8_t header[16] = {'Z', 'A', 'P', 0, 1, 0, 0, 1, 16, 0, 0, 0, (uint8_t)STRIDE, 0, 0, 0};
  if (fault == ZAP_VERDICT_MAGIC) header[at % 4] ^= 0x80;
  if (fault == ZAP_VERDICT_VERSION) header[4] = 9;
  if (fault == ZAP_VERDICT_SIZE) header[12] = (uint8_t)(STRIDE + 1);
  if (fault == ZAP_VERDICT_ROOT) header[8] = 15;
  memcpy(to, header, sizeof header);
  return fault;
}

int64_t check_micros(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

int check_too_late(int64_t start) {
  if (check_micros() - start <= (int64_t)TIMEOUT_MS * 1000) return 0;
  state.stuck = 1;
  (void)zap_fail(ZAP_E_TIMEOUT, "the kernel has not ended after %u ms: look at dmesg and nvidia-smi for what the GPU is at",
                 (unsigned)TIMEOUT_MS);
  return 1;
}

static int32_t check(int32_t device, const zap_span *spans, uint8_t *verdicts) {
  int32_t job = ZAP_UMA(check_begin)(device, spans, MESSAGES, 1);
  if (job < 0) return job;
  int64_t start = check_micros();
  for (;;) {
    int32_t status = ZAP_UMA(check_poll)(device, job, verdicts, MESSAGES);
    if (status != ZAP_E_AGAIN) return status;
    if (check_too_late(start)) return ZAP_E_TIMEOUT;
    /* A healthy kernel takes less than that, and its time is measured. */
    if (check_micros() - start < 2000) continue;
    struct timespec pause = {.tv_nsec = 500000};
    nanosleep(&pause, NULL);
  }
}

static int by_time(const void *one, const void *other) {
  int64_t first = *(const int64_t *)one, second = *(const int64_t *)other;
  return (first > second) - (first < second);
}

/* The CPU writes in place and the GPU reads in place, many times over: stale bytes would give the verdicts of before. */
static int rounds(int32_t device, const char *step, const zap_region *region, zap_span *spans) {
  static uint8_t wanted[MESSAGES], seen[MESSAGES];
  int64_t times[ROUNDS];
  char text[128];
  for (uint32_t round = 0; round < ROUNDS; round++) {
    for (uint32_t at = 0; at < MESSAGES; at++) {
      wanted[at] = write_message((uint8_t *)(uintptr_t)region->host + at * STRIDE, at, round);
      spans[at].length = wanted[at] == ZAP_VERDICT_SHORT ? 15 : STRIDE;
    }
    memset(seen, 0xee, sizeof seen);
    if (ZAP_UMA(fence_to_device)(device) < 0) return check_failure(step);
    int64_t start = check_micros();
    if (check(device, spans, seen) < 0) return check_failure(step);
    times[round] = check_micros() - start;
    if (ZAP_UMA(fence_to_host)(device) < 0) return check_failure(step);
    for (uint32_t at = 0; at < MESSAGES; at++) {
      if (seen[at] == wanted[at]) continue;
      snprintf(text, sizeof text, "round %u, message %u: verdict %u, not %u", (unsigned)round, (unsigned)at, seen[at], wanted[at]);
      return check_wrong(step, text);
    }
    memset(seen, 0xee, sizeof seen);
    if (ZAP_UMA(check_host)(device, spans, MESSAGES, 1, seen) < 0) return check_failure(step);
    if (memcmp(seen, wanted, sizeof seen) != 0) {
      return check_wrong(step, "the CPU's verdicts differ from the GPU's");
    }
  }
  qsort(times, ROUNDS, sizeof times[0], by_time);
  snprintf(text, sizeof text, "%u messages in place, %d times, all verdicts right; %lld us each (median)", MESSAGES, ROUNDS,
           (long long)times[ROUNDS / 2]);
  check_say("ok", step, text);
  return 1;
}

static void try_memory(int32_t device, uint32_t memory, const char *name) {
  static zap_span spans[MESSAGES];
  char step[64];
  zap_region region;
  snprintf(step, sizeof step, "allocate %s", name);
  if (state.stuck) {
    check_say("none", step, "left out: a kernel before has not ended");
    return;
  }
  int32_t handle = ZAP_UMA(region_alloc)(device, memory, MESSAGES * STRIDE, &region);
  if (handle < 0) {
    (void)check_failure(step);
    return;
  }
  char text[128];
  snprintf(text, sizeof text, "%llu KiB; CPU at 0x%llx, GPU at 0x%llx", (unsigned long long)region.bytes >> 10,
           (unsigned long long)region.host, (unsigned long long)region.device);
  check_say("ok", step, text);
  for (uint32_t at = 0; at < MESSAGES; at++) spans[at] = (zap_span){.region = handle, .offset = at * STRIDE};
  snprintf(step, sizeof step, "check in %s", name);
  (void)rounds(device, step, &region, spans);
  if (ZAP_UMA(region_free)(device, handle) < 0) (void)check_failure("free");
}

/* Memory of our own, as a network card's packets would lie in: of hugepages where this host has any to spare. */
static void try_registered(int32_t device) {
  static zap_span spans[MESSAGES];
  const char *step = "register memory";
  const size_t bytes = 2u << 20;
  if (state.stuck) {
    check_say("none", step, "left out: a kernel before has not ended");
    return;
  }
  const char *pages = "hugepages";
  void *memory = MAP_FAILED;
#ifdef MAP_HUGETLB
  memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
#endif
  if (memory == MAP_FAILED) {
    pages = "ordinary pages";
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  }
  if (memory == MAP_FAILED) {
    (void)check_wrong(step, "this host is out of memory");
    return;
  }
  zap_region region;
  int32_t handle = ZAP_UMA(region_register)(device, (uint64_t)(uintptr_t)memory, bytes, &region);
  if (handle < 0) {
    (void)check_failure(step);
  } else {
    char text[128];
    snprintf(text, sizeof text, "%llu KiB of %s; CPU at 0x%llx, GPU at 0x%llx", (unsigned long long)region.bytes >> 10, pages,
             (unsigned long long)region.host, (unsigned long long)region.device);
    check_say("ok", step, text);
    for (uint32_t at = 0; at < MESSAGES; at++) spans[at] = (zap_span){.region = handle, .offset = at * STRIDE};
    (void)rounds(device, "check in registered", &region, spans);
    if (ZAP_UMA(region_free)(device, handle) < 0) {
      /* The GPU may still reach it: it stays. */
      (void)check_failure("unregister");
      return;
    }
  }
  (void)munmap(memory, bytes);
}

static void try_export(int32_t device, const zap_uma_device *about) {
  const char *step = "export as dma-buf";
  if ((about->flags & ZAP_UMA_DMA_BUF) == 0) {
    check_say("none", step, "this GPU or driver has no dma-buf");
    return;
  }
  zap_region region;
  int32_t handle = ZAP_UMA(region_alloc)(device, ZAP_MEMORY_DEVICE, 2u << 20, &region);
  int32_t fd = handle < 0 ? handle : ZAP_UMA(region_export)(device, handle);
  if (fd < 0) {
    (void)check_failure(step);
  } else {
    check_say("ok", step, "2 MiB of the GPU's own memory");
    close(fd);
  }
  if (handle > 0 && ZAP_UMA(region_free)(device, handle) < 0) (void)check_failure("free");
}

/* Only a probe tells. */
static void say_why_no_kernel(const char *driver, int index) {
  static zap_prerequisite rows[16];
  int32_t count = ZAP_UMA(probe)(driver, "", index, TIMEOUT_MS, rows, 16);
  const char *reason = "the device runs no kernels of this library";
  for (int32_t at = 0; at < count; at++) {
    if (strcmp(rows[at].name, "CUDA kernels") == 0) reason = rows[at].seen;
  }
  (void)check_wrong("load the kernel", reason);
}

int main(int count, char **arguments) {
  const char *driver = count > 1 && arguments[1][0] != 0 ? absolute(arguments[1]) : find_driver();
  int index = count > 2 ? atoi(arguments[2]) : 0;
  if (driver == NULL) {
    check_say("FAILED", "find the driver", "no libcuda.so.1: install the NVIDIA driver, or give the library's path");
    return 1;
  }
  check_say("ok", "find the driver", driver);
  zap_uma_device about;
  int32_t device = ZAP_UMA(open)(driver, "", index, TIMEOUT_MS, &about);
  if (device < 0) {
    (void)check_failure("open the device");
    return 1;
  }
  describe(&about);
  if ((about.flags & ZAP_UMA_KERNELS) == 0) {
    say_why_no_kernel(driver, index);
  } else {
    check_say("ok", "load the kernel", "zap_check_headers");
    if ((about.flags & ZAP_UMA_MANAGED) != 0) try_memory(device, ZAP_MEMORY_MANAGED, "managed");
    else check_say("none", "allocate managed", "this GPU has no managed memory");
    try_memory(device, ZAP_MEMORY_HOST, "page-locked");
    try_registered(device);
    check_signatures(&state, device, &about);
  }
  try_export(device, &about);
  if (ZAP_UMA(close)(device) < 0) (void)check_failure("close");
  else if (ZAP_UMA(live)() != 0) (void)check_wrong("close", "something was left open");
  else check_say("ok", "close", "nothing left");
  printf("check-cuda: %s\n", state.failed == 0 ? "all good" : "FAILED");
  return state.failed == 0 ? 0 : 1;
}
