/*
 * The CUDA backend, through the unified-memory verbs, over the double of libcuda.so.1 (test/doubles/cuda.c), which is no GPU.
 * Argument: the folder with the double; double.conf and the report are written there.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef ZAP_UMA_PREFIX
#define ZAP_UMA_PREFIX zap_uma_cuda_
#endif
#include "zap_uma.h"

#include "check.h"
#include "ed25519_vectors.h"

#define TIMEOUT 60000u

static char library[4096], settings[4096], report[4096];

static const char *text(void) {
  static char buffer[1024];
  ZAP_UMA(error)(buffer, sizeof buffer);
  return buffer;
}

/* How the double behaves from its next cuInit on; empties the report. */
static void behave(const char *lines) {
  FILE *file = fopen(settings, "w");
  if (file == NULL) abort();
  fprintf(file, "report=%s\n%s", report, lines);
  fclose(file);
  unlink(report);
}

/* Nothing was left behind, whatever happened before; `contexts` were let go. */
static void clean(int contexts) {
  CHECK_EQUAL(ZAP_UMA(live)(), 0);
  char line[512];
  int releases = 0;
  FILE *file = fopen(report, "r");
  while (file != NULL && fgets(line, sizeof line, file) != NULL) {
    if (strncmp(line, "release device=", 15) == 0) {
      releases++;
      CHECK_CONTAINS(line, "blocks=0 bytes=0 streams=0 events=0 modules=0 faults=0");
    } else {
      CHECK_CONTAINS(line, "nothing like this in the report");
    }
  }
  if (file != NULL) fclose(file);
  if (contexts >= 0) CHECK_EQUAL(releases, contexts);
}

static int32_t poll_until_done(int32_t device, int32_t job, uint8_t *verdicts, uint32_t count) {
  int32_t status;
  do {
    status = ZAP_UMA(check_poll)(device, job, verdicts, count);
    if (status == ZAP_E_AGAIN) pause_millis(1);
  } while (status == ZAP_E_AGAIN);
  return status;
}

static void put_header(uint64_t host, uint32_t offset, uint8_t version, uint8_t root, uint8_t size) {
  const uint8_t header[16] = {'Z', 'A', 'P', 0, version, 0, 0, 0, root, 0, 0, 0, size, 0, 0, 0};
  memcpy((uint8_t *)(uintptr_t)host + offset, header, sizeof header);
}

#define REGISTERED 100u /* in the place of a kind of memory: memory of our own */

/* Shared, so that the double can have a second view of it. */
static uint8_t *own_memory(size_t bytes) {
  uint8_t *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) abort();
  return memory;
}

/* Allocates or registers, writes on the CPU, checks on the device, reads back, frees. Returns the first failure. */
static int32_t use(int32_t device, uint32_t memory) {
  static uint8_t *own;
  zap_region region;
  if (own == NULL) own = own_memory(65536);
  int32_t handle = memory == REGISTERED ? ZAP_UMA(region_register)(device, (uint64_t)(uintptr_t)own, 65536, &region)
                                        : ZAP_UMA(region_alloc)(device, memory, 65536, &region);
  if (handle < 0) return handle;
  CHECK(region.bytes >= 65536 && region.host % 4096 == 0 && region.host != 0 && region.device != 0);
  memset((void *)(uintptr_t)region.host, 0, 65536);
  put_header(region.host, 0, 1, 16, 64);
  put_header(region.host, 101, 1, 0, 16);
  put_header(region.host, 200, 2, 16, 64);
  put_header(region.host, 300, 1, 16, 65);
  put_header(region.host, 400, 1, 3, 64);
  enum { COUNT = 6 };
  const zap_span spans[COUNT] = {
      {.region = handle, .offset = 0, .length = 64},   {.region = handle, .offset = 101, .length = 16},
      {.region = handle, .offset = 200, .length = 64}, {.region = handle, .offset = 300, .length = 64},
      {.region = handle, .offset = 400, .length = 64}, {.region = handle, .offset = 500, .length = 10}};
  const uint8_t wanted[COUNT] = {0, 0, 3, 4, 5, 1};
  uint8_t verdicts[COUNT];
  int32_t status = ZAP_UMA(fence_to_device)(device);
  if (status == ZAP_OK) status = ZAP_UMA(check_begin)(device, spans, COUNT, 1);
  if (status > 0) status = poll_until_done(device, status, verdicts, COUNT);
  if (status == ZAP_OK) {
    CHECK(memcmp(verdicts, wanted, COUNT) == 0);
    status = ZAP_UMA(fence_to_host)(device);
  }
  if (status == ZAP_OK) {
    memset(verdicts, 0xee, COUNT);
    CHECK_EQUAL(ZAP_UMA(check_host)(device, spans, COUNT, 1, verdicts), ZAP_OK);
    CHECK(memcmp(verdicts, wanted, COUNT) == 0);
  }
  int32_t freed = ZAP_UMA(region_free)(device, handle);
  return status < 0 ? status : freed;
}

