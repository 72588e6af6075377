/* The unified-memory verbs over the double backend: what each does, refuses and leaves behind. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "check.h"
#include "double_backend.h"
#include "ed25519_vectors.h"

#define PATH "/opt/double/libdouble.so"
#define TIMEOUT 20000u

static const char *text(void) {
  static char buffer[ZAP_TEXT_BYTES];
  ZAP_UMA(error)(buffer, sizeof buffer);
  return buffer;
}

static void nothing_left(void) {
  CHECK_EQUAL(ZAP_UMA(live)(), 0);
  CHECK_EQUAL(double_control.devices, 0);
  CHECK_EQUAL(double_control.pieces, 0);
  CHECK_EQUAL(double_control.registered, 0);
  CHECK_EQUAL(double_control.checks, 0);
  CHECK_EQUAL(double_control.overlaps, 0);
}

static int32_t open_one(void) {
  zap_uma_device about;
  int32_t device = ZAP_UMA(open)(PATH, "", 0, TIMEOUT, &about);
  CHECK(device > 0);
  return device;
}

static void layout(void) {
  CHECK_EQUAL(sizeof(zap_uma_device), 152);
  CHECK_EQUAL(sizeof(zap_region), 32);
  CHECK_EQUAL(sizeof(zap_span), 16);
  CHECK_EQUAL(ZAP_UMA(abi)(), ZAP_ABI_VERSION);
  char none[1] = {'x'};
  CHECK_EQUAL(ZAP_UMA(error)(NULL, 512), 0);
  CHECK_EQUAL(ZAP_UMA(error)(none, 0), 0);
  CHECK_EQUAL(none[0], 'x');
}

static void opening(void) {
  zap_uma_device about;
  CHECK_EQUAL(ZAP_UMA(open)(NULL, "", 0, TIMEOUT, &about), ZAP_E_INVALID);
  CHECK_EQUAL(ZAP_UMA(open)("libdouble.so", "", 0, TIMEOUT, &about), ZAP_E_INVALID);
  CHECK_CONTAINS(text(), "absolute path");
  CHECK_EQUAL(ZAP_UMA(open)(PATH, "libobjc.dylib", 0, TIMEOUT, &about), ZAP_E_INVALID);
  CHECK_EQUAL(ZAP_UMA(open)(PATH, NULL, -1, TIMEOUT, &about), ZAP_E_INVALID);
  CHECK_EQUAL(ZAP_UMA(open)(PATH, NULL, 0, 0, &about), ZAP_E_INVALID);
  CHECK_EQUAL(ZAP_UMA(open)(PATH, NULL, 0, TIMEOUT, NULL), ZAP_E_INVALID);
  CHECK_EQUAL(double_control.calls[CALL_OPEN], 0);

  double_control.failing = CALL_OPEN;
  double_control.status = ZAP_E_DRIVER;
  CHECK_EQUAL(ZAP_UMA(open)(PATH, NULL, 0, TIMEOUT, &about), ZAP_E_DRIVER);
  CHECK_CONTAINS(text(), "doubleOpen failed with DOUBLE_ERROR (7)");
  double_reset();
  nothing_left();

  int32_t device = ZAP_UMA(open)(PATH, NULL, 3, TIMEOUT, &about);
  CHECK(device > 0);
  CHECK_EQUAL(about.index, 3);
  CHECK_EQUAL(about.name[sizeof about.name - 1], 0);
  CHECK_EQUAL(strlen(about.name), sizeof about.name - 1);
  CHECK_EQUAL(ZAP_UMA(live)(), 1);
  CHECK_EQUAL(ZAP_UMA(close)(device), ZAP_OK);
  CHECK_EQUAL(ZAP_UMA(close)(device), ZAP_E_HANDLE);
  CHECK_CONTAINS(text(), "no open device");
  nothing_left();
}

static void probing(void) {
  zap_prerequisite rows[4];
  CHECK_EQUAL(ZAP_UMA(probe)("x", NULL, 0, TIMEOUT, rows, 4), ZAP_E_INVALID);
  CHECK_EQUAL(ZAP_UMA(probe)(PATH, NULL, 0, TIMEOUT, NULL, 4), ZAP_E_INVALID);
  CHECK_EQUAL(ZAP_UMA(probe)(PATH, NULL, 0, TIMEOUT, rows, 0), ZAP_E_INVALID);
  CHECK_EQUAL(ZAP_UMA(probe)(PATH, NULL, 0, TIMEOUT, rows, 1), 1);
  CHECK_EQUAL(ZAP_UMA(probe)(PATH, NULL, 0, TIMEOUT, rows, 4), 2);
  CHECK(rows[0].met && strcmp(rows[0].seen, PATH) == 0 && rows[0].fix[0] == 0);
  CHECK(rows[1].met);

  double_control.failing = CALL_PROBE;
  double_control.status = ZAP_E_DEVICE;
  CHECK_EQUAL(ZAP_UMA(probe)(PATH, NULL, 0, TIMEOUT, rows, 4), 2);
  CHECK(!rows[1].met);
  CHECK_CONTAINS(rows[1].seen, "told to");
  CHECK_CONTAINS(rows[1].fix, "Mend the double.");
  double_reset();

  double_control.hanging = CALL_PROBE;
  CHECK_EQUAL(ZAP_UMA(probe)(PATH, NULL, 0, 30, rows, 4), 2);
  CHECK(rows[0].met && strcmp(rows[0].name, "library") == 0);
  CHECK(!rows[1].met && strcmp(rows[1].name, "driver") == 0);
  CHECK_CONTAINS(rows[1].seen, "doubleProbe did not come back in time");
  double_reset();
  WAIT_UNTIL(double_control.stuck == 0);
  nothing_left();
}

static void regions(void) {
  int32_t device = open_one(), other = open_one();
  zap_region region;
  CHECK_EQUAL(ZAP_UMA(region_alloc)(device, 0, 4096, &region), ZAP_E_INVALID);
  CHECK_EQUAL(ZAP_UMA(region_alloc)(device, 5, 4096, &region), ZAP_E_INVALID);
  CHECK_EQUAL(ZAP_UMA(region_alloc)(device, ZAP_MEMORY_MANAGED, 0, &region), ZAP_E_INVALID);
  CHECK_EQUAL(ZAP_UMA(region_alloc)(device, ZAP_MEMORY_MANAGED, UINT64_MAX, &region), ZAP_E_INVALID);
  CHECK_EQUAL(ZAP_UMA(region_alloc)(device, ZAP_MEMORY_MANAGED, 4096, NULL), ZAP_E_INVALID);
  CHECK_EQUAL(ZAP_UMA(region_alloc)(device + 65536, ZAP_MEMORY_MANAGED, 4096, &region), ZAP_E_HANDLE);
  double_control.failing = CALL_ALLOC;
  double_control.status = ZAP_E_MEMORY;
  CHECK_EQUAL(ZAP_UMA(region_alloc)(device, ZAP_MEMORY_MANAGED, 4096, &region), ZAP_E_MEMORY);
  CHECK_CONTAINS(text(), "doubleAlloc");
  double_reset();

  int32_t first = ZAP_UMA(region_alloc)(device, ZAP_MEMORY_MANAGED, 100, &region);
  CHECK(first > 0);
  CHECK_EQUAL(region.bytes % (uint64_t)sysconf(_SC_PAGESIZE), 0);
  CHECK(region.bytes >= 100 && region.host != 0 && region.host % 4096 == 0);
  CHECK_EQUAL(region.device, region.host + DOUBLE_DEVICE_OFFSET);
  memset((void *)(uintptr_t)region.host, 0x5a, region.bytes);
  int32_t second = ZAP_UMA(region_alloc)(device, ZAP_MEMORY_HOST, 1 << 20, &region);
  CHECK(second > 0 && second != first);
  CHECK_EQUAL(ZAP_UMA(live)(), 4);

  /* A region is known by its own device only, and a device is no region. */
  CHECK_EQUAL(ZAP_UMA(region_free)(other, first), ZAP_E_HANDLE);
  CHECK_CONTAINS(text(), "no open region of this device");
  CHECK_EQUAL(ZAP_UMA(region_free)(device, device), ZAP_E_HANDLE);
  CHECK_EQUAL(ZAP_UMA(region_free)(first, first), ZAP_E_HANDLE);
  CHECK_EQUAL(double_control.pieces, 2);

  CHECK_EQUAL(ZAP_UMA(region_export)(device, first), ZAP_E_UNSUPPORTED);
  int fd = ZAP_UMA(region_export)(device, second);
  CHECK(fd >= 0 && (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
  if (fd >= 0) close(fd);

  uint8_t copy[64] = {0};
  CHECK_EQUAL(ZAP_UMA(copy_to_host)(device, first, 36, copy, sizeof copy), ZAP_OK);
  CHECK(copy[0] == 0x5a && copy[63] == 0x5a);
  CHECK_EQUAL(ZAP_UMA(copy_to_host)(device, first, UINT64_MAX, copy, 1), ZAP_E_INVALID);
  CHECK_EQUAL(ZAP_UMA(copy_to_host)(device, first, 4096, copy, UINT64_MAX), ZAP_E_INVALID);
  CHECK_EQUAL(ZAP_UMA(copy_to_host)(device, first, 0, NULL, 1), ZAP_E_INVALID);
  CHECK_EQUAL(ZAP_UMA(copy_to_host)(other, first, 0, copy, 1), ZAP_E_HANDLE);
  int32_t own = ZAP_UMA(region_alloc)(device, ZAP_MEMORY_DEVICE, 4096, &region);
  CHECK_EQUAL(ZAP_UMA(copy_to_host)(device, own, 0, copy, 1), ZAP_E_UNSUPPORTED);
  CHECK_EQUAL(ZAP_UMA(region_free)(device, own), ZAP_OK);

  CHECK_EQUAL(ZAP_UMA(region_free)(device, first), ZAP_OK);
  CHECK_EQUAL(ZAP_UMA(region_free)(device, first), ZAP_E_HANDLE);
  CHECK_EQUAL(ZAP_UMA(region_export)(device, first), ZAP_E_HANDLE);
  CHECK_EQUAL(ZAP_UMA(copy_to_host)(device, first, 0, copy, 1), ZAP_E_HANDLE);
  CHECK_EQUAL(double_control.pieces, 1);

  /* Closed with a region open: it goes too. */
  CHECK_EQUAL(ZAP_UMA(close)(device), ZAP_OK);
  CHECK_EQUAL(ZAP_UMA(region_free)(device, second), ZAP_E_HANDLE);
  CHECK_EQUAL(ZAP_UMA(region_free)(other, second), ZAP_E_HANDLE);
  CHECK_EQUAL(ZAP_UMA(close)(other), ZAP_OK);
  nothing_left();
}

/* The caller is told, and the handle is gone; closing has nobody to tell. */
static void failing_free(void) {
  int32_t device = open_one();
  zap_region region;
  int32_t first = ZAP_UMA(region_alloc)(device, ZAP_MEMORY_MANAGED, 4096, &region);
  CHECK(first > 0 && ZAP_UMA(region_alloc)(device, ZAP_MEMORY_HOST, 4096, &region) > 0);
  double_control.failing = CALL_FREE;
  double_control.status = ZAP_E_DRIVER;
  CHECK_EQUAL(ZAP_UMA(region_free)(device, first), ZAP_E_DRIVER);
  CHECK_CONTAINS(text(), "doubleFree failed with DOUBLE_ERROR (7)");
  CHECK_EQUAL(ZAP_UMA(live)(), 2);
  CHECK_EQUAL(ZAP_UMA(region_free)(device, first), ZAP_E_HANDLE);
  CHECK_EQUAL(ZAP_UMA(close)(device), ZAP_OK);
  double_reset();
  nothing_left();
}

static void put_message(uint64_t host, uint32_t offset, uint32_t size) {
  uint8_t header[16] = {'Z', 'A', 'P', 0, 1, 0, 0, 0, 0, 0, 0, 0, (uint8_t)size, (uint8_t)(size >> 8), 0, 0};
  memcpy((uint8_t *)(uintptr_t)host + offset, header, sizeof header);
}

static void checks(void) {
  int32_t device = open_one();
  zap_region one, two, gpu;
  int32_t first = ZAP_UMA(region_alloc)(device, ZAP_MEMORY_MANAGED, 4096, &one);
  int32_t second = ZAP_UMA(region_alloc)(device, ZAP_MEMORY_HOST, 4096, &two);
  int32_t hidden = ZAP_UMA(region_alloc)(device, ZAP_MEMORY_DEVICE, 4096, &gpu);
  CHECK_EQUAL(gpu.host, 0);
  memset((void *)(uintptr_t)one.host, 0, one.bytes);
  memset((void *)(uintptr_t)two.host, 0, two.bytes);
  put_message(one.host, 3, 100);
  put_message(two.host, 4080, 16);
  const zap_span spans[] = {{.region = first, .offset = 3, .length = 100},
                            {.region = second, .offset = 4080, .length = 16},
                            {.region = first, .offset = 3, .length = 99},
                            {.region = first, .offset = 4096, .length = 0},
                            {.region = second, .offset = 0, .length = 16}};
  const uint8_t wanted[] = {0, 0, 4, 1, 2};
  uint8_t verdicts[5];
  memset(verdicts, 0xee, sizeof verdicts);
  CHECK_EQUAL(ZAP_UMA(check_host)(device, spans, 5, 1, verdicts), ZAP_OK);
  CHECK(memcmp(verdicts, wanted, 5) == 0);

  memset(verdicts, 0xee, sizeof verdicts);
  double_control.slow_polls = 2;
  int32_t job = ZAP_UMA(check_begin)(device, spans, 5, 1);
  CHECK(job > 0);
  double_control.slow_polls = 0;
  CHECK_EQUAL(ZAP_UMA(check_poll)(device, job, verdicts, 4), ZAP_E_INVALID);
  CHECK_EQUAL(ZAP_UMA(check_poll)(device, job, NULL, 5), ZAP_E_INVALID);
  CHECK_EQUAL(ZAP_UMA(check_poll)(device, job, verdicts, 5), ZAP_E_AGAIN);
  CHECK_EQUAL(ZAP_UMA(check_poll)(device, job, verdicts, 5), ZAP_E_AGAIN);
  CHECK_EQUAL(verdicts[0], 0xee);
  CHECK_EQUAL(ZAP_UMA(check_poll)(device, job, verdicts, 5), ZAP_OK);
  CHECK(memcmp(verdicts, wanted, 5) == 0);
  CHECK_EQUAL(ZAP_UMA(check_poll)(device, job, verdicts, 5), ZAP_E_HANDLE);
  CHECK_CONTAINS(text(), "no open job");

  /* What cannot be used. */
  CHECK_EQUAL(ZAP_UMA(check_begin)(device, spans, 0, 1), ZAP_E_INVALID);
  CHECK_EQUAL(ZAP_UMA(check_begin)(device, NULL, 1, 1), ZAP_E_INVALID);
  CHECK_EQUAL(ZAP_UMA(check_begin)(device, spans, 65537, 1), ZAP_E_INVALID);
  CHECK_EQUAL(ZAP_UMA(check_host)(device, spans, 5, 1, NULL), ZAP_E_INVALID);
  CHECK_EQUAL(ZAP_UMA(check_host)(device, NULL, 5, 1, verdicts), ZAP_E_INVALID);
  CHECK_EQUAL(ZAP_UMA(check_host)(device, spans, 0, 1, verdicts), ZAP_E_INVALID);
  const zap_span bad[][2] = {{spans[0], {.region = first, .offset = 4096, .length = 1}},
                             {spans[0], {.region = first, .offset = UINT32_MAX, .length = UINT32_MAX}},
                             {spans[0], {.region = device, .offset = 0, .length = 1}},
                             {spans[0], {.region = 0, .offset = 0, .length = 1}}};
  for (int at = 0; at < 4; at++) {
    int32_t status = at < 2 ? ZAP_E_INVALID : ZAP_E_HANDLE;
    CHECK_EQUAL(ZAP_UMA(check_host)(device, bad[at], 2, 1, verdicts), status);
    CHECK_CONTAINS(text(), "span 1:");
    CHECK_EQUAL(ZAP_UMA(check_begin)(device, bad[at], 2, 1), status);
    CHECK_CONTAINS(text(), "span 1:");
  }
  const zap_span unseen = {.region = hidden, .offset = 0, .length = 16};
  CHECK_EQUAL(ZAP_UMA(check_host)(device, &unseen, 1, 1, verdicts), ZAP_E_UNSUPPORTED);

  /* Failures take the job with them. */
  double_control.failing = CALL_BEGIN;
  double_control.status = ZAP_E_DRIVER;
  CHECK_EQUAL(ZAP_UMA(check_begin)(device, spans, 5, 1), ZAP_E_DRIVER);
  double_reset();
  job = ZAP_UMA(check_begin)(device, spans, 5, 1);
  double_control.failing = CALL_POLL;
  double_control.status = ZAP_E_DRIVER;
  CHECK_EQUAL(ZAP_UMA(check_poll)(device, job, verdicts, 5), ZAP_E_DRIVER);
  double_reset();
  CHECK_EQUAL(ZAP_UMA(check_poll)(device, job, verdicts, 5), ZAP_E_HANDLE);
  CHECK_EQUAL(double_control.checks, 0);

  /* The hand-over asks the device only while something runs; freeing a region waits, too. */
  int waits = double_control.calls[CALL_WAIT];
  CHECK_EQUAL(ZAP_UMA(fence_to_device)(device), ZAP_OK);
  CHECK_EQUAL(ZAP_UMA(fence_to_host)(device), ZAP_OK);
  CHECK_EQUAL(double_control.calls[CALL_WAIT], waits);
  job = ZAP_UMA(check_begin)(device, spans, 5, 1);
  CHECK_EQUAL(ZAP_UMA(fence_to_host)(device), ZAP_OK);
  CHECK_EQUAL(double_control.calls[CALL_WAIT], waits + 1);
  CHECK_EQUAL(ZAP_UMA(fence_to_host)(device), ZAP_OK);
  CHECK_EQUAL(double_control.calls[CALL_WAIT], waits + 1);
  CHECK_EQUAL(ZAP_UMA(check_poll)(device, job, verdicts, 5), ZAP_OK);
  job = ZAP_UMA(check_begin)(device, spans, 5, 1);
  CHECK_EQUAL(ZAP_UMA(region_free)(device, second), ZAP_OK);
  CHECK_EQUAL(double_control.calls[CALL_WAIT], waits + 2);

  /* Closed with a job open. */
  job = ZAP_UMA(check_begin)(device, spans, 1, 1);
  CHECK(job > 0);
  CHECK_EQUAL(ZAP_UMA(close)(device), ZAP_OK);
  CHECK_EQUAL(ZAP_UMA(check_poll)(device, job, verdicts, 5), ZAP_E_HANDLE);
  CHECK_EQUAL(ZAP_UMA(check_host)(device, spans, 1, 1, verdicts), ZAP_E_HANDLE);
  CHECK_EQUAL(ZAP_UMA(fence_to_host)(device), ZAP_E_HANDLE);
  CHECK_EQUAL(ZAP_UMA(fence_to_device)(device), ZAP_E_HANDLE);
  nothing_left();
}

/* Memory of the caller's: known to the device until the region goes, and never freed. */
static void registered(void) {
  enum { BYTES = 16384 };
  int32_t device = open_one(), other = open_one();
  zap_region region = {.host = 1};
  void *memory = NULL, *more = NULL;
  if (posix_memalign(&memory, 4096, BYTES) != 0 || posix_memalign(&more, 4096, BYTES) != 0) abort();
  memset(memory, 0, BYTES);
  const uint64_t host = (uint64_t)(uintptr_t)memory, host2 = (uint64_t)(uintptr_t)more;

  CHECK_EQUAL(ZAP_UMA(region_register)(device, host, BYTES, NULL), ZAP_E_INVALID);
  const uint64_t bad[][2] = {{0, BYTES}, {host, 0}, {host + 1, BYTES}, {host, BYTES - 1}, {host, UINT64_C(1) << 48},
                             {UINT64_C(0) - 4096, 4096}};
  for (size_t at = 0; at < sizeof bad / sizeof bad[0]; at++) {
    CHECK_EQUAL(ZAP_UMA(region_register)(device, bad[at][0], bad[at][1], &region), ZAP_E_INVALID);
    CHECK_CONTAINS(text(), "whole pages of 4096 bytes");
  }
  CHECK_EQUAL(ZAP_UMA(region_register)(device + 65536, host, BYTES, &region), ZAP_E_HANDLE);
  CHECK_EQUAL(double_control.calls[CALL_REGISTER], 0);
  double_control.failing = CALL_REGISTER;
  double_control.status = ZAP_E_DRIVER;
  CHECK_EQUAL(ZAP_UMA(region_register)(device, host, BYTES, &region), ZAP_E_DRIVER);
  CHECK_CONTAINS(text(), "doubleRegister failed with DOUBLE_ERROR (7)");
  CHECK_EQUAL(region.host, 1);
  double_reset();

  int32_t first = ZAP_UMA(region_register)(device, host, BYTES, &region);
  CHECK(first > 0);
  CHECK_EQUAL(region.host, host);
  CHECK_EQUAL(region.device, host + DOUBLE_DEVICE_OFFSET);
  CHECK_EQUAL(region.bytes, BYTES);
  CHECK_EQUAL(region.memory, ZAP_MEMORY_HOST);
  CHECK_EQUAL(double_control.registered, 1);

  put_message(host, 5000, 100);
  const zap_span spans[] = {{.region = first, .offset = 5000, .length = 100}, {.region = first, .offset = BYTES - 16, .length = 16}};
  uint8_t verdicts[2] = {0xee, 0xee};
  CHECK_EQUAL(ZAP_UMA(check_host)(device, spans, 2, 1, verdicts), ZAP_OK);
  CHECK(verdicts[0] == 0 && verdicts[1] == 2);
  int32_t job = ZAP_UMA(check_begin)(device, spans, 2, 1);
  CHECK_EQUAL(ZAP_UMA(check_poll)(device, job, verdicts, 2), ZAP_OK);
  CHECK(verdicts[0] == 0 && verdicts[1] == 2);
  /* Offsets have 64 bits: neither cut nor carried over. */
  const uint64_t beyond[] = {BYTES - 15, (UINT64_C(1) << 32) + 5000, UINT64_MAX - 15};
  for (size_t at = 0; at < sizeof beyond / sizeof beyond[0]; at++) {
    const zap_span span = {.region = first, .offset = beyond[at], .length = 16};
    CHECK_EQUAL(ZAP_UMA(check_begin)(device, &span, 1, 1), ZAP_E_INVALID);
    CHECK_EQUAL(ZAP_UMA(check_host)(device, &span, 1, 1, verdicts), ZAP_E_INVALID);
  }

  /* Unregistering waits for the kernel, leaves the memory, and takes the handle also where it fails. */
  int waits = double_control.calls[CALL_WAIT], frees = double_control.calls[CALL_FREE];
  CHECK_EQUAL(ZAP_UMA(region_free)(other, first), ZAP_E_HANDLE);
  job = ZAP_UMA(check_begin)(device, spans, 2, 1);
  CHECK_EQUAL(ZAP_UMA(region_free)(device, first), ZAP_OK);
  CHECK_EQUAL(double_control.calls[CALL_WAIT], waits + 1);
  CHECK_EQUAL(double_control.registered, 0);
  CHECK_EQUAL(ZAP_UMA(check_poll)(device, job, verdicts, 2), ZAP_OK);
  CHECK_EQUAL(ZAP_UMA(region_free)(device, first), ZAP_E_HANDLE);
  CHECK_EQUAL(ZAP_UMA(check_host)(device, spans, 1, 1, verdicts), ZAP_E_HANDLE);
  memset(memory, 1, BYTES);
  first = ZAP_UMA(region_register)(device, host, BYTES, &region);
  double_control.failing = CALL_UNREGISTER;
  double_control.status = ZAP_E_DRIVER;
  CHECK_EQUAL(ZAP_UMA(region_free)(device, first), ZAP_E_DRIVER);
  CHECK_CONTAINS(text(), "doubleUnregister failed with DOUBLE_ERROR (7)");
  CHECK_EQUAL(ZAP_UMA(region_free)(device, first), ZAP_E_HANDLE);
  double_reset();

  /* Closed with two of them registered, and one of its own. */
  CHECK(ZAP_UMA(region_register)(device, host, BYTES, &region) > 0);
  CHECK(ZAP_UMA(region_register)(device, host2, BYTES, &region) > 0);
  CHECK(ZAP_UMA(region_alloc)(device, ZAP_MEMORY_HOST, BYTES, &region) > 0);
  CHECK_EQUAL(ZAP_UMA(close)(device), ZAP_OK);
  CHECK_EQUAL(double_control.registered, 0);
  CHECK_EQUAL(double_control.calls[CALL_FREE], frees + 1);
  CHECK_EQUAL(ZAP_UMA(close)(other), ZAP_OK);
  memset(memory, 2, BYTES);
  free(memory);
  free(more);
  nothing_left();
}

/* A driver that hangs in either call costs its device; what comes back late is undone. */
static void hanging_register(void) {
  const struct {
    enum double_call call;
    const char *name;
  } calls[] = {{CALL_REGISTER, "doubleRegister did not come back in time"},
               {CALL_UNREGISTER, "doubleUnregister did not come back in time"}};
  void *memory = NULL;
  if (posix_memalign(&memory, 4096, 4096) != 0) abort();
  for (size_t at = 0; at < 2; at++) {
    zap_uma_device about;
    zap_region region = {.host = 1};
    int32_t device = ZAP_UMA(open)(PATH, "", 0, 300, &about);
    double_control.hanging = calls[at].call;
    int32_t status = ZAP_UMA(region_register)(device, (uint64_t)(uintptr_t)memory, 4096, &region);
    if (calls[at].call == CALL_UNREGISTER) {
      CHECK(status > 0);
      status = ZAP_UMA(region_free)(device, status);
    } else {
      CHECK_EQUAL(region.host, 1);
    }
    CHECK_EQUAL(status, ZAP_E_TIMEOUT);
    CHECK_CONTAINS(text(), calls[at].name);
    CHECK_EQUAL(ZAP_UMA(region_register)(device, (uint64_t)(uintptr_t)memory, 4096, &region), ZAP_E_TIMEOUT);
    CHECK_EQUAL(ZAP_UMA(close)(device), ZAP_E_TIMEOUT);
    CHECK_EQUAL(ZAP_UMA(live)(), 0);
    double_reset();
    WAIT_UNTIL(double_control.devices == 0);
    nothing_left();
  }
  free(memory);
}

static void many_spans(void) {
  enum { COUNT = 65536 };
  int32_t device = open_one();
  zap_region region;
  int32_t handle = ZAP_UMA(region_alloc)(device, ZAP_MEMORY_MANAGED, COUNT * 16, &region);
  zap_span *spans = calloc(COUNT, sizeof *spans);
  uint8_t *host = malloc(COUNT), *gpu = malloc(COUNT);
  if (spans == NULL || host == NULL || gpu == NULL) abort();
  memset((void *)(uintptr_t)region.host, 0, region.bytes);
  for (uint32_t at = 0; at < COUNT; at++) {
    if (at % 3 != 0) put_message(region.host, at * 16, 16);
    spans[at] = (zap_span){.region = handle, .offset = at * 16, .length = 16};
  }
  CHECK_EQUAL(ZAP_UMA(check_host)(device, spans, COUNT, 1, host), ZAP_OK);
  int32_t job = ZAP_UMA(check_begin)(device, spans, COUNT, 1);
  CHECK_EQUAL(ZAP_UMA(check_poll)(device, job, gpu, COUNT), ZAP_OK);
  CHECK(memcmp(host, gpu, COUNT) == 0);
  for (uint32_t at = 0; at < COUNT; at++) CHECK_EQUAL(host[at], at % 3 == 0 ? 2 : 0);
  free(spans);
  free(host);
  free(gpu);
  CHECK_EQUAL(ZAP_UMA(close)(device), ZAP_OK);
  nothing_left();
}

/* Signatures in place: what each verb takes, refuses and leaves behind. The codes themselves are test_ed25519.c's. */
static void verifications(void) {
  enum { COUNT = ED25519_VECTORS + 1, TABLE = 1024, CODES = 2048 };
  int32_t device = open_one();
  zap_region region, second;
  int32_t first = ZAP_UMA(region_alloc)(device, ZAP_MEMORY_MANAGED, 4096, &region);
  int32_t other = ZAP_UMA(region_alloc)(device, ZAP_MEMORY_MANAGED, 4096, &second);
  int32_t hidden = ZAP_UMA(region_alloc)(device, ZAP_MEMORY_DEVICE, 4096, &(zap_region){0});
  uint8_t *memory = (uint8_t *)(uintptr_t)region.host;
  memset(memory, 0, region.bytes);
  memset((void *)(uintptr_t)second.host, 0xee, second.bytes);
  uint32_t at = 3, rows[COUNT][6] = {{0}};
  for (int item = 0; item < ED25519_VECTORS; item++) {
    const char *const parts[3] = {ed25519_vectors[item].key, ed25519_vectors[item].message, ed25519_vectors[item].signature};
    for (int part = 0; part < 3; part++) {
      rows[item][2 * part] = at;
      rows[item][2 * part + 1] = ed25519_bytes(parts[part], memory + at);
      at += rows[item][2 * part + 1];
    }
  }
  CHECK(at <= TABLE);
  memcpy(memory + TABLE, rows, sizeof rows);
  /* The third one's message is not what was signed, and the last item has no key. */
  memory[rows[2][2]] ^= 1;
  const uint8_t wanted[COUNT] = {1, 1, 0, 1, 3};
  const zap_span bytes = {.region = first, .length = TABLE}, table = {.region = first, .offset = TABLE, .length = sizeof rows};
  const zap_span codes = {.region = other, .offset = CODES + 1, .length = COUNT};
  const uint8_t *seen = (const uint8_t *)(uintptr_t)second.host + CODES + 1;

  CHECK_EQUAL(ZAP_UMA(verify_host)(device, ZAP_SCHEME_ED25519, &bytes, &table, COUNT, &codes), ZAP_OK);
  CHECK(memcmp(seen, wanted, COUNT) == 0 && seen[-1] == 0xee && seen[COUNT] == 0xee);
  memset((void *)(uintptr_t)second.host, 0xee, second.bytes);
  double_control.slow_polls = 2;
  int32_t job = ZAP_UMA(verify_begin)(device, ZAP_SCHEME_ED25519, &bytes, &table, COUNT, &codes);
  CHECK(job > 0);
  double_control.slow_polls = 0;
  CHECK_EQUAL(ZAP_UMA(verify_poll)(device, job), ZAP_E_AGAIN);
  CHECK_EQUAL(ZAP_UMA(verify_poll)(device, job), ZAP_E_AGAIN);
  CHECK_EQUAL(seen[0], 0xee);
  CHECK_EQUAL(ZAP_UMA(verify_poll)(device, job), ZAP_OK);
  CHECK(memcmp(seen, wanted, COUNT) == 0 && seen[-1] == 0xee && seen[COUNT] == 0xee);
  CHECK_EQUAL(ZAP_UMA(verify_poll)(device, job), ZAP_E_HANDLE);
  CHECK_CONTAINS(text(), "no open job");

  /* A check is no verification, nor the reverse. */
  uint8_t verdict;
  job = ZAP_UMA(check_begin)(device, &bytes, 1, 1);
  CHECK_EQUAL(ZAP_UMA(verify_poll)(device, job), ZAP_E_HANDLE);
  CHECK_EQUAL(ZAP_UMA(check_poll)(device, job, &verdict, 1), ZAP_OK);
  job = ZAP_UMA(verify_begin)(device, ZAP_SCHEME_ED25519, &bytes, &table, 1, &codes);
  CHECK_EQUAL(ZAP_UMA(check_poll)(device, job, &verdict, 1), ZAP_E_HANDLE);
  CHECK_EQUAL(ZAP_UMA(verify_poll)(device, job), ZAP_OK);

  /* What cannot be used: no launch, and the same from the CPU. */
  zap_span short_table = table, odd_table = table, beyond = bytes, no_region = codes, few_codes = codes;
  short_table.length--, odd_table.offset += 2, beyond.offset = 4096 - TABLE + 1, no_region.region = device, few_codes.length--;
  const struct {
    uint32_t scheme;
    const zap_span *bytes, *table;
    uint32_t count;
    const zap_span *codes;
    int32_t status;
    const char *part;
  } bad[] = {{0, &bytes, &table, COUNT, &codes, ZAP_E_INVALID, "0 is no scheme"},
             {2, &bytes, &table, COUNT, &codes, ZAP_E_INVALID, "2 is no scheme"},
             {1, &bytes, &table, 0, &codes, ZAP_E_INVALID, "1 to 1048576 signatures, not 0"},
             {1, &bytes, &table, (1 << 20) + 1, &codes, ZAP_E_INVALID, "1 to 1048576 signatures"},
             {1, NULL, &table, COUNT, &codes, ZAP_E_INVALID, "the span of its bytes"},
             {1, &bytes, NULL, COUNT, &codes, ZAP_E_INVALID, "the span of its table"},
             {1, &bytes, &table, COUNT, NULL, ZAP_E_INVALID, "the span of its codes"},
             {1, &bytes, &short_table, COUNT, &codes, ZAP_E_INVALID, "120 bytes or more"},
             {1, &bytes, &odd_table, COUNT, &codes, ZAP_E_INVALID, "a multiple of 4"},
             {1, &bytes, &table, COUNT, &few_codes, ZAP_E_INVALID, "no room for 5 codes"},
             {1, &beyond, &table, COUNT, &codes, ZAP_E_INVALID, "bytes 0: 1024 bytes from 3073 do not lie in"},
             {1, &bytes, &table, COUNT, &no_region, ZAP_E_HANDLE, "is no open region"}};
  int launches = double_control.calls[CALL_VERIFY];
  for (size_t each = 0; each < sizeof bad / sizeof bad[0]; each++) {
    CHECK_EQUAL(ZAP_UMA(verify_begin)(device, bad[each].scheme, bad[each].bytes, bad[each].table, bad[each].count, bad[each].codes),
                bad[each].status);
    CHECK_CONTAINS(text(), bad[each].part);
    CHECK_EQUAL(ZAP_UMA(verify_host)(device, bad[each].scheme, bad[each].bytes, bad[each].table, bad[each].count, bad[each].codes),
                bad[each].status);
    CHECK_CONTAINS(text(), bad[each].part);
  }
  CHECK_EQUAL(double_control.calls[CALL_VERIFY], launches);
  const zap_span unseen = {.region = hidden, .length = TABLE};
  CHECK_EQUAL(ZAP_UMA(verify_host)(device, ZAP_SCHEME_ED25519, &unseen, &table, COUNT, &codes), ZAP_E_UNSUPPORTED);

  /* Failures take the job with them. */
  double_control.failing = CALL_VERIFY;
  double_control.status = ZAP_E_DRIVER;
  CHECK_EQUAL(ZAP_UMA(verify_begin)(device, ZAP_SCHEME_ED25519, &bytes, &table, COUNT, &codes), ZAP_E_DRIVER);
  double_reset();
  job = ZAP_UMA(verify_begin)(device, ZAP_SCHEME_ED25519, &bytes, &table, COUNT, &codes);
  double_control.failing = CALL_VERIFY_POLL;
  double_control.status = ZAP_E_DRIVER;
  CHECK_EQUAL(ZAP_UMA(verify_poll)(device, job), ZAP_E_DRIVER);
  double_reset();
  CHECK_EQUAL(ZAP_UMA(verify_poll)(device, job), ZAP_E_HANDLE);
  CHECK_EQUAL(double_control.checks, 0);

  /* The hand-over and the end of a region wait for it; closed with a job open. */
  int waits = double_control.calls[CALL_WAIT];
  job = ZAP_UMA(verify_begin)(device, ZAP_SCHEME_ED25519, &bytes, &table, COUNT, &codes);
  CHECK_EQUAL(ZAP_UMA(fence_to_host)(device), ZAP_OK);
  CHECK_EQUAL(double_control.calls[CALL_WAIT], waits + 1);
  CHECK_EQUAL(ZAP_UMA(verify_poll)(device, job), ZAP_OK);
  job = ZAP_UMA(verify_begin)(device, ZAP_SCHEME_ED25519, &bytes, &table, COUNT, &codes);
  CHECK_EQUAL(ZAP_UMA(close)(device), ZAP_OK);
  CHECK_EQUAL(ZAP_UMA(verify_poll)(device, job), ZAP_E_HANDLE);
  CHECK_EQUAL(ZAP_UMA(verify_begin)(device, ZAP_SCHEME_ED25519, &bytes, &table, COUNT, &codes), ZAP_E_HANDLE);
  CHECK_EQUAL(ZAP_UMA(verify_host)(device, ZAP_SCHEME_ED25519, &bytes, &table, COUNT, &codes), ZAP_E_HANDLE);
  nothing_left();
}

static int32_t load_to_its_end(int32_t device) {
  int32_t status = ZAP_UMA(verify_load)(device, ZAP_SCHEME_ED25519);
  CHECK_EQUAL(status, ZAP_E_AGAIN);
  for (int wait = 0; wait < 10000 && status == ZAP_E_AGAIN; wait++) {
    pause_millis(1);
    status = ZAP_UMA(verify_load)(device, ZAP_SCHEME_ED25519);
  }
  return status;
}

/* The kernel loads while nobody waits. */
static void loading(void) {
  int32_t device = open_one();
  int before = double_control.calls[CALL_VERIFY_LOAD];
  CHECK_EQUAL(ZAP_UMA(verify_load)(device, 7), ZAP_E_INVALID);
  CHECK_EQUAL(ZAP_UMA(verify_load)(device + 65536, ZAP_SCHEME_ED25519), ZAP_E_HANDLE);
  double_control.failing = CALL_VERIFY_LOAD;
  double_control.status = ZAP_E_DRIVER;
  CHECK_EQUAL(load_to_its_end(device), ZAP_E_DRIVER);
  CHECK_CONTAINS(text(), "doubleLoad failed with DOUBLE_ERROR (7)");
  double_reset();
  CHECK_EQUAL(load_to_its_end(device), ZAP_OK);
  CHECK_EQUAL(ZAP_UMA(verify_load)(device, ZAP_SCHEME_ED25519), ZAP_OK);
  CHECK_EQUAL(double_control.calls[CALL_VERIFY_LOAD], before + 2);
  CHECK_EQUAL(ZAP_UMA(close)(device), ZAP_OK);
  CHECK_EQUAL(ZAP_UMA(verify_load)(device, ZAP_SCHEME_ED25519), ZAP_E_HANDLE);
  nothing_left();

  /* One that takes its time costs whoever asks nothing; a close waits for it. */
  device = open_one();
  double_control.hanging = CALL_VERIFY_LOAD;
  CHECK_EQUAL(ZAP_UMA(verify_load)(device, ZAP_SCHEME_ED25519), ZAP_E_AGAIN);
  WAIT_UNTIL(double_control.stuck == 1);
  CHECK_EQUAL(ZAP_UMA(verify_load)(device, ZAP_SCHEME_ED25519), ZAP_E_AGAIN);
  double_reset();
  CHECK_EQUAL(ZAP_UMA(close)(device), ZAP_OK);
  nothing_left();

  /* One that never ends: the next call that needs the driver learns it. */
  zap_uma_device about;
  device = ZAP_UMA(open)(PATH, "", 0, 100, &about);
  double_control.hanging = CALL_VERIFY_LOAD;
  CHECK_EQUAL(ZAP_UMA(verify_load)(device, ZAP_SCHEME_ED25519), ZAP_E_AGAIN);
  WAIT_UNTIL(double_control.stuck == 1);
  zap_region region;
  CHECK_EQUAL(ZAP_UMA(region_alloc)(device, ZAP_MEMORY_MANAGED, 4096, &region), ZAP_E_TIMEOUT);
  CHECK_EQUAL(ZAP_UMA(verify_load)(device, ZAP_SCHEME_ED25519), ZAP_E_TIMEOUT);
  CHECK_CONTAINS(text(), "doubleLoad did not come back in time");
  CHECK_EQUAL(ZAP_UMA(close)(device), ZAP_E_TIMEOUT);
  double_reset();
  WAIT_UNTIL(double_control.devices == 0);
  nothing_left();
}

static void without_kernels(void) {
  double_control.flags = ZAP_UMA_MANAGED;
  zap_uma_device about;
  int32_t device = ZAP_UMA(open)(PATH, "/usr/lib/support", 0, TIMEOUT, &about);
  double_reset();
  const zap_span span = {.region = 1};
  CHECK_EQUAL(ZAP_UMA(check_begin)(device, &span, 1, 1), ZAP_E_UNSUPPORTED);
  CHECK_CONTAINS(text(), "check on the CPU");
  const zap_span row = {.region = 1, .length = 24};
  CHECK_EQUAL(ZAP_UMA(verify_begin)(device, ZAP_SCHEME_ED25519, &row, &row, 1, &row), ZAP_E_UNSUPPORTED);
  CHECK_CONTAINS(text(), "verify on the CPU");
  CHECK_EQUAL(ZAP_UMA(verify_load)(device, ZAP_SCHEME_ED25519), ZAP_E_UNSUPPORTED);
  CHECK_EQUAL(ZAP_UMA(close)(device), ZAP_OK);
  nothing_left();
}

int main(void) {
  layout();
  opening();
  probing();
  regions();
  failing_free();
  registered();
  hanging_register();
  checks();
  many_spans();
  verifications();
  loading();
  without_kernels();
  return checks_done("uma");
}
