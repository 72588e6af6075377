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

#include "check_signatures.h"
#include "common/fail.h"
#include "kernels/check_headers.h"
#include "kernels/ed25519.h"
#include "zap_uma.h"

#ifndef TIMEOUT_MS
#define TIMEOUT_MS 30000u
#endif
#define MESSAGES 1024u
#define STRIDE 250u /* not a multiple of anything: most messages are not aligned */
#define ROUNDS 100
#ifndef SIGNATURES
#define SIGNATURES 65536u
#endif

static int failed;
/* A kernel does not end: another one behind it would not even begin. */
static int stuck;

static void say(const char *verdict, const char *step, const char *text) {
  printf("%-6s %-22s %s\n", verdict, step, text);
  fflush(stdout);
}

static int say_failure(const char *step) {
  char text[512];
  (void)ZAP_UMA(error)(text, sizeof text);
  say("FAILED", step, text);
  failed++;
  return 0;
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
  say("ok", "open the device", text);
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

static int64_t micros(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static int32_t check(int32_t device, const zap_span *spans, uint8_t *verdicts) {
  int32_t job = ZAP_UMA(check_begin)(device, spans, MESSAGES, 1);
  if (job < 0) return job;
  int64_t start = micros();
  for (;;) {
    int32_t status = ZAP_UMA(check_poll)(device, job, verdicts, MESSAGES);
    if (status != ZAP_E_AGAIN) return status;
    int64_t waited = micros() - start;
    if (waited > (int64_t)TIMEOUT_MS * 1000) {
      stuck = 1;
      return zap_fail(ZAP_E_TIMEOUT, "the kernel has not ended after %u ms: look at dmesg and nvidia-smi for what the GPU is at",
                      (unsigned)TIMEOUT_MS);
    }
    /* A healthy kernel takes less than that, and its time is measured. */
    if (waited < 2000) continue;
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
    if (ZAP_UMA(fence_to_device)(device) < 0) return say_failure(step);
    int64_t start = micros();
    if (check(device, spans, seen) < 0) return say_failure(step);
    times[round] = micros() - start;
    if (ZAP_UMA(fence_to_host)(device) < 0) return say_failure(step);
    for (uint32_t at = 0; at < MESSAGES; at++) {
      if (seen[at] == wanted[at]) continue;
      snprintf(text, sizeof text, "round %u, message %u: verdict %u, not %u", (unsigned)round, (unsigned)at, seen[at], wanted[at]);
      say("FAILED", step, text);
      failed++;
      return 0;
    }
    memset(seen, 0xee, sizeof seen);
    if (ZAP_UMA(check_host)(device, spans, MESSAGES, 1, seen) < 0) return say_failure(step);
    if (memcmp(seen, wanted, sizeof seen) != 0) {
      say("FAILED", step, "the CPU's verdicts differ from the GPU's");
      failed++;
      return 0;
    }
  }
  qsort(times, ROUNDS, sizeof times[0], by_time);
  snprintf(text, sizeof text, "%u messages in place, %d times, all verdicts right; %lld us each (median)", MESSAGES, ROUNDS,
           (long long)times[ROUNDS / 2]);
  say("ok", step, text);
  return 1;
}

static void try_memory(int32_t device, uint32_t memory, const char *name) {
  static zap_span spans[MESSAGES];
  char step[64];
  zap_region region;
  snprintf(step, sizeof step, "allocate %s", name);
  if (stuck) {
    say("none", step, "left out: a kernel before has not ended");
    return;
  }
  int32_t handle = ZAP_UMA(region_alloc)(device, memory, MESSAGES * STRIDE, &region);
  if (handle < 0) {
    (void)say_failure(step);
    return;
  }
  char text[128];
  snprintf(text, sizeof text, "%llu KiB; CPU at 0x%llx, GPU at 0x%llx", (unsigned long long)region.bytes >> 10,
           (unsigned long long)region.host, (unsigned long long)region.device);
  say("ok", step, text);
  for (uint32_t at = 0; at < MESSAGES; at++) spans[at] = (zap_span){.region = handle, .offset = at * STRIDE};
  snprintf(step, sizeof step, "check in %s", name);
  (void)rounds(device, step, &region, spans);
  if (ZAP_UMA(region_free)(device, handle) < 0) (void)say_failure("free");
}

/* Memory of our own, as a network card's packets would lie in: of hugepages where this host has any to spare. */
static void try_registered(int32_t device) {
  static zap_span spans[MESSAGES];
  const char *step = "register memory";
  const size_t bytes = 2u << 20;
  if (stuck) {
    say("none", step, "left out: a kernel before has not ended");
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
    say("FAILED", step, "this host is out of memory");
    failed++;
    return;
  }
  zap_region region;
  int32_t handle = ZAP_UMA(region_register)(device, (uint64_t)(uintptr_t)memory, bytes, &region);
  if (handle < 0) {
    (void)say_failure(step);
  } else {
    char text[128];
    snprintf(text, sizeof text, "%llu KiB of %s; CPU at 0x%llx, GPU at 0x%llx", (unsigned long long)region.bytes >> 10, pages,
             (unsigned long long)region.host, (unsigned long long)region.device);
    say("ok", step, text);
    for (uint32_t at = 0; at < MESSAGES; at++) spans[at] = (zap_span){.region = handle, .offset = at * STRIDE};
    (void)rounds(device, "check in registered", &region, spans);
    if (ZAP_UMA(region_free)(device, handle) < 0) {
      /* The GPU may still reach it: it stays. */
      (void)say_failure("unregister");
      return;
    }
  }
  (void)munmap(memory, bytes);
}

/* Item `at` of a batch in `memory`, which starts at `offset` there. Returns the code that it must get: every one that there is. */
static uint8_t write_item(uint8_t *memory, uint32_t offset, uint32_t at, uint32_t row[ZAP_TABLE_STRIDE]) {
  static const uint8_t codes[8] = {ZAP_CODE_VALID,      ZAP_CODE_SIGNATURE,        ZAP_CODE_VALID,     ZAP_CODE_SIGNATURE_ENCODING,
                                   ZAP_CODE_KEY_LENGTH, ZAP_CODE_SIGNATURE_LENGTH, ZAP_CODE_SIGNATURE, ZAP_CODE_ITEM};
  uint32_t fault = at / SIGNED % 32; /* 8 and more: none */
  uint32_t length = signed_bytes(at % SIGNED, memory + offset);
  const uint32_t healthy[ZAP_TABLE_STRIDE] = {offset, 32, offset + 96, length - 96, offset + 32, 64};
  memcpy(row, healthy, sizeof healthy);
  if (fault == 1) memory[offset + 32 + at % 32] ^= 0x10; /* R */
  if (fault == 3) memory[offset + 95] |= 0x80;           /* S */
  if (fault == 4) row[1] = 31;
  if (fault == 5) row[5] = 65;
  if (fault == 6) memory[offset + at % 32] ^= 0x04; /* the key */
  if (fault == 7) row[2] = 0xffffffffu;
  return fault < 8 ? codes[fault] : ZAP_CODE_VALID;
}

/* Waits for the job, or says that it does not end. */
static int32_t finish(int32_t device, int32_t job) {
  int64_t start = micros();
  int32_t status;
  while ((status = ZAP_UMA(verify_poll)(device, job)) == ZAP_E_AGAIN) {
    if (micros() - start > (int64_t)TIMEOUT_MS * 1000) {
      stuck = 1;
      return zap_fail(ZAP_E_TIMEOUT, "the kernel has not ended after %u ms: look at dmesg and nvidia-smi for what the GPU is at",
                      (unsigned)TIMEOUT_MS);
    }
    struct timespec pause = {.tv_nsec = 100000};
    nanosleep(&pause, NULL);
  }
  return status;
}

/* Batches of growing size in one region: bytes, table, codes. The last one tells how fast it is, the CPU with one core beside it. */
static int verify_in(int32_t device, const char *step, int32_t handle, uint8_t *memory) {
  static uint8_t wanted[SIGNATURES];
  const uint64_t table_at = SIGNATURES * SIGNED_BYTES, codes_at = table_at + SIGNATURES * 24u;
  char text[160];
  int64_t took = 0;
  for (uint32_t at = 0; at < SIGNATURES; at++) {
    wanted[at] = write_item(memory, at * SIGNED_BYTES, at, (uint32_t *)(void *)(memory + table_at) + at * ZAP_TABLE_STRIDE);
  }
  for (uint32_t count = 1; count <= SIGNATURES; count = count < 1024 ? count * 5 : count < SIGNATURES ? SIGNATURES : SIGNATURES + 1) {
    const zap_span bytes = {.region = handle, .length = (uint32_t)table_at};
    const zap_span table = {.region = handle, .offset = table_at, .length = count * 24u};
    const zap_span codes = {.region = handle, .offset = codes_at, .length = count};
    const uint8_t *seen = memory + codes_at;
    memset(memory + codes_at, 0xee, SIGNATURES);
    if (ZAP_UMA(fence_to_device)(device) < 0) return say_failure(step);
    int64_t start = micros();
    int32_t job = ZAP_UMA(verify_begin)(device, ZAP_SCHEME_ED25519, &bytes, &table, count, &codes);
    if (job < 0 || finish(device, job) < 0) return say_failure(step);
    took = micros() - start;
    if (ZAP_UMA(fence_to_host)(device) < 0) return say_failure(step);
    for (uint32_t at = 0; at < count; at++) {
      if (seen[at] == wanted[at]) continue;
      snprintf(text, sizeof text, "%u signatures, number %u: code %u, not %u", (unsigned)count, (unsigned)at, seen[at], wanted[at]);
      say("FAILED", step, text);
      failed++;
      return 0;
    }
    if (count < SIGNATURES && seen[count] != 0xee) {
      say("FAILED", step, "a code was written behind the last");
      failed++;
      return 0;
    }
  }
  enum { ON_CPU = 1024 };
  const zap_span bytes = {.region = handle, .length = (uint32_t)table_at};
  const zap_span table = {.region = handle, .offset = table_at, .length = ON_CPU * 24u};
  const zap_span codes = {.region = handle, .offset = codes_at, .length = ON_CPU};
  int64_t start = micros();
  if (ZAP_UMA(verify_host)(device, ZAP_SCHEME_ED25519, &bytes, &table, ON_CPU, &codes) < 0) return say_failure(step);
  int64_t cpu = micros() - start;
  if (memcmp(memory + codes_at, wanted, ON_CPU) != 0) {
    say("FAILED", step, "the CPU's codes differ from the GPU's");
    failed++;
    return 0;
  }
  snprintf(text, sizeof text, "%u signatures, all codes right, in %lld us: %lld/s; one core of the CPU %lld/s", SIGNATURES,
           (long long)took, (long long)(SIGNATURES * INT64_C(1000000) / (took > 0 ? took : 1)),
           (long long)(ON_CPU * INT64_C(1000000) / (cpu > 0 ? cpu : 1)));
  say("ok", step, text);
  return 1;
}

static void try_signatures(int32_t device, const zap_uma_device *about) {
  const char *step = "load zap_verify_ed25519";
  char text[64];
  if (stuck) {
    say("none", step, "left out: a kernel before has not ended");
    return;
  }
  int64_t start = micros();
  int32_t status;
  while ((status = ZAP_UMA(verify_load)(device, ZAP_SCHEME_ED25519)) == ZAP_E_AGAIN) {
    struct timespec pause = {.tv_nsec = 1000000};
    nanosleep(&pause, NULL);
    if (micros() - start <= 2 * (int64_t)TIMEOUT_MS * 1000) continue;
    stuck = 1;
    status = zap_fail(ZAP_E_TIMEOUT, "the driver has not compiled the kernel after %u ms", 2 * (unsigned)TIMEOUT_MS);
    break;
  }
  if (status < 0) {
    (void)say_failure(step);
    return;
  }
  snprintf(text, sizeof text, "%lld ms, with what the driver had kept", (long long)(micros() - start) / 1000);
  say("ok", step, text);
  const uint64_t bytes = SIGNATURES * (uint64_t)(SIGNED_BYTES + 24 + 1);
  static const struct {
    uint32_t memory;
    const char *step;
  } kinds[] = {{ZAP_MEMORY_MANAGED, "verify in managed"}, {ZAP_MEMORY_HOST, "verify in page-locked"}};
  for (size_t at = 0; at < 2 && !stuck; at++) {
    if (kinds[at].memory == ZAP_MEMORY_MANAGED && (about->flags & ZAP_UMA_MANAGED) == 0) continue;
    zap_region region;
    int32_t handle = ZAP_UMA(region_alloc)(device, kinds[at].memory, bytes, &region);
    if (handle < 0) {
      (void)say_failure(kinds[at].step);
      continue;
    }
    (void)verify_in(device, kinds[at].step, handle, (uint8_t *)(uintptr_t)region.host);
    if (ZAP_UMA(region_free)(device, handle) < 0) (void)say_failure("free");
  }
}

static void try_export(int32_t device, const zap_uma_device *about) {
  const char *step = "export as dma-buf";
  if ((about->flags & ZAP_UMA_DMA_BUF) == 0) {
    say("none", step, "this GPU or driver has no dma-buf");
    return;
  }
  zap_region region;
  int32_t handle = ZAP_UMA(region_alloc)(device, ZAP_MEMORY_DEVICE, 2u << 20, &region);
  int32_t fd = handle < 0 ? handle : ZAP_UMA(region_export)(device, handle);
  if (fd < 0) {
    (void)say_failure(step);
  } else {
    say("ok", step, "2 MiB of the GPU's own memory");
    close(fd);
  }
  if (handle > 0 && ZAP_UMA(region_free)(device, handle) < 0) (void)say_failure("free");
}

/* Only a probe tells. */
static void say_why_no_kernel(const char *driver, int index) {
  static zap_prerequisite rows[16];
  int32_t count = ZAP_UMA(probe)(driver, "", index, TIMEOUT_MS, rows, 16);
  const char *reason = "the device runs no kernels of this library";
  for (int32_t at = 0; at < count; at++) {
    if (strcmp(rows[at].name, "CUDA kernels") == 0) reason = rows[at].seen;
  }
  say("FAILED", "load the kernel", reason);
  failed++;
}

int main(int count, char **arguments) {
  const char *driver = count > 1 && arguments[1][0] != 0 ? absolute(arguments[1]) : find_driver();
  int index = count > 2 ? atoi(arguments[2]) : 0;
  if (driver == NULL) {
    say("FAILED", "find the driver", "no libcuda.so.1: install the NVIDIA driver, or give the library's path");
    return 1;
  }
  say("ok", "find the driver", driver);
  zap_uma_device about;
  int32_t device = ZAP_UMA(open)(driver, "", index, TIMEOUT_MS, &about);
  if (device < 0) {
    (void)say_failure("open the device");
    return 1;
  }
  describe(&about);
  if ((about.flags & ZAP_UMA_KERNELS) == 0) {
    say_why_no_kernel(driver, index);
  } else {
    say("ok", "load the kernel", "zap_check_headers");
    if ((about.flags & ZAP_UMA_MANAGED) != 0) try_memory(device, ZAP_MEMORY_MANAGED, "managed");
    else say("none", "allocate managed", "this GPU has no managed memory");
    try_memory(device, ZAP_MEMORY_HOST, "page-locked");
    try_registered(device);
    try_signatures(device, &about);
  }
  try_export(device, &about);
  if (ZAP_UMA(close)(device) < 0) (void)say_failure("close");
  else if (ZAP_UMA(live)() != 0) failed++, say("FAILED", "close", "something was left open");
  else say("ok", "close", "nothing left");
  printf("check-cuda: %s\n", failed == 0 ? "all good" : "FAILED");
  return failed == 0 ? 0 : 1;
}