static void healthy(void) {
  behave("alias=1\nkernel_millis=5\nattribute.124=1\nattribute.146=1\nattribute.116=1\n");
  zap_uma_device about;
  int32_t device = ZAP_UMA(open)(library, "", 0, TIMEOUT, &about);
  CHECK(device > 0);
  CHECK(strcmp(about.name, "NVIDIA Double") == 0);
  const uint32_t flags = ZAP_UMA_MANAGED | ZAP_UMA_CONCURRENT | ZAP_UMA_KERNELS | ZAP_UMA_DMA_BUF | ZAP_UMA_HOST_DMA_BUF |
                         ZAP_UMA_GPUDIRECT_RDMA;
  CHECK_EQUAL(about.flags & flags, flags);
  CHECK_EQUAL(about.memory, ZAP_MEMORY_MANAGED);
  CHECK(about.driver >= 11000 && about.capability >= 70 && about.memory_bytes > 0 && about.count == 1);
  CHECK_EQUAL(use(device, ZAP_MEMORY_MANAGED), ZAP_OK);
  CHECK_EQUAL(use(device, ZAP_MEMORY_HOST), ZAP_OK);

  zap_region region;
  CHECK_EQUAL(ZAP_UMA(region_alloc)(device, ZAP_MEMORY_SHARED, 4096, &region), ZAP_E_UNSUPPORTED);
  int32_t gpu = ZAP_UMA(region_alloc)(device, ZAP_MEMORY_DEVICE, 2 << 20, &region);
  CHECK(gpu > 0 && region.host == 0);
  int32_t fd = ZAP_UMA(region_export)(device, gpu);
  CHECK(fd >= 0);
  /* As a NIC would write there. */
  uint8_t copy[8] = {0};
  CHECK_EQUAL(pwrite(fd, "written", 8, (2 << 20) - 8), 8);
  CHECK_EQUAL(ZAP_UMA(copy_to_host)(device, gpu, (2 << 20) - 8, copy, 8), ZAP_OK);
  CHECK(memcmp(copy, "written", 8) == 0);
  CHECK_EQUAL(ZAP_UMA(copy_to_host)(device, gpu, (2 << 20) - 7, copy, 8), ZAP_E_INVALID);
  if (fd >= 0) close(fd);
  int32_t host = ZAP_UMA(region_alloc)(device, ZAP_MEMORY_HOST, 1 << 16, &region);
  fd = ZAP_UMA(region_export)(device, host);
  CHECK(fd >= 0);
  if (fd >= 0) close(fd);
  int32_t managed = ZAP_UMA(region_alloc)(device, ZAP_MEMORY_MANAGED, 1 << 16, &region);
  CHECK_EQUAL(ZAP_UMA(region_export)(device, managed), ZAP_E_UNSUPPORTED);

  /* Many checks at once, and closed with some of them and three regions open. */
  memset((void *)(uintptr_t)region.host, 0, 1 << 16);
  zap_span *spans = calloc(4000, sizeof *spans);
  if (spans == NULL) abort();
  for (uint32_t at = 0; at < 4000; at++) spans[at] = (zap_span){.region = managed, .offset = at * 16, .length = 16};
  for (uint32_t count = 1; count <= 4000; count = count * 3 + 1) CHECK(ZAP_UMA(check_begin)(device, spans, count, 1) > 0);
  free(spans);
  CHECK_EQUAL(ZAP_UMA(close)(device), ZAP_OK);
  clean(1);
}

