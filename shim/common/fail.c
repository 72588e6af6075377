#include "fail.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char failure[ZAP_TEXT_BYTES];

size_t zap_text_fit(const char *text, size_t limit) {
  size_t length = strlen(text);
  if (length <= limit) return length;
  while (limit > 0 && ((unsigned char)text[limit] & 0xC0) == 0x80) limit--;
  return limit;
}

void zap_text_copy(char *to, size_t capacity, const char *text) {
  size_t length = zap_text_fit(text, capacity - 1);
  memmove(to, text, length);
  memset(to + length, 0, capacity - length);
}

int32_t zap_fail(int32_t status, const char *format, ...) {
  /* Formatted beside it first: an argument may be the old text. Longer than the text so that a cut is seen. */
  char buffer[ZAP_TEXT_BYTES + 8];
  va_list arguments;
  va_start(arguments, format);
  int wanted = vsnprintf(buffer, sizeof buffer, format, arguments);
  va_end(arguments);
  if (wanted < 0) buffer[0] = 0;
  zap_text_copy(failure, sizeof failure, buffer);
  return status;
}

const char *zap_failure(void) { return failure; }

int32_t zap_failure_copy(char *text, uint32_t capacity) {
  if (text == NULL || capacity == 0) return 0;
  size_t length = zap_text_fit(failure, capacity - 1);
  memcpy(text, failure, length);
  text[length] = 0;
  return (int32_t)length;
}

int32_t zap_fail_system(const char *call) {
  int number = errno;
  /* strerror's buffer is shared between threads in some C libraries; the number is what one looks up anyway. */
  const char *meaning = "";
  switch (number) {
    case EMFILE: meaning = ": this process has too many files open (ulimit -n)"; break;
    case ENFILE: meaning = ": this host has too many files open"; break;
    case ENOMEM: meaning = ": out of memory"; break;
    case EAGAIN: meaning = ": out of threads or memory (ulimit -u)"; break;
    case EBADF: meaning = ": not an open file"; break;
    case EINVAL: meaning = ": invalid argument"; break;
    case ENOTSOCK: meaning = ": not a socket"; break;
    case ENOTCONN: meaning = ": not connected"; break;
    case EPERM: meaning = ": not possible for this kind of file"; break;
    case ENOSPC: meaning = ": this user watches too many files (fs.epoll.max_user_watches)"; break;
    case ECONNRESET: meaning = ": the far end broke the connection"; break;
    case EPIPE: meaning = ": the connection is closed"; break;
    case ETIMEDOUT: meaning = ": the far end does not answer"; break;
    default: break;
  }
  return zap_fail(ZAP_E_SYSTEM, "%s failed with errno %d%s", call, number, meaning);
}
