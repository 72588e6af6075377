/*
 * The datagrams of docs/wire-dpdk.md: their layout, and the way from bytes to fields and back. No state.
 *
 * zap_datagram_read() looks at nothing beyond `length`, and what it returns true for has fields within their fixed bounds.
 * Bounds that depend on a flow (credits, the agreed payload) are checked where the flow is.
 */
#ifndef ZAP_FLOW_WIRE_H
#define ZAP_FLOW_WIRE_H

#include "flow.h"

#define ZAP_WIRE_VERSION 1

enum zap_datagram_kind {
  ZAP_DATAGRAM_INIT = 1,
  ZAP_DATAGRAM_COOKIE,
  ZAP_DATAGRAM_HELLO,
  ZAP_DATAGRAM_WELCOME,
  ZAP_DATAGRAM_DATA,
  ZAP_DATAGRAM_ACK,
  ZAP_DATAGRAM_CLOSE,
  ZAP_DATAGRAM_REFUSE,
};

/* Shortest datagrams of each kind. HELLO and WELCOME are padded to what a full segment takes. */
#define ZAP_COMMON_BYTES 24
#define ZAP_INIT_BYTES 112
#define ZAP_COOKIE_BYTES 64
#define ZAP_HELLO_BYTES 152
#define ZAP_WELCOME_BYTES 128
#define ZAP_CLOSE_BYTES 32
#define ZAP_REFUSE_BYTES 48
/* The longest head that is not an ACK's. */
#define ZAP_CONTROL_BYTES ZAP_HELLO_BYTES

/* Flags of DATA and ACK. */
#define ZAP_FLAG_ANSWER 1u /* acknowledge this at once */
#define ZAP_FLAG_DONE 2u   /* the sender closes; everything that it sent was acknowledged */

#define ZAP_NONCE 16

/* What each end says of itself in HELLO and WELCOME. */
struct zap_terms {
  uint32_t payload; /* of a segment */
  uint32_t credits; /* segments */
  uint32_t start;   /* the number of the first segment, the first message and the first DATA datagram */
  uint32_t message; /* largest message taken, bytes */
};

/* One datagram's fields; those that its kind has. */
struct zap_datagram {
  uint8_t kind;
  uint16_t flags;
  uint64_t session; /* the receiver's */
  uint32_t epoch;

  uint64_t client; /* INIT, HELLO: the dialler's session. WELCOME: the answerer's */
  uint8_t nonce[ZAP_NONCE];
  struct zap_flow_id id;
  uint32_t slot; /* COOKIE, HELLO */
  uint8_t mac[16];
  struct zap_terms terms;

  uint32_t segment, message, length, offset; /* DATA; in an ACK, segment alone: the next to be sent */
  uint32_t ack, limit, number, echo;
  uint64_t sack;
  const uint8_t *payload; /* DATA: of the segment. ACK: further words of the sack */
  uint32_t payload_length;

  uint32_t reason; /* CLOSE, REFUSE */
};

/* True, or false with the reason. */
bool zap_datagram_read(struct zap_datagram *to, const uint8_t *bytes, uint32_t length, enum zap_flow_drop *why);

/* Writes the head, without its checksum, and returns its length. An ACK's further words are the caller's to append. */
uint32_t zap_datagram_write(const struct zap_datagram *from, uint8_t *head);

/* Sets the checksum of head and payload. */
void zap_datagram_seal(uint8_t *head, uint32_t head_length, const uint8_t *payload, uint32_t payload_length);

bool zap_address_equal(const struct zap_flow_address *a, const struct zap_flow_address *b);
bool zap_id_equal(const struct zap_flow_id *a, const struct zap_flow_id *b);
/* Below 0, 0 or above, as by bytes. */
int zap_id_compare(const struct zap_flow_id *a, const struct zap_flow_id *b);

#endif
