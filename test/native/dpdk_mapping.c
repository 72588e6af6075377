/* The region's memory: ordinary pages; or with `huge PAGES FREE` so many hugepages of 2 MiB, where FREE are free. No DPDK here. */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "../../shim/common/fail.h"
#include "../../shim/common/mapping.h"
#include "check.h"

#define MIB (UINT64_C(1) << 20)

/* Whether a forked child can read there: asked of the kernel, which does not raise a signal. */
static bool child_sees(const void *at) {
  int ends[2], status = 0;
  if (pipe(ends) != 0) return true;
  pid_t child = fork();
  if (child == 0) _exit(write(ends[1], at, 1) == 1 ? 1 : errno == EFAULT ? 0 : 2);
  CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) != 2);
  (void)close(ends[0]);
  (void)close(ends[1]);
  return WEXITSTATUS(status) == 1;
}

static void check_mapping(const struct zap_mapping *m) {
  uint8_t *bytes = m->at;
  CHECK(m->bytes % m->page_bytes == 0 && (uintptr_t)m->at % m->page_bytes == 0);
  uint64_t small = (uint64_t)sysconf(_SC_PAGESIZE);
  unsigned char here;
  for (uint64_t i = 0; i < m->bytes; i += small) CHECK(mincore(bytes + i, small, &here) == 0 && (here & 1));
  for (uint64_t i = 0; i < m->bytes; i += 512) {
    CHECK_EQUAL(bytes[i], 0);
    bytes[i] = (uint8_t)i;
  }
  CHECK(!child_sees(m->at) && !child_sees(bytes + m->bytes - 1));
  CHECK(child_sees(m));
}

static void test_ordinary(void) {
  struct zap_mapping m;
  uint64_t small = (uint64_t)sysconf(_SC_PAGESIZE);
  CHECK_EQUAL(zap_mapping_make(5 * MIB + 1, false, &m), ZAP_OK);
  CHECK_EQUAL(m.bytes, 5 * MIB + small);
  CHECK_EQUAL(m.page_bytes, small);
  check_mapping(&m);
  zap_mapping_drop(&m);
  CHECK_EQUAL(madvise(m.at, m.bytes, MADV_NORMAL), -1);
  zap_mapping_drop(&(struct zap_mapping){0});
  CHECK_EQUAL(zap_mapping_make(0, false, &m), ZAP_E_INVALID);
  CHECK_EQUAL(zap_mapping_make(UINT64_MAX, false, &m), ZAP_E_INVALID);
  CHECK_EQUAL(zap_mapping_make(UINT64_C(1) << 46, false, &m), ZAP_E_MEMORY);
}

/* More than any machine has reserved. */
static void test_too_few(void) {
  struct zap_mapping m;
  int32_t status = zap_mapping_make(UINT64_C(1) << 45, true, &m);
  if (status == ZAP_E_UNSUPPORTED) return;
  CHECK_EQUAL(status, ZAP_E_MEMORY);
  CHECK_CONTAINS(zap_failure(), " are needed, and free are ");
  CHECK_CONTAINS(zap_failure(), "/nr_hugepages");
}

static void test_huge(uint64_t pages, uint64_t unused) {
  struct zap_mapping m;
  char needed[128];
  CHECK_EQUAL(zap_mapping_make((pages - 1) * 2 * MIB + 1, true, &m), ZAP_OK);
  CHECK_EQUAL(m.bytes, pages * 2 * MIB);
  CHECK_EQUAL(m.page_bytes, 2 * MIB);
  check_mapping(&m);
  (void)snprintf(needed, sizeof needed, "%llu hugepages of 2048 KiB are needed, and free are %llu of 2048 KiB", (unsigned long long)unused,
                 (unsigned long long)(unused - pages));
  CHECK_EQUAL(zap_mapping_make(unused * 2 * MIB, true, &(struct zap_mapping){0}), ZAP_E_MEMORY);
  CHECK_CONTAINS(zap_failure(), needed);
  CHECK_CONTAINS(zap_failure(), "> /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages");
  zap_mapping_drop(&m);
  /* They came back. */
  CHECK_EQUAL(zap_mapping_make(pages * 2 * MIB, true, &m), ZAP_OK);
  check_mapping(&m);
  zap_mapping_drop(&m);
}

int main(int count, char **words) {
  if (count > 3 && strcmp(words[1], "huge") == 0) {
    test_huge(strtoull(words[2], NULL, 10), strtoull(words[3], NULL, 10));
  } else {
    test_ordinary();
    test_too_few();
  }
  return checks_done("mapping");
}
