#include "double_backend.h"

#include "../../shim/kernels/ed25519.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define HEALTHY (ZAP_UMA_MANAGED | ZAP_UMA_CONCURRENT | ZAP_UMA_KERNELS | ZAP_UMA_VERIFY)

struct double_control double_control = {.flags = HEALTHY};

struct state {
  atomic_int busy;
};

struct check {
  struct zap_target *targets;
  uint32_t count;
  uint64_t versions;
  int polls;
};

void double_reset(void) {
  atomic_store(&double_control.hanging, CALL_NONE);
  atomic_store(&double_control.failing, CALL_NONE);
  atomic_store(&double_control.status, ZAP_OK);
  atomic_store(&double_control.slow_polls, 0);
  atomic_store(&double_control.flags, HEALTHY);
}

static int32_t call(enum double_call which, const char *name) {
  zap_calling(name);
  atomic_fetch_add(&double_control.calls[which], 1);
  if (atomic_load(&double_control.hanging) == (int)which) {
    atomic_fetch_add(&double_control.stuck, 1);
    while (atomic_load(&double_control.hanging) == (int)which) {
      struct timespec millisecond = {.tv_nsec = 1000000};
      nanosleep(&millisecond, NULL);
    }
    atomic_fetch_sub(&double_control.stuck, 1);
  }
  if (atomic_load(&double_control.failing) != (int)which) return ZAP_OK;
  return zap_fail(atomic_load(&double_control.status), "%s failed with DOUBLE_ERROR (7): it was told to", name);
}

static void enter(void *state) {
  if (atomic_fetch_add(&((struct state *)state)->busy, 1) != 0) atomic_fetch_add(&double_control.overlaps, 1);
}

static int32_t leave(void *state, int32_t status) {
  atomic_fetch_sub(&((struct state *)state)->busy, 1);
  return status;
}

static void probe(const struct zap_request *request, struct zap_rows *rows) {
  zap_row(rows, "library", true, "never seen", "%s", request->runtime);
  int32_t status = call(CALL_PROBE, "doubleProbe");
  zap_row(rows, "device", status == ZAP_OK, "Mend the double.", "%s", status == ZAP_OK ? "one" : zap_failure());
}

static int32_t open_device(const struct zap_request *request, void **out, zap_uma_device *device) {
  struct state *state = calloc(1, sizeof *state);
  if (state == NULL) return zap_fail(ZAP_E_MEMORY, "out of memory");
  int32_t status = call(CALL_OPEN, "doubleOpen");
  if (status < 0) {
    free(state);
    return status;
  }
  atomic_init(&state->busy, 0);
  memset(device->name, 'x', sizeof device->name);
  device->flags = atomic_load(&double_control.flags);
  device->memory = ZAP_MEMORY_MANAGED;
  device->index = (uint32_t)request->index;
  device->count = 1;
  atomic_fetch_add(&double_control.devices, 1);
  *out = state;
  return ZAP_OK;
}

static void close_device(void *state) {
  enter(state);
  (void)call(CALL_CLOSE, "doubleClose");
  atomic_fetch_sub(&double_control.devices, 1);
  (void)leave(state, ZAP_OK);
  free(state);
}

static int32_t alloc(void *state, struct zap_piece *piece) {
  enter(state);
  int32_t status = call(CALL_ALLOC, "doubleAlloc");
  if (status < 0) return leave(state, status);
  void *memory = NULL;
  if (posix_memalign(&memory, 4096, piece->bytes) != 0) return leave(state, zap_fail(ZAP_E_MEMORY, "out of memory"));
  piece->vendor = memory;
  piece->host = piece->memory == ZAP_MEMORY_DEVICE ? 0 : (uint64_t)(uintptr_t)memory;
  piece->device = (uint64_t)(uintptr_t)memory + DOUBLE_DEVICE_OFFSET;
  atomic_fetch_add(&double_control.pieces, 1);
  return leave(state, ZAP_OK);
}

static int32_t register_piece(void *state, struct zap_piece *piece) {
  enter(state);
  int32_t status = call(CALL_REGISTER, "doubleRegister");
  if (status < 0) return leave(state, status);
  piece->vendor = (void *)(uintptr_t)piece->host;
  piece->device = piece->host + DOUBLE_DEVICE_OFFSET;
  atomic_fetch_add(&double_control.registered, 1);
  return leave(state, ZAP_OK);
}

static int32_t unregister_piece(void *state) {
  int32_t status = call(CALL_UNREGISTER, "doubleUnregister");
  atomic_fetch_sub(&double_control.registered, 1);
  return leave(state, status);
}

/* Lets go of the memory also where it says that it failed: what a driver loses is not ours to leak. */
static int32_t free_piece(void *state, struct zap_piece *piece) {
  enter(state);
  if (piece->foreign) return unregister_piece(state);
  int32_t status = call(CALL_FREE, "doubleFree");
  free(piece->vendor);
  atomic_fetch_sub(&double_control.pieces, 1);
  return leave(state, status);
}

static int32_t export_piece(void *state, const struct zap_piece *piece) {
  enter(state);
  int32_t status = call(CALL_EXPORT, "doubleExport");
  if (status < 0) return leave(state, status);
  if (piece->memory == ZAP_MEMORY_MANAGED) return leave(state, zap_fail(ZAP_E_UNSUPPORTED, "no managed memory"));
  return leave(state, open("/dev/null", O_RDONLY));
}

static int32_t to_device(void *state) {
  enter(state);
  return leave(state, call(CALL_TO_DEVICE, "doubleFence"));
}

