/* The CUDA kernel: zig compiles it to PTX, which the driver compiles for the GPU at hand. One thread for each signature. */
#include "ed25519/verify.c"

__attribute__((nvptx_kernel)) void zap_verify_ed25519(const uint8_t *bytes, uint64_t size, const uint32_t *table, uint8_t *codes,
                                                      uint32_t count) {
  uint32_t at = __nvvm_read_ptx_sreg_ctaid_x() * __nvvm_read_ptx_sreg_ntid_x() + __nvvm_read_ptx_sreg_tid_x();
  if (at < count) codes[at] = zap_ed25519_item(bytes, size, table + (uint64_t)at * ZAP_TABLE_STRIDE);
}