/* Without concurrent managed access a receiver gets page-locked memory, and the CPU keeps off managed memory meanwhile. */
static void not_concurrent(void) {
  behave("attribute.89=0\nkernel_millis=5\nattribute.124=0\n");
  zap_uma_device about;
  int32_t device = ZAP_UMA(open)(library, "", 0, TIMEOUT, &about);
  CHECK_EQUAL(about.memory, ZAP_MEMORY_HOST);
  CHECK_EQUAL(about.flags & (ZAP_UMA_MANAGED | ZAP_UMA_CONCURRENT | ZAP_UMA_DMA_BUF), ZAP_UMA_MANAGED);
  CHECK_EQUAL(use(device, ZAP_MEMORY_HOST), ZAP_OK);
  CHECK_EQUAL(use(device, ZAP_MEMORY_MANAGED), ZAP_OK);

  /* check_host waits for the kernel by itself. */
  zap_region region;
  int32_t handle = ZAP_UMA(region_alloc)(device, ZAP_MEMORY_MANAGED, 4096, &region);
  memset((void *)(uintptr_t)region.host, 0, 4096);
  const zap_span span = {.region = handle, .length = 16};
  uint8_t verdict = 0xee;
  int32_t job = ZAP_UMA(check_begin)(device, &span, 1, 1);
  CHECK_EQUAL(ZAP_UMA(check_host)(device, &span, 1, 1, &verdict), ZAP_OK);
  CHECK_EQUAL(verdict, 2);
  CHECK_EQUAL(poll_until_done(device, job, &verdict, 1), ZAP_OK);

  int32_t gpu = ZAP_UMA(region_alloc)(device, ZAP_MEMORY_DEVICE, 2 << 20, &region);
  CHECK_EQUAL(ZAP_UMA(region_export)(device, gpu), ZAP_E_UNSUPPORTED);
  CHECK_EQUAL(ZAP_UMA(close)(device), ZAP_OK);
  clean(1);

  behave("attribute.83=0\nattribute.89=0\n");
  device = ZAP_UMA(open)(library, "", 0, TIMEOUT, &about);
  CHECK_EQUAL(about.memory, ZAP_MEMORY_HOST);
  CHECK_EQUAL(use(device, ZAP_MEMORY_MANAGED), ZAP_E_UNSUPPORTED);
  CHECK_EQUAL(use(device, ZAP_MEMORY_HOST), ZAP_OK);
  CHECK_EQUAL(ZAP_UMA(close)(device), ZAP_OK);
  clean(1);
}

