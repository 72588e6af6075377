/* The parts of the Ed25519 kernel against each other and against known values; one program for each representation includes it. */
#include <stdbool.h>

#include "../../shim/kernels/ed25519/verify.c"
#include "check.h"
#include "ed25519_vectors.h"

#define RANDOM_ROUNDS 2000

static uint32_t seed = 2463534242u;

static uint32_t random32(void) {
  seed ^= seed << 13;
  seed ^= seed >> 17;
  seed ^= seed << 5;
  return seed;
}

static void random_words(uint32_t *words, int count) {
  /* Long runs of ones and of zeros, too: carries are what goes wrong. */
  for (int at = 0; at < count; at++) words[at] = random32() % 4 == 0 ? 0 - random32() % 2 : random32();
}

static bool same_words(const uint32_t *one, const uint32_t *other, int count) {
  return memcmp(one, other, (size_t)count * sizeof *one) == 0;
}

static bool same(const zap_field *one, const zap_field *other) { return zap_field_equal(one, other) != 0; }

/* p and what is above it is taken modulo p, bit 255 is passed over. */
static void loading(void) {
  for (uint32_t above = 0; above < 19; above++) {
    uint32_t words[8] = {0xffffffedu + above, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, above % 2 == 0 ? 0x7fffffffu : ~0u};
    const uint32_t wanted[8] = {above};
    zap_field element;
    zap_field_load(&element, words);
    zap_field_store(words, &element);
    CHECK(same_words(words, wanted, 8));
    CHECK_EQUAL(zap_field_is_odd(&element), above & 1);
  }
  for (int round = 0; round < RANDOM_ROUNDS; round++) {
    uint32_t words[8], stored[8];
    random_words(words, 8);
    words[7] = random32() & 0x7ffffffeu;
    zap_field element;
    zap_field_load(&element, words);
    zap_field_store(stored, &element);
    CHECK(same_words(words, stored, 8));
  }
}

static void random_element(zap_field *out) {
  uint32_t words[8];
  random_words(words, 8);
  zap_field_load(out, words);
}

/* The laws of a field, with operands as large as they may be. */
static void field(void) {
  zap_field one;
  zap_field_small(&one, 1);
  for (int round = 0; round < RANDOM_ROUNDS; round++) {
    zap_field a, b, c, left, right, t, u;
    random_element(&a), random_element(&b), random_element(&c);
    zap_field_mul(&left, &a, &b);
    zap_field_mul(&right, &b, &a);
    CHECK(same(&left, &right));
    zap_field_product(&right, &a, &b);
    CHECK(same(&left, &right));
    zap_field_mul(&t, &left, &c);
    zap_field_mul(&u, &b, &c);
    zap_field_mul(&u, &a, &u);
    CHECK(same(&t, &u));
    zap_field_square(&t, &a);
    zap_field_mul(&u, &a, &a);
    CHECK(same(&t, &u));
    /* (a + b + a + b)(c + c + c) = 12 of the mean: four units by three, as sums and as products. */
    zap_field four, three, twelve;
    zap_field_add(&four, &a, &b);
    zap_field_add(&four, &four, &four);
    zap_field_add(&three, &c, &c);
    zap_field_add(&three, &three, &c);
    zap_field_mul(&left, &four, &three);
    zap_field_add(&t, &a, &b);
    zap_field_mul(&t, &t, &c);
    zap_field_small(&twelve, 6);
    zap_field_mul(&right, &t, &twelve);
    CHECK(same(&left, &right));
    zap_field_square(&t, &three);
    zap_field_mul(&u, &three, &three);
    CHECK(same(&t, &u));
    /* (a - b)(a + b) = a^2 - b^2, and a - a = 0. */
    zap_field_sub(&t, &a, &b);
    zap_field_add(&u, &a, &b);
    zap_field_mul(&left, &t, &u);
    zap_field_square(&t, &a);
    zap_field_square(&u, &b);
    zap_field_sub(&right, &t, &u);
    CHECK(same(&left, &right));
    zap_field_sub(&t, &a, &a);
    zap_field_small(&u, 0);
    CHECK(same(&t, &u));
    zap_field_negate(&t, &a);
    zap_field_add(&t, &t, &a);
    CHECK(same(&t, &u));
    CHECK(!same(&one, &u));
    if (round % 16 != 0 || same(&a, &u)) continue;
    zap_field_invert(&t, &a);
    zap_field_mul(&t, &t, &a);
    CHECK(same(&t, &one));
    /* a^((p - 5) / 8) to the power of 8, times a^3, is a^(p - 2). */
    zap_field_root_power(&t, &a);
    for (int at = 0; at < 3; at++) zap_field_square(&t, &t);
    zap_field_square(&u, &a);
    zap_field_mul(&u, &u, &a);
    zap_field_mul(&t, &t, &u);
    zap_field_invert(&u, &a);
    CHECK(same(&t, &u));
  }
  zap_field zero, inverse;
  zap_field_small(&zero, 0);
  zap_field_invert(&inverse, &zero);
  CHECK(same(&inverse, &zero));
}

