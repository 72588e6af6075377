/* Part of hip_metal_test.c: HIP. */

static void hip_healthy(void) {
  zap_region managed;
  zap_region device;
  harness_behave("hip: healthy", "name=Instinct\nmemory=1073741824");
  int32_t count = probe();
  CHECK_EQUAL(count, 4);
  (void)row(count, "libamdhip64.so", true);
  CHECK_TEXT(row(count, "HIP runtime", true)->seen, "HIP 6.3");
  CHECK_TEXT(row(count, "HIP device", true)->seen, "Instinct");
  CHECK_TEXT(row(count, "unified memory", true)->seen, "managed");

  int32_t handle = open_device();
  CHECK(handle > 0);
  CHECK(strcmp(about.name, "Instinct") == 0);
  CHECK_EQUAL(about.memory, ZAP_MEMORY_MANAGED);
  CHECK_EQUAL(about.flags, ZAP_UMA_MANAGED | ZAP_UMA_CONCURRENT | ZAP_UMA_PAGEABLE);
  CHECK_EQUAL(about.memory_bytes, 1073741824);
  CHECK_EQUAL(about.count, 1);
  CHECK_EQUAL(about.driver, 60342134);
  int32_t region = uma.region_alloc(handle, ZAP_MEMORY_MANAGED, 100000, &managed);
  CHECK(region > 0);
  CHECK(managed.host != 0 && managed.host % 4096 == 0 && managed.host == managed.device && managed.bytes >= 100000);
  uint8_t *bytes = (uint8_t *)(uintptr_t)managed.host;
  put_header(bytes + 8, 16);
  zap_span spans[2] = {{region, 16, 8}, {region, 64, 64}};
  uint8_t verdicts[2] = {9, 9};
  CHECK_EQUAL(uma.check_host(handle, spans, 2, 1, verdicts), 0);
  CHECK_EQUAL(verdicts[0], 0);
  CHECK_EQUAL(verdicts[1], 2);
  CHECK_EQUAL(uma.check_begin(handle, spans, 2, 1), ZAP_E_UNSUPPORTED);
  CHECK_TEXT(error(), "runs no kernels");
  CHECK_EQUAL(uma.fence_to_device(handle), 0);
  CHECK_EQUAL(uma.fence_to_host(handle), 0);
  CHECK_EQUAL(uma.region_export(handle, region), ZAP_E_UNSUPPORTED);
  CHECK_TEXT(error(), "only the GPU's own memory");
  int32_t own = uma.region_alloc(handle, ZAP_MEMORY_DEVICE, 65536, &device);
  CHECK(own > 0 && device.host == 0 && device.device != 0);
  CHECK_EQUAL(uma.region_export(handle, own), ZAP_E_UNSUPPORTED);
  CHECK_TEXT(error(), "ROCm 7");
  CHECK_EQUAL(uma.region_alloc(handle, ZAP_MEMORY_SHARED, 4096, &device), ZAP_E_UNSUPPORTED);
  CHECK_EQUAL(uma.region_alloc(handle, ZAP_MEMORY_MANAGED, 2ull << 30, &device), ZAP_E_MEMORY);
  CHECK_TEXT(error(), "hipMallocManaged failed with hipErrorOutOfMemory (2)");
  CHECK_TEXT(error(), "ZAP_UMA_POOL_BYTES");
  CHECK_EQUAL(uma.region_free(handle, region), 0);
  CHECK_EQUAL(uma.region_free(handle, region), ZAP_E_HANDLE);
  /* The other is left to close. */
  CHECK_EQUAL(uma.close(handle), 0);
  CHECK_EQUAL(uma.close(handle), ZAP_E_HANDLE);
  CHECK_EQUAL(uma.live(), 0);
  CHECK_TEXT(harness_reported(), "release blocks=0 bytes=0");
  harness_no_faults();
}

