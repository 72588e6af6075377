/* Part of hip_metal_test.c: Metal. */

enum { SPANS = 1000, REGIONS = 3 };

static int32_t regions[REGIONS];
static zap_region places[REGIONS];
static zap_span spans[SPANS];

/* Messages over three regions, every fifth of them broken in one of five ways. Returns the number of spans. */
static uint32_t fill(int32_t handle, uint32_t count) {
  for (int at = 0; at < REGIONS; at++) {
    regions[at] = uma.region_alloc(handle, ZAP_MEMORY_SHARED, 65536, &places[at]);
    CHECK(regions[at] > 0);
    CHECK(places[at].host % 4096 == 0);
  }
  for (uint32_t at = 0; at < count; at++) {
    uint32_t offset = at / REGIONS * 64 + at % 3;
    uint8_t *bytes = (uint8_t *)(uintptr_t)places[at % REGIONS].host + offset;
    put_header(bytes, 48);
    spans[at] = (zap_span){regions[at % REGIONS], 48, offset};
    switch (at % 25) {
      case 0: spans[at].length = 15; break;
      case 5: bytes[2] = 'Q'; break;
      case 10: bytes[4] = 7; break;
      case 15: bytes[12] = 49; break;
      case 20: bytes[8] = 4; break;
      default: break;
    }
  }
  return count;
}

/* Polls to the end. */
static int32_t finish(int32_t handle, int32_t job, uint8_t *verdicts, uint32_t count) {
  for (int tries = 0; tries < 5000; tries++) {
    int32_t status = uma.check_poll(handle, job, verdicts, count);
    if (status != ZAP_E_AGAIN) return status;
    sleep_millis(1);
  }
  return ZAP_E_AGAIN;
}

/* What the latest device left behind. */
static void clean(const char *wanted) {
  const char *last = harness_reported();
  for (const char *next = last; (next = strstr(next, "release ")) != NULL; next++) last = next;
  CHECK_EQUAL(uma.live(), 0);
  CHECK_TEXT(last, wanted);
  harness_no_faults();
}
static const char none_left[] = "release device buffers=0 bytes=0 libraries=0 functions=0 pipelines=0 queues=0 commands=0 encoders=0";