/* out = quotient * L + rest, of sixteen words. */
static void compose(uint32_t out[16], const uint32_t quotient[8], const uint32_t rest[8]) {
  for (int at = 0; at < 16; at++) out[at] = at < 8 ? rest[at] : 0;
  for (int i = 0; i < 8; i++) {
    uint64_t carry = 0;
    for (int j = 0; i + j < 16; j++) {
      carry += (j < 8 ? (uint64_t)quotient[i] * order[j] : 0) + out[i + j];
      out[i + j] = (uint32_t)carry;
      carry >>= 32;
    }
  }
}

static void scalars(void) {
  uint32_t below[8], wide[16], rest[8];
  memcpy(below, order, sizeof below);
  CHECK(!zap_scalar_is_canonical(below));
  below[0]--;
  CHECK(zap_scalar_is_canonical(below));
  below[0] += 2;
  CHECK(!zap_scalar_is_canonical(below));
  memset(below, 0, sizeof below);
  CHECK(zap_scalar_is_canonical(below));
  memset(below, 0xff, sizeof below);
  CHECK(!zap_scalar_is_canonical(below));
  below[7] = 0x0fffffff;
  CHECK(zap_scalar_is_canonical(below));
  below[7] = 0x10000000;
  CHECK(!zap_scalar_is_canonical(below));

  memset(wide, 0xff, sizeof wide);
  zap_scalar_reduce(rest, wide);
  const uint32_t known[8] = {0x449c0f00, 0xa40611e3, 0x68859347, 0xd00e1ba7, 0x17f5be65, 0xceec73d2, 0x7c309a3d, 0x0399411b};
  CHECK(same_words(rest, known, 8));
  for (int round = 0; round < RANDOM_ROUNDS; round++) {
    uint32_t quotient[8], wanted[8];
    random_words(quotient, 8);
    random_words(wanted, 8);
    wanted[7] &= 0x0fffffff;
    if (round % 4 == 0) {
      /* L - 1 and 0: the most that a guessed quotient can be wrong by. */
      memcpy(wanted, order, sizeof wanted);
      wanted[0]--;
    }
    if (round % 4 == 1) memset(wanted, 0, sizeof wanted);
    compose(wide, quotient, wanted);
    zap_scalar_reduce(rest, wide);
    CHECK(same_words(rest, wanted, 8));
  }
}

static bool same_point(const zap_point *one, const zap_point *other) {
  uint32_t first[8], second[8];
  zap_point_encode(first, one);
  zap_point_encode(second, other);
  return same_words(first, second, 8);
}

static void base_point(zap_point *out) {
  uint8_t encoded[32];
  memset(encoded, 0x66, sizeof encoded);
  encoded[0] = 0x58;
  CHECK(zap_point_decode(out, encoded));
}

static void group(void) {
  zap_point base, sum, seen, neutral;
  base_point(&base);
  uint8_t bytes[32] = {1};
  CHECK(zap_point_decode(&neutral, bytes));
  /* Every entry of the table, added to the neutral point and taken from it. */
  sum = neutral;
  zap_addend addend;
  addend_of(&addend, &base);
  for (int at = 1; at <= 128; at++) {
    point_add(&sum, &addend, 0, 0, 1);
    seen = neutral;
    add_base_multiple(&seen, at);
    CHECK(same_point(&sum, &seen));
    seen = sum;
    add_base_multiple(&seen, -at);
    CHECK(same_point(&seen, &neutral));
  }
  /* Doubling is adding to itself. */
  seen = sum;
  addend_of(&addend, &sum);
  point_add(&seen, &addend, 0, 0, 1);
  zap_point twice = sum;
  point_double(&twice, 1);
  CHECK(same_point(&seen, &twice));
  /* A product of coordinates that an addition relies on. */
  zap_field left, right;
  zap_field_mul(&left, &twice.t, &twice.z);
  zap_field_mul(&right, &twice.x, &twice.y);
  CHECK(same(&left, &right));
  /* [s]B - [k]B for s and k in lockstep: always [d]B. */
  for (uint32_t difference = 0; difference < 200; difference++) {
    uint32_t s[8], k[8];
    random_words(k, 8);
    k[7] &= 0x07ffffff;
    uint64_t carry = difference;
    for (int at = 0; at < 8; at++) {
      carry += k[at];
      s[at] = (uint32_t)carry;
      carry >>= 32;
    }
    zap_point_combine(&seen, s, k, &base);
    uint32_t d[8] = {difference}, none[8] = {0};
    zap_point_combine(&sum, d, none, &base);
    CHECK(same_point(&seen, &sum));
  }
  /* [L]B is the neutral point. */
  uint32_t s[8], k[8] = {0};
  memcpy(s, order, sizeof s);
  zap_point_combine(&seen, s, k, &base);
  CHECK(same_point(&seen, &neutral));
}

