/* What DPDK's net_memif leaves undone about the socket that a server listens at. `device`: with its arguments. */
#ifndef ZAP_MEMIF_H
#define ZAP_MEMIF_H

#include <stdbool.h>

/* Whether that is a server of net_memif. */
bool zap_memif_serves(const char *device);
/* Whether two of them have the same socket. */
bool zap_memif_together(const char *first, const char *second);

/*
 * Before it is added: the file of a socket outlives a process that was killed, and nobody else can listen there then. One that nobody
 * listens at is removed.
 */
void zap_memif_clear(const char *device);

/*
 * After the last one of a socket was removed: DPDK goes on listening there. Puts a descriptor in its place at which nothing ever happens:
 * its number has to stay valid, as DPDK's interrupt thread looks at it as long as the process lives.
 */
void zap_memif_hush(const char *device);

#endif