static void hip_host_memory(void) {
  zap_region region;
  harness_behave("hip: no concurrent managed access", "attribute.9=0\nattribute.16=1\nalias=1");
  CHECK_TEXT(row(probe(), "unified memory", true)->seen, "page-locked host memory");
  int32_t handle = open_device();
  CHECK_EQUAL(about.memory, ZAP_MEMORY_HOST);
  CHECK_EQUAL(about.flags, ZAP_UMA_MANAGED | ZAP_UMA_PAGEABLE | ZAP_UMA_INTEGRATED);
  CHECK(uma.region_alloc(handle, ZAP_MEMORY_HOST, 4096, &region) > 0);
  CHECK(region.host % 4096 == 0 && region.device != 0 && region.device != region.host);
  memset((void *)(uintptr_t)region.host, 1, 4096);
  CHECK_EQUAL(uma.close(handle), 0);
  CHECK_TEXT(harness_reported(), "release blocks=0");

  harness_behave("hip: no managed memory", "attribute.24=0");
  handle = open_device();
  CHECK_EQUAL(about.memory, ZAP_MEMORY_HOST);
  CHECK_EQUAL(uma.region_alloc(handle, ZAP_MEMORY_MANAGED, 4096, &region), ZAP_E_UNSUPPORTED);
  CHECK_TEXT(error(), "HMM");
  CHECK_EQUAL(uma.close(handle), 0);

  harness_behave("hip: no device address", "attribute.24=0\nfail.hipHostGetDevicePointer=1");
  CHECK_TEXT(row(probe(), "unified memory", false)->seen, "hipHostGetDevicePointer failed with hipErrorInvalidValue (1)");
  handle = open_device();
  CHECK_EQUAL(uma.region_alloc(handle, ZAP_MEMORY_HOST, 4096, &region), ZAP_E_DRIVER);
  CHECK_TEXT(harness_reported(), "release blocks=0");
  CHECK_EQUAL(uma.close(handle), 0);
  CHECK_EQUAL(uma.live(), 0);
  harness_no_faults();
}

static void hip_registered(void) {
  enum { BYTES = 65536 };
  zap_region region;
  harness_behave("hip: registered memory", "alias=1");
  int32_t handle = open_device();
  uint8_t *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  const uint64_t host = (uint64_t)(uintptr_t)memory;
  CHECK_EQUAL(uma.region_register(handle, host + 1, BYTES, &region), ZAP_E_INVALID);
  int32_t own = uma.region_register(handle, host, BYTES, &region);
  CHECK(own > 0);
  CHECK(region.host == host && region.device != 0 && region.device != host && region.bytes == BYTES);
  CHECK_EQUAL(region.memory, ZAP_MEMORY_HOST);
  put_header(memory + 5000, 16);
  const zap_span span = {.region = own, .offset = 5000, .length = 16};
  uint8_t verdict = 9;
  CHECK_EQUAL(uma.check_host(handle, &span, 1, 1, &verdict), 0);
  CHECK_EQUAL(verdict, 0);
  CHECK_EQUAL(uma.region_export(handle, own), ZAP_E_UNSUPPORTED);
  CHECK_EQUAL(uma.region_register(handle, host, BYTES, &region), ZAP_E_DRIVER);
  CHECK_TEXT(error(), "hipHostRegister failed with hipErrorHostMemoryAlreadyRegistered (712)");
  CHECK_EQUAL(uma.region_free(handle, own), 0);
  memory[0] = 1;
  CHECK(uma.region_register(handle, host, BYTES, &region) > 0);
  CHECK_EQUAL(uma.close(handle), 0);
  CHECK_TEXT(harness_reported(), "release blocks=0 bytes=0");
  harness_no_faults();
  memory[0] = 2;

  const struct {
    const char *lines;
    int32_t status;
    const char *part;
  } cases[] = {{"fail.hipHostRegister=801", ZAP_E_UNSUPPORTED, "hipHostRegister failed with hipErrorNotSupported (801)"},
               {"fail.hipHostRegister=1", ZAP_E_DRIVER, "hipHostRegister failed with hipErrorInvalidValue (1)"},
               {"fail.hipHostGetDevicePointer=1", ZAP_E_DRIVER, "hipHostGetDevicePointer failed with hipErrorInvalidValue (1)"},
               {"hang.hipHostRegister=1", ZAP_E_TIMEOUT, "hipHostRegister did not come back in time"},
               /* The last two leave it registered, whatever they say. */
               {"fail.hipHostUnregister=713", ZAP_E_DRIVER, "hipHostUnregister failed with hipErrorHostMemoryNotRegistered (713)"},
               {"hang.hipHostUnregister=1", ZAP_E_TIMEOUT, "hipHostUnregister did not come back in time"}};
  for (size_t at = 0; at < sizeof cases / sizeof cases[0]; at++) {
    harness_behave(cases[at].part, cases[at].lines);
    memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    handle = uma.open(runtime, support, 0, 300, &about);
    int32_t status = uma.region_register(handle, (uint64_t)(uintptr_t)memory, BYTES, &region);
    if (status > 0) status = uma.region_free(handle, status);
    CHECK_EQUAL(status, cases[at].status);
    CHECK_TEXT(error(), cases[at].part);
    CHECK_EQUAL(uma.close(handle), status == ZAP_E_TIMEOUT ? ZAP_E_TIMEOUT : 0);
    CHECK_EQUAL(uma.live(), 0);
    harness_no_faults();
  }
}