static void vectors(void) {
  for (int at = 0; at < ED25519_VECTORS; at++) {
    uint8_t key[32], message[64], signature[64];
    CHECK_EQUAL(ed25519_bytes(ed25519_vectors[at].key, key), 32);
    uint32_t length = ed25519_bytes(ed25519_vectors[at].message, message);
    CHECK_EQUAL(ed25519_bytes(ed25519_vectors[at].signature, signature), 64);
    CHECK_EQUAL(zap_ed25519_verify(key, signature, length == 0 ? NULL : message, length), ZAP_CODE_VALID);
    for (int bit = 0; bit < 512; bit += 7) {
      signature[bit / 8] ^= (uint8_t)(1 << bit % 8);
      uint8_t code = zap_ed25519_verify(key, signature, message, length);
      /* S has no bits from 253 on, and L some above that. */
      CHECK_EQUAL(code, bit >= 256 + 253 ? ZAP_CODE_SIGNATURE_ENCODING : ZAP_CODE_SIGNATURE);
      signature[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    for (int bit = 0; bit < 256; bit += 5) {
      key[bit / 8] ^= (uint8_t)(1 << bit % 8);
      CHECK_EQUAL(zap_ed25519_verify(key, signature, message, length), ZAP_CODE_SIGNATURE);
      key[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
  }
}

/* Items whose parts are not where the table says, or of the wrong length: bounds first, then lengths in order. */
static void items(void) {
  uint8_t bytes[98];
  ed25519_bytes(ed25519_vectors[2].key, bytes);
  ed25519_bytes(ed25519_vectors[2].signature, bytes + 32);
  ed25519_bytes(ed25519_vectors[2].message, bytes + 96);
  const struct {
    uint32_t row[6];
    uint8_t code;
  } cases[] = {{{0, 32, 96, 2, 32, 64}, ZAP_CODE_VALID},
               {{0, 32, 96, 1, 32, 64}, ZAP_CODE_SIGNATURE},
               {{0, 31, 96, 2, 32, 64}, ZAP_CODE_KEY_LENGTH},
               {{0, 33, 96, 2, 32, 63}, ZAP_CODE_KEY_LENGTH},
               {{0, 0, 96, 2, 32, 64}, ZAP_CODE_KEY_LENGTH},
               {{0, 32, 96, 2, 32, 63}, ZAP_CODE_SIGNATURE_LENGTH},
               {{0, 32, 96, 2, 32, 65}, ZAP_CODE_SIGNATURE_LENGTH},
               {{0, 32, 96, 3, 32, 63}, ZAP_CODE_ITEM},
               {{67, 32, 96, 2, 32, 64}, ZAP_CODE_ITEM},
               {{66, 32, 96, 2, 32, 64}, ZAP_CODE_SIGNATURE},
               {{0, 32, 96, 2, 35, 64}, ZAP_CODE_ITEM},
               {{0, 32, 0xffffffffu, 0xffffffffu, 32, 64}, ZAP_CODE_ITEM},
               {{0, 32, 0xffffffffu, 1, 32, 64}, ZAP_CODE_ITEM},
               {{0xfffffff0u, 32, 96, 2, 32, 64}, ZAP_CODE_ITEM},
               {{0, 32, 98, 0, 32, 64}, ZAP_CODE_SIGNATURE},
               {{0, 32, 99, 0, 32, 64}, ZAP_CODE_ITEM}};
  for (size_t at = 0; at < sizeof cases / sizeof cases[0]; at++) {
    CHECK_EQUAL(zap_ed25519_item(bytes, sizeof bytes, cases[at].row), cases[at].code);
  }
  const uint32_t row[6] = {0};
  CHECK_EQUAL(zap_ed25519_item(bytes, 0, row), ZAP_CODE_KEY_LENGTH);
}

static int all(const char *name) {
  loading();
  field();
  scalars();
  group();
  vectors();
  items();
  return checks_done(name);
}
