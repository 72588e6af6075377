/* Captures for net_pcap, frame by frame. */
#ifndef ZAP_DPDK_CAPTURE_H
#define ZAP_DPDK_CAPTURE_H

#include "dpdk_kit.h"

static inline FILE *capture_open(const char *path) {
  FILE *capture = fopen(path, "w");
  if (capture == NULL) exit(1);
  uint32_t head[6] = {0xa1b2c3d4, 0x00040002, 0, 0, 65535, 1};
  CHECK_EQUAL(fwrite(head, sizeof head, 1, capture), 1);
  return capture;
}

static inline void capture_write(FILE *capture, const uint8_t *frame, uint32_t length) {
  uint32_t head[4] = {0, 0, length, length};
  CHECK_EQUAL(fwrite(head, sizeof head, 1, capture), 1);
  CHECK_EQUAL(fwrite(frame, length, 1, capture), 1);
}

#endif
