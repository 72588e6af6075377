/* Failure texts: one for each thread, cut where a character ends. Rows of a probe likewise. */
#include <pthread.h>
#include <stdlib.h>

#include "../../shim/common/rows.h"
#include "check.h"

static void *other_thread(void *unused) {
  (void)unused;
  char text[64];
  CHECK_EQUAL(zap_failure_copy(text, sizeof text), 0);
  CHECK(text[0] == 0);
  CHECK_EQUAL(zap_fail(ZAP_E_MEMORY, "the other's"), ZAP_E_MEMORY);
  CHECK(strcmp(zap_failure(), "the other's") == 0);
  return NULL;
}

static void texts(void) {
  char text[64];
  CHECK_EQUAL(zap_fail(ZAP_E_INVALID, "%s and %d", "one", 2), ZAP_E_INVALID);
  pthread_t thread;
  pthread_create(&thread, NULL, other_thread, NULL);
  pthread_join(thread, NULL);
  CHECK_EQUAL(zap_failure_copy(text, sizeof text), 9);
  CHECK(strcmp(text, "one and 2") == 0);

  /* An argument may be the text of before. */
  (void)zap_fail(ZAP_E_INVALID, "again: %s", zap_failure());
  CHECK(strcmp(zap_failure(), "again: one and 2") == 0);

  CHECK_EQUAL(zap_failure_copy(text, 6), 5);
  CHECK(strcmp(text, "again") == 0);
  CHECK_EQUAL(zap_failure_copy(text, 1), 0);
  CHECK(text[0] == 0);
  text[0] = 'x';
  CHECK_EQUAL(zap_failure_copy(text, 0), 0);
  CHECK(text[0] == 'x');
  CHECK_EQUAL(zap_failure_copy(NULL, 10), 0);
}

static void characters(void) {
  char text[ZAP_TEXT_BYTES * 2];
  /* Two bytes each: an odd room must not split one. */
  (void)zap_fail(ZAP_E_INVALID, "\xc3\xa4\xc3\xb6\xc3\xbc");
  CHECK_EQUAL(zap_failure_copy(text, 4), 2);
  CHECK_EQUAL(zap_failure_copy(text, 5), 4);
  char huge[ZAP_TEXT_BYTES * 2];
  for (size_t at = 0; at + 3 < sizeof huge; at += 3) memcpy(huge + at, "\xe2\x82\xac", 3);
  huge[sizeof huge / 3 * 3] = 0;
  (void)zap_fail(ZAP_E_INVALID, "%s", huge);
  CHECK_EQUAL(strlen(zap_failure()) % 3, 0);
  CHECK(strlen(zap_failure()) < ZAP_TEXT_BYTES && strlen(zap_failure()) > ZAP_TEXT_BYTES - 6);
}

static void rows(void) {
  struct zap_rows *seen = calloc(1, sizeof *seen);
  if (seen == NULL) abort();
  zap_row(seen, "good", true, "not shown", "version %d", 3);
  zap_row(seen, "bad", false, "Mend it.", "broken");
  char huge[1024];
  memset(huge, 'y', sizeof huge);
  huge[sizeof huge - 1] = 0;
  zap_row(seen, huge, false, huge, "%s", huge);
  for (int at = 0; at < ZAP_ROWS; at++) zap_row(seen, "more", true, NULL, "than there is room for");
  zap_prerequisite out[ZAP_ROWS];
  memset(out, 0xff, sizeof out);
  CHECK_EQUAL(zap_rows_copy(seen, out, 2), 2);
  CHECK_EQUAL((uint8_t)out[2].name[0], 0xff);
  CHECK_EQUAL(zap_rows_copy(seen, out, ZAP_ROWS), ZAP_ROWS);
  CHECK(strcmp(out[0].seen, "version 3") == 0 && out[0].fix[0] == 0 && out[0].met == 1);
  CHECK(strcmp(out[1].fix, "Mend it.") == 0 && out[1].met == 0);
  CHECK_EQUAL(strlen(out[2].name), sizeof out[2].name - 1);
  CHECK_EQUAL(strlen(out[2].seen), sizeof out[2].seen - 1);
  CHECK_EQUAL(strlen(out[2].fix), sizeof out[2].fix - 1);
  free(seen);
}

int main(void) {
  CHECK_EQUAL(sizeof(zap_prerequisite), 512);
  texts();
  characters();
  rows();
  return checks_done("fail");
}
