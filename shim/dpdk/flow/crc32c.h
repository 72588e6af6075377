/* CRC-32C (RFC 3720, appendix B.4): by the processor's instruction where the build allows it, else by tables. No mutable state. */
#ifndef ZAP_CRC32C_H
#define ZAP_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Continues `crc` (0 at the start) over `length` bytes. */
uint32_t zap_crc32c(uint32_t crc, const uint8_t *bytes, size_t length);

/* The same without the instruction: what the other is tested against. */
uint32_t zap_crc32c_portable(uint32_t crc, const uint8_t *bytes, size_t length);

#endif