static void metal_healthy(void) {
  static uint8_t on_device[SPANS];
  static uint8_t on_host[SPANS];
  harness_behave("metal: healthy", "name=Apple M2\nmemory=16777216");
  int32_t count = probe();
  CHECK_EQUAL(count, 4);
  (void)row(count, "Metal.framework", true);
  CHECK_TEXT(row(count, "Metal device", true)->seen, "Apple M2");
  (void)row(count, "unified memory", true);
  CHECK_TEXT(row(count, "Metal kernels", true)->seen, "compiled");
  clean(none_left);

  int32_t handle = open_device();
  CHECK(handle > 0);
  CHECK(strcmp(about.name, "Apple M2") == 0);
  CHECK_EQUAL(about.memory, ZAP_MEMORY_SHARED);
  CHECK_EQUAL(about.memory_bytes, 16777216);
  CHECK_EQUAL(about.flags, ZAP_UMA_INTEGRATED | ZAP_UMA_CONCURRENT | ZAP_UMA_KERNELS);
  CHECK_EQUAL(about.count, 1);
  fill(handle, SPANS);
  CHECK(places[0].device != places[0].host);
  static const uint32_t sizes[] = {1, 2, 127, 128, 129, 256, 257, SPANS};
  for (size_t at = 0; at < sizeof sizes / sizeof sizes[0]; at++) {
    memset(on_device, 9, sizeof on_device);
    int32_t job = uma.check_begin(handle, spans, sizes[at], 1);
    CHECK(job > 0);
    CHECK_EQUAL(finish(handle, job, on_device, sizes[at]), 0);
    CHECK_EQUAL(uma.check_host(handle, spans, sizes[at], 1, on_host), 0);
    CHECK(memcmp(on_device, on_host, sizes[at]) == 0);
    CHECK_EQUAL(uma.check_poll(handle, job, on_device, sizes[at]), ZAP_E_HANDLE);
  }
  static const uint8_t wanted[] = {1, 0, 0, 0, 0, 2, 0, 0, 0, 0, 3, 0, 0, 0, 0, 4, 0, 0, 0, 0, 5, 0, 0, 0, 0};
  for (int at = 0; at < SPANS; at++) CHECK_EQUAL(on_device[at], wanted[at % 25]);
  /* Version 7 among those asked for. */
  int32_t job = uma.check_begin(handle, spans, SPANS, 1 | 7ull << 48);
  CHECK_EQUAL(finish(handle, job, on_device, SPANS), 0);
  CHECK_EQUAL(on_device[10], 0);
  zap_region region;
  CHECK_EQUAL(uma.region_alloc(handle, ZAP_MEMORY_MANAGED, 4096, &region), ZAP_E_UNSUPPORTED);
  CHECK_EQUAL(uma.region_alloc(handle, ZAP_MEMORY_SHARED, 32 << 20, &region), ZAP_E_MEMORY);
  CHECK_TEXT(error(), "maxBufferLength 16777216");
  CHECK_EQUAL(uma.region_alloc(handle, ZAP_MEMORY_SHARED, 16777216, &region), ZAP_E_MEMORY);
  CHECK_TEXT(error(), "ZAP_UMA_POOL_BYTES");
  CHECK_EQUAL(uma.region_export(handle, regions[0]), ZAP_E_UNSUPPORTED);
  CHECK_EQUAL(uma.region_register(handle, places[0].host, 4096, &region), ZAP_E_UNSUPPORTED);
  CHECK_TEXT(error(), "memory cannot be registered with Apple M2");
  CHECK_EQUAL(uma.region_free(handle, regions[1]), 0);
  CHECK_EQUAL(uma.close(handle), 0);
  clean(none_left);
}

static void metal_late(void) {
  static uint8_t verdicts[SPANS];
  static uint8_t again[SPANS];
  harness_behave("metal: kernels that take a while", "kernel_millis=300");
  int32_t handle = open_device();
  fill(handle, SPANS);
  int32_t first = uma.check_begin(handle, spans, SPANS, 1);
  int32_t second = uma.check_begin(handle, spans, 10, 1);
  CHECK(first > 0 && second > 0);
  CHECK_EQUAL(uma.check_poll(handle, first, verdicts, SPANS), ZAP_E_AGAIN);
  CHECK_EQUAL(uma.fence_to_host(handle), 0);
  CHECK_EQUAL(uma.check_poll(handle, second, again, 10), 0);
  CHECK_EQUAL(uma.check_poll(handle, first, verdicts, SPANS), 0);
  CHECK(memcmp(verdicts, again, 10) == 0);
  CHECK_EQUAL(verdicts[5], 2);
  /* A region that goes while its kernel runs, and a device that closes with one running. */
  first = uma.check_begin(handle, spans, SPANS, 1);
  CHECK_EQUAL(uma.region_free(handle, regions[0]), 0);
  CHECK_EQUAL(uma.check_poll(handle, first, verdicts, SPANS), 0);
  CHECK_EQUAL(uma.check_begin(handle, spans, SPANS, 1), ZAP_E_HANDLE);
  spans[0] = spans[1];
  first = uma.check_begin(handle, spans, 2, 1);
  CHECK(first > 0);
  CHECK_EQUAL(uma.close(handle), 0);
  clean(none_left);
}

