/*
 * What all shims share: the version of their ABI, status codes, and the row of a probe.
 *
 * Every function that can fail returns 0 or a positive number, or one of the negative codes below; `..._error` then gives a
 * text for people, which belongs to the calling thread and holds until its next failing call. Handles are positive
 * numbers that carry a generation: one that was closed is refused with ZAP_E_HANDLE, also after its place was used again.
 * A shim never prints, exits, raises or changes a signal handler; its threads block all signals.
 */
#ifndef ZAP_SHIM_H
#define ZAP_SHIM_H

#include <stdint.h>

/* Protected: where one verb calls another it means its own, whatever else in the process has the same name. */
#if defined(__ELF__)
#define ZAP_EXPORT __attribute__((visibility("protected")))
#elif defined(__GNUC__)
#define ZAP_EXPORT __attribute__((visibility("default")))
#else
#define ZAP_EXPORT
#endif

/* Goes up with every change that a caller of an older version would not survive. */
#define ZAP_ABI_VERSION 4u

enum zap_status {
  ZAP_OK = 0,
  ZAP_E_INVALID = -1,     /* an argument that cannot be used */
  ZAP_E_HANDLE = -2,      /* a handle that is unknown or was closed */
  ZAP_E_MEMORY = -3,      /* the host or the device is out of memory */
  ZAP_E_LIBRARY = -4,     /* a vendor's library cannot be opened */
  ZAP_E_SYMBOL = -5,      /* a vendor's library lacks a function: too old */
  ZAP_E_DRIVER = -6,      /* a call into the vendor's library failed */
  ZAP_E_DEVICE = -7,      /* no device, or not one of that number */
  ZAP_E_TIMEOUT = -8,     /* the vendor's library did not come back in time; its handle is of no more use */
  ZAP_E_UNSUPPORTED = -9, /* this device or build cannot do that */
  ZAP_E_SYSTEM = -10,     /* a system call failed */
  ZAP_E_AGAIN = -11,      /* nothing there yet; not a failure, and without a text */
  ZAP_E_LIMIT = -12,      /* a table is full */
  ZAP_E_RESET = -13       /* the far end broke the connection */
};

/* One thing that a shim needs of the host. 512 bytes; texts are UTF-8 that ends in a zero byte. */
typedef struct zap_prerequisite {
  char name[56];
  char seen[256];
  char fix[192]; /* lines: a sentence (ends with a full stop or colon), or a command as it is; empty where it is met */
  int32_t met;
  int32_t reserved;
} zap_prerequisite;

#endif
