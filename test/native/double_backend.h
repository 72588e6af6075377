/*
 * A double of a vendor's backend: memory is the heap's, kernels are functions of the CPU, and any call fails or hangs on
 * request. It stands in for a device in the tests of shim/common, and is no device.
 */
#ifndef ZAP_TEST_DOUBLE_BACKEND_H
#define ZAP_TEST_DOUBLE_BACKEND_H

#include "../../shim/common/backend.h"

enum double_call { CALL_NONE, CALL_PROBE, CALL_OPEN, CALL_CLOSE, CALL_ALLOC, CALL_FREE, CALL_EXPORT, CALL_TO_DEVICE, CALL_WAIT,
                   CALL_BEGIN, CALL_POLL, CALL_REGISTER, CALL_UNREGISTER, CALL_VERIFY, CALL_VERIFY_POLL, CALL_VERIFY_LOAD, CALL_COUNT };

struct double_control {
  /* The call that hangs until this changes. */
  atomic_int hanging;
  /* How many calls hang right now. */
  atomic_int stuck;
  /* The call that fails, and with what. */
  atomic_int failing;
  atomic_int status;
  /* Polls that answer ZAP_E_AGAIN, for each check. */
  atomic_int slow_polls;
  /* What the next devices report. */
  atomic_uint flags;
  /* What is there now. */
  atomic_int devices, pieces, checks, registered;
  /* How often each was called. */
  atomic_int calls[CALL_COUNT];
  /* Calls that ran while another one did: always 0. */
  atomic_int overlaps;
};

extern struct double_control double_control;

/* Addresses for the device are those of the CPU plus this: mixing them up is noticed. */
#define DOUBLE_DEVICE_OFFSET UINT64_C(0x100000000000)

/* Back to a healthy device; the counts of what is there stay. */
void double_reset(void);

#endif