static void registered(void) {
  behave("alias=1\nkernel_millis=5\nattribute.146=1\n");
  zap_uma_device about;
  zap_region region;
  int32_t device = ZAP_UMA(open)(library, "", 0, TIMEOUT, &about);
  CHECK_EQUAL(use(device, REGISTERED), ZAP_OK);
  uint8_t *memory = own_memory(1 << 20);
  const uint64_t host = (uint64_t)(uintptr_t)memory;
  int32_t handle = ZAP_UMA(region_register)(device, host, 1 << 20, &region);
  CHECK(handle > 0);
  CHECK_EQUAL(region.host, host);
  CHECK_EQUAL(region.bytes, 1 << 20);
  CHECK_EQUAL(region.memory, ZAP_MEMORY_HOST);
  CHECK(region.device != 0 && region.device != host);
  CHECK_EQUAL(ZAP_UMA(region_export)(device, handle), ZAP_E_UNSUPPORTED);
  CHECK_CONTAINS(text(), "registered");
  CHECK_EQUAL(ZAP_UMA(region_register)(device, host, 1 << 20, &region), ZAP_E_DRIVER);
  CHECK_CONTAINS(text(), "cuMemHostRegister_v2 failed with CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED (712)");
  CHECK_EQUAL(ZAP_UMA(region_register)(device, host + 4096, 4096, &region), ZAP_E_DRIVER);
  CHECK_EQUAL(ZAP_UMA(region_free)(device, handle), ZAP_OK);
  memory[0] = 1;
  /* Left to close, with a check of it that still runs. */
  handle = ZAP_UMA(region_register)(device, host, 1 << 20, &region);
  const zap_span span = {.region = handle, .offset = (1 << 20) - 16, .length = 16};
  CHECK(ZAP_UMA(check_begin)(device, &span, 1, 1) > 0);
  CHECK_EQUAL(ZAP_UMA(close)(device), ZAP_OK);
  clean(1);
  memory[0] = 2;
  CHECK_EQUAL(munmap(memory, 1 << 20), 0);

  behave("attribute.99=0\n");
  device = ZAP_UMA(open)(library, "", 0, TIMEOUT, &about);
  CHECK_EQUAL(use(device, REGISTERED), ZAP_E_UNSUPPORTED);
  CHECK_CONTAINS(text(), "CUDA_ERROR_NOT_SUPPORTED (801)");
  CHECK_EQUAL(ZAP_UMA(region_register)(device, host, 1 << 20, &region), ZAP_E_UNSUPPORTED);
  CHECK_EQUAL(ZAP_UMA(close)(device), ZAP_OK);
  clean(1);

  /* Not there any more. */
  behave("");
  device = ZAP_UMA(open)(library, "", 0, TIMEOUT, &about);
  CHECK_EQUAL(ZAP_UMA(region_register)(device, host, 1 << 20, &region), ZAP_E_DRIVER);
  CHECK_CONTAINS(text(), "CUDA_ERROR_INVALID_VALUE (1)");
  CHECK_EQUAL(ZAP_UMA(close)(device), ZAP_OK);
  clean(1);

  const struct {
    const char *lines;
    int32_t status;
    const char *part;
  } cases[] = {{"fail.cuMemHostRegister_v2=800\n", ZAP_E_DRIVER, "cuMemHostRegister_v2 failed with CUDA_ERROR_NOT_PERMITTED (800)"},
               {"fail.cuMemHostRegister_v2=2\n", ZAP_E_MEMORY, "cuMemHostRegister_v2 failed with CUDA_ERROR_OUT_OF_MEMORY (2)"},
               {"fail.cuMemHostGetDevicePointer_v2=304\n", ZAP_E_DRIVER, "cuMemHostGetDevicePointer_v2 failed with"},
               {"fail.cuMemHostUnregister=713\n", ZAP_E_DRIVER,
                "cuMemHostUnregister failed with CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED (713)"}};
  for (size_t at = 0; at < sizeof cases / sizeof cases[0]; at++) {
    behave(cases[at].lines);
    memory = own_memory(4096);
    device = ZAP_UMA(open)(library, "", 0, TIMEOUT, &about);
    int32_t status = ZAP_UMA(region_register)(device, (uint64_t)(uintptr_t)memory, 4096, &region);
    bool late = status > 0;
    if (late) {
      handle = status;
      status = ZAP_UMA(region_free)(device, handle);
      CHECK_EQUAL(ZAP_UMA(live)(), 1);
    }
    CHECK_EQUAL(status, cases[at].status);
    CHECK_CONTAINS(text(), cases[at].part);
    if (late) CHECK_EQUAL(ZAP_UMA(region_free)(device, handle), ZAP_E_HANDLE);
    CHECK_EQUAL(ZAP_UMA(close)(device), ZAP_OK);
    if (!late) clean(1);
    CHECK_EQUAL(munmap(memory, 4096), 0);
  }
}

