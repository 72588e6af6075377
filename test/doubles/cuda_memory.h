/* Part of cuda.c: memory. */

static CUresult block_new(uint32_t kind, size_t bytes, double_block **out) {
  if (bytes == 0) return INVALID_VALUE;
  *out = double_memory_new(kind, bytes, current());
  return *out == NULL ? OUT_OF_MEMORY : SUCCESS;
}

DOUBLE_EXPORT CUresult cuMemAllocManaged(CUdeviceptr *out, size_t bytes, unsigned flags) {
  ENTER_CONTEXT("cuMemAllocManaged");
  if (out == NULL || (flags != 1 && flags != 2)) return INVALID_VALUE;
  if (attribute_of(83) == 0) return NOT_SUPPORTED;
  double_block *block;
  CUresult code = block_new(DOUBLE_MANAGED, bytes, &block);
  if (code == SUCCESS) *out = (CUdeviceptr)(uintptr_t)block->device;
  return code;
}

DOUBLE_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes) {
  ENTER_CONTEXT("cuMemAlloc_v2");
  if (out == NULL) return INVALID_VALUE;
  double_block *block;
  CUresult code = block_new(DOUBLE_DEVICE, bytes, &block);
  if (code == SUCCESS) *out = (CUdeviceptr)(uintptr_t)block->device;
  return code;
}

/* Flags: portable 1, mapped for the device 2, write-combined 4. */
DOUBLE_EXPORT CUresult cuMemHostAlloc(void **out, size_t bytes, unsigned flags) {
  ENTER_CONTEXT("cuMemHostAlloc");
  if (out == NULL || flags > 7) return INVALID_VALUE;
  double_block *block;
  CUresult code = block_new(DOUBLE_HOST, bytes, &block);
  if (code != SUCCESS) return code;
  block->flags = flags;
  *out = block->host;
  return SUCCESS;
}

DOUBLE_EXPORT CUresult cuMemAllocHost_v2(void **out, size_t bytes) {
  ENTER_CONTEXT("cuMemAllocHost_v2");
  if (out == NULL) return INVALID_VALUE;
  double_block *block;
  CUresult code = block_new(DOUBLE_HOST, bytes, &block);
  if (code == SUCCESS) *out = block->host;
  return code;
}

/* Frees wait for what runs, as the driver's do; a wrong address is a fault of the caller, a second free among them. */
static CUresult block_free(const char *call, uint64_t address, uint32_t kind, uint32_t or_kind, CUresult wrong) {
  double_wait(double_submitted());
  double_block *block = double_memory_find(address, false);
  if (block == NULL || (block->kind != kind && block->kind != or_kind)) {
    double_report("fault: %s of 0x%llx, which is %s", call, (unsigned long long)address,
                  block == NULL ? "not allocated (any more)" : "memory of another kind");
    return wrong;
  }
  double_memory_free(block);
  return SUCCESS;
}

DOUBLE_EXPORT CUresult cuMemFree_v2(CUdeviceptr address) {
  ENTER_CONTEXT("cuMemFree_v2");
  if (address == 0) return SUCCESS;
  return block_free("cuMemFree_v2", address, DOUBLE_MANAGED, DOUBLE_DEVICE, INVALID_VALUE);
}

DOUBLE_EXPORT CUresult cuMemFreeHost(void *address) {
  ENTER_CONTEXT("cuMemFreeHost");
  return block_free("cuMemFreeHost", (uint64_t)(uintptr_t)address, DOUBLE_HOST, DOUBLE_HOST, INVALID_VALUE);
}

/* Flags: portable 1, mapped for the device 2, I/O memory 4, read-only 8. */
DOUBLE_EXPORT CUresult cuMemHostRegister_v2(void *host, size_t bytes, unsigned flags) {
  ENTER_CONTEXT("cuMemHostRegister_v2");
  if (host == NULL || bytes == 0 || flags > 15) return INVALID_VALUE;
  if (attribute_of(99) == 0) return NOT_SUPPORTED;
  double_block *block;
  switch (double_memory_register(host, bytes, current(), &block)) {
    case DOUBLE_TAKEN: block->flags = flags; return SUCCESS;
    case DOUBLE_OVERLAPS: return HOST_MEMORY_ALREADY_REGISTERED;
    case DOUBLE_NOT_THERE: return INVALID_VALUE;
    default: return NOT_SUPPORTED;
  }
}

