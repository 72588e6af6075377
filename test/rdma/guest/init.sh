#!/bin/dash
# The guest's first process, under dash, as busybox's shell runs its own `ip` before the real one. Loads the modules, brings the link
# and its two RDMA devices up, runs /job/run, says what came of it on the console, and ends the guest through QEMU's debug
# port. /job/settings says how.
bb=/bin/busybox
PATH=/usr/sbin:/usr/bin:/sbin:/bin
export PATH

. /job/settings

# QEMU ends with 2 * $1 + 1.
leave() {
  sync
  printf "\\$(printf %o "$1")" | $bb dd of=/dev/port bs=1 seek=244 count=1 2>/dev/null
  # Not reached.
  $bb sleep 10
  $bb reboot -f
}

say() {
  printf '\nzap-guest %s %s\n' "$NONCE" "$*" >/dev/console
}

must() {
  "$@" >/run/must 2>&1 && return
  $bb cat /run/must
  say "broken: $*"
  leave 1
}

# $1: for how many tenths of a second; the rest: what must become true.
await() {
  tenths=$1
  shift
  while ! "$@" 2>/dev/null; do
    tenths=$((tenths - 1))
    if [ "$tenths" -le 0 ]; then
      say "broken: waited for: $*"
      leave 1
    fi
    $bb usleep 100000
  done
}

$bb mount -t proc proc /proc
$bb mount -t sysfs sys /sys
$bb mount -t devtmpfs dev /dev
$bb mkdir -p /dev/shm /dev/pts
for folder in /run /tmp /dev/shm; do $bb mount -t tmpfs tmpfs $folder; done
$bb mount -t devpts pts /dev/pts
$bb ln -s /proc/self/fd /dev/fd

while read -r module; do must $bb insmod "/modules/$module"; done </modules/order
if [ "$CM" = 1 ]; then
  while read -r module; do
    [ -d "/sys/module/$(echo "${module%.ko}" | $bb tr - _)" ] || must $bb insmod "/modules/$module"
  done </modules/cm-order
fi
share() { must $bb mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=262144,cache=loose "$1" "/$1"; }
share project
share bun
$bb ln -sf "/bun/$BUN" /usr/bin/bun

# A tentative address makes the move of a queue pair to RTR fail with ETIMEDOUT.
# A large RDMA read is answered by thousands of packets at once; what does not fit is lost.
echo 1000000 >/proc/sys/net/core/netdev_max_backlog
for name in all default; do echo 0 >/proc/sys/net/ipv6/conf/$name/accept_dad; done
must ip link set lo up
must ip link add va mtu "$MTU" address 02:00:00:00:00:0a type veth peer name vb mtu "$MTU" address 02:00:00:00:00:0b
must ip address add 10.7.0.10/24 dev va
must ip address add 10.7.0.11/24 dev vb
# Both processors may send at a time. What comes in is taken by one, as else packets overtake each other, which on a link they do not: a
# request that was sent again would come after the memory that it is about was withdrawn, and end the connection.
for name in va vb; do echo 1 >/sys/class/net/$name/queues/rx-0/rps_cpus; done
must ip link set va up
must ip link set vb up
must rdma link add rxe0 type rxe netdev va
must rdma link add rxe1 type rxe netdev vb
port_is_up() {
  grep -q ACTIVE "/sys/class/infiniband/$1/ports/1/state" && grep -q '^fe80' "/sys/class/infiniband/$1/ports/1/gids/0"
}
await 300 port_is_up rxe0
await 300 port_is_up rxe1
await 100 test -c /dev/infiniband/uverbs1

# The job has a line of its own, so that what the kernel says does not get into what it says.
$bb stty -F /dev/ttyS1 raw -echo
set -a
HOME=/tmp
GUEST_DEVICE_0=rxe0
GUEST_DEVICE_1=rxe1
GUEST_GID_INDEX=0
GUEST_NETDEV_0=va
GUEST_NETDEV_1=vb
GUEST_LINK_LOCAL_0=fe80::ff:fe00:a
GUEST_LINK_LOCAL_1=fe80::ff:fe00:b
GUEST_ADDRESS_0=10.7.0.10
GUEST_ADDRESS_1=10.7.0.11
PATH="/job/bin:$PATH"
. /job/env
set +a
cd /project || leave 1

now() { read -r up rest </proc/uptime && echo "${up%.*}"; }
say "started"
start=$(now)
$bb timeout -s KILL "$SECONDS_LIMIT" /bin/dash /job/run </dev/null >/dev/ttyS1 2>&1
code=$?
if [ "$code" -ne 0 ] && [ $(($(now) - start)) -ge "$SECONDS_LIMIT" ]; then
  say "late"
  leave 2
fi
say "exit $code"
[ "$code" -eq 0 ] && leave 16
leave 3
