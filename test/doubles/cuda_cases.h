/* Part of doubles.test.c: the double of libcuda.so.1. */

static void *cuda;

/* Those that are tried here. */
#define FUNCTIONS(X)                                                                                                    \
  X(cuInit, (unsigned))                                                                                                 \
  X(cuDriverGetVersion, (int *))                                                                                        \
  X(cuDeviceGetCount, (int *))                                                                                          \
  X(cuDeviceGet, (int *, int))                                                                                          \
  X(cuDeviceGetName, (char *, int, int))                                                                                \
  X(cuDeviceGetAttribute, (int *, int, int))                                                                            \
  X(cuDevicePrimaryCtxRetain, (void **, int))                                                                           \
  X(cuDevicePrimaryCtxRelease_v2, (int))                                                                                \
  X(cuCtxSetCurrent, (void *))                                                                                          \
  X(cuGetErrorName, (int, const char **))                                                                               \
  X(cuMemAlloc_v2, (uint64_t *, size_t))                                                                                \
  X(cuMemAllocManaged, (uint64_t *, size_t, unsigned))                                                                  \
  X(cuMemFree_v2, (uint64_t))                                                                                           \
  X(cuMemHostAlloc, (void **, size_t, unsigned))                                                                        \
  X(cuMemFreeHost, (void *))                                                                                            \
  X(cuMemHostRegister_v2, (void *, size_t, unsigned))                                                                   \
  X(cuMemHostUnregister, (void *))                                                                                      \
  X(cuMemHostGetDevicePointer_v2, (uint64_t *, void *, unsigned))                                                       \
  X(cuMemGetHandleForAddressRange, (void *, uint64_t, size_t, int, unsigned long long))                                 \
  X(cuMemcpyHtoD_v2, (uint64_t, const void *, size_t))                                                                  \
  X(cuModuleLoadData, (void **, const void *))                                                                          \
  X(cuModuleGetFunction, (void **, void *, const char *))                                                               \
  X(cuModuleUnload, (void *))                                                                                           \
  X(cuStreamCreate, (void **, unsigned))                                                                                \
  X(cuStreamSynchronize, (void *))                                                                                      \
  X(cuEventCreate, (void **, unsigned))                                                                                 \
  X(cuEventRecord, (void *, void *))                                                                                    \
  X(cuEventQuery, (void *))                                                                                             \
  X(cuLaunchKernel, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **))

#define MEMBER(name, parameters) int(*name) parameters;
static struct {
  FUNCTIONS(MEMBER)
} api;

