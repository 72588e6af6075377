#include "state.h"

static uint32_t or_else(uint32_t value, uint32_t otherwise) { return value == 0 ? otherwise : value; }

static bool power_of_two(uint32_t value) { return (value & (value - 1)) == 0; }

enum zap_flow_status zap_flow_settings_resolve(struct zap_flow_settings *s, const char **fault) {
  s->message_bytes = or_else(s->message_bytes, 10u << 20);
  s->payload_bytes = or_else(s->payload_bytes, 1384) / 8 * 8;
  s->credits = or_else(s->credits, 1024);
  s->queue_messages = or_else(s->queue_messages, 1024);
  if (s->queue_bytes == 0) s->queue_bytes = 16u << 20;
  s->flows = or_else(s->flows, 1024);
  s->dials = or_else(s->dials, 64);
  s->candidates = or_else(s->candidates, 64);
  s->handshake_us = or_else(s->handshake_us, 5000000);
  s->keepalive_us = or_else(s->keepalive_us, 1000000);
  s->dead_us = or_else(s->dead_us, 5000000);
  s->close_us = or_else(s->close_us, 5000000);
  s->ack_us = or_else(s->ack_us, 100);
  s->rto_min_us = or_else(s->rto_min_us, 1000);
  s->rto_max_us = or_else(s->rto_max_us, 1000000);
  s->challenge_us = or_else(s->challenge_us, 500000);

  *fault = NULL;
  if (s->id.length == 0 || s->id.length > ZAP_FLOW_ID) *fault = "id: a node id has 1 to 60 bytes";
  else if (s->allowed > 0 && s->allow == NULL) *fault = "allow: no list, but a number of entries";
  else if (s->message_bytes > 1u << 30) *fault = "message_bytes: at most 1 GiB";
  else if (s->payload_bytes < 128 || s->payload_bytes > 65000) *fault = "payload_bytes: 128 to 65,000";
  else if (s->credits < 64 || s->credits > 32768 || !power_of_two(s->credits)) *fault = "credits: a power of two, 64 to 32,768";
  else if (s->queue_messages > 65536 || !power_of_two(s->queue_messages)) *fault = "queue_messages: a power of two, up to 65,536";
  else if (s->flows > 65535) *fault = "flows: at most 65,535";
  else if (s->dials > 65535) *fault = "dials: at most 65,535";
  else if (s->candidates > 65535) *fault = "candidates: at most 65,535";
  else if (s->rto_min_us > s->rto_max_us) *fault = "rto_min_us: above rto_max_us";
  else if (s->keepalive_us >= s->dead_us) *fault = "keepalive_us: not below dead_us";
  for (uint32_t i = 0; *fault == NULL && s->allow != NULL && i < s->allowed; i++) {
    if (s->allow[i].id.length == 0 || s->allow[i].id.length > ZAP_FLOW_ID) *fault = "allow: a node id has 1 to 60 bytes";
  }
  return *fault == NULL ? ZAP_FLOW_OK : ZAP_FLOW_INVALID;
}

const char *zap_flow_drop_name(uint32_t drop) {
  static const char *const names[ZAP_DROPS] = {
      "short", "magic", "version", "kind", "checksum", "layout",    "session", "address", "cookie",
      "allow", "full",  "twin",    "ack",  "duplicate", "window", "refused", "reply",
      "dial-only",
  };
  return drop < ZAP_DROPS ? names[drop] : "unknown";
}

const char *zap_flow_reason_name(uint32_t reason) {
  switch (reason) {
    case ZAP_FLOW_FINISHED: return "finished";
    case ZAP_FLOW_ABORTED: return "aborted";
    case ZAP_FLOW_DUPLICATE: return "duplicate";
    case ZAP_FLOW_RESTARTED: return "restarted";
    case ZAP_FLOW_PROTOCOL: return "protocol";
    case ZAP_FLOW_FULL: return "full";
    case ZAP_FLOW_NOT_ALLOWED: return "not allowed";
    case ZAP_FLOW_SELF: return "self";
    case ZAP_FLOW_SETTINGS: return "settings";
    case ZAP_FLOW_DEAD: return "dead";
    case ZAP_FLOW_TIMEOUT: return "timeout";
    case ZAP_FLOW_CANCELLED: return "cancelled";
  }
  return "unknown";
}
