#include "field.h"

#if ZAP_FIELD_LIMBS == 5
#include "field_5.h"
#else
#include "field_10.h"
#endif

ZAP_INLINE void zap_field_small(zap_field *out, uint32_t value) {
  *out = (zap_field){{(zap_limb)value}};
}

ZAP_INLINE void zap_field_negate(zap_field *out, const zap_field *one) {
  zap_field zero;
  zap_field_small(&zero, 0);
  zap_field_sub(out, &zero, one);
}

ZAP_ONCE int zap_field_equal(const zap_field *one, const zap_field *other) {
  uint32_t first[8], second[8], differs = 0;
  zap_field_store(first, one);
  zap_field_store(second, other);
  for (int at = 0; at < 8; at++) differs |= first[at] ^ second[at];
  return differs == 0;
}

ZAP_ONCE uint32_t zap_field_is_odd(const zap_field *one) {
  uint32_t words[8];
  zap_field_store(words, one);
  return words[0] & 1;
}

ZAP_ONCE void zap_field_product(zap_field *out, const zap_field *one, const zap_field *other) { zap_field_mul(out, one, other); }

/* out = one^(2^times) * other */
ZAP_ONCE void square_times_mul(zap_field *out, const zap_field *one, int times, const zap_field *other) {
  zap_field power = *one;
  for (int at = 0; at < times; at++) zap_field_square(&power, &power);
  zap_field_mul(out, &power, other);
}

/*
 * one^(2^250 - 1). From one^(2^m - 1) and one^(2^n - 1) comes one^(2^(m + n) - 1) by n squarings and one product; the exponents go
 * 1, 2, 4, 5, 10, 20, 40, 50, 100, 200, 250.
 */
ZAP_ONCE void power_of_ones(zap_field *out, const zap_field *one) {
  zap_field five, ten, fifty, power;
  square_times_mul(&power, one, 1, one);
  square_times_mul(&power, &power, 2, &power);
  square_times_mul(&five, &power, 1, one);
  square_times_mul(&ten, &five, 5, &five);
  square_times_mul(&power, &ten, 10, &ten);
  square_times_mul(&power, &power, 20, &power);
  square_times_mul(&fifty, &power, 10, &ten);
  square_times_mul(&power, &fifty, 50, &fifty);
  square_times_mul(&power, &power, 100, &power);
  square_times_mul(out, &power, 50, &fifty);
}

/* p - 2 = 2^5 (2^250 - 1) + 11 */
ZAP_ONCE void zap_field_invert(zap_field *out, const zap_field *one) {
  zap_field two, eleven, ones;
  zap_field_product(&two, one, one);
  zap_field_product(&eleven, &two, one);
  square_times_mul(&eleven, &two, 2, &eleven);
  power_of_ones(&ones, one);
  square_times_mul(out, &ones, 5, &eleven);
}

/* (p - 5) / 8 = 2^2 (2^250 - 1) + 1 */
ZAP_ONCE void zap_field_root_power(zap_field *out, const zap_field *one) {
  zap_field ones;
  power_of_ones(&ones, one);
  square_times_mul(out, &ones, 2, one);
}
