/*
 * The kernels that the doubles can run: the host's build of the very source that a GPU gets. Included by the doubles that have kernels.
 *
 * A device that reads where nothing is mapped reports an illegal address; so does a double, before the CPU would crash.
 */
#ifndef ZAP_TEST_DOUBLE_KERNELS_H
#define ZAP_TEST_DOUBLE_KERNELS_H

#include <string.h>

#include "../../shim/kernels/check_headers.h"
/* As a GPU does the arithmetic. */
#define ZAP_FIELD_LIMBS 10
#include "../../shim/kernels/ed25519/verify.c"
#include "double.h"

enum { KERNEL_PARAMETERS_MAX = 8 };

/* Where the kernel may touch `bytes` at the device's address, or NULL. `context` is the double's own. */
typedef void *(*kernel_reach)(void *context, uint64_t address, uint64_t bytes);

typedef struct double_kernel {
  const char *name;
  uint32_t parameter_bytes[KERNEL_PARAMETERS_MAX]; /* ends with a zero */
  uint32_t metal_values; /* bit N: for Metal, parameter N is `constant T &`, so what is bound holds the value itself */
  /* Runs `threads` threads. False where one of them touched what it may not. */
  bool (*run)(const void *const *parameters, uint64_t threads, kernel_reach reach, void *context);
} double_kernel;

static bool run_check_headers(const void *const *parameters, uint64_t threads, kernel_reach reach, void *context) {
  uint64_t targets_at;
  uint64_t versions;
  uint64_t verdicts_at;
  uint32_t count;
  memcpy(&targets_at, parameters[0], sizeof targets_at);
  memcpy(&versions, parameters[1], sizeof versions);
  memcpy(&verdicts_at, parameters[2], sizeof verdicts_at);
  memcpy(&count, parameters[3], sizeof count);
  const struct zap_target *targets = reach(context, targets_at, (uint64_t)count * sizeof *targets);
  uint8_t *verdicts = reach(context, verdicts_at, count);
  if (count > 0 && (targets == NULL || verdicts == NULL)) return false;
  for (uint64_t at = 0; at < threads && at < count; at++) {
    /* Never more than the header, and nothing of a span that is shorter. */
    static const uint8_t nothing[1] = {0};
    const uint8_t *bytes = nothing;
    if (targets[at].length >= ZAP_HEADER_BYTES) bytes = reach(context, targets[at].address, ZAP_HEADER_BYTES);
    if (bytes == NULL) return false;
    verdicts[at] = zap_check_header(bytes, targets[at].length, versions);
  }
  return true;
}

static bool run_verify_ed25519(const void *const *parameters, uint64_t threads, kernel_reach reach, void *context) {
  uint64_t bytes_at, size, table_at, codes_at;
  uint32_t count;
  memcpy(&bytes_at, parameters[0], sizeof bytes_at);
  memcpy(&size, parameters[1], sizeof size);
  memcpy(&table_at, parameters[2], sizeof table_at);
  memcpy(&codes_at, parameters[3], sizeof codes_at);
  memcpy(&count, parameters[4], sizeof count);
  static const uint8_t nothing[1] = {0};
  const uint8_t *bytes = size == 0 ? nothing : reach(context, bytes_at, size);
  const uint32_t *table = reach(context, table_at, (uint64_t)count * ZAP_TABLE_STRIDE * sizeof *table);
  uint8_t *codes = reach(context, codes_at, count);
  if (count > 0 && (bytes == NULL || table == NULL || codes == NULL || table_at % sizeof *table != 0)) return false;
  for (uint64_t at = 0; at < threads && at < count; at++) codes[at] = zap_ed25519_item(bytes, size, table + at * ZAP_TABLE_STRIDE);
  return true;
}

static const double_kernel double_kernels[] = {
    {"zap_check_headers", {8, 8, 8, 4, 0}, 1u << 1 | 1u << 3, run_check_headers},
    {"zap_verify_ed25519", {8, 8, 8, 8, 4, 0}, 0, run_verify_ed25519},
};

static const double_kernel *double_kernel_named(const char *name) {
  for (size_t at = 0; at < sizeof double_kernels / sizeof double_kernels[0]; at++) {
    if (strcmp(double_kernels[at].name, name) == 0) return &double_kernels[at];
  }
  return NULL;
}

/* Tells whether `text` names a kernel of that name after `keyword` ("entry", "void"), with nothing but blanks between. */
static bool double_kernel_in_text(const char *text, const char *keyword, const char *name) {
  size_t length = strlen(name);
  for (const char *at = strstr(text, keyword); at != NULL; at = strstr(at + 1, keyword)) {
    const char *word = at + strlen(keyword);
    if (*word != ' ' && *word != '\t' && *word != '\n') continue;
    word += strspn(word, " \t\r\n");
    if (strncmp(word, name, length) == 0 && (word[length] == '(' || word[length] == ' ' || word[length] == '\n')) return true;
  }
  return false;
}

#endif
