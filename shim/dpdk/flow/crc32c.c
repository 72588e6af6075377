#include "crc32c.h"

#include <string.h>

#include "crc32c_table.h"

#if defined(__SSE4_2__) && defined(__x86_64__)
#include <nmmintrin.h>
#define STEP8(crc, word) ((uint32_t)_mm_crc32_u64((crc), (word)))
#define STEP1(crc, byte) _mm_crc32_u8((crc), (byte))
#elif defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#define STEP8(crc, word) __crc32cd((crc), (word))
#define STEP1(crc, byte) __crc32cb((crc), (byte))
#endif

uint32_t zap_crc32c_portable(uint32_t crc, const uint8_t *bytes, size_t length) {
  const uint32_t(*table)[256] = zap_crc32c_table;
  crc = ~crc;
  for (; length >= 4; bytes += 4, length -= 4) {
    crc ^= (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
    crc = table[3][crc & 255] ^ table[2][crc >> 8 & 255] ^ table[1][crc >> 16 & 255] ^ table[0][crc >> 24];
  }
  for (; length > 0; bytes++, length--) crc = crc >> 8 ^ table[0][(crc ^ *bytes) & 255];
  return ~crc;
}

#ifdef STEP8
static inline uint64_t word_at(const uint8_t *bytes) {
  uint64_t word;
  memcpy(&word, bytes, sizeof word);
  return word;
}

/* The register after a lane of zeros. */
static inline uint32_t past_lane(uint32_t crc) {
  const uint32_t(*lane)[256] = zap_crc32c_lane;
  return lane[0][crc & 255] ^ lane[1][crc >> 8 & 255] ^ lane[2][crc >> 16 & 255] ^ lane[3][crc >> 24];
}

uint32_t zap_crc32c(uint32_t crc, const uint8_t *bytes, size_t length) {
  crc = ~crc;
  /* The instruction takes three cycles and can begin each cycle: three lanes hide that. */
  for (; length >= 3 * ZAP_CRC32C_LANE; bytes += 3 * ZAP_CRC32C_LANE, length -= 3 * ZAP_CRC32C_LANE) {
    uint32_t second = 0, third = 0;
    for (size_t i = 0; i < ZAP_CRC32C_LANE; i += 8) {
      crc = STEP8(crc, word_at(bytes + i));
      second = STEP8(second, word_at(bytes + i + ZAP_CRC32C_LANE));
      third = STEP8(third, word_at(bytes + i + 2 * ZAP_CRC32C_LANE));
    }
    crc = past_lane(past_lane(crc) ^ second) ^ third;
  }
  for (; length >= 8; bytes += 8, length -= 8) crc = STEP8(crc, word_at(bytes));
  for (; length > 0; bytes++, length--) crc = STEP1(crc, *bytes);
  return ~crc;
}
#else
uint32_t zap_crc32c(uint32_t crc, const uint8_t *bytes, size_t length) { return zap_crc32c_portable(crc, bytes, length); }
#endif