static void metal_no_kernels(const char *name, const char *behaviour, const char *reason) {
  harness_behave(name, behaviour);
  CHECK_TEXT(row(probe(), "Metal kernels", true)->seen, reason);
  int32_t handle = open_device();
  CHECK(handle > 0);
  CHECK_EQUAL(about.flags, ZAP_UMA_INTEGRATED | ZAP_UMA_CONCURRENT);
  zap_region region;
  int32_t piece = uma.region_alloc(handle, ZAP_MEMORY_SHARED, 4096, &region);
  if (strstr(behaviour, "newBuffer") == NULL) {
    zap_span span = {piece, 64, 0};
    uint8_t verdict = 9;
    CHECK(piece > 0);
    CHECK_EQUAL(uma.check_begin(handle, &span, 1, 1), ZAP_E_UNSUPPORTED);
    CHECK_EQUAL(uma.check_host(handle, &span, 1, 1, &verdict), 0);
    CHECK_EQUAL(verdict, 2);
  }
  if (strstr(behaviour, "gpuAddress") != NULL) CHECK_EQUAL(region.device, region.host);
  CHECK_EQUAL(uma.close(handle), 0);
  clean(none_left);
}

/* Whatever hangs is named, while opening, allocating and checking. */
static void metal_hangs(void) {
  static const char *const calls[] = {"MTLCreateSystemDefaultDevice",
                                      "name",
                                      "hasUnifiedMemory",
                                      "recommendedMaxWorkingSetSize",
                                      "maxBufferLength",
                                      "supportsFamily:",
                                      "contents",
                                      "gpuAddress",
                                      "newLibraryWithSource:options:error:",
                                      "newFunctionWithName:",
                                      "newComputePipelineStateWithFunction:error:",
                                      "maxTotalThreadsPerThreadgroup",
                                      "newCommandQueue",
                                      "commandBuffer",
                                      "computeCommandEncoder",
                                      "useResource:usage:",
                                      "dispatchThreadgroups:threadsPerThreadgroup:",
                                      "endEncoding",
                                      "commit"};
  for (size_t at = 0; at < sizeof calls / sizeof calls[0]; at++) {
    char lines[128];
    char wanted[128];
    zap_region region;
    (void)snprintf(lines, sizeof lines, "hang.%s=1", calls[at]);
    harness_behave(calls[at], lines);
    int32_t handle = uma.open(runtime, support, 0, 300, &about);
    int32_t status = handle < 0 ? handle : uma.region_alloc(handle, ZAP_MEMORY_SHARED, 4096, &region);
    if (status > 0) {
      zap_span span = {status, 16, 0};
      status = uma.check_begin(handle, &span, 1, 1);
    }
    CHECK_EQUAL(status, ZAP_E_TIMEOUT);
    (void)snprintf(wanted, sizeof wanted, "%s did not come back in time", calls[at]);
    CHECK(strncmp(error(), wanted, strlen(wanted)) == 0);
    if (handle > 0) CHECK_EQUAL(uma.close(handle), ZAP_E_TIMEOUT);
    CHECK_EQUAL(uma.live(), 0);
  }
}

