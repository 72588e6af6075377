/* The libibverbs double: domains, regions, windows, and what may be reached by their keys. Part of ibverbs.c. */
#ifndef ZAP_IBVERBS_MEMORY_H
#define ZAP_IBVERBS_MEMORY_H

static size_t page_bytes(void) { return (size_t)sysconf(_SC_PAGESIZE); }

/* ---- the caller's memory ---- */

/* Whether something is mapped there, whatever its protection. */
static bool is_mapped(uint64_t at, uint64_t bytes) {
  uint64_t page = page_bytes(), from = at & ~(page - 1);
  return msync((void *)(uintptr_t)from, at + bytes - from, MS_ASYNC) == 0;
}

/* Whether a device could have it pinned, as the kernel sees it. */
static bool is_there(uint64_t at, uint64_t bytes, bool write) {
  char line[512];
  uint64_t end = at + bytes;
  bool whole = false, fresh = true;
  FILE *maps = fopen("/proc/self/maps", "re");
  if (maps == NULL) return false;
  while (!whole && fgets(line, sizeof line, maps) != NULL) {
    bool parse = fresh;
    unsigned long long from, to;
    char how[8];
    fresh = strchr(line, '\n') != NULL;
    if (!parse || sscanf(line, "%llx-%llx %7s", &from, &to, how) != 3 || to <= at) continue;
    if (from > at || how[0] != 'r' || (write && how[1] != 'w')) break;
    at = to;
    whole = at >= end;
  }
  (void)fclose(maps);
  return whole;
}

struct loaded {
  char names[64][256];
  int count;
};

static int note_loaded(struct dl_phdr_info *info, size_t size, void *out) {
  struct loaded *loaded = out;
  (void)size;
  if (info->dlpi_name == NULL || info->dlpi_name[0] == 0 || strlen(info->dlpi_name) >= sizeof loaded->names[0]) return 0;
  if (loaded->count < 64) (void)snprintf(loaded->names[loaded->count++], sizeof loaded->names[0], "%s", info->dlpi_name);
  return 0;
}

/* What the CUDA double says lies behind memory that the CPU cannot touch. It may be loaded for its user alone, so each library is asked. */
static void *device_memory(uint64_t at, uint64_t bytes) {
  static const char name[] = "zap_double_cuda_backing";
  void *(*backing)(uint64_t, uint64_t) = NULL;
  void *found = dlsym(RTLD_DEFAULT, name);
  struct loaded *loaded = found == NULL ? calloc(1, sizeof *loaded) : NULL;
  if (loaded != NULL) (void)dl_iterate_phdr(note_loaded, loaded);
  for (int i = 0; loaded != NULL && found == NULL && i < loaded->count; i++) {
    void *library = dlopen(loaded->names[i], RTLD_NOLOAD | RTLD_LAZY);
    if (library == NULL) continue;
    found = dlsym(library, name);
    (void)dlclose(library);
  }
  free(loaded);
  if (found == NULL) return NULL;
  memcpy(&backing, &found, sizeof found);
  return backing(at, bytes);
}

/* ---- domains ---- */

IBVERBS(struct ibv_pd *, alloc_pd, (struct ibv_context * context)) {
  int number = enter_call(device_of(context), "ibv_alloc_pd");
  if (number != 0) return errno = number, NULL;
  struct pd *pd = calloc(1, sizeof *pd);
  if (pd != NULL) {
    pd->base.context = context;
    pd->base.handle = next_handle++;
    ((struct context *)(void *)context)->uses++;
    add(device_of(context), COUNT_domains, 1);
  }
  leave();
  return pd == NULL ? NULL : &pd->base;
}

IBVERBS(int, dealloc_pd, (struct ibv_pd * base)) {
  struct pd *pd = (struct pd *)(void *)base;
  struct context *context = (struct context *)(void *)base->context;
  int number = enter_call(context->device, "ibv_dealloc_pd");
  if (number != 0) return number;
  if (pd->uses > 0) {
    fault("ibv_dealloc_pd of a domain with %d things in it", pd->uses);
    leave();
    return EBUSY;
  }
  context->uses--;
  add(context->device, COUNT_domains, -1);
  leave();
  free(pd);
  return 0;
}