/* Verifies the vectors, one of them spoilt, in memory of that kind. Returns the first failure. */
static int32_t verify(int32_t device, uint32_t memory) {
  enum { TABLE = 1024, CODES = 2048, COUNT = ED25519_VECTORS };
  zap_region region;
  int32_t handle = ZAP_UMA(region_alloc)(device, memory, 4096, &region);
  if (handle < 0) return handle;
  uint8_t *bytes = (uint8_t *)(uintptr_t)region.host;
  uint32_t rows[COUNT][6], at = 1;
  for (int item = 0; item < COUNT; item++) {
    const char *const parts[3] = {ed25519_vectors[item].key, ed25519_vectors[item].message, ed25519_vectors[item].signature};
    for (int part = 0; part < 3; part++) {
      rows[item][2 * part] = at;
      rows[item][2 * part + 1] = ed25519_bytes(parts[part], bytes + at);
      at += rows[item][2 * part + 1];
    }
  }
  bytes[rows[1][4]] ^= 1;
  memcpy(bytes + TABLE, rows, sizeof rows);
  memset(bytes + CODES, 0xee, COUNT + 1);
  const uint8_t wanted[COUNT + 1] = {1, 0, 1, 1, 0xee};
  const zap_span spans[3] = {{.region = handle, .length = TABLE},
                             {.region = handle, .offset = TABLE, .length = sizeof rows},
                             {.region = handle, .offset = CODES, .length = COUNT}};
  int32_t status = ZAP_UMA(fence_to_device)(device);
  if (status == ZAP_OK) status = ZAP_UMA(verify_begin)(device, ZAP_SCHEME_ED25519, &spans[0], &spans[1], COUNT, &spans[2]);
  int32_t job = status;
  while (job > 0 && (status = ZAP_UMA(verify_poll)(device, job)) == ZAP_E_AGAIN) pause_millis(1);
  if (status == ZAP_OK) status = ZAP_UMA(fence_to_host)(device);
  if (status == ZAP_OK) {
    CHECK(memcmp(bytes + CODES, wanted, sizeof wanted) == 0);
    memset(bytes + CODES, 0xee, COUNT);
    CHECK_EQUAL(ZAP_UMA(verify_host)(device, ZAP_SCHEME_ED25519, &spans[0], &spans[1], COUNT, &spans[2]), ZAP_OK);
    CHECK(memcmp(bytes + CODES, wanted, sizeof wanted) == 0);
  }
  int32_t freed = ZAP_UMA(region_free)(device, handle);
  return status < 0 ? status : freed;
}

static void verifies(void) {
  behave("alias=1\nkernel_millis=5\n");
  zap_uma_device about;
  int32_t device = ZAP_UMA(open)(library, "", 0, TIMEOUT, &about);
  CHECK_EQUAL(about.flags & ZAP_UMA_VERIFY, ZAP_UMA_VERIFY);
  int32_t status = ZAP_E_AGAIN;
  for (int wait = 0; wait < 10000 && status == ZAP_E_AGAIN; wait++) {
    status = ZAP_UMA(verify_load)(device, ZAP_SCHEME_ED25519);
    pause_millis(1);
  }
  CHECK_EQUAL(status, ZAP_OK);
  CHECK_EQUAL(verify(device, ZAP_MEMORY_MANAGED), ZAP_OK);
  CHECK_EQUAL(verify(device, ZAP_MEMORY_HOST), ZAP_OK);
  /* Closed while one runs. */
  zap_region region;
  int32_t handle = ZAP_UMA(region_alloc)(device, ZAP_MEMORY_MANAGED, 4096, &region);
  memset((void *)(uintptr_t)region.host, 0, 4096);
  const zap_span all = {.region = handle, .length = 4096};
  CHECK(ZAP_UMA(verify_begin)(device, ZAP_SCHEME_ED25519, &all, &all, 10, &all) > 0);
  CHECK_EQUAL(ZAP_UMA(close)(device), ZAP_OK);
  clean(1);

  /* Loaded by the first that needs it; without concurrent access the CPU keeps off. */
  behave("attribute.89=0\nkernel_millis=5\n");
  device = ZAP_UMA(open)(library, "", 0, TIMEOUT, &about);
  CHECK_EQUAL(verify(device, ZAP_MEMORY_MANAGED), ZAP_OK);
  CHECK_EQUAL(ZAP_UMA(close)(device), ZAP_OK);
  clean(1);

  /* Each call fails: the first of a kernel's, as the other kernel is loaded with the device. */
  static const char *const calls[] = {"cuModuleLoadData", "cuModuleGetFunction", "cuEventCreate", "cuLaunchKernel", "cuEventRecord",
                                      "cuEventQuery"};
  for (size_t at = 0; at < sizeof calls / sizeof calls[0]; at++) {
    char lines[256], part[128];
    snprintf(lines, sizeof lines, "fail.%s=304\nafter.%s=%d\n", calls[at], calls[at], at < 2 ? 1 : 0);
    behave(lines);
    device = ZAP_UMA(open)(library, "", 0, TIMEOUT, &about);
    CHECK_EQUAL(about.flags & ZAP_UMA_KERNELS, ZAP_UMA_KERNELS);
    CHECK_EQUAL(verify(device, ZAP_MEMORY_HOST), ZAP_E_DRIVER);
    snprintf(part, sizeof part, "%s failed with CUDA_ERROR_OPERATING_SYSTEM (304), OS call failed", calls[at]);
    CHECK_CONTAINS(text(), part);
    CHECK_EQUAL(ZAP_UMA(close)(device), ZAP_OK);
    clean(1);
  }
}

