/* The constants of crc32c.c. */
#ifndef ZAP_CRC32C_TABLE_H
#define ZAP_CRC32C_TABLE_H

#include <stdint.h>

extern const uint32_t zap_crc32c_table[4][256];

/* Bytes of each of the three lanes that crc32c.c runs side by side. */
#define ZAP_CRC32C_LANE 192
extern const uint32_t zap_crc32c_lane[4][256];

#endif
