#include "neighbours.h"

#include <string.h>

void zap_neighbours_init(struct zap_neighbours *table) {
  memset(table->table, 0, sizeof table->table);
  atomic_init(&table->generation, 1);
  (void)pthread_mutex_init(&table->lock, NULL);
}

void zap_neighbours_destroy(struct zap_neighbours *table) { (void)pthread_mutex_destroy(&table->lock); }

static struct zap_neighbour *place_of(struct zap_neighbours *table, const struct zap_ip *ip) {
  uint32_t hash = 2166136261u;
  for (size_t i = 0; i < sizeof ip->bytes; i++) hash = (hash ^ ip->bytes[i]) * 16777619u;
  return table->table[(hash ^ hash >> 16) % ZAP_NEIGHBOUR_PLACES];
}

static struct zap_neighbour *look(struct zap_neighbour *place, const struct zap_ip *ip) {
  for (int i = 0; i < ZAP_NEIGHBOUR_WAYS; i++)
    if (place[i].state != ZAP_NEIGHBOUR_EMPTY && memcmp(&place[i].ip, ip, sizeof *ip) == 0) return &place[i];
  return NULL;
}

/* A fresh entry for `ip`, or NULL: an empty one, else what is only wanted, else what was told longest ago. */
static struct zap_neighbour *make(struct zap_neighbour *place, const struct zap_ip *ip) {
  struct zap_neighbour *best = NULL;
  for (int i = 0; i < ZAP_NEIGHBOUR_WAYS; i++) {
    struct zap_neighbour *each = &place[i];
    if (each->state == ZAP_NEIGHBOUR_STATIC) continue;
    if (best == NULL || each->state < best->state) best = each;
    else if (each->state == best->state && (each->state == ZAP_NEIGHBOUR_LEARNED ? each->told < best->told : each->asked < best->asked))
      best = each;
  }
  if (best != NULL) *best = (struct zap_neighbour){.ip = *ip};
  return best;
}

bool zap_neighbours_set(struct zap_neighbours *table, const struct zap_ip *ip, const uint8_t mac[6]) {
  pthread_mutex_lock(&table->lock);
  struct zap_neighbour *place = place_of(table, ip);
  struct zap_neighbour *entry = look(place, ip);
  if (entry == NULL) entry = make(place, ip);
  if (entry != NULL) {
    entry->state = ZAP_NEIGHBOUR_STATIC;
    memcpy(entry->mac, mac, 6);
    atomic_fetch_add(&table->generation, 1);
  }
  pthread_mutex_unlock(&table->lock);
  return entry != NULL;
}

void zap_neighbours_find(struct zap_neighbours *table, const struct zap_ip *ip, uint64_t now, struct zap_neighbour_found *found) {
  *found = (struct zap_neighbour_found){.until = UINT64_MAX};
  pthread_mutex_lock(&table->lock);
  struct zap_neighbour *place = place_of(table, ip);
  struct zap_neighbour *entry = look(place, ip);
  if (entry == NULL && (entry = make(place, ip)) != NULL) entry->state = ZAP_NEIGHBOUR_WANTED;
  if (entry != NULL) {
    bool learned = entry->state == ZAP_NEIGHBOUR_LEARNED;
    if (learned && now - entry->told > ZAP_NEIGHBOUR_STALE) {
      entry->state = ZAP_NEIGHBOUR_WANTED;
      learned = false;
      atomic_fetch_add(&table->generation, 1);
    }
    found->known = entry->state != ZAP_NEIGHBOUR_WANTED;
    bool wanted = !found->known || (learned && now - entry->told > ZAP_NEIGHBOUR_FRESH);
    if (wanted && (entry->asked == 0 || now - entry->asked > ZAP_NEIGHBOUR_AGAIN)) {
      entry->asked = now;
      found->ask = true;
    }
    memcpy(found->mac, entry->mac, 6);
    /* Once it is no longer fresh, whoever sends has to come by and ask. */
    if (learned) found->until = wanted ? now : entry->told + ZAP_NEIGHBOUR_FRESH;
  }
  pthread_mutex_unlock(&table->lock);
}

void zap_neighbours_told(struct zap_neighbours *table, const struct zap_ip *ip, const uint8_t mac[6], uint64_t now, bool create) {
  pthread_mutex_lock(&table->lock);
  struct zap_neighbour *place = place_of(table, ip);
  struct zap_neighbour *entry = look(place, ip);
  if (entry == NULL && create) entry = make(place, ip);
  if (entry != NULL && entry->state != ZAP_NEIGHBOUR_STATIC) {
    bool news = entry->state != ZAP_NEIGHBOUR_LEARNED || memcmp(entry->mac, mac, 6) != 0;
    entry->state = ZAP_NEIGHBOUR_LEARNED;
    entry->told = now;
    memcpy(entry->mac, mac, 6);
    if (news) atomic_fetch_add(&table->generation, 1);
  }
  pthread_mutex_unlock(&table->lock);
}
