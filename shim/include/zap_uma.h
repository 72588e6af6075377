/*
 * The verbs of the three unified-memory shims. They are the same for each; only the prefix differs:
 * zap_uma_cuda_open, zap_uma_hip_open, zap_uma_metal_open. A shim is compiled with ZAP_UMA_PREFIX set to its own.
 *
 * Threads: every function may be called from any thread. All calls into a vendor's library are made by one thread of the
 * device's handle, and the caller waits for it at most `timeout_ms`: a driver that hangs costs its handle, not the caller.
 */
#ifndef ZAP_UMA_H
#define ZAP_UMA_H

#include "zap_shim.h"

#ifndef ZAP_UMA_PREFIX
#error "define ZAP_UMA_PREFIX: zap_uma_cuda_, zap_uma_hip_ or zap_uma_metal_"
#endif
#define ZAP_UMA_JOIN2(prefix, name) prefix##name
#define ZAP_UMA_JOIN(prefix, name) ZAP_UMA_JOIN2(prefix, name)
#define ZAP_UMA(name) ZAP_UMA_JOIN(ZAP_UMA_PREFIX, name)

/* What a region is cut from. */
enum zap_memory {
  ZAP_MEMORY_MANAGED = 1, /* CPU and GPU read it in place; moves by page (cuMemAllocManaged, hipMallocManaged) */
  ZAP_MEMORY_HOST = 2,    /* page-locked host memory that the GPU reads in place; a NIC may register it */
  ZAP_MEMORY_DEVICE = 3,  /* the GPU's own, which a NIC may be given; no address for the CPU. The runtime's copies are done when they return */
  ZAP_MEMORY_SHARED = 4   /* a Metal buffer of shared storage */
};

/* What a device reports. Bits of zap_uma_device.flags. */
enum zap_uma_flag {
  ZAP_UMA_MANAGED = 1,            /* has managed memory */
  ZAP_UMA_CONCURRENT = 2,         /* the CPU may touch managed memory while a kernel runs */
  ZAP_UMA_PAGEABLE = 4,           /* reads any host memory */
  ZAP_UMA_INTEGRATED = 8,         /* shares the host's memory physically */
  ZAP_UMA_DMA_BUF = 16,           /* its own memory can be exported as a dma-buf */
  ZAP_UMA_GPUDIRECT_RDMA = 32,    /* its own memory can be registered with a NIC */
  ZAP_UMA_KERNELS = 64,           /* runs the kernels of this shim */
  ZAP_UMA_HOST_DMA_BUF = 128,     /* page-locked host memory can be exported as a dma-buf */
  ZAP_UMA_VERIFY = 256            /* this shim has kernels that verify signatures on it; they are loaded when they are first needed */
};

/* What a signature is of. */
enum zap_scheme {
  ZAP_SCHEME_ED25519 = 1
};

/* An open device. 152 bytes. */
typedef struct zap_uma_device {
  char name[104];       /* UTF-8, ends in a zero byte */
  uint64_t memory_bytes;
  uint32_t flags;       /* enum zap_uma_flag */
  uint32_t memory;      /* enum zap_memory: the kind that a receiver should use here */
  uint32_t index;       /* which of `count` */
  uint32_t count;
  uint32_t driver;      /* version as the driver gives it: 12040 is CUDA 12.4; 0 where there is none */
  uint32_t capability;  /* CUDA: 10 * major + minor of the compute capability; else 0 */
  uint64_t reserved[2];
} zap_uma_device;

/* A piece of memory that one allocation of the runtime gave, or that was registered with it. 32 bytes. */
typedef struct zap_region {
  uint64_t host;   /* address for the CPU, aligned to a page; 0 where it has none */
  uint64_t device; /* address for the GPU */
  uint64_t bytes;
  uint32_t memory; /* enum zap_memory */
  uint32_t reserved;
} zap_region;

/* A range of a region. 16 bytes. */
typedef struct zap_span {
  int32_t region; /* handle */
  uint32_t length;
  uint64_t offset;
} zap_span;

/* ZAP_ABI_VERSION of this library. Its meaning never changes. */
ZAP_EXPORT uint32_t ZAP_UMA(abi)(void);

/* The text of this thread's last failure, cut to `capacity` bytes with the final zero; returns its length. */
ZAP_EXPORT int32_t ZAP_UMA(error)(char *text, uint32_t capacity);