DOUBLE_EXPORT CUresult cuMemHostUnregister(void *host) {
  ENTER_CONTEXT("cuMemHostUnregister");
  const double_block *block = double_memory_find((uint64_t)(uintptr_t)host, false);
  if (block != NULL && block->kind == DOUBLE_REGISTERED && !double_memory_there(block))
    double_report("fault: memory at %p was unmapped while it was registered", host);
  return block_free("cuMemHostUnregister", (uint64_t)(uintptr_t)host, DOUBLE_REGISTERED, DOUBLE_REGISTERED,
                    HOST_MEMORY_NOT_REGISTERED);
}

DOUBLE_EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *host, unsigned flags) {
  ENTER_CONTEXT("cuMemHostGetDevicePointer_v2");
  if (out == NULL || flags != 0) return INVALID_VALUE;
  double_block *block = double_memory_find((uint64_t)(uintptr_t)host, true);
  if (block == NULL || (block->kind != DOUBLE_HOST && block->kind != DOUBLE_REGISTERED)) return INVALID_VALUE;
  /* Not mapped for the device: a real one may have an address for it all the same. */
  if (block->kind == DOUBLE_REGISTERED && (block->flags & 2) == 0) return INVALID_VALUE;
  *out = (CUdeviceptr)(uintptr_t)(block->device + ((uint8_t *)host - block->host));
  return SUCCESS;
}

DOUBLE_EXPORT CUresult cuMemHostGetFlags(unsigned *flags, void *host) {
  ENTER_CONTEXT("cuMemHostGetFlags");
  double_block *block = double_memory_find((uint64_t)(uintptr_t)host, true);
  if (flags == NULL || block == NULL || block->kind != DOUBLE_HOST) return INVALID_VALUE;
  *flags = block->flags;
  return SUCCESS;
}

DOUBLE_EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
  ENTER_CONTEXT("cuMemGetInfo_v2");
  if (free_bytes == NULL || total == NULL) return INVALID_VALUE;
  *total = (size_t)double_number("memory", INT64_C(150121545728));
  uint64_t used = double_memory_used();
  *free_bytes = used > *total ? 0 : *total - (size_t)used;
  return SUCCESS;
}

DOUBLE_EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address) {
  ENTER_CONTEXT("cuMemGetAddressRange_v2");
  double_block *block = double_memory_find(address, true);
  if (block == NULL) return INVALID_VALUE;
  if (base != NULL) *base = (CUdeviceptr)(uintptr_t)block->device;
  if (bytes != NULL) *bytes = block->bytes;
  return SUCCESS;
}

/*
 * The "dma-buf" is the memory file behind the block. Address and size must be whole pages; managed memory cannot be exported, and
 * host memory only with attribute 146. Handle type 1 is a dma-buf; flag 1 maps it through PCIe.
 */
DOUBLE_EXPORT CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr address, size_t bytes, int type,
                                                     unsigned long long flags) {
  ENTER_CONTEXT("cuMemGetHandleForAddressRange");
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  double_block *block = double_memory_find(address, true);
  if (handle == NULL || type != 1 || flags > 1 || address % page != 0 || bytes % page != 0 || bytes == 0) return INVALID_VALUE;
  if (block == NULL || address - (uint64_t)(uintptr_t)block->device + bytes > block->mapped) return INVALID_VALUE;
  bool can = block->kind == DOUBLE_DEVICE ? attribute_of(124) > 0 : block->kind == DOUBLE_HOST && attribute_of(146) > 0;
  if (!can) return NOT_SUPPORTED;
  int fd = fcntl(block->fd, F_DUPFD_CLOEXEC, 3);
  if (fd < 0) return 304;
  *(int *)handle = fd;
  return SUCCESS;
}

/* Of the many attributes, those that a program asks for before it registers memory with a NIC. */
DOUBLE_EXPORT CUresult cuPointerGetAttribute(void *data, int attribute, CUdeviceptr address) {
  ENTER_CONTEXT("cuPointerGetAttribute");
  double_block *block = double_memory_find(address, true);
  if (data == NULL || block == NULL) return INVALID_VALUE;
  bool on_device = block->kind == DOUBLE_DEVICE || block->kind == DOUBLE_MANAGED;
  switch (attribute) {
    case 1: *(context **)data = block->owner; break;
    case 2: *(unsigned *)data = on_device ? 2 : 1; break; /* memory type: device, host */
    case 3: *(CUdeviceptr *)data = (uintptr_t)block->device + (address - (uintptr_t)block->device); break;
    case 4: *(void **)data = block->host; break;
    case 6: *(unsigned *)data = block->flags >> 31; break; /* synchronous memory operations */
    case 8: *(unsigned *)data = block->kind == DOUBLE_MANAGED; break;
    case 9: *(int *)data = ((context *)block->owner)->device; break;
    case 11: *(CUdeviceptr *)data = (uintptr_t)block->device; break;
    case 12: *(size_t *)data = block->bytes; break;
    case 15: *(unsigned *)data = block->kind == DOUBLE_DEVICE && attribute_of(116) > 0; break;
    default: return NOT_SUPPORTED;
  }
  return SUCCESS;
}