static void metal_failures(void) {
  uint8_t verdicts[4];
  zap_region region;
  metal_no_kernels("metal: before macOS 13", "missing.gpuAddress=1", "gpuAddress");
  metal_no_kernels("metal: before Metal 3", "family.5001=0", "Metal 3");
  metal_no_kernels("metal: source not taken", "fail.newLibraryWithSource:options:error:=1", "program_source:1:1: error");
  metal_no_kernels("metal: no function", "fail.newFunctionWithName:=1", "zap_check_headers");
  metal_no_kernels("metal: no pipeline", "fail.newComputePipelineStateWithFunction:error:=1", "could not be compiled");
  metal_no_kernels("metal: no queue", "fail.newCommandQueue=1", "newCommandQueue");
  refuse("metal: no device", "devices=0", ZAP_E_DEVICE, "MTLCreateSystemDefaultDevice gave no device");
  (void)row(probe(), "Metal device", false);
  refuse("metal: not unified", "unified=0", ZAP_E_UNSUPPORTED, "hasUnifiedMemory");
  clean(none_left);
  CHECK_TEXT(row(probe(), "unified memory", false)->seen, "memory of its own");
  clean(none_left);

  harness_behave("metal: no command buffer", "fail.commandBuffer=1");
  int32_t handle = open_device();
  fill(handle, 4);
  CHECK_EQUAL(uma.check_begin(handle, spans, 4, 1), ZAP_E_DRIVER);
  CHECK_TEXT(error(), "commandBuffer gave nothing");
  CHECK_EQUAL(uma.close(handle), 0);
  clean(none_left);

  harness_behave("metal: no memory for a larger batch", "fail.newBufferWithLength:options:=1\nafter.newBufferWithLength:options:=4");
  handle = open_device();
  fill(handle, SPANS);
  CHECK_EQUAL(uma.check_begin(handle, spans, SPANS, 1), ZAP_E_MEMORY);
  int32_t job = uma.check_begin(handle, spans, 4, 1);
  CHECK_EQUAL(finish(handle, job, verdicts, 4), 0);
  CHECK_EQUAL(uma.region_alloc(handle, ZAP_MEMORY_SHARED, 4096, &region), ZAP_E_MEMORY);
  CHECK_TEXT(error(), "newBufferWithLength:options: gave no buffer");
  CHECK_EQUAL(uma.close(handle), 0);
  clean(none_left);

  harness_behave("metal: a kernel that faults", "kernel_fault=1");
  handle = open_device();
  fill(handle, 4);
  job = uma.check_begin(handle, spans, 4, 1);
  CHECK(job > 0);
  CHECK_EQUAL(finish(handle, job, verdicts, 4), ZAP_E_DRIVER);
  CHECK_TEXT(error(), "Caused GPU Address Fault Error");
  CHECK_EQUAL(uma.check_poll(handle, job, verdicts, 4), ZAP_E_HANDLE);
  CHECK_EQUAL(uma.close(handle), 0);
  clean(none_left);

  harness_behave("metal: a device that comes late", "delay.MTLCreateSystemDefaultDevice=1000");
  CHECK_EQUAL(uma.open(runtime, support, 0, 50, &about), ZAP_E_TIMEOUT);
  CHECK_TEXT(error(), "MTLCreateSystemDefaultDevice");
  /* It is let go of as soon as it is there. */
  for (int tries = 0; tries < 1000 && strstr(harness_reported(), "release") == NULL; tries++) sleep_millis(10);
  clean(none_left);

  /* Last, as their threads stay for ever. */
  harness_behave("metal: a wait that hangs", "hang.waitUntilCompleted=1\nkernel_millis=20");
  handle = uma.open(runtime, support, 0, 1500, &about);
  fill(handle, 4);
  CHECK(uma.check_begin(handle, spans, 4, 1) > 0);
  CHECK_EQUAL(uma.fence_to_host(handle), ZAP_E_TIMEOUT);
  CHECK_TEXT(error(), "waitUntilCompleted");
  CHECK_EQUAL(uma.check_begin(handle, spans, 4, 1), ZAP_E_TIMEOUT);
  CHECK_EQUAL(uma.close(handle), ZAP_E_TIMEOUT);
  CHECK_EQUAL(uma.live(), 0);
  metal_hangs();
}

/* The places of the system, as they lie below a made-up root. */
static void metal_below_a_root(const char *doubles) {
  const char *const places_of[] = {"root/System/Library/Frameworks/Metal.framework/Metal", "root/usr/lib/libobjc.A.dylib"};
  harness_copy(doubles, "Metal", places_of[0]);
  harness_copy(doubles, "libobjc.A.dylib", places_of[1]);
  harness_behave("metal: below a root", "");
  runtime = harness_path(places_of[0]);
  support = harness_path(places_of[1]);
  int32_t handle = open_device();
  CHECK(handle > 0);
  CHECK((about.flags & ZAP_UMA_KERNELS) != 0);
  CHECK_EQUAL(uma.close(handle), 0);
  CHECK_EQUAL(uma.open(runtime, "", 0, 1000, &about), ZAP_E_INVALID);
  CHECK_TEXT(error(), "libobjc");
  CHECK_EQUAL(uma.live(), 0);
}