static void refused(const char *lines, int32_t index, int32_t status, const char *part) {
  behave(lines);
  zap_uma_device about;
  CHECK_EQUAL(ZAP_UMA(open)(library, "", index, TIMEOUT, &about), status);
  CHECK_CONTAINS(text(), part);
  clean(-1);
}

/* Each call fails once on its way; what came before it is undone. */
static void each_call_fails(void) {
  static const char *const calls[] = {
      "cuInit",          "cuDriverGetVersion",   "cuDeviceGetCount",    "cuDeviceGet",
      "cuDeviceGetName", "cuDeviceTotalMem_v2",  "cuMemAllocManaged",   "cuDevicePrimaryCtxRetain",
      "cuCtxSetCurrent", "cuStreamCreate",       "cuModuleLoadData",    "cuModuleGetFunction",
      "cuMemHostAlloc",  "cuLaunchKernel",       "cuEventCreate",       "cuMemHostGetDevicePointer_v2",
      "cuEventRecord",   "cuEventQuery",         "cuStreamSynchronize", "cuMemGetHandleForAddressRange",
      "cuMemAlloc_v2",   "cuPointerSetAttribute", "cuMemHostRegister_v2", "cuMemcpyDtoH_v2"};
  for (size_t at = 0; at < sizeof calls / sizeof calls[0]; at++) {
    char lines[256];
    snprintf(lines, sizeof lines, "attribute.124=1\nattribute.116=1\nfail.%s=304\n", calls[at]);
    behave(lines);
    zap_uma_device about;
    int32_t device = ZAP_UMA(open)(library, "", 0, TIMEOUT, &about);
    int32_t status = device;
    const char *call = calls[at];
    if (device > 0) {
      status = use(device, ZAP_MEMORY_MANAGED);
      if (status >= 0) status = use(device, ZAP_MEMORY_HOST);
      if (status >= 0) status = use(device, REGISTERED);
      zap_region region;
      if (status >= 0) status = ZAP_UMA(region_alloc)(device, ZAP_MEMORY_DEVICE, 2 << 20, &region);
      uint8_t byte;
      int32_t copied = status < 0 ? status : ZAP_UMA(copy_to_host)(device, status, 7, &byte, 1);
      if (copied < 0) status = copied;
      if (status >= 0) status = ZAP_UMA(region_export)(device, status);
      if (status >= 0) close(status);
    }
    if (strcmp(call, "cuModuleLoadData") == 0 || strcmp(call, "cuModuleGetFunction") == 0) {
      /* The CPU takes over. */
      CHECK_EQUAL(about.flags & ZAP_UMA_KERNELS, 0);
      CHECK_EQUAL(status, ZAP_E_UNSUPPORTED);
    } else if (strcmp(call, "cuPointerSetAttribute") == 0 || strcmp(call, "cuStreamSynchronize") == 0) {
      CHECK(status >= 0);
    } else {
      CHECK_EQUAL(status, ZAP_E_DRIVER);
      char part[128];
      snprintf(part, sizeof part, "%s failed with CUDA_ERROR_OPERATING_SYSTEM (304), OS call failed", call);
      CHECK_CONTAINS(text(), part);
    }
    if (device > 0) CHECK_EQUAL(ZAP_UMA(close)(device), ZAP_OK);
    clean(-1);
  }
}

