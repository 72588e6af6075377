/*
 * Readiness: waits until one of many sockets can be read. One file per kernel interface: readiness_epoll.c (Linux),
 * readiness_kqueue.c (macOS). Each call returns 0 or a positive number, or -1 with errno.
 */
#ifndef ZAP_READINESS_H
#define ZAP_READINESS_H

#include <stdbool.h>
#include <stdint.h>

/* An empty set. Returns its file descriptor, closed with close(). */
int zap_readiness_open(void);

/*
 * Reports `tag` once, as soon as `fd` can be read, has ended or is broken; to be called again after each report. `known`: it was
 * armed before, and not forgotten since.
 */
int zap_readiness_arm(int set, int fd, uint64_t tag, bool known);

/*
 * Takes a descriptor that was armed out of the set; to be called before it is closed. Closing is not enough: epoll keeps what it has
 * for as long as any duplicate of the descriptor is open, in this process or in another one.
 */
void zap_readiness_forget(int set, int fd);

/* Waits for reports, at most `capacity` of them. Returns how many; 0 after a signal. */
int zap_readiness_wait(int set, uint64_t *tags, int capacity);

#endif
