#include "sha512.h"

/* FIPS 180-4, section 4.2.3: the first 64 bits of the fractional parts of the cube roots of the first eighty primes. */
static const uint64_t sha512_constants[80] = {
    UINT64_C(0x428a2f98d728ae22), UINT64_C(0x7137449123ef65cd), UINT64_C(0xb5c0fbcfec4d3b2f), UINT64_C(0xe9b5dba58189dbbc),
    UINT64_C(0x3956c25bf348b538), UINT64_C(0x59f111f1b605d019), UINT64_C(0x923f82a4af194f9b), UINT64_C(0xab1c5ed5da6d8118),
    UINT64_C(0xd807aa98a3030242), UINT64_C(0x12835b0145706fbe), UINT64_C(0x243185be4ee4b28c), UINT64_C(0x550c7dc3d5ffb4e2),
    UINT64_C(0x72be5d74f27b896f), UINT64_C(0x80deb1fe3b1696b1), UINT64_C(0x9bdc06a725c71235), UINT64_C(0xc19bf174cf692694),
    UINT64_C(0xe49b69c19ef14ad2), UINT64_C(0xefbe4786384f25e3), UINT64_C(0x0fc19dc68b8cd5b5), UINT64_C(0x240ca1cc77ac9c65),
    UINT64_C(0x2de92c6f592b0275), UINT64_C(0x4a7484aa6ea6e483), UINT64_C(0x5cb0a9dcbd41fbd4), UINT64_C(0x76f988da831153b5),
    UINT64_C(0x983e5152ee66dfab), UINT64_C(0xa831c66d2db43210), UINT64_C(0xb00327c898fb213f), UINT64_C(0xbf597fc7beef0ee4),
    UINT64_C(0xc6e00bf33da88fc2), UINT64_C(0xd5a79147930aa725), UINT64_C(0x06ca6351e003826f), UINT64_C(0x142929670a0e6e70),
    UINT64_C(0x27b70a8546d22ffc), UINT64_C(0x2e1b21385c26c926), UINT64_C(0x4d2c6dfc5ac42aed), UINT64_C(0x53380d139d95b3df),
    UINT64_C(0x650a73548baf63de), UINT64_C(0x766a0abb3c77b2a8), UINT64_C(0x81c2c92e47edaee6), UINT64_C(0x92722c851482353b),
    UINT64_C(0xa2bfe8a14cf10364), UINT64_C(0xa81a664bbc423001), UINT64_C(0xc24b8b70d0f89791), UINT64_C(0xc76c51a30654be30),
    UINT64_C(0xd192e819d6ef5218), UINT64_C(0xd69906245565a910), UINT64_C(0xf40e35855771202a), UINT64_C(0x106aa07032bbd1b8),
    UINT64_C(0x19a4c116b8d2d0c8), UINT64_C(0x1e376c085141ab53), UINT64_C(0x2748774cdf8eeb99), UINT64_C(0x34b0bcb5e19b48a8),
    UINT64_C(0x391c0cb3c5c95a63), UINT64_C(0x4ed8aa4ae3418acb), UINT64_C(0x5b9cca4f7763e373), UINT64_C(0x682e6ff3d6b2b8a3),
    UINT64_C(0x748f82ee5defb2fc), UINT64_C(0x78a5636f43172f60), UINT64_C(0x84c87814a1f0ab72), UINT64_C(0x8cc702081a6439ec),
    UINT64_C(0x90befffa23631e28), UINT64_C(0xa4506cebde82bde9), UINT64_C(0xbef9a3f7b2c67915), UINT64_C(0xc67178f2e372532b),
    UINT64_C(0xca273eceea26619c), UINT64_C(0xd186b8c721c0c207), UINT64_C(0xeada7dd6cde0eb1e), UINT64_C(0xf57d4f7fee6ed178),
    UINT64_C(0x06f067aa72176fba), UINT64_C(0x0a637dc5a2c898a6), UINT64_C(0x113f9804bef90dae), UINT64_C(0x1b710b35131c471b),
    UINT64_C(0x28db77f523047d84), UINT64_C(0x32caab7b40c72493), UINT64_C(0x3c9ebe0a15c9bebc), UINT64_C(0x431d67c49c100d4c),
    UINT64_C(0x4cc5d4becb3e42b6), UINT64_C(0x597f299cfc657e2a), UINT64_C(0x5fcb6fab3ad6faec), UINT64_C(0x6c44198c4a475817)
};

