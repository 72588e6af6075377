/*
 * Tests of the HIP and Metal shims against the doubles of the vendors' libraries, in which everything can fail:
 * hip_metal_test SHIMS DOUBLES, two folders: one with libzap_uma_hip.so and libzap_uma_metal.so, one as zig-out/doubles.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "../doubles/harness.h"

#include <sys/mman.h>
#include <time.h>

#define ZAP_UMA_PREFIX zap_uma_test_
#include "../../shim/include/zap_uma.h"

#define VERBS(X)                                                                                               \
  X(abi) X(error) X(probe) X(open) X(close) X(region_alloc) X(region_register) X(region_free) X(region_export) \
  X(fence_to_device) X(fence_to_host) X(check_begin) X(check_poll) X(check_host) X(live)

#define MEMBER(name) __typeof__(ZAP_UMA(name)) *name;
static struct {
  VERBS(MEMBER)
} uma;

static const char *runtime;
static const char *support;
static zap_uma_device about;
static zap_prerequisite rows[16];

static void load(const char *folder, const char *vendor) {
  char path[4096];
  char symbol[64];
  (void)snprintf(path, sizeof path, "%s/libzap_uma_%s.so", folder, vendor);
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    (void)fprintf(stderr, "%s\n", dlerror());
    exit(2);
  }
  void *address;
#define LOAD(name)                                                         \
  (void)snprintf(symbol, sizeof symbol, "zap_uma_%s_%s", vendor, #name);   \
  address = dlsym(library, symbol);                                        \
  CHECK(address != NULL);                                                  \
  memcpy(&uma.name, &address, sizeof address);
  VERBS(LOAD)
}

static const char *error(void) {
  static char text[512];
  (void)uma.error(text, sizeof text);
  return text;
}

static int32_t open_device(void) { return uma.open(runtime, support, 0, 5000, &about); }

/* An opening that must fail, with a text that says so. Nothing may be left of it. */
static void refuse(const char *name, const char *behaviour, int32_t wanted, const char *part) {
  harness_behave(name, behaviour);
  CHECK_EQUAL(open_device(), wanted);
  CHECK_TEXT(error(), part);
  CHECK_EQUAL(uma.live(), 0);
  harness_no_faults();
}

/* The row of that name; fails where it is not there or not as wanted. */
static const zap_prerequisite *row(int32_t count, const char *name, bool met) {
  for (int32_t at = 0; at < count; at++) {
    if (strcmp(rows[at].name, name) != 0) continue;
    CHECK_EQUAL(rows[at].met, met);
    CHECK((rows[at].fix[0] == 0) == met);
    return &rows[at];
  }
  CHECK(name == NULL);
  return &rows[0];
}

static int32_t probe(void) { return uma.probe(runtime, support, 0, 5000, rows, 16); }

static void put_header(uint8_t *at, uint32_t size) {
  const uint8_t header[16] = {'Z', 'A', 'P', 0, 1, 0, 0, 0, 16, 0, 0, 0, (uint8_t)size, (uint8_t)(size >> 8), 0, 0};
  memcpy(at, header, sizeof header);
}

static void sleep_millis(long millis) {
  struct timespec left = {millis / 1000, millis % 1000 * 1000000};
  (void)nanosleep(&left, NULL);
}

static void test_libraries(const char *other) {
  harness_behave("a library that is not there", "");
  const char *right = runtime;
  runtime = "/nowhere/library.so";
  CHECK_EQUAL(open_device(), ZAP_E_LIBRARY);
  CHECK_TEXT(error(), "/nowhere/library.so");
  int32_t count = probe();
  CHECK_EQUAL(count, 1);
  CHECK_EQUAL(rows[0].met, 0);
  CHECK_TEXT(rows[0].seen, "/nowhere/library.so");
  harness_behave("a library of something else", "");
  runtime = other;
  CHECK_EQUAL(open_device(), ZAP_E_SYMBOL);
  CHECK_TEXT(error(), "too old");
  runtime = right;
  CHECK_EQUAL(uma.open(runtime, support, 5, 5000, &about), ZAP_E_DEVICE);
  CHECK_TEXT(error(), "GPU 5 is not there");
  CHECK_EQUAL(uma.live(), 0);
}

#include "hip_cases.h"
#include "metal_cases.h"

int main(int count, char **arguments) {
  static const char *const files[] = {"libamdhip64.so", "libobjc.A.dylib", "Metal", NULL};
  if (count != 3) {
    (void)fprintf(stderr, "usage: %s SHIMS DOUBLES\n", arguments[0]);
    return 2;
  }
  harness_begin();
  for (int at = 0; files[at] != NULL; at++) harness_copy(arguments[2], files[at], files[at]);

  static char hip[4096];
  static char metal[4096];
  static char objc[4096];
  (void)snprintf(hip, sizeof hip, "%s", harness_path("libamdhip64.so"));
  (void)snprintf(metal, sizeof metal, "%s", harness_path("Metal"));
  (void)snprintf(objc, sizeof objc, "%s", harness_path("libobjc.A.dylib"));

  load(arguments[1], "hip");
  CHECK_EQUAL(uma.abi(), ZAP_ABI_VERSION);
  runtime = hip;
  support = "";
  test_libraries(objc);
  hip_healthy();
  hip_host_memory();
  hip_export();
  hip_registered();
  hip_failures();

  load(arguments[1], "metal");
  CHECK_EQUAL(uma.abi(), ZAP_ABI_VERSION);
  runtime = metal;
  support = objc;
  test_libraries(hip);
  metal_healthy();
  metal_late();
  metal_below_a_root(arguments[2]);
  runtime = metal;
  support = objc;
  metal_failures();
  return harness_end();
}
