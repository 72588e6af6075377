/** The devices of the guest through the shim's own view of libibverbs: what it lists, opens and refuses, and that its table of functions works. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { join } from "node:path";
import { ADDRESS, COMPILER, PLAIN, ROOT, sources, Workshop } from "../native/toolchain.ts";
import { runInGuest } from "./guest/job.ts";
import { rdma } from "./guest/wanted.ts";

/** The first one may have to download. */
const LIMIT = 400_000;
const LIBRARY = "/usr/lib/x86_64-linux-gnu/libibverbs.so.1";
const SOURCES = [
  join(ROOT, "test/rdma/hca.c"),
  ...sources("shim/gpudirect", "device"),
  ...["gpudirect/verbs", "common/fail", "common/library"].map((name) => join(ROOT, "shim", `${name}.c`)),
];

let shop: Workshop;
beforeAll(() => {
  shop = new Workshop();
});
afterAll(() => shop[Symbol.dispose]());

describe.skipIf(rdma.skip)(`RDMA devices in the guest${rdma.because}`, () => {
  test(
    "are listed, opened and refused, and a connection between two works by our own ABI",
    async () => {
      if (COMPILER === null) throw new Error("a C compiler is needed: apt-get install gcc libc6-dev");
      const programs = [
        await shop.link("hca", SOURCES, PLAIN),
        await shop.link("hca_checked", SOURCES, ADDRESS),
      ];
      const words = `${LIBRARY} $GUEST_DEVICE_0 $GUEST_DEVICE_1 $GUEST_GID_INDEX`;
      // What libibverbs and its providers keep until the process ends is no leak of ours.
      const script = `
        export ASAN_OPTIONS=detect_leaks=0
        hca ${words} 'ip link set vb down' || exit
        hca ${words} true && exit 9
        ip link set vb up || exit
        for device in rxe0 rxe1; do
          until grep -q ACTIVE /sys/class/infiniband/$device/ports/1/state; do sleep 0.1; done
          until grep -q ^fe80 /sys/class/infiniband/$device/ports/1/gids/0; do sleep 0.1; done
        done
        hca_checked ${words} 'ip link set vb down'`;
      const { output } = await runInGuest({ name: "hca", programs, script });
      // With the port down there may be fewer GIDs.
      const row = (device: string, state: string) =>
        expect.stringMatching(
          new RegExp(
            `^row ${device} port 1 ${state} Ethernet gids ${state === "down" ? "[0-2]" : "2"} lid 0 fault "" firmware "0\\.0\\.0"$`,
          ),
        );
      const rows = (state: string) => ["newer functions: 111", row("rxe0", state), row("rxe1", state)];
      const opened = (device: string, gid: number, raw: string) => [
        `${device} port 1 RoCE routed mtu 1024 gid ${gid} type 2 ${raw}`,
        expect.stringMatching(
          /^ {2}reads [1-9]\d* [1-9]\d* sge [1-9]\d* windows yes requests \d{3,} completions \d{3,} message \d{7,}$/,
        ),
      ];
      const whole = [
        ...rows("active"),
        ...opened("chosen: rxe0", 1, "00000000000000000000ffff0a07000a"),
        "older: gid 1 type 2",
        'refused: no RDMA device "rxe9" here: there is rxe0; rxe1',
        "refused: rxe0 has no port 2: it has 1",
        "refused: the GID of index 200 of rxe0 port 1 is empty: ibv_devinfo -v shows those that are not",
        ...opened("rxe0", 0, "fe80000000000000000000fffe00000a"),
        ...opened("rxe1", 0, "fe80000000000000000000fffe00000b"),
        "read after the window's end: remote access error",
        "event of rxe1 port 1: port error",
        "hca: ok",
      ];
      const down = (device: string) => `${device} has no active port: port 1 is down (Ethernet)`;
      const none = `none of 2 RDMA devices can be used: ${down("rxe0")}; ${down("rxe1")}`;
      expect(output.trimEnd().split("\n")).toEqual([
        ...whole,
        ...rows("down"),
        `hca: the first device: ${none}`,
        ...whole,
      ]);
    },
    LIMIT,
  );
});
