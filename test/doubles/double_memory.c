/* Test double support: memory that is mapped but not touched, and closed to the CPU where a device's would be. Not a device. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "double.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FILE_NAME "device-double"

/* Recursive, as a kernel's run holds it while the doubles look up addresses for it. */
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static double_block *blocks;
static uint64_t used;
static bool strict;
static bool busy;

static size_t in_pages(size_t bytes) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  return bytes > SIZE_MAX - page ? 0 : (bytes + page - 1) / page * page;
}

static int cpu_access(const double_block *block) {
  if (block->kind == DOUBLE_DEVICE) return PROT_NONE;
  if (block->kind == DOUBLE_MANAGED && strict && busy) return PROT_NONE;
  return PROT_READ | PROT_WRITE;
}

/* Tells whether the device's view is a mapping of its own, which the CPU never may use. */
static bool has_alias(const double_block *block) { return block->device != block->host; }

static void protect(double_block *block, bool running) {
  if (block->kind != DOUBLE_REGISTERED) {
    int access = running && !has_alias(block) ? PROT_READ | PROT_WRITE : cpu_access(block);
    if (access != block->access) (void)mprotect(block->host, block->mapped, access);
    block->access = access;
  }
  if (has_alias(block)) (void)mprotect(block->device, block->mapped, running ? PROT_READ | PROT_WRITE : PROT_NONE);
}

static double_block *map(uint32_t kind, size_t bytes, void *owner) {
  double_block *block = calloc(1, sizeof *block);
  if (block == NULL) return NULL;
  *block = (double_block){.bytes = bytes, .mapped = in_pages(bytes), .kind = kind, .fd = -1, .owner = owner};
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  /* What can be exported as a dma-buf, or has a second view, needs a file; managed memory can be neither. */
  if (kind != DOUBLE_MANAGED) {
    block->fd = memfd_create(FILE_NAME, MFD_CLOEXEC);
    if (block->fd < 0 || ftruncate(block->fd, (off_t)block->mapped) != 0) goto failed;
    flags = MAP_SHARED | MAP_NORESERVE;
  }
  void *host = mmap(NULL, block->mapped, cpu_access(block), flags, block->fd, 0);
  if (host == MAP_FAILED) goto failed;
  block->host = block->device = host;
  block->access = cpu_access(block);
  if (kind == DOUBLE_SHARED || (kind == DOUBLE_HOST && double_number("alias", 0) != 0)) {
    void *device = mmap(NULL, block->mapped, PROT_NONE, flags, block->fd, 0);
    if (device == MAP_FAILED) {
      (void)munmap(host, block->mapped);
      goto failed;
    }
    block->device = device;
  }
  if (kind == DOUBLE_DEVICE) {
    void *backing = mmap(NULL, block->mapped, PROT_READ | PROT_WRITE, flags, block->fd, 0);
    if (backing == MAP_FAILED) {
      (void)munmap(host, block->mapped);
      goto failed;
    }
    block->backing = backing;
  }
  return block;
failed:
  if (block->fd >= 0) (void)close(block->fd);
  free(block);
  return NULL;
}

double_block *double_memory_new(uint32_t kind, size_t bytes, void *owner) {
  double_block *block = NULL;
  uint64_t limit = (uint64_t)double_number("memory", 0);
  pthread_mutex_lock(&lock);
  bool fits = in_pages(bytes) > 0 && (limit == 0 || (bytes <= limit && used <= limit - bytes));
  if (fits) block = map(kind, bytes, owner);
  if (block != NULL) {
    used += bytes;
    block->next = blocks;
    blocks = block;
  }
  pthread_mutex_unlock(&lock);
  return block;
}

/* Whether all pages from `start` on are mapped; msync says so of any memory, and does nothing else here. */
static bool is_mapped(const void *start, size_t bytes) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  uintptr_t first = (uintptr_t)start / page * page;
  return msync((void *)first, (size_t)((uintptr_t)start - first) + bytes, MS_ASYNC) == 0;
}

bool double_memory_there(const double_block *block) { return is_mapped(block->host, block->bytes); }

static enum double_registered register_locked(double_block *block) {
  uintptr_t start = (uintptr_t)block->host;
  for (double_block *other = blocks; other != NULL; other = other->next) {
    uintptr_t at = (uintptr_t)other->host;
    if (start < at + other->bytes && at < start + block->bytes) return DOUBLE_OVERLAPS;
  }
  if (!double_memory_there(block)) return DOUBLE_NOT_THERE;
  if (double_number("alias", 0) != 0) {
    /* With an old size of 0 the mapping stays, and there is another one of the same pages. */
    void *device = mremap(block->host, 0, block->mapped, MREMAP_MAYMOVE);
    if (device == MAP_FAILED) return DOUBLE_NO_ALIAS;
    (void)mprotect(device, block->mapped, PROT_NONE);
    block->device = device;
  }
  block->next = blocks;
  blocks = block;
  return DOUBLE_TAKEN;
}