static int32_t wait_for_kernels(void *state) {
  enter(state);
  return leave(state, call(CALL_WAIT, "doubleWait"));
}

static void free_check(struct check *check) {
  free(check->targets);
  free(check);
  atomic_fetch_sub(&double_control.checks, 1);
}

static int32_t check_begin(void *state, const struct zap_batch *batch, void **running) {
  enter(state);
  int32_t status = call(CALL_BEGIN, "doubleLaunch");
  if (status < 0) return leave(state, status);
  struct check *check = calloc(1, sizeof *check);
  struct zap_target *targets = malloc(batch->count * sizeof *targets);
  if (check == NULL || targets == NULL) abort();
  memcpy(targets, batch->targets, batch->count * sizeof *targets);
  for (uint32_t at = 0; at < batch->count; at++) {
    bool inside = false;
    for (uint32_t each = 0; each < batch->piece_count; each++) {
      const struct zap_piece *piece = batch->pieces[each];
      inside = inside || (targets[at].address >= piece->device && targets[at].address + targets[at].length <= piece->device + piece->bytes);
      for (uint32_t other = 0; other < each; other++) {
        if (batch->pieces[other] == piece) abort();
      }
    }
    if (!inside) abort();
    targets[at].address -= DOUBLE_DEVICE_OFFSET;
  }
  *check = (struct check){.targets = targets,
                          .count = batch->count,
                          .versions = batch->versions,
                          .polls = atomic_load(&double_control.slow_polls)};
  atomic_fetch_add(&double_control.checks, 1);
  *running = check;
  return leave(state, ZAP_OK);
}

static int32_t check_poll(void *state, void *running, uint8_t *verdicts) {
  enter(state);
  struct check *check = running;
  int32_t status = call(CALL_POLL, "doubleQuery");
  if (status == ZAP_OK && check->polls-- > 0) return leave(state, ZAP_E_AGAIN);
  if (status == ZAP_OK) zap_check_headers_host(check->targets, check->versions, verdicts, check->count);
  free_check(check);
  return leave(state, status);
}

static void check_drop(void *state, void *running) {
  enter(state);
  free_check(running);
  (void)leave(state, ZAP_OK);
}

struct verification {
  struct zap_verification batch;
  int polls;
};

static void within_pieces(const struct zap_verification *batch, uint64_t address, uint64_t bytes) {
  for (uint32_t at = 0; at < batch->piece_count; at++) {
    const struct zap_piece *piece = batch->pieces[at];
    if (address >= piece->device && address + bytes <= piece->device + piece->bytes) return;
  }
  abort();
}

static int32_t verify_begin(void *state, const struct zap_verification *batch, void **running) {
  enter(state);
  int32_t status = call(CALL_VERIFY, "doubleVerify");
  if (status < 0) return leave(state, status);
  struct verification *verification = calloc(1, sizeof *verification);
  if (verification == NULL) abort();
  within_pieces(batch, batch->bytes, batch->size);
  within_pieces(batch, batch->table, (uint64_t)batch->count * 24);
  within_pieces(batch, batch->codes, batch->count);
  for (uint32_t at = 1; at < batch->piece_count; at++) {
    if (batch->pieces[at] == batch->pieces[at - 1] || batch->pieces[at] == batch->pieces[0]) abort();
  }
  *verification = (struct verification){.batch = *batch, .polls = atomic_load(&double_control.slow_polls)};
  atomic_fetch_add(&double_control.checks, 1);
  *running = verification;
  return leave(state, ZAP_OK);
}

static int32_t verify_load(void *state, uint32_t scheme) {
  enter(state);
  if (scheme != ZAP_SCHEME_ED25519) abort();
  return leave(state, call(CALL_VERIFY_LOAD, "doubleLoad"));
}

static void free_verification(void *running) {
  free(running);
  atomic_fetch_sub(&double_control.checks, 1);
}

static int32_t verify_poll(void *state, void *running) {
  enter(state);
  struct verification *verification = running;
  int32_t status = call(CALL_VERIFY_POLL, "doubleVerifyQuery");
  if (status == ZAP_OK && verification->polls-- > 0) return leave(state, ZAP_E_AGAIN);
  if (status == ZAP_OK) {
    const struct zap_verification *batch = &verification->batch;
    const void *bytes = (const void *)(uintptr_t)(batch->bytes - DOUBLE_DEVICE_OFFSET);
    const void *table = (const void *)(uintptr_t)(batch->table - DOUBLE_DEVICE_OFFSET);
    void *codes = (void *)(uintptr_t)(batch->codes - DOUBLE_DEVICE_OFFSET);
    zap_verify_ed25519_host(bytes, batch->size, table, codes, batch->count);
  }
  free_verification(verification);
  return leave(state, status);
}

static void verify_drop(void *state, void *running) {
  enter(state);
  free_verification(running);
  (void)leave(state, ZAP_OK);
}

const struct zap_backend zap_backend = {.probe = probe,
                                        .open = open_device,
                                        .close = close_device,
                                        .alloc = alloc,
                                        .register_piece = register_piece,
                                        .free = free_piece,
                                        .export_piece = export_piece,
                                        .to_device = to_device,
                                        .wait = wait_for_kernels,
                                        .check_begin = check_begin,
                                        .check_poll = check_poll,
                                        .check_drop = check_drop,
                                        .verify_load = verify_load,
                                        .verify_begin = verify_begin,
                                        .verify_poll = verify_poll,
                                        .verify_drop = verify_drop};