static void load_cuda(void) {
  void *address;
#define LOAD(name, parameters)  \
  address = find(cuda, #name);  \
  memcpy(&api.name, &address, sizeof address);
  FUNCTIONS(LOAD)
}

static const char ptx[] =
    ".version 7.8\n.target sm_70\n.address_size 64\n.visible .entry zap_check_headers(\n\t.param .u64 p0)\n{\n\tret;\n}\n";

struct target {
  uint64_t address;
  uint32_t length, reserved;
};

static void *context;

static void cuda_open(void) {
  CHECK_EQUAL(api.cuInit(0u), 0);
  CHECK_EQUAL(api.cuDevicePrimaryCtxRetain(&context, 0), 0);
  CHECK_EQUAL(api.cuCtxSetCurrent(context), 0);
}
static void cuda_close(void) {
  CHECK_EQUAL(api.cuCtxSetCurrent((void *)0), 0);
  CHECK_EQUAL(api.cuDevicePrimaryCtxRelease_v2(0), 0);
}

static void put_header(uint8_t *at, uint32_t size) {
  const uint8_t header[16] = {'Z', 'A', 'P', 0, 1, 0, 0, 0, 16, 0, 0, 0, (uint8_t)size, (uint8_t)(size >> 8), 0, 0};
  memcpy(at, header, sizeof header);
}

static void test_cuda_contexts(void) {
  uint64_t address = 0;
  const char *name = NULL;
  int value = 0;
  CHECK_EQUAL(api.cuDeviceGetCount(&value), 3); /* before cuInit */
  harness_behave("cuda: contexts", "name=Some GPU\nmemory=1048576\n");
  CHECK_EQUAL(api.cuInit(0u), 0);
  CHECK_EQUAL(api.cuMemAlloc_v2(&address, (size_t)4096), 201);
  CHECK_TEXT(harness_reported(), "fault: cuMemAlloc_v2 without a current context");
  cuda_open();
  char text[32] = "";
  CHECK_EQUAL(api.cuDeviceGetName(text, 32, 0), 0);
  CHECK(strcmp(text, "Some GPU") == 0);
  CHECK_EQUAL(api.cuDeviceGet(&value, 1), 101);
  CHECK_EQUAL(api.cuMemAlloc_v2(&address, (size_t)2 << 20), 2);
  CHECK_EQUAL(api.cuMemAllocManaged(&address, (size_t)4096, 1u), 0);
  CHECK_EQUAL(api.cuMemFree_v2(address), 0);
  CHECK_EQUAL(api.cuMemFree_v2(address), 1);
  CHECK_TEXT(harness_reported(), "not allocated (any more)");
  CHECK_EQUAL(api.cuMemAllocManaged(&address, (size_t)4096, 1u), 0);
  CHECK_EQUAL(api.cuMemFreeHost((void *)(uintptr_t)address), 1);
  CHECK_TEXT(harness_reported(), "memory of another kind");
  CHECK_EQUAL(api.cuGetErrorName(709, &name), 0);
  CHECK(name != NULL && strcmp(name, "CUDA_ERROR_CONTEXT_IS_DESTROYED") == 0);
  CHECK_EQUAL(api.cuDevicePrimaryCtxRelease_v2(0), 0);
  CHECK_TEXT(harness_reported(), "release device=0 blocks=1 bytes=4096");
  CHECK_EQUAL(api.cuMemAlloc_v2(&address, (size_t)4096), 709);
  CHECK_TEXT(harness_reported(), "after its context was released");
  CHECK_EQUAL(api.cuCtxSetCurrent((void *)0), 0);
}

static void test_cuda_attributes(void) {
  int value = -1;
  harness_behave("cuda: attributes", "driver=11040\nattribute.18=1\n");
  CHECK_EQUAL(api.cuInit(0u), 0);
  CHECK_EQUAL(api.cuDeviceGetAttribute(&value, 18, 0), 0);
  CHECK_EQUAL(value, 1);
  CHECK_EQUAL(api.cuDeviceGetAttribute(&value, 89, 0), 0);
  CHECK_EQUAL(value, 1);
  CHECK_EQUAL(api.cuDeviceGetAttribute(&value, 124, 0), 1); /* came with 11.7 */
  CHECK_EQUAL(api.cuDriverGetVersion(&value), 0);
  CHECK_EQUAL(value, 11040);
  harness_behave("cuda: no device", "devices=0");
  CHECK_EQUAL(api.cuInit(0u), 100);
  harness_behave("cuda: a call that fails after two", "fail.cuDeviceGetCount=999\nafter.cuDeviceGetCount=2");
  CHECK_EQUAL(api.cuInit(0u), 0);
  CHECK_EQUAL(api.cuDeviceGetCount(&value), 0);
  CHECK_EQUAL(api.cuDeviceGetCount(&value), 0);
  CHECK_EQUAL(api.cuDeviceGetCount(&value), 999);
  CHECK_EQUAL(api.cuDeviceGetCount(&value), 999);
}

static void touch(void *address) { *(volatile uint8_t *)address = 1; }

static void test_cuda_memory(void) {
  uint64_t device = 0;
  uint64_t seen = 0;
  void *host = NULL;
  int fd = -1;
  harness_behave("cuda: memory", "alias=1");
  cuda_open();
  CHECK_EQUAL(api.cuMemAlloc_v2(&device, (size_t)65536), 0);
  CHECK_EQUAL(harness_signal_of(touch, (void *)(uintptr_t)device), SIGSEGV);
  CHECK_EQUAL(api.cuMemcpyHtoD_v2(device, "some bytes", (size_t)11), 0);
  CHECK_EQUAL(api.cuMemGetHandleForAddressRange(&fd, device, (size_t)65536, 1, 0ull), 0);
  char text[11] = "";
  CHECK_EQUAL(pread(fd, text, sizeof text, 0), (ssize_t)sizeof text);
  CHECK(strcmp(text, "some bytes") == 0);
  (void)close(fd);
  CHECK_EQUAL(api.cuMemGetHandleForAddressRange(&fd, device + 1, (size_t)65536, 1, 0ull), 1);
  CHECK_EQUAL(api.cuMemHostAlloc(&host, (size_t)4096, 3u), 0);
  CHECK_EQUAL(api.cuMemHostGetDevicePointer_v2(&seen, host, 0u), 0);
  CHECK(seen != 0 && seen != (uint64_t)(uintptr_t)host);
  CHECK_EQUAL(api.cuMemGetHandleForAddressRange(&fd, seen, (size_t)4096, 1, 0ull), 801);
  touch(host);
  CHECK_EQUAL(api.cuMemFreeHost(host), 0);
  CHECK_EQUAL(api.cuMemFree_v2(device), 0);
  /* Reserved, not touched: more than this host has. */
  CHECK_EQUAL(api.cuMemAllocManaged(&device, (size_t)1 << 40, 1u), 0);
  touch((void *)(uintptr_t)(device + ((size_t)1 << 39)));
  CHECK_EQUAL(api.cuMemFree_v2(device), 0);
  cuda_close();
  CHECK_TEXT(harness_reported(), "release device=0 blocks=0 bytes=0 streams=0 events=0 modules=0");
  harness_no_faults();
}

/* Memory of the caller's: once only, where it is, and not gone before it was unregistered. */
static void test_cuda_registered(void) {
  enum { BYTES = 16384 };
  uint64_t seen = 0;
  harness_behave("cuda: registered memory", "");
  cuda_open();
  uint8_t *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  CHECK_EQUAL(api.cuMemHostRegister_v2(memory, (size_t)BYTES, 16u), 1);
  CHECK_EQUAL(api.cuMemHostRegister_v2(memory, (size_t)0, 3u), 1);
  CHECK_EQUAL(api.cuMemHostRegister_v2(memory, (size_t)BYTES, 3u), 0);
  CHECK_EQUAL(api.cuMemHostRegister_v2(memory, (size_t)BYTES, 3u), 712);
  CHECK_EQUAL(api.cuMemHostRegister_v2(memory + 4096, (size_t)4096, 3u), 712);
  CHECK_EQUAL(api.cuMemHostGetDevicePointer_v2(&seen, memory + 100, 0u), 0);
  CHECK_EQUAL(seen, (uint64_t)(uintptr_t)memory + 100);
  CHECK_EQUAL(api.cuMemHostUnregister(memory), 0);
  touch(memory);
  CHECK_EQUAL(api.cuMemHostGetDevicePointer_v2(&seen, memory, 0u), 1);
  /* Not for the device. */
  CHECK_EQUAL(api.cuMemHostRegister_v2(memory, (size_t)BYTES, 1u), 0);
  CHECK_EQUAL(api.cuMemHostGetDevicePointer_v2(&seen, memory, 0u), 1);
  CHECK_EQUAL(api.cuMemHostUnregister(memory), 0);
  harness_no_faults();
  CHECK_EQUAL(api.cuMemHostUnregister(memory), 713);
  CHECK_TEXT(harness_reported(), "cuMemHostUnregister of 0x");
  CHECK_EQUAL(api.cuMemHostRegister_v2(memory, (size_t)BYTES, 3u), 0);
  CHECK_EQUAL(api.cuMemHostUnregister(memory + 4096), 713);
  CHECK_EQUAL(api.cuMemFreeHost(memory), 1);
  /* Gone while it is registered; and what is not there cannot be. */
  CHECK_EQUAL(munmap(memory + 4096, 4096), 0);
  CHECK_EQUAL(api.cuMemHostUnregister(memory), 0);
  CHECK_TEXT(harness_reported(), "was unmapped while it was registered");
  CHECK_EQUAL(api.cuMemHostRegister_v2(memory, (size_t)BYTES, 3u), 1);
  CHECK_EQUAL(api.cuMemHostRegister_v2(memory, (size_t)4096, 3u), 0);
  cuda_close();
  CHECK_TEXT(harness_reported(), "release device=0 blocks=1 bytes=4096");
  (void)munmap(memory, BYTES);

  harness_behave("cuda: registered memory with another address", "alias=1");
  cuda_open();
  memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK_EQUAL(api.cuMemHostRegister_v2(memory, (size_t)BYTES, 3u), 0);
  CHECK_EQUAL(api.cuMemHostGetDevicePointer_v2(&seen, memory, 0u), 0);
  CHECK(seen != (uint64_t)(uintptr_t)memory);
  CHECK_EQUAL(harness_signal_of(touch, (void *)(uintptr_t)seen), SIGSEGV);
  CHECK_EQUAL(api.cuMemcpyHtoD_v2(seen + 4096, "some bytes", (size_t)11), 0);
  CHECK(strcmp((char *)memory + 4096, "some bytes") == 0);
  CHECK_EQUAL(api.cuMemHostUnregister(memory), 0);
  touch(memory);
  (void)munmap(memory, BYTES);
  cuda_close();
  harness_no_faults();
  harness_behave("cuda: no registering", "attribute.99=0");
  cuda_open();
  CHECK_EQUAL(api.cuMemHostRegister_v2(&seen, sizeof seen, 3u), 801);
  cuda_close();
  harness_no_faults();
}

static void test_cuda_modules(void) {
  void *module = NULL;
  void *function = NULL;
  harness_behave("cuda: modules", "driver=11070");
  cuda_open();
  CHECK_EQUAL(api.cuModuleLoadData(&module, ptx), 222);
  cuda_close();
  harness_behave("cuda: modules", "attribute.75=6");
  cuda_open();
  CHECK_EQUAL(api.cuModuleLoadData(&module, ptx), 218);
  cuda_close();
  harness_behave("cuda: modules", "");
  cuda_open();
  CHECK_EQUAL(api.cuModuleLoadData(&module, "no ptx"), 200);
  CHECK_EQUAL(api.cuModuleLoadData(&module, ptx), 0);
  CHECK_EQUAL(api.cuModuleGetFunction(&function, module, "zap_check"), 500);
  CHECK_EQUAL(api.cuModuleGetFunction(&function, module, "zap_check_headers"), 0);
  CHECK_EQUAL(api.cuModuleUnload(module), 0);
  CHECK_EQUAL(api.cuModuleUnload(module), 400);
  CHECK_TEXT(harness_reported(), "cuModuleUnload with a handle that is not open");
  cuda_close();
}

/* Launches the kernel over `targets` at a device address. */
static int launch(void *function, void *stream, uint64_t targets, uint64_t verdicts, uint32_t count) {
  uint64_t versions = 1;
  void *parameters[] = {&targets, &versions, &verdicts, &count};
  int code = api.cuLaunchKernel(function, 1u, 1u, 1u, 128u, 1u, 1u, 0u, stream, parameters, (void *)0);
  /* A driver has its copy by now. */
  targets = verdicts = versions = 0;
  count = 77;
  return code;
}

static void test_cuda_kernels(const char *behaviour, bool late, bool strict) {
  void *module = NULL;
  void *function = NULL;
  void *stream = NULL;
  void *event = NULL;
  uint64_t memory = 0;
  harness_behave("cuda: kernels", behaviour);
  cuda_open();
  CHECK_EQUAL(api.cuModuleLoadData(&module, ptx), 0);
  CHECK_EQUAL(api.cuModuleGetFunction(&function, module, "zap_check_headers"), 0);
  CHECK_EQUAL(api.cuStreamCreate(&stream, 1u), 0);
  CHECK_EQUAL(api.cuEventCreate(&event, 2u), 0);
  CHECK_EQUAL(api.cuMemAllocManaged(&memory, (size_t)65536, 1u), 0);
  uint8_t *bytes = (uint8_t *)(uintptr_t)memory;
  struct target *targets = (struct target *)(void *)bytes;
  for (uint32_t at = 0; at < 3; at++) {
    targets[at] = (struct target){memory + 4096 + 64 * at, 64, 0};
    put_header(bytes + 4096 + 64 * at, 16);
  }
  bytes[4096 + 64] = 'Y';
  targets[2].length = 15;
  CHECK_EQUAL(api.cuEventQuery(event), 0); /* never recorded */
  CHECK_EQUAL(launch(function, stream, memory, memory + 1024, 3), 0);
  CHECK_EQUAL(api.cuEventRecord(event, stream), 0);
  if (strict) CHECK_EQUAL(harness_signal_of(touch, bytes), SIGSEGV);
  if (late) CHECK_EQUAL(api.cuEventQuery(event), 600);
  CHECK_EQUAL(api.cuStreamSynchronize(stream), 0);
  CHECK_EQUAL(api.cuEventQuery(event), 0);
  CHECK_EQUAL(bytes[1024], 0);
  CHECK_EQUAL(bytes[1025], 2);
  CHECK_EQUAL(bytes[1026], 1);
  /* An address of nothing: this call may pass, the next that looks does not. */
  targets[0].address = 64;
  CHECK_EQUAL(launch(function, stream, memory, memory + 1024, 3), 0);
  CHECK_EQUAL(api.cuStreamSynchronize(stream), 700);
  CHECK_EQUAL(api.cuMemFree_v2(memory), 700);
  CHECK_TEXT(harness_reported(), "touched memory that is not there");
  cuda_close();
  CHECK_TEXT(harness_reported(), "release device=0 blocks=1 bytes=65536 streams=1 events=1 modules=1");
}

static void hang(void *unused) {
  (void)unused;
  (void)alarm(1);
  (void)api.cuInit(0u);
}
