/*
 * What the test doubles of the vendors' libraries share: their behaviour file, a report, memory that behaves like a device's, and
 * a queue that runs kernels later. None of it is a device, and none of it is shipped.
 *
 * Each double is one translation unit plus double.c and double_memory.c. README.md lists what a behaviour file may say.
 */
#ifndef ZAP_TEST_DOUBLE_H
#define ZAP_TEST_DOUBLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The functions of a vendor's library; all else stays inside, so that two doubles in one process do not meet. */
#define DOUBLE_EXPORT __attribute__((visibility("default")))
#define DOUBLE_HIDDEN __attribute__((visibility("hidden")))

#pragma GCC visibility push(hidden)

/* ---- behaviour ---- */

/* Reads `double.conf` beside this library again; without the file, everything has its default. */
void double_settings_read(void);

/* The value of a setting, else `otherwise`. The text belongs to the double and stays until the process ends. */
const char *double_text(const char *name, const char *otherwise);
int64_t double_number(const char *name, int64_t otherwise);

/* The same for a setting whose name ends in a number: `attribute.89`. */
int64_t double_number_of(const char *name, int64_t which, int64_t otherwise);

/* How much later than it could a kernel runs, milliseconds. */
int64_t double_kernel_millis(void);

/*
 * Every function of a double starts here. Hangs or waits where the behaviour says so; returns 0, or the code that this call is
 * to fail with.
 */
int64_t double_enter(const char *call);

/* Appends one line to the file that the setting `report` names, if any. Lines that start with "fault" are misuse by the caller. */
void double_report(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Reports a fault, says on standard error which double found it, and ends the process. */
void double_die(const char *library, const char *format, ...) __attribute__((format(printf, 2, 3), noreturn));

/* How many faults were reported since the library was loaded. */
uint64_t double_faults(void);

/* ---- memory ---- */

enum double_kind {
  DOUBLE_MANAGED = 1, /* the CPU may touch it, except while a kernel runs where double_memory_strict says so */
  DOUBLE_HOST,        /* page-locked: the CPU may always touch it */
  DOUBLE_DEVICE,      /* never the CPU's */
  DOUBLE_SHARED,      /* as DOUBLE_HOST, but the device's address always differs */
  DOUBLE_REGISTERED   /* the caller's own, made known; not ours to unmap */
};

typedef struct double_block {
  struct double_block *next;
  uint8_t *host;   /* where the CPU sees it */
  uint8_t *device; /* where a kernel sees it: the same, except with the setting `alias` */
  uint8_t *backing; /* of DOUBLE_DEVICE: a second mapping of the same pages, for copies and for a NIC's double; else NULL */
  size_t bytes;    /* as asked for */
  size_t mapped;   /* in whole pages */
  uint32_t kind;
  int fd;          /* the memory file behind it, or -1 */
  int access;      /* how `host` is mapped now */
  void *owner;     /* a context, for the double's own use */
  uint32_t flags;  /* for the double's own use */
} double_block;

/* NULL where the setting `memory` (bytes in all, 0 without limit) or the host leaves no room. Pages are not touched. */
double_block *double_memory_new(uint32_t kind, size_t bytes, void *owner);

enum double_registered { DOUBLE_TAKEN = 0, DOUBLE_OVERLAPS, DOUBLE_NOT_THERE, DOUBLE_NO_ALIAS };

/*
 * The caller's memory made known: a block, or why not. It overlaps another; not all of it is mapped; with the setting `alias`, it is no
 * shared mapping, of which alone there can be a second view.
 */
enum double_registered double_memory_register(void *host, size_t bytes, void *owner, double_block **out);

/* Whether all of a block's memory is still mapped, which for memory of the caller's is his to see to. */
bool double_memory_there(const double_block *block);

/* The block that begins at `address` as the CPU or the device sees it; with `inside`, the one that holds it. */
double_block *double_memory_find(uint64_t address, bool inside);

/*
 * Where a double, whichever copy of one, finds `bytes` of DOUBLE_DEVICE memory of this process; NULL where they are none. The caller sees
 * to it that they are not freed meanwhile.
 */
void *double_memory_backing(uint64_t address, uint64_t bytes);

void double_memory_free(double_block *block);

/* Frees every block of `owner` (NULL: all) and returns how many there were; adds their sizes to `bytes`. */
uint32_t double_memory_free_all(void *owner, uint64_t *bytes);
uint32_t double_memory_count(void *owner, uint64_t *bytes);
uint64_t double_memory_used(void);

/* Managed memory is closed to the CPU from a launch until a successful wait or query, as without concurrent managed access. */
void double_memory_strict(bool strict);
void double_memory_launched(void); /* a kernel was launched */
void double_memory_settled(void);  /* the caller has seen that every kernel is done */
void double_memory_run(bool begin); /* around a kernel's run: opens everything to it */

/* ---- kernels that run later ---- */

/* Runs `run(job)` at once, or with `millis` above 0 after that time on the double's own thread. Returns a ticket. */
uint64_t double_submit(void (*run)(void *), void *job, int64_t millis);
bool double_done(uint64_t ticket);
void double_wait(uint64_t ticket);
uint64_t double_submitted(void); /* the ticket of the latest launch; 0 before the first */

/* Waits for every launch and ends the thread. */
void double_drain(void);

#pragma GCC visibility pop

#endif
