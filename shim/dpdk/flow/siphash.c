#include "siphash.h"

#include "bytes.h"

struct lanes {
  uint64_t a, b, c, d;
};

static inline uint64_t turn(uint64_t value, int bits) { return value << bits | value >> (64 - bits); }

static inline void rounds(struct lanes *v, int count) {
  while (count-- > 0) {
    v->a += v->b;
    v->c += v->d;
    v->b = turn(v->b, 13) ^ v->a;
    v->d = turn(v->d, 16) ^ v->c;
    v->a = turn(v->a, 32);
    v->c += v->b;
    v->a += v->d;
    v->b = turn(v->b, 17) ^ v->c;
    v->d = turn(v->d, 21) ^ v->a;
    v->c = turn(v->c, 32);
  }
}

static struct lanes absorb(const uint8_t key[16], const uint8_t *bytes, size_t length, uint64_t variant) {
  uint64_t k0 = get64(key), k1 = get64(key + 8);
  struct lanes v = {k0 ^ 0x736f6d6570736575u, k1 ^ 0x646f72616e646f6du ^ variant, k0 ^ 0x6c7967656e657261u, k1 ^ 0x7465646279746573u};
  uint64_t last = (uint64_t)length << 56;
  for (; length >= 8; bytes += 8, length -= 8) {
    uint64_t word = get64(bytes);
    v.d ^= word;
    rounds(&v, 2);
    v.a ^= word;
  }
  for (size_t i = 0; i < length; i++) last |= (uint64_t)bytes[i] << (8 * i);
  v.d ^= last;
  rounds(&v, 2);
  v.a ^= last;
  return v;
}

uint64_t zap_siphash(const uint8_t key[16], const uint8_t *bytes, size_t length) {
  struct lanes v = absorb(key, bytes, length, 0);
  v.c ^= 0xff;
  rounds(&v, 4);
  return v.a ^ v.b ^ v.c ^ v.d;
}

void zap_siphash128(const uint8_t key[16], const uint8_t *bytes, size_t length, uint8_t out[16]) {
  struct lanes v = absorb(key, bytes, length, 0xee);
  v.c ^= 0xee;
  rounds(&v, 4);
  put64(out, v.a ^ v.b ^ v.c ^ v.d);
  v.b ^= 0xdd;
  rounds(&v, 4);
  put64(out + 8, v.a ^ v.b ^ v.c ^ v.d);
}
