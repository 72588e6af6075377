/**
 * What is measured in the guest, and the shell script that does it: every round has each case, and each case all who take part, one after the
 * other. A line that begins with `@` says what the lines behind it are.
 */
import type { Case as BunCase } from "./bun-pair.ts";

export type Mode = "roundtrip" | "thereAndBack" | "oneway";
export type Cores = "one" | "two";

/** Who carries the messages. Those whose name begins with `bun` are all measured by one pair of processes for each round. */
export interface Entrant {
  readonly name: string;
  readonly what: string;
  /** For one of our own in C: IDLE, WAIT, EAGER. */
  readonly node?: readonly ["spin" | "sleep" | "drive", "poll" | "wake", number];
  /** For a program of the guest's: what comes before its size and count. */
  readonly program?: string;
}

export const PINGPONG = "pingpong";
export const PINGPONG_EVENTS = "pingpong -e";
export const SEND_BW = "ib_send_bw";

export const ENTRANTS: readonly Entrant[] = [
  {
    name: PINGPONG,
    what: "ibv_rc_pingpong, which polls its completion queue",
    program: "ibv_rc_pingpong -g 0",
  },
  { name: PINGPONG_EVENTS, what: "the same, asleep until a completion", program: "ibv_rc_pingpong -g 0 -e" },
  {
    name: "ib_send_lat",
    what: "perftest's round trip, twice its typical one",
    program: "ib_send_lat -F -x 0",
  },
  { name: SEND_BW, what: "perftest, both sides poll", program: "ib_send_bw -F -x 0" },
  { name: "ib_read_bw", what: "perftest's RDMA reads", program: "ib_read_bw -F -x 0" },
  {
    name: "c-drive",
    what: "our nodes without Bun; callers that poll their rings and drive their node",
    node: ["drive", "poll", 0],
  },
  {
    name: "c-poll",
    what: "the same, with the node's own thread; callers that poll their rings and yield",
    node: ["sleep", "poll", 0],
  },
  {
    name: "c-wake",
    what: "the same; callers that sleep until their node wakes them",
    node: ["sleep", "wake", 0],
  },
  { name: "c-spin", what: "the same as c-wake, with ZAP_GPUDIRECT_IDLE=spin", node: ["spin", "wake", 0] },
  {
    name: "c-eager-64K",
    what: "the same as c-wake, with ZAP_GPUDIRECT_EAGER_BYTES=65536",
    node: ["sleep", "wake", 65_536],
  },
  {
    name: "c-eager-1M",
    what: "the same as c-wake, with ZAP_GPUDIRECT_EAGER_BYTES=1048576",
    node: ["sleep", "wake", 1_048_576],
  },
];

/** How often in one round, by what it takes under emulation. */
export interface Case {
  readonly mode: Mode;
  readonly bytes: number;
  readonly cores: Cores;
  readonly count: number;
  /** The first one is what the others are compared with. */
  readonly entrants: readonly string[];
}

export function casesOf(quick: boolean): Case[] {
  const polled = [PINGPONG, "ib_send_lat", "c-drive", ...(quick ? [] : ["c-poll", "c-spin"])];
  const woken = [PINGPONG_EVENTS, "c-wake"];
  const cases: Case[] = [];
  for (const [bytes, count] of [
    [64, 200],
    [4_096, 100],
  ] as const) {
    cases.push({ mode: "roundtrip", bytes, cores: "two", count: count / (quick ? 2 : 1), entrants: polled });
    for (const cores of quick ? (["one"] as const) : (["one", "two"] as const))
      cases.push({ mode: "roundtrip", bytes, cores, count: count / (quick ? 2 : 1), entrants: woken });
  }
  for (const [bytes, count] of [
    [65_536, 40],
    [1_048_576, 8],
  ] as const) {
    const eager = bytes === 65_536 ? ["c-eager-64K", "c-eager-1M"] : ["c-eager-1M"];
    const ours = ["c-wake", ...(quick ? [] : eager)];
    const trips = count / (quick ? 2 : 1);
    const add = (mode: Mode, cores: Cores, messages: number, entrants: readonly string[]): void =>
      void cases.push({ mode, bytes, cores, count: messages, entrants });
    add("thereAndBack", "one", trips, [PINGPONG_EVENTS, ...ours]);
    add("oneway", "two", 2 * trips, [SEND_BW, "ib_read_bw", ...ours]);
    if (quick) continue;
    add("thereAndBack", "two", trips, [PINGPONG, "c-wake"]);
  }
  return cases;
}

