/*
 * DPDK's environment (EAL): once per process, on a thread of its own. Whoever starts it keeps its CPU affinity, its signal handlers and
 * its streams. Everything that configures a port runs on that thread too, one thing at a time.
 *
 * Global state: the environment, its thread, and the end of its log.
 */
#ifndef ZAP_EAL_H
#define ZAP_EAL_H

#include <stdbool.h>
#include <stdint.h>

struct zap_eal_settings {
  const char *cpus;       /* where that thread may run, such as "0-3,8"; NULL: where the caller may */
  const char *const *pci; /* addresses of network cards; with none, PCI is left alone for the process's life */
  uint32_t pci_count;
  uint32_t memory_mib;    /* for DPDK's own objects; 0: 64 */
  uint32_t socket;        /* NUMA node that it comes from, plus 1; 0: any */
  bool hugepages;         /* false: ordinary pages */
  uint32_t timeout_ms;    /* 0: 30 s */
};

/*
 * Starts it; ZAP_OK also where it runs already. What can be seen beforehand (settings, free hugepages) is refused without harm, and another
 * try may follow. Once DPDK itself has failed, every further call fails with that text: only a fresh process can try again.
 */
int32_t zap_eal_start(const struct zap_eal_settings *settings);
bool zap_eal_running(void);
/* Whether it was started with network cards. */
bool zap_eal_has_pci(void);

/*
 * Runs a function on DPDK's thread and returns its status and text. After ZAP_E_TIMEOUT it may still be running, or run later: `context`
 * must outlive that, and nothing of DPDK's can be configured in this process any more.
 */
int32_t zap_eal_run(int32_t (*run)(void *context), void *context, uint32_t timeout_ms);

/*
 * For functions that are run so: runs another one on DPDK's interrupt thread, between two of its handlers, and waits for it. A driver
 * whose handlers change what start, stop and close change as well is safe from itself there.
 */
int32_t zap_eal_run_between(int32_t (*run)(void *context), void *context);

/* Fails with `what`, DPDK's error number where there is one, and what DPDK has logged since zap_eal_mark (on this thread). */
int32_t zap_eal_fail(int32_t status, int number, const char *what);
void zap_eal_mark(void);

#endif