/* ---- regions ---- */

static const unsigned KNOWN_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                                     IBV_ACCESS_MW_BIND | IBV_ACCESS_HUGETLB | IBV_ACCESS_OPTIONAL_RANGE;

static int access_fault(size_t bytes, unsigned access) {
  bool writes = (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
  return bytes == 0 || (access & ~KNOWN_ACCESS) != 0 || (writes && (access & IBV_ACCESS_LOCAL_WRITE) == 0) ? EINVAL : 0;
}

/* With the lock, and takes over `mr`. */
static struct ibv_mr *add_region(struct ibv_pd *pd, struct mr *mr) {
  next_key += 0x100;
  mr->base.context = pd->context;
  mr->base.pd = pd;
  mr->base.handle = next_handle++;
  /* Not the same, so that nobody can take one for the other. */
  mr->base.lkey = next_key | 0x11;
  mr->base.rkey = next_key | 0x22;
  mr->next = regions;
  regions = mr;
  ((struct pd *)(void *)pd)->uses++;
  add(device_of(pd->context), COUNT_regions, 1);
  add(device_of(pd->context), COUNT_region_bytes, (int64_t)mr->base.length);
  return &mr->base;
}

static struct ibv_mr *register_memory(struct ibv_pd *pd, void *address, size_t bytes, uint64_t iova, unsigned access) {
  struct device *device = device_of(pd->context);
  uint64_t at = (uintptr_t)address;
  int number = access_fault(bytes, access);
  if (number == 0 && setting(device, SET_reg_errno) != 0 && bytes > (uint64_t)setting(device, SET_reg_above))
    number = (int)setting(device, SET_reg_errno);
  uint8_t *memory = address;
  if (number == 0 && !is_there(at, bytes, (access & IBV_ACCESS_LOCAL_WRITE) != 0)) {
    memory = setting(device, SET_peermem) != 0 && is_mapped(at, bytes) ? device_memory(at, bytes) : NULL;
    if (memory == NULL) number = EFAULT;
  }
  struct mr *mr = number == 0 ? calloc(1, sizeof *mr) : NULL;
  if (mr == NULL) return errno = number == 0 ? ENOMEM : number, NULL;
  mr->base.addr = address;
  mr->base.length = bytes;
  mr->iova = iova;
  mr->memory = memory;
  mr->access = access;
  mr->watched = true;
  return add_region(pd, mr);
}

IBVERBS(struct ibv_mr *, reg_mr, (struct ibv_pd * pd, void *address, size_t bytes, int access)) {
  int number = enter_call(device_of(pd->context), "ibv_reg_mr");
  if (number != 0) return errno = number, NULL;
  struct ibv_mr *mr = register_memory(pd, address, bytes, (uintptr_t)address, (unsigned)access & ~(unsigned)IBV_ACCESS_OPTIONAL_RANGE);
  leave();
  return mr;
}

#ifndef IBVERBS_DOUBLE_OLD
IBVERBS(struct ibv_mr *, reg_mr_iova2, (struct ibv_pd * pd, void *address, size_t bytes, uint64_t iova, unsigned access)) {
  int number = enter_call(device_of(pd->context), "ibv_reg_mr_iova2");
  if (number != 0) return errno = number, NULL;
  struct ibv_mr *mr = NULL;
  if ((iova ^ (uintptr_t)address) % page_bytes() == 0) mr = register_memory(pd, address, bytes, iova, access);
  else errno = EINVAL;
  leave();
  return mr;
}

static int map_buffer(int fd, uint64_t offset, size_t bytes, struct mr *mr) {
  struct stat file;
  uint64_t page = page_bytes(), from = offset & ~(page - 1);
  if (fd < 0 || fstat(fd, &file) != 0) return EBADF;
  if (file.st_size < 0 || offset > (uint64_t)file.st_size || bytes > (uint64_t)file.st_size - offset) return EINVAL;
  mr->mapped = offset + bytes - from;
  mr->mapping = mmap(NULL, mr->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)from);
  if (mr->mapping == MAP_FAILED) return EINVAL;
  mr->memory = (uint8_t *)mr->mapping + (offset - from);
  return 0;
}