/** The first is there to warm up, and is not counted. */
export function bunCasesOf(quick: boolean): BunCase[] {
  const trip = (bytes: number, count: number, wait: BunCase["wait"]): BunCase => ({
    ...{ mode: "roundtrip", bytes, count: quick ? count / 2 : count, wait, memory: "pool" },
  });
  const oneWay = (bytes: number, count: number, memory: BunCase["memory"]): BunCase => ({
    ...{ mode: "oneway", bytes, count: quick ? count / 2 : count, wait: "await", memory },
  });
  return [
    trip(64, quick ? 200 : 400, "await"),
    ...[trip(64, 100, "await"), trip(64, 100, "poll"), trip(4_096, 100, "await"), trip(4_096, 100, "poll")],
    ...(quick ? [] : [trip(65_536, 20, "await"), trip(1_048_576, 4, "await")]),
    ...[oneWay(65_536, 60, "pool"), oneWay(65_536, 60, "plain")],
    ...[oneWay(1_048_576, 10, "pool"), oneWay(1_048_576, 10, "plain")],
  ];
}

const PRELUDE = `
L=/usr/lib/x86_64-linux-gnu/libibverbs.so.1
listens() { grep -q ':4853 .* 0A ' /proc/net/tcp /proc/net/tcp6; }
# $1, $2: processors as masks; the rest: the program and its words
pair() {
  here=$1; there=$2; shift 2
  timeout 30 taskset $there "$@" -d rxe1 >/tmp/far 2>&1 &
  far=$!
  tries=0
  until listens || [ $tries -ge 100 ]; do sleep 0.02; tries=$((tries + 1)); done
  timeout 30 taskset $here "$@" -d rxe0 localhost >/tmp/near 2>&1 || cat /tmp/far
  wait $far
  code=$?
  cat /tmp/near
  return $code
}
# perftest measures the processor's clock last, both ends at once, and finds none where they share a processor, or the host is busy.
both() {
  pair "$@" || return
  if grep -q Correlation /tmp/near; then pair "$@"; fi
}
`;

export const PARTS = ["trips", "bandwidth", "bun"] as const;
export type Part = (typeof PARTS)[number];

export function scriptOf(rounds: number, quick: boolean, only: readonly Part[]): string {
  const lines = [PRELUDE];
  const bunCases = JSON.stringify(bunCasesOf(quick));
  for (let round = 0; round < rounds; round++) {
    for (const [index, one] of casesOf(quick).entries()) {
      if (!only.includes(one.mode === "roundtrip" ? "trips" : "bandwidth")) continue;
      for (const name of one.entrants) {
        const entrant = ENTRANTS.find((each) => each.name === name)!;
        lines.push(`echo '@ ${index} ${name}'`, lineOf(entrant, one));
      }
    }
    for (const cores of only.includes("bun") ? (["one", "two"] as const) : [])
      lines.push(
        `echo '@ bun ${cores}'`,
        `timeout 60 taskset 1 bun bench/rdma/bun-pair.ts ${cores} '${bunCases}' 2>&1 || echo ended with $?`,
      );
  }
  return `${lines.join("\n")}\n`;
}

function lineOf({ node, program }: Entrant, { mode, bytes, cores, count }: Case): string {
  if (node === undefined)
    return `both 1 ${cores === "one" ? 1 : 2} ${program} -s ${bytes} -n ${count} || echo ended with $?`;
  const [idle, wait, eager] = node;
  const words = [mode === "oneway" ? mode : "roundtrip", bytes, count, 1, idle, wait, cores, eager];
  return `timeout 60 node_bench $L $GUEST_DEVICE_0 $GUEST_DEVICE_1 $GUEST_GID_INDEX ${words.join(" ")} 2>&1 || echo ended with $?`;
}
