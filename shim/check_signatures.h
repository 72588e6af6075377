/*
 * Part of check_cuda.c: signatures of RFC 8032, section 7.1 (tests 1, 2, 3 and SHA(abc)). The messages are of 0 to 64 bytes.
 */
#ifndef ZAP_CHECK_SIGNATURES_H
#define ZAP_CHECK_SIGNATURES_H

#include <stdint.h>

#define SIGNED 4
/* The most bytes that key, signature and message take. */
#define SIGNED_BYTES 160u

/* Key, signature, message, one after the other, in hexadecimal. */
static const char *const signed_messages[SIGNED] = {
    "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
    "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
    "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"
    "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
    "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
    "72",
    "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025"
    "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
    "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a"
    "af82",
    "ec172b93ad5e563bf4932c70e1245034c35467ef2efd4d64ebf819683467e2bf"
    "dc2a4459e7369633a52b1bf277839a00201009a3efbf3ecb69bea2186c26b589"
    "09351fc9ac90b3ecfdfbc7c66431e0303dca179c138ac17ad9bef1177331a704"
    "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a"
    "2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f"};

static uint32_t signed_bytes(uint32_t which, uint8_t *to) {
  uint32_t length = 0;
  for (const char *hex = signed_messages[which]; hex[0] != 0; hex += 2, length++) {
    uint8_t value = 0;
    for (int at = 0; at < 2; at++) value = (uint8_t)(value * 16 + (hex[at] <= '9' ? hex[at] - '0' : hex[at] - 'a' + 10));
    to[length] = value;
  }
  return length;
}

#endif