DOUBLE_EXPORT CUresult cuPointerSetAttribute(const void *value, int attribute, CUdeviceptr address) {
  ENTER_CONTEXT("cuPointerSetAttribute");
  double_block *block = double_memory_find(address, true);
  if (value == NULL || block == NULL || attribute != 6 || block->kind != DOUBLE_DEVICE) return INVALID_VALUE;
  block->flags = *(const unsigned *)value == 0 ? block->flags & 0x7fffffffu : block->flags | 0x80000000u;
  return SUCCESS;
}

DOUBLE_EXPORT CUresult cuMemAdvise(CUdeviceptr address, size_t bytes, int advice, CUdevice device) {
  ENTER_CONTEXT("cuMemAdvise");
  double_block *block = double_memory_find(address, true);
  if (block == NULL || block->kind != DOUBLE_MANAGED || bytes == 0 || advice < 1 || advice > 6) return INVALID_VALUE;
  return device == -1 || is_device(device) ? SUCCESS : INVALID_DEVICE;
}

DOUBLE_EXPORT CUresult cuMemPrefetchAsync(CUdeviceptr address, size_t bytes, CUdevice device, void *stream) {
  (void)stream;
  ENTER_CONTEXT("cuMemPrefetchAsync");
  double_block *block = double_memory_find(address, true);
  if (block == NULL || block->kind != DOUBLE_MANAGED || bytes == 0) return INVALID_VALUE;
  if (attribute_of(89) == 0) return INVALID_DEVICE;
  return device == -1 || is_device(device) ? SUCCESS : INVALID_DEVICE;
}

/* Copies wait for what was launched before, also the asynchronous ones: all streams of this double are one queue. */
static CUresult copy(CUdeviceptr device, void *host, size_t bytes, bool to_device) {
  double_block *block = double_memory_find(device, true);
  if (host == NULL || block == NULL || device - (uint64_t)(uintptr_t)block->device > block->bytes - bytes ||
      bytes > block->bytes)
    return INVALID_VALUE;
  double_wait(double_submitted());
  uint8_t *at = (uint8_t *)(uintptr_t)device;
  /* Never by the address that is the device's alone, so that nobody else can reach it meanwhile. */
  if (block->backing != NULL) at = block->backing + (device - (uint64_t)(uintptr_t)block->device);
  else double_memory_run(true);
  if (to_device) memcpy(at, host, bytes);
  else memcpy(host, at, bytes);
  if (block->backing == NULL) double_memory_run(false);
  return SUCCESS;
}

DOUBLE_EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
  ENTER_CONTEXT("cuMemcpyHtoD_v2");
  return copy(to, (void *)(uintptr_t)from, bytes, true);
}
DOUBLE_EXPORT CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
  ENTER_CONTEXT("cuMemcpyDtoH_v2");
  return copy(from, to, bytes, false);
}
DOUBLE_EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, void *stream) {
  (void)stream;
  ENTER_CONTEXT("cuMemcpyHtoDAsync_v2");
  return copy(to, (void *)(uintptr_t)from, bytes, true);
}
DOUBLE_EXPORT CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, void *stream) {
  (void)stream;
  ENTER_CONTEXT("cuMemcpyDtoHAsync_v2");
  return copy(from, to, bytes, false);
}

DOUBLE_EXPORT CUresult cuMemsetD8_v2(CUdeviceptr address, unsigned char value, size_t bytes) {
  ENTER_CONTEXT("cuMemsetD8_v2");
  double_block *block = double_memory_find(address, true);
  if (block == NULL || bytes > block->bytes - (address - (uint64_t)(uintptr_t)block->device)) return INVALID_VALUE;
  double_wait(double_submitted());
  double_memory_run(true);
  memset((void *)(uintptr_t)address, value, bytes);
  double_memory_run(false);
  return SUCCESS;
}

/* For the double of libibverbs: what a NIC reaches by peer memory or a dma-buf. */
DOUBLE_EXPORT void *zap_double_cuda_backing(uint64_t address, uint64_t bytes) { return double_memory_backing(address, bytes); }
