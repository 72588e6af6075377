/*
 * What the parts of the Ed25519 kernel stand on: the integer types, on a target without headers too, and how a function is marked.
 *
 * The parts are one translation unit, verify.c, with everything static in it: the host's library, the CUDA kernel and the tests each
 * compile it as theirs. No libc, no recursion, no globals that are written, nothing that allocates.
 */
#ifndef ZAP_ED25519_WORDS_H
#define ZAP_ED25519_WORDS_H

#if defined(__NVPTX__)
/* There are no headers for that target. */
typedef __INT8_TYPE__ int8_t;
typedef __UINT8_TYPE__ uint8_t;
typedef __INT32_TYPE__ int32_t;
typedef __UINT32_TYPE__ uint32_t;
typedef __INT64_TYPE__ int64_t;
typedef __UINT64_TYPE__ uint64_t;
#define UINT64_C(value) value##ull
#else
#include <stdint.h>
#endif

/* Loops whose indices have to be constants: what they index is to live in registers. Empty where a sanitizer's build would take minutes. */
#if defined(ZAP_UNROLL)
#elif defined(__clang__)
#define ZAP_UNROLL _Pragma("unroll")
#else
#define ZAP_UNROLL _Pragma("GCC unroll 20")
#endif

/* Large functions with many callers: once each, or the kernel's code is many times what it needs to be. */
#define ZAP_ONCE static __attribute__((noinline))
/* Small ones, which a compiler that saves space would call all the same. */
#define ZAP_INLINE static inline __attribute__((always_inline))

ZAP_INLINE uint32_t zap_word_load(const uint8_t *at) {
  return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* Little-endian, 32 bytes. */
ZAP_INLINE void zap_words_load(uint32_t words[8], const uint8_t *bytes) {
  ZAP_UNROLL
  for (int at = 0; at < 8; at++) words[at] = zap_word_load(bytes + 4 * at);
}

#endif