/* Freeing fails: the region's handle is gone all the same, and what the driver kept is its own. */
static void frees_fail(void) {
  const struct {
    uint32_t memory;
    const char *call;
  } kinds[] = {{ZAP_MEMORY_MANAGED, "cuMemFree_v2"}, {ZAP_MEMORY_DEVICE, "cuMemFree_v2"}, {ZAP_MEMORY_HOST, "cuMemFreeHost"}};
  for (size_t at = 0; at < sizeof kinds / sizeof kinds[0]; at++) {
    char lines[128], part[128];
    snprintf(lines, sizeof lines, "fail.%s=719\n", kinds[at].call);
    behave(lines);
    zap_uma_device about;
    zap_region region;
    int32_t device = ZAP_UMA(open)(library, "", 0, TIMEOUT, &about);
    int32_t handle = ZAP_UMA(region_alloc)(device, kinds[at].memory, 65536, &region);
    CHECK(device > 0 && handle > 0);
    CHECK_EQUAL(ZAP_UMA(region_free)(device, handle), ZAP_E_DRIVER);
    snprintf(part, sizeof part, "%s failed with CUDA_ERROR_LAUNCH_FAILED (719)", kinds[at].call);
    CHECK_CONTAINS(text(), part);
    CHECK_EQUAL(ZAP_UMA(region_free)(device, handle), ZAP_E_HANDLE);
    CHECK_EQUAL(ZAP_UMA(live)(), 1);
    CHECK_EQUAL(ZAP_UMA(close)(device), ZAP_OK);
    CHECK_EQUAL(ZAP_UMA(live)(), 0);
  }
}

