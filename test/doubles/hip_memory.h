/* Part of hip.c: memory. */

static hipError_t block_new(uint32_t kind, size_t bytes, unsigned flags, double_block **out) {
  *out = bytes == 0 ? NULL : double_memory_new(kind, bytes, NULL);
  if (*out == NULL) return bytes == 0 ? INVALID_VALUE : OUT_OF_MEMORY;
  (*out)->flags = flags;
  return SUCCESS;
}

/* Flags: reachable from every device 1, from the host only 2. Without HMM it gives host memory, as the runtime does. */
DOUBLE_EXPORT hipError_t hipMallocManaged(void **out, size_t bytes, unsigned flags) {
  ENTER("hipMallocManaged");
  if (out == NULL || (flags != 1 && flags != 2)) return INVALID_VALUE;
  double_block *block;
  hipError_t code = block_new(DOUBLE_MANAGED, bytes, flags, &block);
  if (code == SUCCESS) *out = block->host;
  return code;
}

DOUBLE_EXPORT hipError_t hipMalloc(void **out, size_t bytes) {
  ENTER("hipMalloc");
  if (out == NULL) return INVALID_VALUE;
  double_block *block;
  hipError_t code = block_new(DOUBLE_DEVICE, bytes, 0, &block);
  if (code == SUCCESS) *out = block->device;
  return code;
}

/* Flags: portable 1, mapped for the device 2, write-combined 4, NUMA by the user 0x20000000, coherent 0x40000000, not 0x80000000. */
DOUBLE_EXPORT hipError_t hipHostMalloc(void **out, size_t bytes, unsigned flags) {
  ENTER("hipHostMalloc");
  bool both = (flags & 0x40000000u) != 0 && (flags & 0x80000000u) != 0;
  if (out == NULL || both || (flags & ~0xe0000007u) != 0) return INVALID_VALUE;
  double_block *block;
  hipError_t code = block_new(DOUBLE_HOST, bytes, flags, &block);
  if (code == SUCCESS) *out = block->host;
  return code;
}

DOUBLE_EXPORT hipError_t hipHostGetDevicePointer(void **out, void *host, unsigned flags) {
  ENTER("hipHostGetDevicePointer");
  double_block *block = double_memory_find((uint64_t)(uintptr_t)host, true);
  if (out == NULL || flags != 0 || block == NULL) return INVALID_VALUE;
  if (block->kind != DOUBLE_HOST && block->kind != DOUBLE_REGISTERED) return INVALID_VALUE;
  if (block->kind == DOUBLE_REGISTERED && (block->flags & 2) == 0) return INVALID_VALUE;
  *out = block->device + ((uint8_t *)host - block->host);
  return SUCCESS;
}

static hipError_t block_free(const char *call, const void *address, uint32_t kind, uint32_t or_kind) {
  double_block *block = double_memory_find((uint64_t)(uintptr_t)address, false);
  if (block == NULL || (block->kind != kind && block->kind != or_kind)) {
    double_report("fault: %s of %p, which is %s", call, address,
                  block == NULL ? "not allocated (any more)" : "memory of another kind");
    return INVALID_VALUE;
  }
  double_memory_free(block);
  uint64_t bytes = 0;
  uint32_t left = double_memory_count(NULL, &bytes);
  if (left == 0) double_report("release blocks=0 bytes=0 faults=%llu", (unsigned long long)double_faults());
  return SUCCESS;
}

DOUBLE_EXPORT hipError_t hipFree(void *address) {
  ENTER("hipFree");
  return address == NULL ? SUCCESS : block_free("hipFree", address, DOUBLE_MANAGED, DOUBLE_DEVICE);
}
DOUBLE_EXPORT hipError_t hipHostFree(void *address) {
  ENTER("hipHostFree");
  return address == NULL ? SUCCESS : block_free("hipHostFree", address, DOUBLE_HOST, DOUBLE_HOST);
}

/* Flags: portable 1, mapped for the device 2, I/O memory 4, coarse-grained 8. */
DOUBLE_EXPORT hipError_t hipHostRegister(void *host, size_t bytes, unsigned flags) {
  ENTER("hipHostRegister");
  if (host == NULL || bytes == 0 || flags > 15) return INVALID_VALUE;
  double_block *block;
  switch (double_memory_register(host, bytes, NULL, &block)) {
    case DOUBLE_TAKEN: block->flags = flags; return SUCCESS;
    case DOUBLE_OVERLAPS: return HOST_MEMORY_ALREADY_REGISTERED;
    case DOUBLE_NOT_THERE: return INVALID_VALUE;
    default: return NOT_SUPPORTED;
  }
}
DOUBLE_EXPORT hipError_t hipHostUnregister(void *host) {
  ENTER("hipHostUnregister");
  const double_block *block = double_memory_find((uint64_t)(uintptr_t)host, false);
  if (block != NULL && block->kind == DOUBLE_REGISTERED && !double_memory_there(block))
    double_report("fault: memory at %p was unmapped while it was registered", host);
  hipError_t code = block_free("hipHostUnregister", host, DOUBLE_REGISTERED, DOUBLE_REGISTERED);
  return code == SUCCESS ? SUCCESS : HOST_MEMORY_NOT_REGISTERED;
}

DOUBLE_EXPORT hipError_t hipMemGetInfo(size_t *free_bytes, size_t *total) {
  ENTER("hipMemGetInfo");
  if (free_bytes == NULL || total == NULL) return INVALID_VALUE;
  *total = (size_t)double_number("memory", INT64_C(206141652992));
  uint64_t used = double_memory_used();
  *free_bytes = used > *total ? 0 : *total - (size_t)used;
  return SUCCESS;
}

/* Came with ROCm 7. The "dma-buf" is the memory file behind the block; memory of hipMalloc only. */
DOUBLE_EXPORT hipError_t hipMemGetHandleForAddressRange(void *handle, void *address, size_t bytes, int type,
                                                        unsigned long long flags) {
  ENTER("hipMemGetHandleForAddressRange");
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  double_block *block = double_memory_find((uint64_t)(uintptr_t)address, true);
  if (handle == NULL || type != 1 || flags > 1 || block == NULL || bytes == 0 || bytes % page != 0) return INVALID_VALUE;
  if ((uintptr_t)address % page != 0 || bytes > block->mapped - (size_t)((uint8_t *)address - block->device))
    return INVALID_VALUE;
  if (block->kind != DOUBLE_DEVICE || attribute_of(93) <= 0) return NOT_SUPPORTED;
  int fd = fcntl(block->fd, F_DUPFD_CLOEXEC, 3);
  if (fd < 0) return 304;
  *(int *)handle = fd;
  return SUCCESS;
}

/* Kinds: to the host 2, as the addresses say 4; others there are not here. Of memory of hipMalloc alone. */
DOUBLE_EXPORT hipError_t hipMemcpy(void *to, const void *from, size_t bytes, int kind) {
  ENTER("hipMemcpy");
  const double_block *block = double_memory_find((uint64_t)(uintptr_t)from, true);
  if (to == NULL || (kind != 2 && kind != 4) || block == NULL || block->backing == NULL) return INVALID_VALUE;
  size_t offset = (size_t)((const uint8_t *)from - block->device);
  if (bytes > block->bytes - offset) return INVALID_VALUE;
  memcpy(to, block->backing + offset, bytes);
  return SUCCESS;
}
