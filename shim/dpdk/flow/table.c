#include "table.h"

static uint32_t home(const struct zap_table *table, uint64_t session) { return (uint32_t)session & table->mask; }

/* The session's place, or the free one where it would be. */
static uint32_t place_of(const struct zap_table *table, uint64_t session) {
  uint32_t place = home(table, session);
  while (table->entries[place].session != 0 && table->entries[place].session != session) place = (place + 1) & table->mask;
  return place;
}

void zap_table_add(struct zap_table *table, uint64_t session, uint32_t what) {
  table->entries[place_of(table, session)] = (struct zap_table_entry){session, what};
}

bool zap_table_find(const struct zap_table *table, uint64_t session, uint32_t *what) {
  if (session == 0) return false;
  const struct zap_table_entry *entry = &table->entries[place_of(table, session)];
  *what = entry->what;
  return entry->session != 0;
}

void zap_table_change(struct zap_table *table, uint64_t session, uint32_t what) {
  struct zap_table_entry *entry = &table->entries[place_of(table, session)];
  if (entry->session != 0) entry->what = what;
}

void zap_table_remove(struct zap_table *table, uint64_t session) {
  uint32_t hole = place_of(table, session);
  if (session == 0 || table->entries[hole].session == 0) return;
  /* Those behind it move up, unless that would put one before its home. */
  for (uint32_t place = (hole + 1) & table->mask; table->entries[place].session != 0; place = (place + 1) & table->mask) {
    uint32_t from = home(table, table->entries[place].session);
    if (((place - from) & table->mask) < ((place - hole) & table->mask)) continue;
    table->entries[hole] = table->entries[place];
    hole = place;
  }
  table->entries[hole].session = 0;
}