static void failures(void) {
  refused("devices=0\n", 0, ZAP_E_DEVICE, "CUDA_ERROR_NO_DEVICE (100)");
  refused("devices=2\n", 2, ZAP_E_DEVICE, "GPU 2 is not there: this process has 2");
  refused("driver=10020\n", 0, ZAP_E_DRIVER, "CUDA 10.2, too old");
  refused("fail.cuInit=803\n", 0, ZAP_E_DRIVER, "restart the host");
  refused("fail.cuDevicePrimaryCtxRetain=46\n", 0, ZAP_E_DEVICE, "nvidia-smi -c 0");
  refused("fail.cuDevicePrimaryCtxRetain=2\n", 0, ZAP_E_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY (2)");

  behave("memory=1048576\n");
  zap_uma_device about;
  zap_region region;
  int32_t device = ZAP_UMA(open)(library, "", 0, TIMEOUT, &about);
  CHECK_EQUAL(ZAP_UMA(region_alloc)(device, ZAP_MEMORY_MANAGED, 2 << 20, &region), ZAP_E_MEMORY);
  CHECK_CONTAINS(text(), "cuMemAllocManaged failed with CUDA_ERROR_OUT_OF_MEMORY (2), out of memory: ask for less");
  CHECK_EQUAL(use(device, ZAP_MEMORY_MANAGED), ZAP_OK);
  CHECK_EQUAL(ZAP_UMA(close)(device), ZAP_OK);
  clean(1);

  char missing[5000];
  snprintf(missing, sizeof missing, "%s.missing", library);
  CHECK_EQUAL(ZAP_UMA(open)(missing, "", 0, TIMEOUT, &about), ZAP_E_LIBRARY);
  CHECK_CONTAINS(text(), missing);
  CHECK_EQUAL(ZAP_UMA(open)(settings, "", 0, TIMEOUT, &about), ZAP_E_LIBRARY);
}

static void rows(void) {
  zap_prerequisite row[16];
  behave("");
  CHECK_EQUAL(ZAP_UMA(probe)(library, "", 0, TIMEOUT, row, 16), 5);
  for (int at = 0; at < 5; at++) CHECK(row[at].met && row[at].fix[0] == 0);
  CHECK_CONTAINS(row[1].seen, "CUDA 1");
  CHECK_CONTAINS(row[2].seen, "NVIDIA Double (0 of 1)");
  CHECK_CONTAINS(row[3].seen, "managed");
  CHECK_CONTAINS(row[4].seen, "loaded");
  clean(1);

  const struct {
    const char *lines;
    int count;
    const char *name, *seen;
  } cases[] = {{"devices=0\n", 2, "CUDA driver", "CUDA_ERROR_NO_DEVICE"},
               {"driver=9000\n", 2, "CUDA driver", "too old"},
               {"fail.cuDevicePrimaryCtxRetain=46\n", 3, "CUDA device", "busy"},
               {"fail.cuMemAllocManaged=2\n", 5, "unified memory", "CUDA_ERROR_OUT_OF_MEMORY"},
               {"fail.cuModuleLoadData=221\n", 5, "", "libnvidia-ptxjitcompiler"}};
  for (size_t at = 0; at < sizeof cases / sizeof cases[0]; at++) {
    behave(cases[at].lines);
    int32_t count = ZAP_UMA(probe)(library, "", 0, TIMEOUT, row, 16);
    CHECK_EQUAL(count, cases[at].count);
    for (int each = 0; each < count; each++) {
      if (row[each].met) continue;
      CHECK(strcmp(row[each].name, cases[at].name) == 0);
      CHECK_CONTAINS(row[each].seen, cases[at].seen);
      CHECK(row[each].fix[0] != 0);
    }
    if (cases[at].name[0] == 0) CHECK_CONTAINS(row[4].seen, cases[at].seen);
    clean(-1);
  }
  CHECK_EQUAL(ZAP_UMA(probe)(settings, "", 0, TIMEOUT, row, 16), 1);
  CHECK(!row[0].met && strcmp(row[0].name, "libcuda.so.1") == 0);
}

/* Last: the double's thread stays in there. */
static void hangs(void) {
  behave("hang.cuInit=1\n");
  zap_uma_device about;
  zap_prerequisite row[4];
  CHECK_EQUAL(ZAP_UMA(open)(library, "", 0, 100, &about), ZAP_E_TIMEOUT);
  CHECK_CONTAINS(text(), "cuInit did not come back in time");
  CHECK_EQUAL(ZAP_UMA(probe)(library, "", 0, 100, row, 4), 2);
  CHECK(row[0].met && !row[1].met && strcmp(row[1].name, "driver") == 0);
  clean(0);

  const struct {
    const char *lines, *part;
  } cases[] = {{"hang.cuMemHostRegister_v2=1\n", "cuMemHostRegister_v2 did not come back in time"},
               {"hang.cuMemHostUnregister=1\n", "cuMemHostUnregister did not come back in time"}};
  for (size_t at = 0; at < 2; at++) {
    behave(cases[at].lines);
    int32_t device = ZAP_UMA(open)(library, "", 0, 300, &about);
    CHECK_EQUAL(use(device, REGISTERED), ZAP_E_TIMEOUT);
    CHECK_CONTAINS(text(), cases[at].part);
    CHECK_EQUAL(ZAP_UMA(close)(device), ZAP_E_TIMEOUT);
    CHECK_EQUAL(ZAP_UMA(live)(), 0);
  }
}

int main(int count, char **arguments) {
  if (count != 2) {
    fprintf(stderr, "usage: cuda_on_double FOLDER\n");
    return 2;
  }
  snprintf(library, sizeof library, "%.4000s/libcuda.so.1", arguments[1]);
  snprintf(settings, sizeof settings, "%.4000s/double.conf", arguments[1]);
  snprintf(report, sizeof report, "%.4000s/report", arguments[1]);
  healthy();
  not_concurrent();
  failures();
  registered();
  each_call_fails();
  verifies();
  frees_fail();
  rows();
  hangs();
  return checks_done("cuda on its double");
}
