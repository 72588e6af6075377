/* The poller's verbs: readiness through the wake descriptor, receiving in two parts, stale handles, closing under a reader. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "double_backend.h"

static int32_t poller;
static int32_t wake = -1;

/* Waits for a byte on the wake descriptor, unless the last take left something, and takes what is reported. */
static int32_t take(int32_t *slots, uint32_t capacity) {
  static bool more;
  char bytes[64];
  ssize_t got = 1;
  if (!more) do {
    got = read(wake, bytes, sizeof bytes);
    if (got < 0) pause_millis(1);
  } while (got < 0 && (errno == EAGAIN || errno == EINTR));
  CHECK(got > 0);
  int32_t count = ZAP_UMA(poller_take)(poller, slots, capacity);
  more = count == (int32_t)capacity;
  return count;
}

static void pair(int ends[2]) {
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) abort();
}

static void receiving(void) {
  int ends[2];
  int32_t slots[4];
  char first[4], second[8];
  CHECK_EQUAL(ZAP_UMA(poller_open)(NULL), ZAP_E_INVALID);
  poller = ZAP_UMA(poller_open)(&wake);
  CHECK(poller > 0 && wake >= 0);
  CHECK_EQUAL(ZAP_UMA(live)(), 1);
  pair(ends);
  int32_t slot = ZAP_UMA(poller_add)(poller, ends[0]);
  CHECK(slot > 0);
  close(ends[0]); /* it has a duplicate of its own */
  CHECK_EQUAL(ZAP_UMA(live)(), 2);
  CHECK_EQUAL(ZAP_UMA(poller_recv)(poller, slot, first, 4, second, 8), ZAP_E_AGAIN);

  CHECK_EQUAL(ZAP_UMA(poller_arm)(poller, slot), ZAP_OK);
  CHECK(write(ends[1], "0123456789", 10) == 10);
  CHECK_EQUAL(take(slots, 4), 1);
  CHECK_EQUAL(slots[0], slot);
  CHECK_EQUAL(ZAP_UMA(poller_recv)(poller, slot, first, 4, second, 8), 10);
  CHECK(memcmp(first, "0123", 4) == 0 && memcmp(second, "456789", 6) == 0);
  CHECK_EQUAL(ZAP_UMA(poller_recv)(poller, slot, first, 4, NULL, 0), ZAP_E_AGAIN);

  CHECK_EQUAL(ZAP_UMA(poller_arm)(poller, slot), ZAP_OK);
  close(ends[1]);
  CHECK_EQUAL(take(slots, 4), 1);
  CHECK_EQUAL(ZAP_UMA(poller_recv)(poller, slot, first, 4, NULL, 0), 0);

  CHECK_EQUAL(ZAP_UMA(poller_remove)(poller, slot), ZAP_OK);
  CHECK_EQUAL(ZAP_UMA(poller_remove)(poller, slot), ZAP_E_HANDLE);
  CHECK_EQUAL(ZAP_UMA(poller_recv)(poller, slot, first, 4, NULL, 0), ZAP_E_HANDLE);
  CHECK_EQUAL(ZAP_UMA(poller_arm)(poller, slot), ZAP_E_HANDLE);
  CHECK_EQUAL(ZAP_UMA(live)(), 1);
}

