/*
 * The limit of this machine: the same framing over epoll in plain C.
 *
 *   epoll_pair ROLE MODE SIZE WARM_MILLIS RUN_MILLIS LIMIT_SECONDS ADDRESS
 *
 * ROLE is receive or send, MODE throughput or roundtrip. It prints the same JSON lines as the TypeScript contenders and
 * then stays until it is killed.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { DATA = 1, START = 2, END = 3 };
enum { HEADER = 4, BUFFER = 256 * 1024, DIRECT = 64 * 1024, MESSAGE_MIN = 24, MESSAGE_MAX = 64 * 1024 * 1024 };

static int epoll_fd;
static size_t size;

static void die(const char *what) {
	fprintf(stderr, "epoll_pair: %s: %s\n", what, errno != 0 ? strerror(errno) : "failed");
	exit(1);
}

static void *allocate(size_t bytes) {
	void *memory = malloc(bytes);
	if (memory == NULL) die("malloc");
	return memory;
}

static double now_micros(void) {
	struct timespec at;
	clock_gettime(CLOCK_MONOTONIC, &at);
	return (double)at.tv_sec * 1e6 + (double)at.tv_nsec / 1e3;
}

static void put_u32(uint8_t *at, uint32_t value) {
	for (int i = 0; i < 4; i++) at[i] = (uint8_t)(value >> (8 * i));
}

static uint32_t get_u32(const uint8_t *at) {
	return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* A frame: the length, then a ZAP message of `size` bytes. */
static uint8_t *make_frame(uint8_t type) {
	uint8_t *frame = allocate(HEADER + size);
	uint8_t *message = frame + HEADER;
	memset(frame, 0xa5, HEADER + size);
	put_u32(frame, (uint32_t)size);
	memcpy(message, "ZAP", 4);
	message[4] = 1;
	message[5] = 0;
	message[6] = 0;
	message[7] = type;
	put_u32(message + 8, 0);
	put_u32(message + 12, (uint32_t)size);
	return frame;
}

static uint8_t check_message(const uint8_t *message, size_t length) {
	errno = 0;
	if (length != size) die("a message of another length arrived");
	if (memcmp(message, "ZAP", 4) != 0) die("a message without the magic arrived");
	return message[7];
}

static void watch(int fd, uint32_t events) {
	static uint32_t watched;
	struct epoll_event event = {.events = events, .data.fd = fd};
	if (watched == events) return;
	watched = events;
	if (epoll_ctl(epoll_fd, EPOLL_CTL_MOD, fd, &event) == 0) return;
	if (errno != ENOENT || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) die("epoll_ctl");
}

static void wait_for(int fd, uint32_t events) {
	struct epoll_event event;
	watch(fd, events);
	while (epoll_wait(epoll_fd, &event, 1, -1) < 0) {
		if (errno != EINTR) die("epoll_wait");
	}
}

static void no_delay(int fd) {
	int on = 1;
	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) die("TCP_NODELAY");
}

/* ---- sending ---- */

static void write_parts(int fd, struct iovec *parts, int count) {
	while (count > 0) {
		ssize_t written = writev(fd, parts, count);
		if (written < 0) {
			if (errno == EINTR) continue;
			if (errno != EAGAIN) die("write");
			wait_for(fd, EPOLLOUT);
			continue;
		}
		while (count > 0 && (size_t)written >= parts->iov_len) {
			written -= (ssize_t)parts->iov_len;
			parts++;
			count--;
		}
		if (count > 0) {
			parts->iov_base = (uint8_t *)parts->iov_base + written;
			parts->iov_len -= (size_t)written;
		}
	}
}

static void write_all(int fd, const uint8_t *bytes, size_t length) {
	struct iovec part = {.iov_base = (void *)bytes, .iov_len = length};
	if (length > 0) write_parts(fd, &part, 1);
}

struct outbox {
	int fd;
	size_t fill;
	uint8_t bytes[BUFFER];
};

/* Small messages are gathered; a large one goes out from where it lies, with what was gathered before it. */
static void post(struct outbox *box, const uint8_t *message) {
	bool direct = size >= DIRECT;
	if (box->fill + HEADER + (direct ? 0 : size) > BUFFER) {
		write_all(box->fd, box->bytes, box->fill);
		box->fill = 0;
	}
	put_u32(box->bytes + box->fill, (uint32_t)size);
	box->fill += HEADER;
	if (!direct) {
		memcpy(box->bytes + box->fill, message, size);
		box->fill += size;
		return;
	}
	struct iovec parts[2] = {
		{.iov_base = box->bytes, .iov_len = box->fill},
		{.iov_base = (void *)message, .iov_len = size},
	};
	write_parts(box->fd, parts, 2);
	box->fill = 0;
}

static uint64_t post_for(struct outbox *box, const uint8_t *message, double millis) {
	uint64_t sent = 0;
	uint64_t batch = 65536 / size;
	if (batch > 64) batch = 64;
	if (batch < 1) batch = 1;
	for (double until = now_micros() + millis * 1e3; now_micros() < until; sent += batch) {
		for (uint64_t i = 0; i < batch; i++) post(box, message);
	}
	return sent;
}

static void flood(int fd, double warm_millis, double run_millis) {
	static struct outbox box;
	const uint8_t *data = make_frame(DATA) + HEADER;
	uint8_t *end = make_frame(END) + HEADER;
	box.fd = fd;
	post_for(&box, data, warm_millis);
	post(&box, make_frame(START) + HEADER);
	uint64_t sent = post_for(&box, data, run_millis);
	put_u32(end + 16, (uint32_t)sent);
	put_u32(end + 20, (uint32_t)(sent >> 32));
	post(&box, end);
	write_all(fd, box.bytes, box.fill);
}