ZAP_INLINE uint64_t load_big(const uint8_t *at) {
  return (uint64_t)at[0] << 56 | (uint64_t)at[1] << 48 | (uint64_t)at[2] << 40 | (uint64_t)at[3] << 32 | (uint64_t)at[4] << 24 |
         (uint64_t)at[5] << 16 | (uint64_t)at[6] << 8 | (uint64_t)at[7];
}

ZAP_INLINE uint64_t rotate(uint64_t value, int by) { return value >> by | value << (64 - by); }

/* One block of sixteen words, which are used up. */
ZAP_ONCE void sha512_block(uint64_t state[8], uint64_t words[16]) {
  uint64_t a = state[0], b = state[1], c = state[2], d = state[3], e = state[4], f = state[5], g = state[6], h = state[7];
  for (int round = 0; round < 80; round += 16) {
    ZAP_UNROLL
    for (int at = 0; at < 16; at++) {
      if (round > 0) {
        uint64_t near = words[(at + 1) & 15], late = words[(at + 14) & 15];
        words[at] += (rotate(near, 1) ^ rotate(near, 8) ^ near >> 7) + words[(at + 9) & 15] +
                     (rotate(late, 19) ^ rotate(late, 61) ^ late >> 6);
      }
      uint64_t one = h + (rotate(e, 14) ^ rotate(e, 18) ^ rotate(e, 41)) + ((e & f) ^ (~e & g)) + sha512_constants[round + at] + words[at];
      uint64_t two = (rotate(a, 28) ^ rotate(a, 34) ^ rotate(a, 39)) + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + one, d = c, c = b, b = a, a = one + two;
    }
  }
  state[0] += a, state[1] += b, state[2] += c, state[3] += d, state[4] += e, state[5] += f, state[6] += g, state[7] += h;
}

/* The eight bytes of the padded message from `at` on: its own, then 0x80, then zeros. Whole words are read at once. */
ZAP_INLINE uint64_t padded_word(const uint8_t *message, uint64_t length, uint64_t at) {
  if (at + 8 <= length) return load_big(message + at);
  if (at > length) return 0;
  uint64_t word = 0;
  int left = (int)(length - at);
  for (int byte = 0; byte < left; byte++) word |= (uint64_t)message[at + (uint64_t)byte] << (56 - 8 * byte);
  return word | UINT64_C(0x80) << (56 - 8 * left);
}

ZAP_INLINE uint32_t swap(uint32_t word) { return word >> 24 | (word >> 8 & 0xff00) | (word << 8 & 0xff0000) | word << 24; }

static void zap_sha512(uint32_t digest[16], const uint8_t *first, const uint8_t *second, const uint8_t *message, uint32_t length) {
  /* FIPS 180-4, section 5.3.5. */
  uint64_t state[8] = {
      UINT64_C(0x6a09e667f3bcc908), UINT64_C(0xbb67ae8584caa73b), UINT64_C(0x3c6ef372fe94f82b), UINT64_C(0xa54ff53a5f1d36f1),
      UINT64_C(0x510e527fade682d1), UINT64_C(0x9b05688c2b3e6c1f), UINT64_C(0x1f83d9abfb41bd6b), UINT64_C(0x5be0cd19137e2179)
  };
  /* The message starts at byte 64 of the first block; 0x80 and sixteen bytes of length come behind it. */
  uint64_t blocks = ((uint64_t)length + 64 + 17 + 127) / 128;
  for (uint64_t block = 0; block < blocks; block++) {
    uint64_t words[16];
    uint64_t start = block * 128 - 64;
    for (int at = 0; at < 16; at++) {
      if (block == 0 && at < 4) words[at] = load_big(first + 8 * at);
      else if (block == 0 && at < 8) words[at] = load_big(second + 8 * (at - 4));
      else words[at] = padded_word(message, length, start + (uint64_t)(8 * at));
    }
    if (block == blocks - 1) words[15] = ((uint64_t)length + 64) * 8;
    sha512_block(state, words);
  }
  for (int at = 0; at < 8; at++) {
    digest[2 * at] = swap((uint32_t)(state[at] >> 32));
    digest[2 * at + 1] = swap((uint32_t)state[at]);
  }
}
