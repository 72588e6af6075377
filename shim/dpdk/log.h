/* Where DPDK's log goes: into memory, of which the end is kept. Global state: that memory, for the life of the process. */
#ifndef ZAP_DPDK_LOG_H
#define ZAP_DPDK_LOG_H

#include <stddef.h>
#include <stdio.h>

/* The stream, made once; NULL where out of memory. Never closed: somebody may be writing to it. */
FILE *zap_log_stream(void);
/* Another one, of which nothing is kept; likewise. */
FILE *zap_log_sink(void);
/* Forgets what was logged so far. */
void zap_log_mark(void);
/* The last lines since the mark, on one line, without DPDK's prefixes of no use; at most `capacity` bytes with the final zero. */
void zap_log_tail(char *text, size_t capacity);

/* Sends there what libbpf and libxdp, which DPDK's af_xdp has brought along, would print to stderr; for the life of the process. */
void zap_log_take_bpf(void);

#endif
