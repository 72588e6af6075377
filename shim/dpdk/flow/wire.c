#include "wire.h"

#include "bytes.h"
#include "crc32c.h"

static const uint8_t magic[4] = {0x5a, 0x41, 0x50, 0x00};
static const uint8_t zeros[4];

/* Where the checksum is. */
#define SUM 8

static uint32_t sum(const uint8_t *head, uint32_t head_length, const uint8_t *payload, uint32_t payload_length) {
  uint32_t crc = zap_crc32c(0, head, SUM);
  crc = zap_crc32c(crc, zeros, sizeof zeros);
  crc = zap_crc32c(crc, head + SUM + 4, head_length - SUM - 4);
  return payload_length == 0 ? crc : zap_crc32c(crc, payload, payload_length);
}

static uint32_t least(uint8_t kind) {
  switch (kind) {
    case ZAP_DATAGRAM_INIT: return ZAP_INIT_BYTES;
    case ZAP_DATAGRAM_COOKIE: return ZAP_COOKIE_BYTES;
    case ZAP_DATAGRAM_HELLO: return ZAP_HELLO_BYTES;
    case ZAP_DATAGRAM_WELCOME: return ZAP_WELCOME_BYTES;
    case ZAP_DATAGRAM_DATA: return ZAP_FLOW_HEADER + 1;
    case ZAP_DATAGRAM_ACK: return ZAP_FLOW_HEADER;
    case ZAP_DATAGRAM_CLOSE: return ZAP_CLOSE_BYTES;
    case ZAP_DATAGRAM_REFUSE: return ZAP_REFUSE_BYTES;
  }
  return 0;
}

static bool read_id(struct zap_flow_id *id, const uint8_t *at) {
  if (at[0] == 0 || at[0] > ZAP_FLOW_ID) return false;
  id->length = at[0];
  memset(id->bytes, 0, sizeof id->bytes);
  memcpy(id->bytes, at + 1, at[0]);
  return true;
}

/* INIT's body, which is HELLO's too. */
static bool read_client(struct zap_datagram *to, const uint8_t *bytes) {
  to->client = get64(bytes + 24);
  memcpy(to->nonce, bytes + 32, ZAP_NONCE);
  return to->client != 0 && read_id(&to->id, bytes + 48);
}

static bool sane(const struct zap_terms *terms) {
  return terms->payload >= 128 && terms->payload <= 65000 && terms->payload % 8 == 0 && terms->credits >= 64 &&
         terms->credits <= 32768 && (terms->credits & (terms->credits - 1)) == 0 && terms->message > 0 && terms->message <= 1u << 30;
}

static bool read_segment(struct zap_datagram *to, const uint8_t *bytes) {
  to->epoch = get32(bytes + 12);
  to->segment = get32(bytes + 24);
  to->message = get32(bytes + 28);
  to->length = get32(bytes + 32);
  to->offset = get32(bytes + 36);
  to->ack = get32(bytes + 40);
  to->limit = get32(bytes + 44);
  to->sack = get64(bytes + 48);
  to->number = get32(bytes + 56);
  to->echo = get32(bytes + 60);
  if (to->limit - to->ack > 32768) return false;
  if (to->kind == ZAP_DATAGRAM_ACK) return to->payload_length % 8 == 0;
  return to->length <= 1u << 30 && to->offset < to->length && to->payload_length <= to->length - to->offset;
}

static bool read_body(struct zap_datagram *to, const uint8_t *bytes) {
  switch (to->kind) {
    case ZAP_DATAGRAM_INIT: return read_client(to, bytes);
    case ZAP_DATAGRAM_COOKIE:
      memcpy(to->nonce, bytes + 24, ZAP_NONCE);
      to->slot = get32(bytes + 40);
      memcpy(to->mac, bytes + 48, sizeof to->mac);
      return true;
    case ZAP_DATAGRAM_HELLO:
      to->slot = get32(bytes + 112);
      memcpy(to->mac, bytes + 120, sizeof to->mac);
      to->terms = (struct zap_terms){get32(bytes + 116), get32(bytes + 136), get32(bytes + 140), get32(bytes + 144)};
      return read_client(to, bytes) && sane(&to->terms);
    case ZAP_DATAGRAM_WELCOME:
      to->client = get64(bytes + 24);
      memcpy(to->nonce, bytes + 32, ZAP_NONCE);
      to->terms = (struct zap_terms){get32(bytes + 112), get32(bytes + 116), get32(bytes + 120), get32(bytes + 124)};
      return to->client != 0 && read_id(&to->id, bytes + 48) && sane(&to->terms);
    case ZAP_DATAGRAM_CLOSE:
      to->reason = get32(bytes + 24);
      to->ack = get32(bytes + 28);
      return true;
    case ZAP_DATAGRAM_REFUSE:
      to->reason = get32(bytes + 24);
      memcpy(to->nonce, bytes + 32, ZAP_NONCE);
      return true;
    default: return read_segment(to, bytes);
  }
}

