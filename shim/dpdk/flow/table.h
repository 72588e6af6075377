/* Which thing a session belongs to: open addressing by the session's own bits, which are random and ours. */
#ifndef ZAP_FLOW_TABLE_H
#define ZAP_FLOW_TABLE_H

#include <stdbool.h>
#include <stdint.h>

struct zap_table_entry {
  uint64_t session; /* 0: free */
  uint32_t what;
};

struct zap_table {
  struct zap_table_entry *entries;
  uint32_t mask; /* at least twice as many places as sessions */
};

void zap_table_add(struct zap_table *table, uint64_t session, uint32_t what);
bool zap_table_find(const struct zap_table *table, uint64_t session, uint32_t *what);
void zap_table_change(struct zap_table *table, uint64_t session, uint32_t what);
void zap_table_remove(struct zap_table *table, uint64_t session);

#endif
