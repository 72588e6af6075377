/* The Ed25519 kernel with ten limbs, as a GPU has it. */
#define ZAP_FIELD_LIMBS 10
#include "ed25519_cases.h"

int main(void) { return all("ed25519_ten"); }