/* ---- receiving ---- */

typedef bool (*taker)(int fd, const uint8_t *message, size_t length);

/* Reads and hands over whole messages until `take` says that it has enough. */
static void read_messages(int fd, taker take) {
	static uint8_t *bytes;
	static size_t room, fill;
	if (bytes == NULL) {
		room = 2 * (size_t)BUFFER + HEADER + size;
		bytes = allocate(room);
	}
	watch(fd, EPOLLIN);
	for (;;) {
		ssize_t got = recv(fd, bytes + fill, room - fill, 0);
		if (got == 0) exit(1);
		if (got < 0) {
			if (errno == EINTR) continue;
			if (errno != EAGAIN) die("recv");
			wait_for(fd, EPOLLIN);
			continue;
		}
		fill += (size_t)got;
		size_t at = 0;
		bool enough = false;
		while (!enough && fill - at >= HEADER) {
			size_t length = get_u32(bytes + at);
			if (length > MESSAGE_MAX) {
				errno = 0;
				die("the length of a frame");
			}
			if (fill - at - HEADER < length) break;
			enough = take(fd, bytes + at + HEADER, length);
			at += HEADER + length;
		}
		memmove(bytes, bytes + at, fill - at);
		fill -= at;
		if (enough) return;
	}
}

static bool count_message(int fd, const uint8_t *message, size_t length) {
	static uint64_t messages;
	static double started;
	uint8_t type = check_message(message, length);
	(void)fd;
	if (type == DATA) {
		messages++;
		return false;
	}
	double now = now_micros();
	if (type == START) {
		messages = 0;
		started = now;
		return false;
	}
	uint64_t sent = get_u32(message + 16) | (uint64_t)get_u32(message + 20) << 32;
	if (type != END || sent != messages) die("messages were lost");
	printf("{\"result\":{\"messages\":%llu,\"millis\":%.3f}}\n", (unsigned long long)messages, (now - started) / 1e3);
	fflush(stdout);
	return true;
}

static bool echo_message(int fd, const uint8_t *message, size_t length) {
	check_message(message, length);
	/* The header lies right before the message. */
	write_all(fd, message - HEADER, HEADER + length);
	return false;
}

static bool one_message(int fd, const uint8_t *message, size_t length) {
	(void)fd;
	check_message(message, length);
	return true;
}

/* ---- round trips ---- */

static int by_value(const void *a, const void *b) {
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void ping_pong(int fd, double warm_millis, double run_millis) {
	const uint8_t *frame = make_frame(DATA);
	size_t samples = 0, room = 1 << 16;
	double *micros = allocate(room * sizeof *micros);
	double warm_until = now_micros() + warm_millis * 1e3;
	double until = warm_until + run_millis * 1e3;
	for (;;) {
		double sent_at = now_micros();
		if (sent_at >= until) break;
		write_all(fd, frame, HEADER + size);
		read_messages(fd, one_message);
		double took = now_micros() - sent_at;
		if (sent_at < warm_until) continue;
		if (samples == room) {
			room *= 2;
			micros = realloc(micros, room * sizeof *micros);
			if (micros == NULL) die("realloc");
		}
		micros[samples++] = took;
	}
	errno = 0;
	if (samples == 0) die("no round trip was finished in time");
	qsort(micros, samples, sizeof *micros, by_value);
	printf("{\"result\":{\"samples\":%zu,\"medianMicros\":%.3f,\"p99Micros\":%.3f}}\n", samples,
		micros[samples / 2], micros[samples * 99 / 100]);
	fflush(stdout);
}

/* ---- connections ---- */

static int listen_and_accept(void) {
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof address;
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (listener < 0 || bind(listener, (struct sockaddr *)&address, length) != 0) die("bind");
	if (listen(listener, 1) != 0 || getsockname(listener, (struct sockaddr *)&address, &length) != 0) die("listen");
	printf("{\"address\":\"127.0.0.1:%d\"}\n", ntohs(address.sin_port));
	fflush(stdout);
	int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (fd < 0) die("accept");
	close(listener);
	return fd;
}

static int connect_to(const char *where) {
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	const char *colon = strrchr(where, ':');
	address.sin_port = htons((uint16_t)atoi(colon == NULL ? where : colon + 1));
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0) die("connect");
	if (fcntl(fd, F_SETFL, O_NONBLOCK) != 0) die("fcntl");
	return fd;
}

int main(int argc, char **argv) {
	if (argc < 7) {
		fprintf(stderr, "usage: epoll_pair ROLE MODE SIZE WARM_MILLIS RUN_MILLIS LIMIT_SECONDS [ADDRESS]\n");
		return 2;
	}
	bool receive = strcmp(argv[1], "receive") == 0;
	bool throughput = strcmp(argv[2], "throughput") == 0;
	size = strtoul(argv[3], NULL, 10);
	if (size < MESSAGE_MIN || size > MESSAGE_MAX) die("SIZE");
	/* Nothing is left behind, also where nobody is there any more to end this. */
	alarm((unsigned)atoi(argv[6]));
	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (epoll_fd < 0) die("epoll_create1");
	int fd = receive ? listen_and_accept() : connect_to(argc > 7 ? argv[7] : "");
	no_delay(fd);
	if (receive) read_messages(fd, throughput ? count_message : echo_message);
	else if (throughput) flood(fd, atof(argv[4]), atof(argv[5]));
	else ping_pong(fd, atof(argv[4]), atof(argv[5]));
	/* The runner holds the other end of stdin. */
	char byte;
	while (read(STDIN_FILENO, &byte, 1) != 0) continue;
	return 1;
}
