/* Part of cuda.c: what it answers when it is asked about a device or an error. */

/* Like an H200 with the open kernel modules; `since` is the first driver that knows the number, as older ones refuse it. */
static const struct attribute {
  int number;
  int value;
  int since;
} attributes[] = {
    {1, 1024, 0},      /* threads per block */
    {2, 1024, 0},      /* block, x */
    {5, 2147483647, 0}, /* grid, x */
    {10, 32, 0},       /* warp */
    {16, 132, 0},      /* multiprocessors */
    {18, 0, 0},        /* integrated */
    {19, 1, 0},        /* can map host memory */
    {31, 1, 0},        /* concurrent kernels */
    {33, 25, 0},       /* PCI bus */
    {34, 0, 0},        /* PCI device */
    {41, 1, 0},        /* unified addressing */
    {50, 0, 0},        /* PCI domain */
    {75, 9, 0},        /* compute capability */
    {76, 0, 0},
    {83, 1, 0},        /* managed memory */
    {88, 1, 8000},     /* pageable memory access */
    {89, 1, 8000},     /* concurrent managed access */
    {91, 1, 8000},     /* host pointer usable for registered memory */
    {99, 1, 9020},     /* host register */
    {100, 0, 9020},    /* pageable access through the host's page tables */
    {101, 0, 9020},    /* host reaches managed memory without migration */
    {102, 1, 10020},   /* virtual memory management */
    {110, 1, 11000},   /* GPUDirect RDMA with it */
    {116, 1, 11030},   /* GPUDirect RDMA */
    {117, 1, 11030},   /* flush-writes options: by the host */
    {118, 200, 11030}, /* ordering of writes: all devices */
    {124, 1, 11070},   /* dma-buf */
    {146, 0, 13000},   /* dma-buf of page-locked host memory */
};

static const struct named {
  CUresult code;
  const char *name;
  const char *text;
} errors[] = {
    {SUCCESS, "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {34, "CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"},
    {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {221, "CUDA_ERROR_JIT_COMPILER_NOT_FOUND", "PTX JIT compiler library not found"},
    {UNSUPPORTED_PTX_VERSION, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
     "the provided PTX was compiled with an unsupported toolchain."},
    {304, "CUDA_ERROR_OPERATING_SYSTEM", "OS call failed or operation not supported on this OS"},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {LAUNCH_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {HOST_MEMORY_ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
     "part or all of the requested memory range is already mapped"},
    {HOST_MEMORY_NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
     "pointer does not correspond to a registered memory region"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {800, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {802, "CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};
