#include "verbs.h"

#include <errno.h>
#include <string.h>

#include "../common/library.h"

#define MINIMUM "libibverbs 1.1 or a newer one (rdma-core)"

int32_t zap_verbs_load(const char *path, struct zap_verbs *verbs) {
#define REQUIRED(result, name, parameters) {"ibv_" #name, offsetof(struct zap_verbs, name), false},
#define OPTIONAL(result, name, parameters) {"ibv_" #name, offsetof(struct zap_verbs, name), true},
  static const struct zap_symbol symbols[] = {
      ZAP_VERBS_REQUIRED(REQUIRED) ZAP_VERBS_OPTIONAL(OPTIONAL){"_ibv_query_gid_ex", offsetof(struct zap_verbs, query_gid_ex), true}};
#undef REQUIRED
#undef OPTIONAL
  void *library = NULL;
  int32_t status = zap_library_open(path, &library);
  if (status < 0) return status;
  status = zap_library_fill(library, path, MINIMUM, symbols, sizeof symbols / sizeof symbols[0], verbs);
  if (status < 0) zap_library_close(library);
  return status;
}

int zap_verbs_port(const struct zap_verbs *verbs, struct ibv_context *context, uint8_t port, struct ibv_port_attr *attributes) {
  memset(attributes, 0, sizeof *attributes);
  int answer = verbs->query_port(context, port, (struct _compat_ibv_port_attr *)attributes);
  return answer == 0 ? 0 : zap_verbs_errno(answer);
}

struct ibv_mr *zap_verbs_register(const struct zap_verbs *verbs, struct ibv_pd *pd, void *address, size_t bytes, int access) {
  int optional = access & IBV_ACCESS_OPTIONAL_RANGE;
  if (optional != 0 && verbs->reg_mr_iova2 != NULL) return verbs->reg_mr_iova2(pd, address, bytes, (uintptr_t)address, (unsigned)access);
  return verbs->reg_mr(pd, address, bytes, access & ~optional);
}

int zap_verbs_errno(int answer) {
  if (answer > 0) return answer;
  /* Some answer with the kernel's negative number. */
  return answer < -1 ? -answer : errno;
}

const char *zap_verbs_errno_name(int number) {
  switch (number) {
#define NAME(name) \
  case name: return #name;
    NAME(EACCES)
    NAME(EADDRNOTAVAIL)
    NAME(EAGAIN)
    NAME(EBADF)
    NAME(EBUSY)
    NAME(EFAULT)
    NAME(EINVAL)
    NAME(EIO)
    NAME(EMFILE)
    NAME(ENETUNREACH)
    NAME(ENFILE)
    NAME(ENODEV)
    NAME(ENOENT)
    NAME(ENOMEM)
    NAME(ENOSPC)
    NAME(ENOSYS)
    NAME(ENXIO)
    NAME(EOPNOTSUPP)
    NAME(EPERM)
    NAME(EPROTONOSUPPORT)
    NAME(ETIMEDOUT)
#undef NAME
    default: return "errno";
  }
}

static int32_t status_of(int number) {
  switch (number) {
    case ENOMEM: return ZAP_E_MEMORY;
    case ENODEV:
    case ENXIO:
    case ENOSYS: return ZAP_E_DEVICE;
    case EOPNOTSUPP:
    case EPROTONOSUPPORT: return ZAP_E_UNSUPPORTED;
    default: return ZAP_E_DRIVER;
  }
}

static const char *advice_for(int number) {
  switch (number) {
    case EACCES:
    case EPERM: return "this user or container may not use /dev/infiniband/uverbs*";
    case EAGAIN:
    case ENOMEM: return "out of memory, or of memory that may be locked (ulimit -l), or of the device's own";
    case EADDRNOTAVAIL:
    case ENETUNREACH: return "no route from this device to that address";
    case EBUSY: return "something still uses it";
    case EFAULT: return "that memory is not this process's, or not of a kind that the device can reach";
    case EINVAL: return "the device does not take one of the values";
    case EMFILE:
    case ENFILE: return "too many files are open (ulimit -n)";
    case EIO:
    case ENODEV:
    case ENXIO: return "the device is gone, or being reset: look at dmesg";
    case ENOENT: return "there is no such file in /dev/infiniband: a container must be given it";
    case ENOSPC: return "the device has no more of these";
    case ENOSYS: return "this host's kernel has no RDMA: modprobe ib_uverbs and the card's driver (mlx5_ib)";
    case EOPNOTSUPP:
    case EPROTONOSUPPORT: return "this device's driver or this kernel cannot do that";
    case ETIMEDOUT: return "no answer: see that the other end is up and its address final";
    default: return "look at dmesg";
  }
}

int32_t zap_verbs_fail(const char *call, const char *about, int number) {
  return zap_fail(status_of(number), "%s of %s failed with %s (%d): %s", call, about, zap_verbs_errno_name(number), number,
                  advice_for(number));
}
