#include "mapping.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fail.h"

#define FOLDER "/sys/kernel/mm/hugepages"
/* Sizes of hugepages; no processor has more than five. */
#define SIZES 16
#define MOST_BYTES (UINT64_C(1) << 46)

/* Of kernels newer than some C libraries. */
#ifndef MAP_HUGE_SHIFT
#define MAP_HUGE_SHIFT 26
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

struct size {
  uint64_t bytes;
  uint64_t pages; /* that are reserved for everybody */
  uint64_t unused; /* of them */
};

static uint64_t round_up(uint64_t bytes, uint64_t page) { return (bytes + page - 1) / page * page; }

/* A number in a file of one line, or 0. */
static uint64_t read_number(uint64_t page_bytes, const char *name) {
  char path[128];
  unsigned long long value = 0;
  (void)snprintf(path, sizeof path, FOLDER "/hugepages-%llukB/%s", (unsigned long long)(page_bytes >> 10), name);
  FILE *file = fopen(path, "re");
  if (file == NULL) return 0;
  if (fscanf(file, "%llu", &value) != 1) value = 0;
  (void)fclose(file);
  return value;
}

/* The sizes that the system has, largest first; returns their number. */
static uint32_t list_sizes(struct size sizes[SIZES]) {
  uint32_t count = 0;
  DIR *folder = opendir(FOLDER);
  if (folder == NULL) return 0;
  for (const struct dirent *entry = readdir(folder); entry != NULL && count < SIZES; entry = readdir(folder)) {
    unsigned long kib;
    if (sscanf(entry->d_name, "hugepages-%lukB", &kib) != 1 || kib == 0 || (kib & (kib - 1)) != 0) continue;
    struct size size = {.bytes = (uint64_t)kib << 10};
    size.pages = read_number(size.bytes, "nr_hugepages");
    uint64_t unused = read_number(size.bytes, "free_hugepages"), promised = read_number(size.bytes, "resv_hugepages");
    size.unused = unused > promised ? unused - promised : 0;
    uint32_t at = count++;
    for (; at > 0 && sizes[at - 1].bytes < size.bytes; at--) sizes[at] = sizes[at - 1];
    sizes[at] = size;
  }
  (void)closedir(folder);
  return count;
}

static uint64_t default_size(void) {
  unsigned long long kib = 0;
  char line[128];
  FILE *file = fopen("/proc/meminfo", "re");
  if (file == NULL) return 0;
  while (kib == 0 && fgets(line, sizeof line, file) != NULL) (void)sscanf(line, "Hugepagesize: %llu kB", &kib);
  (void)fclose(file);
  return (uint64_t)kib << 10;
}

static const struct size *choose(const struct size *sizes, uint32_t count, uint64_t bytes) {
  for (uint32_t i = 0; i < count; i++) {
    uint64_t whole = round_up(bytes, sizes[i].bytes);
    if (whole - bytes <= bytes / 8 && whole / sizes[i].bytes <= sizes[i].unused) return &sizes[i];
  }
  uint64_t usual = default_size();
  for (uint32_t i = 0; i < count; i++) {
    if (sizes[i].bytes == usual) return &sizes[i];
  }
  return &sizes[count - 1];
}

static int32_t too_few(const struct size *sizes, uint32_t count, const struct size *chosen, uint64_t bytes) {
  char list[160] = "";
  uint32_t length = 0;
  for (uint32_t i = count; i > 0 && length < sizeof list; i--) {
    const struct size *size = &sizes[i - 1];
    int written = snprintf(list + length, sizeof list - length, "%s%llu of %llu KiB", i == count ? "" : ", ",
                           (unsigned long long)size->unused, (unsigned long long)(size->bytes >> 10));
    if (written > 0) length += (uint32_t)written;
  }
  uint64_t wanted = round_up(bytes, chosen->bytes) / chosen->bytes;
  uint64_t missing = wanted > chosen->unused ? wanted - chosen->unused : wanted;
  return zap_fail(ZAP_E_MEMORY,
                  "%llu hugepages of %llu KiB are needed, and free are %s; to reserve more, as root: echo %llu > " FOLDER
                  "/hugepages-%llukB/nr_hugepages",
                  (unsigned long long)wanted, (unsigned long long)(chosen->bytes >> 10), list,
                  (unsigned long long)(chosen->pages + missing), (unsigned long long)(chosen->bytes >> 10));
}

