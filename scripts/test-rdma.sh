#!/bin/sh
# Sets everything up and runs the tests that need RDMA devices, in a QEMU guest. Arguments go to `bun test`. See docs/rdma-guest.md.
. "$(dirname "$0")/setup.sh"
export ZAP_TEST_RDMA=1
folder=test/rdma
# A file of it by itself, and not beside all others.
for word in "$@"; do
  case $word in *test/rdma/*) folder= ;; esac
done
exec bun test $folder "$@"
