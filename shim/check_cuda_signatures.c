/* The part of `check-cuda` that verifies signatures on the GPU, and compares its codes with those that each item must get. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "check_cuda.h"
#include "check_signatures.h"
#include "common/fail.h"
#include "kernels/ed25519.h"

#ifndef SIGNATURES
#define SIGNATURES 65536u
#endif

/* Item `at` of a batch in `memory`, which starts at `offset` there. Returns the code that it must get: every one that there is. */
static uint8_t write_item(uint8_t *memory, uint32_t offset, uint32_t at, uint32_t row[ZAP_TABLE_STRIDE]) {
  static const uint8_t codes[8] = {ZAP_CODE_VALID,      ZAP_CODE_SIGNATURE,        ZAP_CODE_VALID,     ZAP_CODE_SIGNATURE_ENCODING,
                                   ZAP_CODE_KEY_LENGTH, ZAP_CODE_SIGNATURE_LENGTH, ZAP_CODE_SIGNATURE, ZAP_CODE_ITEM};
  uint32_t fault = at / SIGNED % 32; /* 8 and more: none */
  uint32_t length = signed_bytes(at % SIGNED, memory + offset);
  const uint32_t healthy[ZAP_TABLE_STRIDE] = {offset, 32, offset + 96, length - 96, offset + 32, 64};
  memcpy(row, healthy, sizeof healthy);
  if (fault == 1) memory[offset + 32 + at % 32] ^= 0x10; /* R */
  if (fault == 3) memory[offset + 95] |= 0x80;           /* S */
  if (fault == 4) row[1] = 31;
  if (fault == 5) row[5] = 65;
  if (fault == 6) memory[offset + at % 32] ^= 0x04; /* the key */
  if (fault == 7) row[2] = 0xffffffffu;
  return fault < 8 ? codes[fault] : ZAP_CODE_VALID;
}

/* Waits for the job, or says that it does not end. */
static int32_t finish(int32_t device, int32_t job) {
  int64_t start = check_micros();
  int32_t status;
  while ((status = ZAP_UMA(verify_poll)(device, job)) == ZAP_E_AGAIN) {
    if (check_too_late(start)) return ZAP_E_TIMEOUT;
    struct timespec pause = {.tv_nsec = 100000};
    nanosleep(&pause, NULL);
  }
  return status;
}

/* Batches of growing size in one region: bytes, table, codes. The last one tells how fast it is, the CPU with one core beside it. */
static int verify_in(int32_t device, const char *step, int32_t handle, uint8_t *memory) {
  static uint8_t wanted[SIGNATURES];
  const uint64_t table_at = SIGNATURES * SIGNED_BYTES, codes_at = table_at + SIGNATURES * 24u;
  char text[160];
  int64_t took = 0;
  for (uint32_t at = 0; at < SIGNATURES; at++) {
    wanted[at] = write_item(memory, at * SIGNED_BYTES, at, (uint32_t *)(void *)(memory + table_at) + at * ZAP_TABLE_STRIDE);
  }
  for (uint32_t count = 1; count <= SIGNATURES; count = count < 1024 ? count * 5 : count < SIGNATURES ? SIGNATURES : SIGNATURES + 1) {
    const zap_span bytes = {.region = handle, .length = (uint32_t)table_at};
    const zap_span table = {.region = handle, .offset = table_at, .length = count * 24u};
    const zap_span codes = {.region = handle, .offset = codes_at, .length = count};
    const uint8_t *seen = memory + codes_at;
    memset(memory + codes_at, 0xee, SIGNATURES);
    if (ZAP_UMA(fence_to_device)(device) < 0) return check_failure(step);
    int64_t start = check_micros();
    int32_t job = ZAP_UMA(verify_begin)(device, ZAP_SCHEME_ED25519, &bytes, &table, count, &codes);
    if (job < 0 || finish(device, job) < 0) return check_failure(step);
    took = check_micros() - start;
    if (ZAP_UMA(fence_to_host)(device) < 0) return check_failure(step);
    for (uint32_t at = 0; at < count; at++) {
      if (seen[at] == wanted[at]) continue;
      snprintf(text, sizeof text, "%u signatures, number %u: code %u, not %u", (unsigned)count, (unsigned)at, seen[at], wanted[at]);
      return check_wrong(step, text);
    }
    if (count < SIGNATURES && seen[count] != 0xee) {
      return check_wrong(step, "a code was written behind the last");
    }
  }
  enum { ON_CPU = 1024 };
  const zap_span bytes = {.region = handle, .length = (uint32_t)table_at};
  const zap_span table = {.region = handle, .offset = table_at, .length = ON_CPU * 24u};
  const zap_span codes = {.region = handle, .offset = codes_at, .length = ON_CPU};
  int64_t start = check_micros();
  if (ZAP_UMA(verify_host)(device, ZAP_SCHEME_ED25519, &bytes, &table, ON_CPU, &codes) < 0) return check_failure(step);
  int64_t cpu = check_micros() - start;
  if (memcmp(memory + codes_at, wanted, ON_CPU) != 0) {
    return check_wrong(step, "the CPU's codes differ from the GPU's");
  }
  snprintf(text, sizeof text, "%u signatures, all codes right, in %lld us: %lld/s; one core of the CPU %lld/s", SIGNATURES,
           (long long)took, (long long)(SIGNATURES * INT64_C(1000000) / (took > 0 ? took : 1)),
           (long long)(ON_CPU * INT64_C(1000000) / (cpu > 0 ? cpu : 1)));
  check_say("ok", step, text);
  return 1;
}

void check_signatures(struct check_state *state, int32_t device, const zap_uma_device *about) {
  const char *step = "load zap_verify_ed25519";
  char text[64];
  if (state->stuck) {
    check_say("none", step, "left out: a kernel before has not ended");
    return;
  }
  int64_t start = check_micros();
  int32_t status;
  while ((status = ZAP_UMA(verify_load)(device, ZAP_SCHEME_ED25519)) == ZAP_E_AGAIN) {
    struct timespec pause = {.tv_nsec = 1000000};
    nanosleep(&pause, NULL);
    if (check_micros() - start <= 2 * (int64_t)TIMEOUT_MS * 1000) continue;
    state->stuck = 1;
    status = zap_fail(ZAP_E_TIMEOUT, "the driver has not compiled the kernel after %u ms", 2 * (unsigned)TIMEOUT_MS);
    break;
  }
  if (status < 0) {
    (void)check_failure(step);
    return;
  }
  snprintf(text, sizeof text, "%lld ms, with what the driver had kept", (long long)(check_micros() - start) / 1000);
  check_say("ok", step, text);
  const uint64_t bytes = SIGNATURES * (uint64_t)(SIGNED_BYTES + 24 + 1);
  static const struct {
    uint32_t memory;
    const char *step;
  } kinds[] = {{ZAP_MEMORY_MANAGED, "verify in managed"}, {ZAP_MEMORY_HOST, "verify in page-locked"}};
  for (size_t at = 0; at < 2 && !state->stuck; at++) {
    if (kinds[at].memory == ZAP_MEMORY_MANAGED && (about->flags & ZAP_UMA_MANAGED) == 0) continue;
    zap_region region;
    int32_t handle = ZAP_UMA(region_alloc)(device, kinds[at].memory, bytes, &region);
    if (handle < 0) {
      (void)check_failure(kinds[at].step);
      continue;
    }
    (void)verify_in(device, kinds[at].step, handle, (uint8_t *)(uintptr_t)region.host);
    if (ZAP_UMA(region_free)(device, handle) < 0) (void)check_failure("free");
  }
}