/* Whether each page is in its place, for kernels that cannot be asked to put it there. A part at a time, for the answer's sake. */
static bool all_here(uint8_t *at, uint64_t bytes, uint64_t small) {
  unsigned char here[1024];
  uint64_t part = sizeof here * small;
  for (uint64_t done = 0; done < bytes; done += part) {
    uint64_t now = bytes - done < part ? bytes - done : part;
    if (mincore(at + done, now, here) != 0) return false;
    for (uint64_t i = 0; i < (now + small - 1) / small; i++) {
      if (!(here[i] & 1)) return false;
    }
  }
  return true;
}

/*
 * MAP_POPULATE says nothing where it fails, and then the first access to a hugepage would, with SIGBUS. Returns 0, or the errno. Ordinary
 * pages may be on their way to the disk by now and need no second look.
 */
static int populate(uint8_t *at, uint64_t bytes, uint64_t small, bool hugepages) {
  int failed;
  do failed = madvise(at, bytes, MADV_POPULATE_WRITE);
  while (failed != 0 && (errno == EINTR || errno == EAGAIN));
  if (failed == 0) return 0;
  if (errno != EINVAL) return errno;
  return !hugepages || all_here(at, bytes, small) ? 0 : ENOMEM;
}

int32_t zap_mapping_make(uint64_t bytes, bool hugepages, struct zap_mapping *out) {
  if (bytes == 0 || bytes > MOST_BYTES) return zap_fail(ZAP_E_INVALID, "a region of %llu bytes cannot be", (unsigned long long)bytes);
  struct size sizes[SIZES];
  const struct size *chosen = NULL;
  uint32_t count = 0;
  uint64_t small = (uint64_t)sysconf(_SC_PAGESIZE), page = small;
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE;
  if (hugepages) {
    count = list_sizes(sizes);
    if (count == 0) return zap_fail(ZAP_E_UNSUPPORTED, "this system has no hugepages: there is nothing in " FOLDER);
    chosen = choose(sizes, count, bytes);
    page = chosen->bytes;
    if (round_up(bytes, page) / page > chosen->unused) return too_few(sizes, count, chosen, bytes);
    flags |= MAP_HUGETLB | (int)((uint32_t)__builtin_ctzll(page) << MAP_HUGE_SHIFT);
  }
  uint64_t whole = round_up(bytes, page);
  uint8_t *at = mmap(NULL, whole, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (at == MAP_FAILED) {
    if (errno != ENOMEM) return zap_fail_system("mmap");
    /* Somebody else was faster. */
    if (hugepages) return too_few(sizes, list_sizes(sizes), chosen, bytes);
    return zap_fail(ZAP_E_MEMORY, "out of memory for a region of %llu MiB", (unsigned long long)(whole >> 20));
  }
  *out = (struct zap_mapping){at, whole, page};
  int32_t status = ZAP_OK;
  if (madvise(at, whole, MADV_DONTFORK) != 0) {
    status = zap_fail_system("madvise(MADV_DONTFORK)");
  } else {
    int failed = populate(at, whole, small, hugepages);
    if (failed != 0) {
      status = zap_fail(ZAP_E_MEMORY,
                        "a region of %llu MiB was promised, but not given (errno %d): this process's control group, or the memory "
                        "nodes that it may use, have less",
                        (unsigned long long)(whole >> 20), failed);
    }
  }
  if (status != ZAP_OK) {
    zap_mapping_drop(out);
    *out = (struct zap_mapping){0};
  } else if (!hugepages) {
    (void)mlock(at, whole);
  }
  return status;
}

void zap_mapping_drop(const struct zap_mapping *mapping) {
  if (mapping->at != NULL) (void)munmap(mapping->at, mapping->bytes);
}