/*
 * Looks at the host: opens the vendor's library at the absolute path `runtime` (Metal: the framework; `support` is libobjc, else
 * empty), asks it for the device, and closes it again. Fills at most `capacity` rows and returns their number. Fails only
 * for arguments that cannot be used: whatever else is wrong is a row.
 */
ZAP_EXPORT int32_t ZAP_UMA(probe)(const char *runtime, const char *support, int32_t index, uint32_t timeout_ms,
                                  zap_prerequisite *rows, uint32_t capacity);

/* Opens device `index` and fills `device`. Returns its handle. `timeout_ms` holds for every later call on the handle, too. */
ZAP_EXPORT int32_t ZAP_UMA(open)(const char *runtime, const char *support, int32_t index, uint32_t timeout_ms,
                                 zap_uma_device *device);

/* Waits for kernels, frees or unregisters every region, lets go of the device. The memory of its regions must not be touched any more. */
ZAP_EXPORT int32_t ZAP_UMA(close)(int32_t device);

/* Allocates `bytes` of `memory` (enum zap_memory), not touched. Returns the region's handle and fills `region`. */
ZAP_EXPORT int32_t ZAP_UMA(region_alloc)(int32_t device, uint32_t memory, uint64_t bytes, zap_region *region);

/*
 * Lets the device read and write `bytes` of the caller's own memory from the address `host` on, in place; both are multiples of 4 KiB and
 * of the host's page. Returns the region's handle and fills `region`: memory is ZAP_MEMORY_HOST, `device` is where the GPU finds it.
 * The memory stays the caller's, and has to stay mapped until region_free, which unregisters it and does not free it, or close has
 * come back; with ZAP_E_TIMEOUT from any of the three, for as long as the process lives: the device may still reach it.
 *
 * ZAP_E_UNSUPPORTED where device or driver cannot; ZAP_E_DRIVER with the driver's name of the error where it refuses, because the memory
 * is registered already, is not there, or may not be locked.
 */
ZAP_EXPORT int32_t ZAP_UMA(region_register)(int32_t device, uint64_t host, uint64_t bytes, zap_region *region);

/*
 * The handle is gone whatever comes of it: memory that the driver fails to free is lost, and what it fails to unregister is to be
 * treated as if the device still reached it.
 */
ZAP_EXPORT int32_t ZAP_UMA(region_free)(int32_t device, int32_t region);

/* A new dma-buf file descriptor of a whole region, the caller's to close. ZAP_E_UNSUPPORTED where device or memory cannot. */
ZAP_EXPORT int32_t ZAP_UMA(region_export)(int32_t device, int32_t region);

/*
 * Copies `bytes` from `offset` of a region on to `host`, which is the caller's, after waiting until no kernel of this handle runs. What
 * other devices have written before is in the copy. With ZAP_E_TIMEOUT `host` has to stay for as long as the process lives: the driver may
 * still write there. ZAP_E_INVALID beyond the region's end.
 */
ZAP_EXPORT int32_t ZAP_UMA(copy_to_host)(int32_t device, int32_t region, uint64_t offset, void *host, uint64_t bytes);

/*
 * Hand-over. `to_device`: everything that the CPU wrote is visible to kernels launched from now on. `to_host`: waits until no
 * kernel of this handle runs, and everything that they wrote is visible to the CPU.
 */
ZAP_EXPORT int32_t ZAP_UMA(fence_to_device)(int32_t device);
ZAP_EXPORT int32_t ZAP_UMA(fence_to_host)(int32_t device);

/*
 * Checks the ZAP header at the start of each span on the device, in place (kernels/check_headers.h has the verdicts).
 * `versions` holds up to four message versions of 16 bits each, 0 for none. Launches and returns a job; at most 65,536 spans.
 */
ZAP_EXPORT int32_t ZAP_UMA(check_begin)(int32_t device, const zap_span *spans, uint32_t count, uint64_t versions);

/* ZAP_E_AGAIN while it runs; else fills `verdicts[count]`, and the job is gone. Also gone after a failure. */
ZAP_EXPORT int32_t ZAP_UMA(check_poll)(int32_t device, int32_t job, uint8_t *verdicts, uint32_t count);