enum double_registered double_memory_register(void *host, size_t bytes, void *owner, double_block **out) {
  double_block *block = calloc(1, sizeof *block);
  if (block == NULL) abort();
  *block = (double_block){.host = host, .device = host, .bytes = bytes, .mapped = in_pages(bytes), .kind = DOUBLE_REGISTERED, .fd = -1};
  block->owner = owner;
  pthread_mutex_lock(&lock);
  enum double_registered result = register_locked(block);
  pthread_mutex_unlock(&lock);
  if (result != DOUBLE_TAKEN) free(block);
  *out = result == DOUBLE_TAKEN ? block : NULL;
  return result;
}

static bool holds(const uint8_t *start, size_t bytes, uint64_t address, bool inside) {
  uint64_t first = (uint64_t)(uintptr_t)start;
  return inside ? address >= first && address - first < bytes : address == first;
}

double_block *double_memory_find(uint64_t address, bool inside) {
  double_block *block;
  pthread_mutex_lock(&lock);
  for (block = blocks; block != NULL; block = block->next) {
    if (holds(block->host, block->bytes, address, inside) || holds(block->device, block->bytes, address, inside)) break;
  }
  pthread_mutex_unlock(&lock);
  return block;
}

/* ---- by the kernel's list, for memory of another copy of this library ---- */

struct range {
  uint64_t start, end, offset;
  unsigned long file;
  bool open;
};

/* The next one of a file of ours. */
static bool next_range(FILE *maps, struct range *range) {
  char line[512], access[5], name[256];
  while (fgets(line, sizeof line, maps) != NULL) {
    unsigned long long start, end, offset;
    name[0] = 0;
    if (sscanf(line, "%llx-%llx %4s %llx %*s %lu %255s", &start, &end, access, &offset, &range->file, name) < 5) continue;
    if (strcmp(name, "/memfd:" FILE_NAME) != 0) continue;
    range->start = start;
    range->end = end;
    range->offset = offset;
    range->open = access[1] == 'w';
    return true;
  }
  return false;
}

void *double_memory_backing(uint64_t address, uint64_t bytes) {
  struct range closed = {.end = 0}, range;
  FILE *maps = fopen("/proc/self/maps", "re");
  void *found = NULL;
  if (maps == NULL) return NULL;
  while (closed.end == 0 && next_range(maps, &range))
    if (address >= range.start && address < range.end && bytes <= range.end - address) closed = range;
  rewind(maps);
  while (closed.end != 0 && found == NULL && next_range(maps, &range)) {
    uint64_t at = address - closed.start + closed.offset;
    if (range.file == closed.file && range.start != closed.start && range.open && at >= range.offset &&
        bytes <= range.end - range.start && at - range.offset <= range.end - range.start - bytes)
      found = (void *)(uintptr_t)(range.start + (at - range.offset));
  }
  (void)fclose(maps);
  return found;
}

static void unmap(double_block *block) {
  if (block->kind != DOUBLE_REGISTERED) {
    used -= block->bytes;
    (void)munmap(block->host, block->mapped);
  }
  if (has_alias(block)) (void)munmap(block->device, block->mapped);
  if (block->backing != NULL) (void)munmap(block->backing, block->mapped);
  if (block->fd >= 0) (void)close(block->fd);
  free(block);
}

void double_memory_free(double_block *block) {
  pthread_mutex_lock(&lock);
  for (double_block **link = &blocks; *link != NULL; link = &(*link)->next) {
    if (*link != block) continue;
    *link = block->next;
    unmap(block);
    break;
  }
  pthread_mutex_unlock(&lock);
}

uint32_t double_memory_free_all(void *owner, uint64_t *bytes) {
  uint32_t count = 0;
  pthread_mutex_lock(&lock);
  for (double_block **link = &blocks; *link != NULL;) {
    double_block *block = *link;
    if (owner != NULL && block->owner != owner) {
      link = &block->next;
      continue;
    }
    *link = block->next;
    *bytes += block->bytes;
    count += 1;
    unmap(block);
  }
  pthread_mutex_unlock(&lock);
  return count;
}

uint32_t double_memory_count(void *owner, uint64_t *bytes) {
  uint32_t count = 0;
  pthread_mutex_lock(&lock);
  for (double_block *block = blocks; block != NULL; block = block->next) {
    if (owner != NULL && block->owner != owner) continue;
    *bytes += block->bytes;
    count += 1;
  }
  pthread_mutex_unlock(&lock);
  return count;
}

uint64_t double_memory_used(void) {
  pthread_mutex_lock(&lock);
  uint64_t now = used;
  pthread_mutex_unlock(&lock);
  return now;
}

static void protect_all(bool running) {
  for (double_block *block = blocks; block != NULL; block = block->next) protect(block, running);
}

void double_memory_strict(bool on) {
  pthread_mutex_lock(&lock);
  strict = on;
  protect_all(false);
  pthread_mutex_unlock(&lock);
}

void double_memory_launched(void) {
  pthread_mutex_lock(&lock);
  busy = true;
  if (strict) protect_all(false);
  pthread_mutex_unlock(&lock);
}

void double_memory_settled(void) {
  pthread_mutex_lock(&lock);
  bool was = busy;
  busy = false;
  if (strict && was) protect_all(false);
  pthread_mutex_unlock(&lock);
}

/* Held over the run, so that nothing is freed or closed under it: a free waits for the kernel, as a driver's does. */
void double_memory_run(bool begin) {
  if (begin) pthread_mutex_lock(&lock);
  protect_all(begin);
  if (!begin) pthread_mutex_unlock(&lock);
}
