#include "handoff.h"

#include <stdlib.h>

#include "../common/fail.h"

int32_t zap_handoff_init(struct zap_handoff *handoff, zap_ring *out, zap_ring *back) {
  *handoff = (struct zap_handoff){.tokens = back->slots};
  zap_ring_attach(&handoff->out, out);
  zap_ring_attach(&handoff->back, back);
  handoff->buffer = calloc(handoff->tokens, sizeof *handoff->buffer);
  handoff->spare = calloc(handoff->tokens, sizeof *handoff->spare);
  if (handoff->buffer == NULL || handoff->spare == NULL) {
    zap_handoff_destroy(handoff);
    return zap_fail(ZAP_E_MEMORY, "out of memory for a hand-off ring of %u entries", handoff->tokens);
  }
  /* Token 0 goes first: what is used again soonest is still in the cache. */
  for (uint32_t i = 0; i < handoff->tokens; i++) handoff->spare[i] = handoff->tokens - 1 - i;
  handoff->spares = handoff->tokens;
  return ZAP_OK;
}

void zap_handoff_destroy(struct zap_handoff *handoff) {
  free(handoff->buffer);
  free(handoff->spare);
  handoff->buffer = NULL;
  handoff->spare = NULL;
}
