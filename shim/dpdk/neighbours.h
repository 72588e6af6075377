/*
 * Which MAC address an IP address of the link has: static entries, and those that were learned. Bounded: in a full place of the table the
 * oldest learned entry makes way. Any thread may use a table; no global state.
 */
#ifndef ZAP_NEIGHBOURS_H
#define ZAP_NEIGHBOURS_H

#include <pthread.h>
#include <stdatomic.h>

#include "packet.h"

#define ZAP_NEIGHBOUR_WAYS 8
#define ZAP_NEIGHBOUR_PLACES 128
/* Nanoseconds. Asked again after the first, forgotten after the second; a question is repeated no sooner than the third. */
#define ZAP_NEIGHBOUR_FRESH 30000000000u
#define ZAP_NEIGHBOUR_STALE 60000000000u
#define ZAP_NEIGHBOUR_AGAIN 100000000u

enum zap_neighbour_state { ZAP_NEIGHBOUR_EMPTY, ZAP_NEIGHBOUR_WANTED, ZAP_NEIGHBOUR_LEARNED, ZAP_NEIGHBOUR_STATIC };

struct zap_neighbour {
  struct zap_ip ip;
  uint8_t mac[6];
  uint8_t state;
  uint64_t told, asked; /* when */
};

struct zap_neighbours {
  pthread_mutex_t lock;
  atomic_uint generation; /* goes up with every change of what is known */
  struct zap_neighbour table[ZAP_NEIGHBOUR_PLACES][ZAP_NEIGHBOUR_WAYS];
};

struct zap_neighbour_found {
  bool known;
  bool ask; /* a question should be sent */
  uint8_t mac[6];
  uint64_t until; /* what is known may be used so long without asking the table again, while the generation is the same */
};

void zap_neighbours_init(struct zap_neighbours *table);
void zap_neighbours_destroy(struct zap_neighbours *table);
/* False where its place is full of other static entries. */
bool zap_neighbours_set(struct zap_neighbours *table, const struct zap_ip *ip, const uint8_t mac[6]);
void zap_neighbours_find(struct zap_neighbours *table, const struct zap_ip *ip, uint64_t now, struct zap_neighbour_found *found);
/* What a neighbour says. Without `create` only where we had asked, or knew it already: an answer that nobody wanted changes nothing. */
void zap_neighbours_told(struct zap_neighbours *table, const struct zap_ip *ip, const uint8_t mac[6], uint64_t now, bool create);

#endif
