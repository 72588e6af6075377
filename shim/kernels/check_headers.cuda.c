/* The CUDA kernel: zig compiles it to PTX, which the driver compiles for the GPU at hand. One thread for each span. */
#include "check_headers.h"

typedef uint32_t __attribute__((may_alias)) word;

/* Four loads in place of sixteen for what is aligned, as nearly every message is. */
static struct zap_header load(uint64_t address) {
  if ((address & 3) != 0) return zap_load_header((const uint8_t *)address);
  const word *words = (const word *)address;
  return (struct zap_header){.magic = words[0], .version = words[1], .root = words[2], .size = words[3]};
}

__attribute__((nvptx_kernel)) void zap_check_headers(const struct zap_target *targets, uint64_t versions, uint8_t *verdicts,
                                                     uint32_t count) {
  uint32_t at = __nvvm_read_ptx_sreg_ctaid_x() * __nvvm_read_ptx_sreg_ntid_x() + __nvvm_read_ptx_sreg_tid_x();
  if (at >= count) return;
  struct zap_target target = targets[at];
  if (target.length < ZAP_HEADER_BYTES) verdicts[at] = ZAP_VERDICT_SHORT;
  else verdicts[at] = zap_judge_header(load(target.address), target.length, versions);
}