/* The same C source compiled for the CPU: same arguments, same verdicts, at once. */
ZAP_EXPORT int32_t ZAP_UMA(check_host)(int32_t device, const zap_span *spans, uint32_t count, uint64_t versions,
                                       uint8_t *verdicts);

/*
 * Makes the kernel of `scheme` (enum zap_scheme) ready, which may take the driver seconds: nobody waits for it, but other calls on this
 * device do. ZAP_E_AGAIN while it loads, ZAP_OK from then on. After a failure the next call tries again. ZAP_E_UNSUPPORTED as in
 * verify_begin.
 */
ZAP_EXPORT int32_t ZAP_UMA(verify_load)(int32_t device, uint32_t scheme);

/*
 * Verifies `count` signatures of `scheme` (enum zap_scheme) on the device, in place; 1 to 1,048,576. `table` holds six uint32_t for each,
 * in the machine's byte order: offset and length of public key, message and signature in `bytes`; it starts at a multiple of 4. One code
 * for each is written to `codes` (kernels/ed25519/codes.h has them). All three lie in regions of this device; until the job has ended
 * nobody may write to `bytes` and `table` or touch `codes`. Launches and returns a job. Loads the kernel, where verify_load has not.
 *
 * ZAP_E_UNSUPPORTED where this backend has no such kernel, ZAP_E_INVALID for another scheme, or spans that are too short or not in their
 * regions.
 */
ZAP_EXPORT int32_t ZAP_UMA(verify_begin)(int32_t device, uint32_t scheme, const zap_span *bytes, const zap_span *table, uint32_t count,
                                         const zap_span *codes);

/* ZAP_E_AGAIN while it runs; else the codes are there for the CPU, and the job is gone. Also gone after a failure. */
ZAP_EXPORT int32_t ZAP_UMA(verify_poll)(int32_t device, int32_t job);

/* The same C source compiled for the CPU: same arguments, same codes, at once. */
ZAP_EXPORT int32_t ZAP_UMA(verify_host)(int32_t device, uint32_t scheme, const zap_span *bytes, const zap_span *table, uint32_t count,
                                        const zap_span *codes);

/* Handles that are open now, of every kind: devices, regions, jobs, pollers, slots. 0 when nothing is left. */
ZAP_EXPORT int32_t ZAP_UMA(live)(void);

/*
 * Receiving without a copy in between. A poller is a thread that waits until sockets can be read; it never reads itself.
 * `wake_fd` becomes the end of a socket pair that is readable when there is something to take; the caller's to close.
 */
ZAP_EXPORT int32_t ZAP_UMA(poller_open)(int32_t *wake_fd);

/* Ends the thread and closes what the poller holds. */
ZAP_EXPORT int32_t ZAP_UMA(poller_close)(int32_t poller);

/*
 * Takes a duplicate of the connected stream socket `fd`, not armed. Returns its slot. ZAP_E_LIMIT where a poller has 65,536 of them,
 * ZAP_E_SYSTEM where this process has no descriptor left. After `remove` the same socket may be added again.
 */
ZAP_EXPORT int32_t ZAP_UMA(poller_add)(int32_t poller, int32_t fd);
ZAP_EXPORT int32_t ZAP_UMA(poller_remove)(int32_t poller, int32_t slot);

/* Reports the slot once, as soon as it can be read (or has ended, or is broken). */
ZAP_EXPORT int32_t ZAP_UMA(poller_arm)(int32_t poller, int32_t slot);

/*
 * Fills `slots` with those that were reported since; returns how many. As many as `capacity`: there may be more, take again,
 * for only a take that empties the list lets the next report wake the caller. To be called after a byte has come by `wake_fd`.
 */
ZAP_EXPORT int32_t ZAP_UMA(poller_take)(int32_t poller, int32_t *slots, uint32_t capacity);

/*
 * Reads what has come into `first`, then into `second`, without waiting. Returns how many bytes; 0 at the end of the stream;
 * ZAP_E_AGAIN where nothing is there; ZAP_E_RESET, ZAP_E_SYSTEM. `second_bytes` may be 0. The caller owns both ranges.
 */
ZAP_EXPORT int32_t ZAP_UMA(poller_recv)(int32_t poller, int32_t slot, void *first, uint32_t first_bytes, void *second,
                                        uint32_t second_bytes);

#endif