static void hip_export(void) {
  zap_region region;
  struct stat file;
  harness_behave("hip: dma-buf", "runtime=70200000");
  int32_t handle = open_device();
  CHECK((about.flags & ZAP_UMA_DMA_BUF) != 0);
  int32_t own = uma.region_alloc(handle, ZAP_MEMORY_DEVICE, 65536, &region);
  int32_t fd = uma.region_export(handle, own);
  CHECK(fd >= 0);
  CHECK(fd >= 0 && fstat(fd, &file) == 0 && file.st_size == 65536);
  if (fd >= 0) (void)close(fd);
  CHECK_EQUAL(uma.close(handle), 0);
  harness_no_faults();
}

static void hip_failures(void) {
  refuse("hip: no device", "devices=0", ZAP_E_DEVICE, "hipInit failed with hipErrorNoDevice (100)");
  CHECK_TEXT(error(), "HIP_VISIBLE_DEVICES");
  CHECK_TEXT(row(probe(), "HIP runtime", false)->seen, "hipErrorNoDevice");
  refuse("hip: too old", "runtime=40521151", ZAP_E_DRIVER, "older than ROCm 5.0");
  CHECK_TEXT(row(probe(), "HIP runtime", false)->fix, "ROCm 5.0");
  refuse("hip: driver of another version", "fail.hipInit=35", ZAP_E_DRIVER, "hipErrorInsufficientDriver (35)");
  refuse("hip: no count", "fail.hipGetDeviceCount=999", ZAP_E_DRIVER, "hipGetDeviceCount failed");
  refuse("hip: no name", "fail.hipDeviceGetName=1", ZAP_E_DRIVER, "hipDeviceGetName failed");
  refuse("hip: no size", "fail.hipDeviceTotalMem=1", ZAP_E_DRIVER, "hipDeviceTotalMem failed");
  refuse("hip: not that device", "fail.hipSetDevice=101", ZAP_E_DEVICE, "hipSetDevice failed");

  const struct {
    uint32_t memory;
    const char *call;
  } kinds[] = {{ZAP_MEMORY_MANAGED, "hipFree"}, {ZAP_MEMORY_DEVICE, "hipFree"}, {ZAP_MEMORY_HOST, "hipHostFree"}};
  for (size_t at = 0; at < sizeof kinds / sizeof kinds[0]; at++) {
    char lines[64];
    char part[64];
    zap_region region;
    (void)snprintf(lines, sizeof lines, "fail.%s=719", kinds[at].call);
    harness_behave("hip: a free that fails", lines);
    int32_t handle = open_device();
    int32_t kept = uma.region_alloc(handle, kinds[at].memory, 4096, &region);
    CHECK(kept > 0);
    CHECK_EQUAL(uma.region_free(handle, kept), ZAP_E_DRIVER);
    (void)snprintf(part, sizeof part, "%s failed with hipErrorLaunchFailure (719)", kinds[at].call);
    CHECK_TEXT(error(), part);
    CHECK_EQUAL(uma.region_free(handle, kept), ZAP_E_HANDLE);
    CHECK_EQUAL(uma.close(handle), 0);
    CHECK_EQUAL(uma.live(), 0);
    harness_no_faults();
  }

  /* Last, as its thread stays for ever. */
  harness_behave("hip: a runtime that hangs", "hang.hipInit=1");
  int32_t count = uma.probe(runtime, support, 0, 100, rows, 16);
  CHECK_TEXT(row(count, "driver", false)->seen, "hipInit");
  CHECK_EQUAL(uma.open(runtime, support, 0, 100, &about), ZAP_E_TIMEOUT);
  CHECK_TEXT(error(), "hipInit");
  CHECK_EQUAL(uma.live(), 0);
}
