/* The Ed25519 kernel with five limbs, as the CPU has it. */
#define ZAP_FIELD_LIMBS 5
#include "ed25519_cases.h"

int main(void) { return all("ed25519"); }
