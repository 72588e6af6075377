/*
 * For C tests that use the doubles: checks that say where they failed, and a folder of one's own with copies of the doubles, so that
 * a behaviour file never meets another test. Included by one file of a program.
 */
#ifndef ZAP_TEST_HARNESS_H
#define ZAP_TEST_HARNESS_H

#include <dlfcn.h>
#include <errno.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int harness_failures;
static const char *harness_case = "";

#define CHECK(condition)                                                                            \
  do {                                                                                              \
    if (!(condition)) {                                                                             \
      (void)fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, harness_case, #condition);       \
      harness_failures += 1;                                                                        \
    }                                                                                               \
  } while (0)

/* Fails with both numbers. */
#define CHECK_EQUAL(seen, wanted)                                                                              \
  do {                                                                                                         \
    long long seen_ = (long long)(seen);                                                                       \
    long long wanted_ = (long long)(wanted);                                                                   \
    if (seen_ != wanted_) {                                                                                    \
      (void)fprintf(stderr, "%s:%d: %s: %s is %lld, not %lld\n", __FILE__, __LINE__, harness_case, #seen, seen_, wanted_); \
      harness_failures += 1;                                                                                   \
    }                                                                                                          \
  } while (0)

#define CHECK_TEXT(text, part)                                                                                 \
  do {                                                                                                         \
    if (strstr((text), (part)) == NULL) {                                                                      \
      (void)fprintf(stderr, "%s:%d: %s: \"%s\" does not contain \"%s\"\n", __FILE__, __LINE__, harness_case, (text), (part)); \
      harness_failures += 1;                                                                                   \
    }                                                                                                          \
  } while (0)

static char harness_folder[] = "/tmp/zap-doubles-XXXXXX";
static char harness_report[64];

static inline const char *harness_path(const char *name) {
  static char paths[8][4096];
  static unsigned next;
  char *path = paths[next++ % 8];
  (void)snprintf(path, sizeof paths[0], "%s/%s", harness_folder, name);
  return path;
}

/* Copies FROM_FOLDER/NAME to `as` in our own folder, whose folders are made. */
static inline void harness_copy(const char *from_folder, const char *name, const char *as) {
  char from[4096];
  char to[4096];
  char buffer[65536];
  size_t got;
  (void)snprintf(from, sizeof from, "%s/%s", from_folder, name);
  (void)snprintf(to, sizeof to, "%s/%s", harness_folder, as);
  for (char *slash = to + strlen(harness_folder) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
    *slash = 0;
    (void)mkdir(to, 0700);
    *slash = '/';
  }
  FILE *in = fopen(from, "rb");
  FILE *out = fopen(to, "wb");
  if (in == NULL || out == NULL) {
    (void)fprintf(stderr, "%s: %s\n", from, strerror(errno));
    exit(2);
  }
  while ((got = fread(buffer, 1, sizeof buffer, in)) > 0) (void)fwrite(buffer, 1, got, out);
  (void)fclose(in);
  (void)fclose(out);
}

static inline void harness_begin(void) {
  if (mkdtemp(harness_folder) == NULL) exit(2);
  (void)snprintf(harness_report, sizeof harness_report, "%s/report", harness_folder);
}

/* The behaviour for what comes next: lines of `double.conf`. The report starts empty. */
static inline void harness_behave(const char *name, const char *lines) {
  harness_case = name;
  (void)unlink(harness_report);
  FILE *file = fopen(harness_path("double.conf"), "wb");
  if (file == NULL) exit(2);
  (void)fprintf(file, "report=%s\n%s\n", harness_report, lines);
  (void)fclose(file);
}

/* What was reported so far. */
static inline const char *harness_reported(void) {
  static char text[65536];
  FILE *file = fopen(harness_report, "rb");
  size_t got = file == NULL ? 0 : fread(text, 1, sizeof text - 1, file);
  if (file != NULL) (void)fclose(file);
  text[got] = 0;
  return text;
}

static inline void harness_no_faults(void) {
  const char *text = harness_reported();
  if (strstr(text, "fault:") == NULL) return;
  (void)fprintf(stderr, "%s: %s", harness_case, text);
  harness_failures += 1;
}

/* Runs `body` in a child; returns the signal that ended it, or 0. For what ends a process. */
static inline int harness_signal_of(void (*body)(void *), void *argument) {
  pid_t child = fork();
  if (child == 0) {
    if (freopen("/dev/null", "w", stderr) == NULL) _exit(3);
    body(argument);
    _exit(0);
  }
  int status = 0;
  (void)waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static inline int harness_remove(const char *path, const struct stat *about, int kind, struct FTW *where) {
  (void)about;
  (void)kind;
  (void)where;
  return remove(path);
}

static inline int harness_end(void) {
  (void)nftw(harness_folder, harness_remove, 8, FTW_DEPTH | FTW_PHYS);
  if (harness_failures > 0) (void)fprintf(stderr, "%d checks failed\n", harness_failures);
  return harness_failures > 0;
}

#endif
