/* What the parts of `check-cuda` share: one line for each step, and how it stands. */
#ifndef ZAP_CHECK_CUDA_H
#define ZAP_CHECK_CUDA_H

#include <stdint.h>

#include "zap_uma.h"

#ifndef TIMEOUT_MS
#define TIMEOUT_MS 30000u
#endif

struct check_state {
  int failed; /* steps */
  int stuck;  /* a kernel does not end: another one behind it would not even begin */
};

void check_say(const char *verdict, const char *step, const char *text);

/* The step fails, by what `text` says or by what the shim failed with last. Both return 0. */
int check_wrong(const char *step, const char *text);
int check_failure(const char *step);

int64_t check_micros(void);

/* Whether a kernel that was launched at `start` should have ended long ago; then it is stuck, and that is the shim's last error. */
int check_too_late(int64_t start);

/* Loads the kernel for Ed25519 and runs it in each kind of memory that `about` has. */
void check_signatures(struct check_state *state, int32_t device, const zap_uma_device *about);

#endif
