/*
 * Receiving without a copy in between: a thread that waits until sockets can be read, and calls that read them into memory of
 * the caller's choice. The thread itself never reads and never touches that memory, so there is nothing to synchronise
 * with it when memory is given back.
 *
 * All functions return 0 or a positive number, or a code of enum zap_status with the thread's text set.
 */
#ifndef ZAP_POLLER_H
#define ZAP_POLLER_H

#include <stdint.h>

typedef struct zap_poller zap_poller;

/* Starts the thread. `wake_fd` is the caller's end of a socket pair: a byte comes when there is something to take. */
int32_t zap_poller_start(zap_poller **poller, int32_t *wake_fd);

/* Ends the thread and frees everything. No other call may be running or follow. */
void zap_poller_stop(zap_poller *poller);

/* Slots are positive and carry a generation. At most ZAP_POLLER_SLOTS at once. */
#define ZAP_POLLER_SLOTS 65536
int32_t zap_poller_add(zap_poller *poller, int32_t fd);
int32_t zap_poller_remove(zap_poller *poller, int32_t slot);
int32_t zap_poller_arm(zap_poller *poller, int32_t slot);
int32_t zap_poller_take(zap_poller *poller, int32_t *slots, uint32_t capacity);
int32_t zap_poller_recv(zap_poller *poller, int32_t slot, void *first, uint32_t first_bytes, void *second,
                        uint32_t second_bytes);

/* Slots in use. */
int32_t zap_poller_count(zap_poller *poller);

#endif
