/*
 * Sends frames as fast as the other side takes them: a socket that has shaken hands is its standard input.
 *
 *   flood SIZE SECONDS
 *
 * A sender in C costs so little that what is measured is the receiver.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum { PREFIX = 4, HEADER = 16, BLOCK = 1024 * 1024 };

static double now(void) {
	struct timespec at;
	clock_gettime(CLOCK_MONOTONIC, &at);
	return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

static void put_u32(uint8_t *at, uint32_t value) {
	for (int i = 0; i < 4; i++) at[i] = (uint8_t)(value >> (8 * i));
}

static void put_frame(uint8_t *at, uint32_t size) {
	put_u32(at, size);
	memcpy(at + PREFIX, "ZAP", 4);
	put_u32(at + PREFIX + 4, 0x07000001); /* version 1, type 7 */
	put_u32(at + PREFIX + 8, 0);
	put_u32(at + PREFIX + 12, size);
}

int main(int count, char **arguments) {
	if (count != 3) return 2;
	uint32_t size = (uint32_t)strtoul(arguments[1], NULL, 10);
	double end = now() + atof(arguments[2]);
	size_t frame = PREFIX + (size_t)size;
	size_t frames = frame < BLOCK ? BLOCK / frame : 1;
	uint8_t *block = malloc(frames * frame);
	if (size < HEADER || block == NULL) return 2;
	memset(block, 0xa5, frames * frame);
	for (size_t i = 0; i < frames; i++) put_frame(block + i * frame, size);

	signal(SIGPIPE, SIG_IGN);
	size_t sent = 0;
	while (now() < end || sent > 0) {
		ssize_t written = send(0, block + sent, frames * frame - sent, MSG_DONTWAIT);
		if (written > 0) sent = (sent + (size_t)written) % (frames * frame);
		else if (errno == EAGAIN) {
			struct pollfd writable = {.fd = 0, .events = POLLOUT};
			poll(&writable, 1, 1000);
		} else return 1;
	}
	return 0;
}
