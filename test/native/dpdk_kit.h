/* What the tests of the DPDK part share: an environment, a region, addresses, and frames made by hand. */
#ifndef ZAP_DPDK_KIT_H
#define ZAP_DPDK_KIT_H

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "../../shim/common/fail.h"
#include "../../shim/common/thread.h"
#include "../../shim/dpdk/eal.h"
#include "../../shim/dpdk/queue.h"
#include "check.h"

/* Ends the program where the rest makes no sense. */
#define MUST(call)                                                                        \
  do {                                                                                    \
    int32_t status_ = (call);                                                             \
    if (status_ != ZAP_OK) {                                                              \
      fprintf(stderr, "%s:%d: %s is %d: %s\n", __FILE__, __LINE__, #call, (int)status_, zap_failure()); \
      exit(1);                                                                            \
    }                                                                                     \
  } while (0)

/* Hugepages where ZAP_TEST_HUGEPAGES is set, else ordinary ones. */
static inline struct zap_eal_settings kit_eal(void) {
  return (struct zap_eal_settings){.memory_mib = 64, .hugepages = getenv("ZAP_TEST_HUGEPAGES") != NULL};
}

#define KIT_REGION (24u << 20)

static inline void *kit_region(size_t *page) {
  if (getenv("ZAP_TEST_HUGEPAGES") != NULL) {
    *page = 2u << 20;
    void *huge = mmap(NULL, KIT_REGION, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    if (huge != MAP_FAILED) return huge;
  }
  *page = 4096;
  void *region = mmap(NULL, KIT_REGION, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (region == MAP_FAILED) exit(1);
  return region;
}

static inline struct zap_ip kit_ip4(uint8_t last) { return zap_ip_from4((uint8_t[4]){10, 9, 0, last}); }
static inline struct zap_ip kit_ip6(uint8_t last) {
  return (struct zap_ip){.bytes = {0xfd, 0, [15] = last}};
}

#define KIT_PORT 4242

/* 10.9.0.<last> and fd00::<last>. */
static inline struct zap_station kit_station(uint8_t last) {
  struct zap_station station = {.has4 = true, .has6 = true, .udp_port = KIT_PORT, .mac = {2, 0, 0, 0, 9, last}};
  struct zap_ip ip4 = kit_ip4(last), ip6 = kit_ip6(last);
  memcpy(station.ip4, ip4.bytes + 12, 4);
  memcpy(station.ip6, ip6.bytes, 16);
  return station;
}

static inline struct zap_port_settings kit_port(const char *device, uint8_t last, void *region, size_t page) {
  return (struct zap_port_settings){
      .device = device,
      .region = region,
      .region_bytes = region == NULL ? 0 : KIT_REGION,
      .page_bytes = page,
      .station = kit_station(last),
      .start_ms = 10000,
  };
}

static const uint8_t kit_magic[4] = {0x5a, 0x41, 0x50, 0};

/* A payload: the magic, `number`, and bytes that follow from it. */
static inline void kit_payload(uint8_t *at, uint32_t length, uint32_t number) {
  memcpy(at, kit_magic, 4);
  memcpy(at + 4, &number, 4);
  for (uint32_t i = 8; i < length; i++) at[i] = (uint8_t)(number * 31 + i);
}

static inline bool kit_payload_is(const uint8_t *at, uint32_t length, uint32_t number) {
  uint8_t wanted[2048];
  if (length > sizeof wanted || length < 8) return false;
  kit_payload(wanted, length, number);
  return memcmp(at, wanted, length) == 0;
}

/* A whole frame from `from` to `to`; returns its length. */
static inline uint32_t kit_frame(uint8_t *frame, const struct zap_station *from, const struct zap_station *to, bool v4,
                                 const uint8_t *payload, uint32_t length) {
  struct zap_ip ip = v4 ? zap_ip_from4(to->ip4) : (struct zap_ip){.bytes = {0}};
  if (!v4) memcpy(ip.bytes, to->ip6, 16);
  uint64_t sum = zap_checksum_add(0, payload, length);
  uint32_t headers = zap_packet_headers(frame, from, to->mac, &ip, to->udp_port, length, &sum, true);
  memcpy(frame + headers, payload, length);
  return headers + length;
}

#endif
