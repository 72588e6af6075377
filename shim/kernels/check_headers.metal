// The Metal kernel. The shim puts metal_prelude.metal and check_headers.h before this text and hands all of it to the driver.
kernel void zap_check_headers(device const zap_target *targets [[buffer(0)]], constant uint64_t &versions [[buffer(1)]],
                              device uint8_t *verdicts [[buffer(2)]], constant uint32_t &count [[buffer(3)]],
                              uint at [[thread_position_in_grid]]) {
  if (at < count) verdicts[at] = zap_check_header(targets[at].address, targets[at].length, versions);
}