bool zap_datagram_read(struct zap_datagram *to, const uint8_t *bytes, uint32_t length, enum zap_flow_drop *why) {
  *why = ZAP_DROP_SHORT;
  if (length < ZAP_COMMON_BYTES) return false;
  *why = ZAP_DROP_MAGIC;
  if (memcmp(bytes, magic, sizeof magic) != 0) return false;
  *why = ZAP_DROP_VERSION;
  if (bytes[4] != ZAP_WIRE_VERSION) return false;
  *why = ZAP_DROP_KIND;
  uint32_t needed = least(bytes[5]);
  if (needed == 0) return false;
  *why = ZAP_DROP_LAYOUT;
  if (length < needed || length > 65535) return false;
  *why = ZAP_DROP_CHECKSUM;
  if (sum(bytes, length, NULL, 0) != get32(bytes + SUM)) return false;
  *why = ZAP_DROP_LAYOUT;
  to->kind = bytes[5];
  to->flags = (uint16_t)(bytes[6] | bytes[7] << 8);
  to->session = get64(bytes + 16);
  to->payload = bytes + ZAP_FLOW_HEADER;
  to->payload_length = length > ZAP_FLOW_HEADER ? length - ZAP_FLOW_HEADER : 0;
  return read_body(to, bytes);
}

static void write_id(const struct zap_flow_id *id, uint8_t *at) {
  at[0] = id->length;
  memcpy(at + 1, id->bytes, id->length);
}

static void write_client(const struct zap_datagram *from, uint8_t *head) {
  put64(head + 24, from->client);
  memcpy(head + 32, from->nonce, ZAP_NONCE);
  write_id(&from->id, head + 48);
}

static void write_segment(const struct zap_datagram *from, uint8_t *head) {
  put32(head + 24, from->segment);
  put32(head + 28, from->message);
  put32(head + 32, from->length);
  put32(head + 36, from->offset);
  put32(head + 40, from->ack);
  put32(head + 44, from->limit);
  put64(head + 48, from->sack);
  put32(head + 56, from->number);
  put32(head + 60, from->echo);
}

uint32_t zap_datagram_write(const struct zap_datagram *from, uint8_t *head) {
  bool carries = from->kind == ZAP_DATAGRAM_DATA || from->kind == ZAP_DATAGRAM_ACK;
  uint32_t length = carries ? ZAP_FLOW_HEADER : least(from->kind);
  if (!carries) memset(head, 0, length);
  memcpy(head, magic, sizeof magic);
  head[4] = ZAP_WIRE_VERSION;
  head[5] = from->kind;
  put16(head + 6, from->flags);
  put32(head + SUM, 0);
  put32(head + 12, carries ? from->epoch : 0);
  put64(head + 16, from->session);
  switch (from->kind) {
    case ZAP_DATAGRAM_INIT: write_client(from, head); break;
    case ZAP_DATAGRAM_COOKIE:
      memcpy(head + 24, from->nonce, ZAP_NONCE);
      put32(head + 40, from->slot);
      memcpy(head + 48, from->mac, sizeof from->mac);
      break;
    case ZAP_DATAGRAM_HELLO:
      write_client(from, head);
      put32(head + 112, from->slot);
      put32(head + 116, from->terms.payload);
      memcpy(head + 120, from->mac, sizeof from->mac);
      put32(head + 136, from->terms.credits);
      put32(head + 140, from->terms.start);
      put32(head + 144, from->terms.message);
      break;
    case ZAP_DATAGRAM_WELCOME:
      write_client(from, head);
      put32(head + 112, from->terms.payload);
      put32(head + 116, from->terms.credits);
      put32(head + 120, from->terms.start);
      put32(head + 124, from->terms.message);
      break;
    case ZAP_DATAGRAM_CLOSE:
      put32(head + 24, from->reason);
      put32(head + 28, from->ack);
      break;
    case ZAP_DATAGRAM_REFUSE:
      put32(head + 24, from->reason);
      memcpy(head + 32, from->nonce, ZAP_NONCE);
      break;
    default: write_segment(from, head); break;
  }
  return length;
}

void zap_datagram_seal(uint8_t *head, uint32_t head_length, const uint8_t *payload, uint32_t payload_length) {
  put32(head + SUM, sum(head, head_length, payload, payload_length));
}

bool zap_address_equal(const struct zap_flow_address *a, const struct zap_flow_address *b) {
  return a->port == b->port && memcmp(a->ip, b->ip, sizeof a->ip) == 0;
}

bool zap_id_equal(const struct zap_flow_id *a, const struct zap_flow_id *b) {
  return a->length == b->length && memcmp(a->bytes, b->bytes, a->length) == 0;
}

int zap_id_compare(const struct zap_flow_id *a, const struct zap_flow_id *b) {
  int order = memcmp(a->bytes, b->bytes, a->length < b->length ? a->length : b->length);
  return order != 0 ? order : (int)a->length - (int)b->length;
}
