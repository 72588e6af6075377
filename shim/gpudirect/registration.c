/* Registering an area of memory, whosever it is, and the text where that fails. */
#include "registration.h"

#include <errno.h>
#include <stdio.h>

#define PAGE 4096u

const char *zap_method_name(uint32_t method) {
  switch (method) {
    case ZAP_GPUDIRECT_DMA_BUF: return "dma-buf";
    case ZAP_GPUDIRECT_PEERMEM: return "peermem";
    case ZAP_GPUDIRECT_LOCKED: return "page-locked";
    case ZAP_GPUDIRECT_HOST: return "host";
    default: return "";
  }
}

static const char *kind_of(uint32_t method) {
  switch (method) {
    case ZAP_GPUDIRECT_DMA_BUF: return "GPU memory, by dma-buf,";
    case ZAP_GPUDIRECT_PEERMEM: return "GPU memory, by peermem,";
    case ZAP_GPUDIRECT_LOCKED: return "page-locked host memory of the GPU's runtime";
    default: return "this process's own host memory";
  }
}

static const char no_room[] =
    "the GPU's window on the PCIe bus (BAR1), or the device's memory, is too small for it: ZAP_GPUDIRECT_REGION_BYTES says how much";

/* NULL where the method makes no difference: then verbs.c knows what the errno means. */
static const char *by_dma_buf(int number) {
  switch (number) {
    case EOPNOTSUPP:
    case EPROTONOSUPPORT: return "this NIC's driver, or this kernel, takes no dma-buf: Linux 5.12 and a driver such as mlx5's are needed";
    case EBADF: return "the descriptor is that of no dma-buf, or was closed";
    case EINVAL: return "address and size are not whole pages of the dma-buf, or the NIC takes none of this size";
    case EFAULT: return "the GPU's driver does not map it for this NIC: see that the IOMMU passes through, and what is between the two";
    case ENOMEM: return no_room;
    default: return NULL;
  }
}

static const char *by_peermem(int number) {
  switch (number) {
    case EFAULT: return "nvidia-peermem is not loaded (modprobe nvidia-peermem), or that is no GPU memory";
    case EINVAL: return "nvidia-peermem does not take this memory: it has to start and end at 64 KiB, and to be the GPU's own";
    case EOPNOTSUPP:
    case EPROTONOSUPPORT: return "the driver of this NIC knows no peer memory";
    case ENOMEM: return no_room;
    default: return NULL;
  }
}

static const char *on_host(int number) {
  switch (number) {
    case EAGAIN:
    case ENOMEM: return "more than this process may lock (ulimit -l; CAP_IPC_LOCK), or the host or the device is out of memory";
    case EFAULT: return "that memory is not mapped, or not of a kind that a NIC can be given, as managed memory";
    case EINVAL: return "the device takes no region of this size";
    default: return NULL;
  }
}

static const char *cause_of(uint32_t method, int number) {
  if (method == ZAP_GPUDIRECT_DMA_BUF) return by_dma_buf(number);
  return method == ZAP_GPUDIRECT_PEERMEM ? by_peermem(number) : on_host(number);
}

static int32_t fail(const struct zap_area *area, const char *device, int number) {
  const char *call = area->method == ZAP_GPUDIRECT_DMA_BUF ? "ibv_reg_dmabuf_mr" : "ibv_reg_mr", *cause = cause_of(area->method, number);
  char about[192];
  (void)snprintf(about, sizeof about, "%llu bytes of %s at 0x%llx with %s", (unsigned long long)area->bytes, kind_of(area->method),
                 (unsigned long long)area->address, device);
  int32_t status = zap_verbs_fail(call, about, number);
  if (cause == NULL) return status;
  return zap_fail(status, "%s of %s failed with %s (%d): %s", call, about, zap_verbs_errno_name(number), number, cause);
}

int32_t zap_register_area(const struct zap_verbs *verbs, struct ibv_pd *pd, const char *device, const struct zap_area *area, int access,
                          struct ibv_mr **region) {
  if (area->method == ZAP_GPUDIRECT_DMA_BUF) {
    if (verbs->reg_dmabuf_mr == NULL)
      return zap_fail(ZAP_E_UNSUPPORTED, "this libibverbs has no ibv_reg_dmabuf_mr: dma-buf needs rdma-core 34 or a newer one");
    *region = verbs->reg_dmabuf_mr(pd, 0, (size_t)area->bytes, area->address, area->dma_buf, access);
  } else {
    *region = zap_verbs_register(verbs, pd, (void *)(uintptr_t)area->address, (size_t)area->bytes, access);
  }
  return *region == NULL ? fail(area, device, errno) : ZAP_OK;
}

int32_t zap_check_area(const struct zap_area *area) {
  if (zap_method_name(area->method)[0] == 0) return zap_fail(ZAP_E_INVALID, "%u is no method of registering memory", area->method);
  if (area->address == 0 || area->address % PAGE != 0 || area->bytes == 0 || area->bytes % PAGE != 0 || area->bytes >> 47 != 0 ||
      area->address > UINT64_MAX - area->bytes)
    return zap_fail(ZAP_E_INVALID, "%llu bytes at 0x%llx: whole pages of %u bytes are needed", (unsigned long long)area->bytes,
                    (unsigned long long)area->address, PAGE);
  if (area->method == ZAP_GPUDIRECT_DMA_BUF && area->dma_buf < 0)
    return zap_fail(ZAP_E_INVALID, "memory by dma-buf needs the descriptor of one");
  return ZAP_OK;
}