/* As often as one likes, whoever else has the socket open: its own end stays open here, as the caller's does. */
static void again(void) {
  int ends[2];
  int32_t slots[4];
  char byte;
  pair(ends);
  for (int round = 0; round < 5; round++) {
    int32_t slot = ZAP_UMA(poller_add)(poller, ends[0]);
    CHECK(slot > 0);
    CHECK_EQUAL(ZAP_UMA(poller_arm)(poller, slot), ZAP_OK);
    if (round % 2 == 0) {
      CHECK(write(ends[1], "x", 1) == 1);
      CHECK_EQUAL(take(slots, 4), 1);
      CHECK_EQUAL(slots[0], slot);
      CHECK_EQUAL(ZAP_UMA(poller_recv)(poller, slot, &byte, 1, NULL, 0), 1);
      CHECK_EQUAL(ZAP_UMA(poller_arm)(poller, slot), ZAP_OK);
    }
    CHECK_EQUAL(ZAP_UMA(poller_remove)(poller, slot), ZAP_OK);
  }

  /* Twice at the same time; one of them goes while it is armed, and is not heard of again. */
  int32_t first = ZAP_UMA(poller_add)(poller, ends[0]), second = ZAP_UMA(poller_add)(poller, ends[0]);
  CHECK(first > 0 && second > 0 && first != second);
  CHECK_EQUAL(ZAP_UMA(poller_arm)(poller, first), ZAP_OK);
  CHECK_EQUAL(ZAP_UMA(poller_arm)(poller, second), ZAP_OK);
  CHECK_EQUAL(ZAP_UMA(poller_remove)(poller, first), ZAP_OK);
  CHECK(write(ends[1], "x", 1) == 1);
  CHECK_EQUAL(take(slots, 4), 1);
  CHECK_EQUAL(slots[0], second);
  CHECK_EQUAL(ZAP_UMA(poller_recv)(poller, second, &byte, 1, NULL, 0), 1);
  CHECK_EQUAL(ZAP_UMA(poller_remove)(poller, second), ZAP_OK);
  CHECK_EQUAL(ZAP_UMA(live)(), 1);
  close(ends[0]);
  close(ends[1]);
}

