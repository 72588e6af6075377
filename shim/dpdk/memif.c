#include "memif.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* DPDK's own, where none is named. */
#define DEFAULT_SOCKET "/run/memif.sock"

bool zap_memif_serves(const char *device) {
  return strncmp(device, "net_memif", 9) == 0 && strstr(device, ",role=server") != NULL;
}

static bool is_abstract(const char *device) { return strstr(device, ",socket-abstract=no") == NULL; }

/* The length of what it returns is set. */
static const char *socket_of(const char *device, size_t *length) {
  const char *named = strstr(device, ",socket=");
  named = named == NULL ? DEFAULT_SOCKET : named + strlen(",socket=");
  *length = strcspn(named, ",");
  return named;
}

bool zap_memif_together(const char *first, const char *second) {
  size_t here, there;
  const char *one = socket_of(first, &here), *other = socket_of(second, &there);
  return is_abstract(first) == is_abstract(second) && here == there && memcmp(one, other, here) == 0;
}

void zap_memif_clear(const char *device) {
  struct sockaddr_un at = {.sun_family = AF_UNIX};
  size_t length;
  const char *named = socket_of(device, &length);
  if (!zap_memif_serves(device) || is_abstract(device) || length == 0 || length >= sizeof at.sun_path) return;
  memcpy(at.sun_path, named, length);
  struct stat seen;
  if (lstat(at.sun_path, &seen) != 0 || !S_ISSOCK(seen.st_mode)) return;
  /* Whoever does listen notices nothing: the kernel turns away a socket of another type. */
  int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  bool stale = connect(fd, (const struct sockaddr *)&at, sizeof at) != 0 && errno == ECONNREFUSED;
  (void)close(fd);
  if (stale) (void)unlink(at.sun_path);
}

static bool listens_at(int fd, const char *named, size_t length, bool abstract) {
  int listens = 0;
  socklen_t size = sizeof listens;
  if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0) return false;
  struct sockaddr_un at = {.sun_family = AF_UNSPEC};
  size = sizeof at;
  if (getsockname(fd, (struct sockaddr *)&at, &size) != 0 || at.sun_family != AF_UNIX || size > sizeof at) return false;
  size_t skipped = abstract ? 1 : 0, known = size - offsetof(struct sockaddr_un, sun_path);
  if (size < offsetof(struct sockaddr_un, sun_path) || known < skipped + length) return false;
  if (abstract && at.sun_path[0] != 0) return false;
  const char *end = at.sun_path + skipped + length;
  return memcmp(at.sun_path + skipped, named, length) == 0 && (known == skipped + length || *end == 0);
}

void zap_memif_hush(const char *device) {
  size_t length;
  const char *named = socket_of(device, &length);
  if (!zap_memif_serves(device) || length == 0 || length >= sizeof((struct sockaddr_un *)0)->sun_path - 1) return;
  DIR *folder = opendir("/proc/self/fd");
  if (folder == NULL) return;
  for (const struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
    int fd = atoi(entry->d_name);
    if (entry->d_name[0] == '.' || !listens_at(fd, named, length, is_abstract(device))) continue;
    int quiet = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (quiet < 0) continue;
    (void)dup3(quiet, fd, O_CLOEXEC);
    (void)close(quiet);
  }
  (void)closedir(folder);
}