/* Reaches the memory by a mapping of its own, never by `iova`; but where something is mapped there, it has to stay until the region is gone. */
IBVERBS(struct ibv_mr *, reg_dmabuf_mr, (struct ibv_pd * pd, uint64_t offset, size_t bytes, uint64_t iova, int fd, int access)) {
  struct device *device = device_of(pd->context);
  int number = enter_call(device, "ibv_reg_dmabuf_mr");
  if (number != 0) return errno = number, NULL;
  struct mr *mr = calloc(1, sizeof *mr);
  number = mr == NULL ? ENOMEM : (int)setting(device, SET_dmabuf_errno);
  if (number == 0) number = access_fault(bytes, (unsigned)access);
  if (number == 0 && (offset ^ iova) % page_bytes() != 0) number = EINVAL;
  if (number == 0) number = map_buffer(fd, offset, bytes, mr);
  if (number != 0) {
    leave();
    free(mr);
    return errno = number, NULL;
  }
  mr->base.length = bytes;
  mr->iova = iova;
  mr->access = (unsigned)access;
  mr->watched = iova != 0 && is_mapped(iova, bytes);
  if (mr->watched) mr->base.addr = (void *)(uintptr_t)iova;
  struct ibv_mr *base = add_region(pd, mr);
  leave();
  return base;
}
#endif

/* A fault where memory went before its region. */
static bool still_there(const struct mr *mr, const char *doing) {
  if (!mr->watched || is_mapped((uintptr_t)mr->base.addr, mr->base.length)) return true;
  fault("%s of %zu bytes at %p that are not mapped any more", doing, mr->base.length, mr->base.addr);
  return false;
}

IBVERBS(int, dereg_mr, (struct ibv_mr * base)) {
  struct device *device = device_of(base->context);
  int number = enter_call(device, "ibv_dereg_mr");
  if (number != 0) return number;
  struct mr **at = &regions;
  while (*at != NULL && &(*at)->base != base) at = &(*at)->next;
  struct mr *mr = *at;
  if (mr == NULL || mr->windows > 0) {
    fault(mr == NULL ? "ibv_dereg_mr of what is no region" : "ibv_dereg_mr of a region with windows");
    leave();
    return mr == NULL ? EINVAL : EBUSY;
  }
  (void)still_there(mr, "ibv_dereg_mr");
  *at = mr->next;
  ((struct pd *)(void *)base->pd)->uses--;
  add(device, COUNT_regions, -1);
  add(device, COUNT_region_bytes, -(int64_t)base->length);
  leave();
  if (mr->mapping != NULL) (void)munmap(mr->mapping, mr->mapped);
  free(mr);
  return 0;
}

/* ---- windows ---- */

static void unbind(struct mw *mw) {
  if (mw->mr != NULL) mw->mr->windows--;
  mw->mr = NULL;
  mw->qp = NULL;
}

static struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type) {
  struct device *device = device_of(pd->context);
  int number = enter_call(device, "ibv_alloc_mw");
  if (number != 0) return errno = number, NULL;
  struct mw *mw = NULL;
  if (type != IBV_MW_TYPE_2) errno = EOPNOTSUPP;
  else if (device->counts[COUNT_windows] >= setting(device, SET_windows)) errno = setting(device, SET_windows) == 0 ? EOPNOTSUPP : ENOMEM;
  else mw = calloc(1, sizeof *mw);
  if (mw != NULL) {
    next_key += 0x100;
    mw->base = (struct ibv_mw){.context = pd->context, .pd = pd, .rkey = next_key, .handle = next_handle++, .type = type};
    mw->index = next_key >> 8;
    mw->next = windows;
    windows = mw;
    ((struct pd *)(void *)pd)->uses++;
    add(device, COUNT_windows, 1);
  }
  leave();
  return mw == NULL ? NULL : &mw->base;
}

static int dealloc_mw(struct ibv_mw *base) {
  struct device *device = device_of(base->context);
  int number = enter_call(device, "ibv_dealloc_mw");
  if (number != 0) return number;
  struct mw **at = &windows;
  while (*at != NULL && &(*at)->base != base) at = &(*at)->next;
  struct mw *mw = *at;
  if (mw == NULL) {
    fault("ibv_dealloc_mw of what is no window");
    leave();
    return EINVAL;
  }
  unbind(mw);
  *at = mw->next;
  ((struct pd *)(void *)base->pd)->uses--;
  add(device, COUNT_windows, -1);
  leave();
  free(mw);
  return 0;
}