static void flagged(int fd) {
  CHECK((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
  CHECK((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
}

/* Every place is used again, the lowest first, and no number twice. */
static void places(void) {
  enum { COUNT = 130 };
  static int32_t slots[COUNT];
  int ends[2];
  pair(ends);
  for (int at = 0; at < COUNT; at++) slots[at] = ZAP_UMA(poller_add)(poller, ends[0]);
  static const int gone[] = {100, 7, 64, 8};
  for (int at = 0; at < 4; at++) CHECK_EQUAL(ZAP_UMA(poller_remove)(poller, slots[gone[at]]), ZAP_OK);
  static const int back[] = {7, 8, 64, 100};
  for (int at = 0; at < 4; at++) {
    int32_t slot = ZAP_UMA(poller_add)(poller, ends[0]);
    CHECK_EQUAL(slot & 0xffff, slots[back[at]] & 0xffff);
    CHECK(slot != slots[back[at]]);
    slots[back[at]] = slot;
  }
  CHECK_EQUAL(ZAP_UMA(live)(), 1 + COUNT);
  for (int at = 0; at < COUNT; at++) CHECK_EQUAL(ZAP_UMA(poller_remove)(poller, slots[at]), ZAP_OK);
  CHECK_EQUAL(ZAP_UMA(live)(), 1);
  close(ends[0]);
  close(ends[1]);
}

static void refusals(void) {
  int32_t slots[1];
  char byte;
  flagged(wake);
  CHECK_EQUAL(ZAP_UMA(poller_add)(poller, -1), ZAP_E_SYSTEM);
  char text[256];
  (void)ZAP_UMA(error)(text, sizeof text);
  CHECK_CONTAINS(text, "duplicating a socket failed with errno 9: not an open file");

  /* Places that are none. */
  int ends[2];
  pair(ends);
  int32_t slot = ZAP_UMA(poller_add)(poller, ends[0]);
  CHECK_EQUAL(ZAP_UMA(poller_arm)(poller, slot), ZAP_OK);
  CHECK(write(ends[1], "x", 1) == 1);
  pause_millis(20);
  CHECK_EQUAL(ZAP_UMA(poller_take)(poller, NULL, 4), ZAP_E_INVALID);
  CHECK_EQUAL(ZAP_UMA(poller_take)(poller, NULL, 0), 0);
  CHECK_EQUAL(take(slots, 1), 1);
  CHECK_EQUAL(take(slots, 1), 0);
  CHECK_EQUAL(ZAP_UMA(poller_recv)(poller, slot, NULL, 1, NULL, 0), ZAP_E_INVALID);
  CHECK_EQUAL(ZAP_UMA(poller_recv)(poller, slot, &byte, 0, NULL, 0), ZAP_E_INVALID);
  CHECK_EQUAL(ZAP_UMA(poller_recv)(poller, slot, &byte, 1, NULL, 1), ZAP_E_INVALID);
  CHECK_EQUAL(ZAP_UMA(poller_recv)(poller, slot, &byte, INT32_MAX, &byte, 1), ZAP_E_INVALID);
  CHECK_EQUAL(ZAP_UMA(poller_recv)(poller, slot, &byte, 1, NULL, 0), 1);
  CHECK_EQUAL(ZAP_UMA(poller_remove)(poller, slot), ZAP_OK);
  close(ends[0]);
  close(ends[1]);

  CHECK_EQUAL(ZAP_UMA(live)(), 1);
  const int32_t wrong[] = {0, -1, 12345, poller + 65536};
  for (size_t at = 0; at < sizeof wrong / sizeof wrong[0]; at++) {
    CHECK_EQUAL(ZAP_UMA(poller_add)(wrong[at], 0), ZAP_E_HANDLE);
    CHECK_EQUAL(ZAP_UMA(poller_remove)(wrong[at], 1), ZAP_E_HANDLE);
    CHECK_EQUAL(ZAP_UMA(poller_arm)(wrong[at], 1), ZAP_E_HANDLE);
    CHECK_EQUAL(ZAP_UMA(poller_take)(wrong[at], slots, 1), ZAP_E_HANDLE);
    CHECK_EQUAL(ZAP_UMA(poller_recv)(wrong[at], 1, &byte, 1, NULL, 0), ZAP_E_HANDLE);
    CHECK_EQUAL(ZAP_UMA(poller_close)(wrong[at]), ZAP_E_HANDLE);
  }
}

static void many(void) {
  enum { COUNT = 200 };
  static int ends[COUNT][2];
  static int32_t slots[COUNT], reported[COUNT];
  int seen = 0;
  for (int at = 0; at < COUNT; at++) {
    pair(ends[at]);
    slots[at] = ZAP_UMA(poller_add)(poller, ends[at][0]);
    CHECK(slots[at] > 0);
    CHECK_EQUAL(ZAP_UMA(poller_arm)(poller, slots[at]), ZAP_OK);
  }
  CHECK_EQUAL(ZAP_UMA(live)(), 1 + COUNT);
  for (int at = 0; at < COUNT; at++) CHECK(write(ends[at][1], "x", 1) == 1);
  while (seen < COUNT) {
    int32_t count = take(reported, 7);
    CHECK(count >= 0);
    seen += count;
    for (int at = 0; at < count; at++) {
      char byte;
      CHECK_EQUAL(ZAP_UMA(poller_recv)(poller, reported[at], &byte, 1, NULL, 0), 1);
    }
  }
  CHECK_EQUAL(seen, COUNT);
  for (int at = 0; at < COUNT; at++) {
    close(ends[at][0]);
    close(ends[at][1]);
  }
}

static int32_t read_slot;
static atomic_bool ended;

static void *reader(void *unused) {
  (void)unused;
  char bytes[16];
  int32_t status;
  do {
    status = ZAP_UMA(poller_recv)(poller, read_slot, bytes, 8, bytes + 8, 8);
  } while (status >= 0 || status == ZAP_E_AGAIN);
  CHECK_EQUAL(status, ZAP_E_HANDLE);
  atomic_store(&ended, true);
  return NULL;
}

/* With slots open, and with readers in the midst of it. */
static void closing(void) {
  int ends[2];
  pair(ends);
  read_slot = ZAP_UMA(poller_add)(poller, ends[0]);
  pthread_t threads[2];
  for (int at = 0; at < 2; at++) pthread_create(&threads[at], NULL, reader, NULL);
  for (int at = 0; at < 100; at++) CHECK(write(ends[1], "0123456789", 10) == 10);
  CHECK(!ended);
  CHECK_EQUAL(ZAP_UMA(poller_close)(poller), ZAP_OK);
  for (int at = 0; at < 2; at++) pthread_join(threads[at], NULL);
  CHECK_EQUAL(ZAP_UMA(poller_close)(poller), ZAP_E_HANDLE);
  CHECK_EQUAL(ZAP_UMA(live)(), 0);
  close(ends[0]);
  close(ends[1]);
  close(wake);
}

int main(void) {
  receiving();
  again();
  places();
  refusals();
  many();
  closing();
  return checks_done("poller");
}
