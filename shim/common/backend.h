/*
 * What a vendor's side of a unified-memory shim supplies: one `const struct zap_backend zap_backend`. Everything else (handles,
 * threads, timeouts, checks of arguments, the ZAP_UMA names) is uma_*.c's, the same for all.
 *
 * Threads: every function of the table runs on the device's thread, one at a time, so a backend needs no locks and keeps
 * everything in its `state`. Before each call that might hang it says zap_calling("cuInit").
 *
 * Failures: return zap_fail(status, text). The text names the call, the vendor's error by name and number, and what to do. A
 * function that fails has undone what it began.
 */
#ifndef ZAP_BACKEND_H
#define ZAP_BACKEND_H

#include <stdbool.h>

#include "../kernels/check_headers.h"
#include "device_thread.h"
#include "fail.h"
#include "rows.h"
#include "zap_uma.h"


/* What open and probe are asked for. Stays for the call. */
struct zap_request {
  const char *runtime; /* absolute path */
  const char *support; /* absolute path, or empty */
  int32_t index;       /* 0 or more */
};

/*
 * A piece of memory. `memory` and `bytes` come filled, `bytes` a multiple of the host's page; the rest is the backend's. In one to be
 * registered `foreign` and `host` come filled, too.
 */
struct zap_piece {
  uint64_t host;   /* aligned to a page, or 0 */
  uint64_t device;
  uint64_t bytes;  /* may be made more */
  uint32_t memory; /* enum zap_memory */
  bool foreign;    /* the caller's own memory: to be unregistered, never freed */
  void *vendor;    /* whatever the backend needs to free it */
};

/* Headers to check on the device. Stays for the call only: what the kernel needs of it must be copied to where it can read. */
struct zap_batch {
  const struct zap_target *targets; /* the device's addresses */
  uint32_t count;                   /* 1 or more */
  uint64_t versions;
  struct zap_piece *const *pieces; /* each piece that a target lies in, once */
  uint32_t piece_count;
};

/* Signatures to verify on the device. Addresses are the device's. Stays for the call only. */
struct zap_verification {
  uint64_t bytes, size;
  uint64_t table, codes; /* six words, and one byte, for each of `count`; the former aligned to 4 */
  uint32_t scheme;       /* enum zap_scheme, and one of those that there are */
  uint32_t count;        /* 1 or more */
  struct zap_piece *const *pieces; /* each piece that those three lie in, once */
  uint32_t piece_count;
};

struct zap_backend {
  /* Adds rows, best in the order in which one would mend them, and lets go of everything. Never fails: that is a row. */
  void (*probe)(const struct zap_request *request, struct zap_rows *rows);

  /* Opens a device: its state, and all of `device` (which comes zeroed). */
  int32_t (*open)(const struct zap_request *request, void **state, zap_uma_device *device);

  /* Lets go of everything. No kernel runs, all pieces are freed. */
  void (*close)(void *state);

  /* ZAP_E_UNSUPPORTED for a kind of memory that it has not, ZAP_E_MEMORY where there is no more. */
  int32_t (*alloc)(void *state, struct zap_piece *piece);

  /*
   * Makes the caller's memory known to the device: fills `device`. ZAP_E_UNSUPPORTED where the driver cannot. NULL where the vendor knows
   * no such thing.
   */
  int32_t (*register_piece)(void *state, struct zap_piece *piece);

  /* Frees what `alloc` gave, unregisters what is `foreign`. What a driver refuses to free is lost: it is not asked about again. */
  int32_t (*free)(void *state, struct zap_piece *piece);

  /* A new dma-buf descriptor, or ZAP_E_UNSUPPORTED. NULL where the vendor knows no such thing. */
  int32_t (*export_piece)(void *state, const struct zap_piece *piece);

  /*
   * Copies from a piece that has no address for the CPU. No kernel runs, and the range lies in the piece. NULL where the vendor has no such
   * pieces.
   */
  int32_t (*copy_to_host)(void *state, const struct zap_piece *piece, uint64_t offset, void *host, uint64_t bytes);

  /* What the CPU wrote is there for kernels launched from now on. The CPU's own fence is done; NULL where that is enough. */
  int32_t (*to_device)(void *state);

  /* Waits until no kernel runs, and their writes are there for the CPU. Called only where checks run. */
  int32_t (*wait)(void *state);

  /* Launches a check; `*running` becomes the backend's own. NULL where there are no kernels. */
  int32_t (*check_begin)(void *state, const struct zap_batch *batch, void **running);

  /* ZAP_E_AGAIN, or fills `verdicts`. `running` is gone after anything but ZAP_E_AGAIN. */
  int32_t (*check_poll)(void *state, void *running, uint8_t *verdicts);

  /* Frees a check that nobody polls any more. No kernel runs. */
  void (*check_drop)(void *state, void *running);

  /*
   * Signatures. All four are NULL where there are no kernels for them; a backend that has them sets ZAP_UMA_VERIFY where they run. `load`
   * makes the kernel of a scheme ready, which may take seconds, and nothing the second time. The others are as for checks; `begin` loads
   * what is not there yet, and what it is to write lies in the caller's memory.
   */
  int32_t (*verify_load)(void *state, uint32_t scheme);
  int32_t (*verify_begin)(void *state, const struct zap_verification *batch, void **running);
  int32_t (*verify_poll)(void *state, void *running);
  void (*verify_drop)(void *state, void *running);
};

extern const struct zap_backend zap_backend;

#endif