/* ---- what may be reached ---- */

struct piece {
  uint8_t *at;
  uint64_t bytes;
};

/* NULL where that is not all inside. */
static uint8_t *reach(const struct mr *mr, uint64_t address, uint64_t bytes) {
  uint64_t offset = address - mr->iova;
  if (address < mr->iova || offset > mr->base.length || bytes > mr->base.length - offset) return NULL;
  return still_there(mr, "an access to a region") ? mr->memory + offset : NULL;
}

/* One's own memory, by lkey. */
static bool reach_own(const struct qp *qp, const struct ibv_sge *part, bool write, struct piece *out) {
  *out = (struct piece){.at = NULL, .bytes = part->length};
  if (part->length == 0) return true;
  for (const struct mr *mr = regions; mr != NULL; mr = mr->next) {
    if (mr->base.lkey != part->lkey || mr->base.pd != qp->base.pd) continue;
    if (write && (mr->access & IBV_ACCESS_LOCAL_WRITE) == 0) return false;
    out->at = reach(mr, part->addr, part->length);
    return out->at != NULL;
  }
  return false;
}

/* What `qp` lets its peer reach, by rkey. */
static uint8_t *reach_shown(const struct qp *qp, uint32_t rkey, uint64_t address, uint64_t bytes, unsigned access) {
  for (const struct mr *mr = regions; mr != NULL; mr = mr->next)
    if (mr->base.rkey == rkey) return mr->base.pd == qp->base.pd && (mr->access & access) != 0 ? reach(mr, address, bytes) : NULL;
  for (const struct mw *mw = windows; mw != NULL; mw = mw->next) {
    if (mw->mr == NULL || mw->rkey != rkey) continue;
    if (mw->qp != qp || (mw->access & access) == 0) return NULL;
    uint64_t offset = address - mw->addr;
    return address >= mw->addr && offset <= mw->length && bytes <= mw->length - offset ? reach(mw->mr, address, bytes) : NULL;
  }
  return NULL;
}

/* ---- requests about windows ---- */

static enum ibv_wc_status bind_window(struct qp *qp, const struct request *request) {
  struct mw *mw = windows;
  struct mr *mr = regions;
  const struct ibv_mw_bind_info *bind = &request->bind;
  while (mw != NULL && mw != request->window) mw = mw->next;
  while (mr != NULL && &mr->base != bind->mr) mr = mr->next;
  if (mw == NULL || mr == NULL || mw->mr != NULL || mw->base.pd != qp->base.pd || mr->base.pd != qp->base.pd) return IBV_WC_MW_BIND_ERR;
  if (request->rkey >> 8 != mw->index || (mr->access & IBV_ACCESS_MW_BIND) == 0) return IBV_WC_MW_BIND_ERR;
  bool writes = (bind->mw_access_flags & IBV_ACCESS_REMOTE_WRITE) != 0;
  if (writes && (mr->access & IBV_ACCESS_LOCAL_WRITE) == 0) return IBV_WC_MW_BIND_ERR;
  if (bind->length == 0 || reach(mr, bind->addr, bind->length) == NULL) return IBV_WC_MW_BIND_ERR;
  mw->mr = mr;
  mr->windows++;
  mw->qp = qp;
  mw->addr = bind->addr;
  mw->length = bind->length;
  mw->access = bind->mw_access_flags;
  mw->rkey = request->rkey;
  add(qp->device, COUNT_binds, 1);
  return IBV_WC_SUCCESS;
}

/* By the owner, or by a peer to whom it was shown. */
static bool invalidate(struct qp *qp, uint32_t rkey) {
  struct mw *mw = windows;
  while (mw != NULL && (mw->mr == NULL || mw->rkey != rkey || mw->qp != qp)) mw = mw->next;
  if (mw == NULL) return false;
  unbind(mw);
  add(qp->device, COUNT_invalidations, 1);
  return true;
}

#endif
