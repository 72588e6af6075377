/**
 * Packets over net_memif between two processes, without flows: DPDK's own `dpdk-testpmd`, and our queues by `test/native/dpdk_packets.c`.
 * Each side has a core and spins.
 */
import { join } from "node:path";
import { Program } from "./program.ts";

export interface PacketRow {
  readonly what: string;
  readonly mode: "one way" | "round trip";
  /** With the check sequence. */
  readonly frameBytes: number;
  /** Packets per second, or microseconds. */
  readonly value: number;
  readonly p99?: number;
}

export interface Place {
  readonly server: number;
  readonly client: number;
  /** For the sockets of the devices. */
  readonly folder: string;
  /** The program of `dpdk_packets.c`. */
  readonly packets: string;
  readonly millis: number;
}

export const TESTPMD = Bun.which("dpdk-testpmd");
/** It gathers what it says, unless it speaks to a terminal. */
const UNBUFFERED = ["stdbuf", "-oL"];
const LIMIT_SECONDS = 30;
const FRAMES = [64, 1_500];

let sockets = 0;

/** Runs `body` with both sides; they are gone when it returns. */
async function between<T>(
  place: Place,
  server: (device: string, path: string) => readonly string[],
  client: typeof server,
  ready: (program: Program) => Promise<unknown>,
  body: (server: Program, client: Program) => Promise<T>,
): Promise<T> {
  const path = join(place.folder, `p${sockets++}`);
  const device = (role: string): string =>
    `--vdev=net_memif0,role=${role},id=0,socket=${path},socket-abstract=no`;
  const here = new Program(server(device("server"), path), place.server, LIMIT_SECONDS);
  let there: Program | null = null;
  try {
    await ready(here);
    there = new Program(client(device("client"), path), place.client, LIMIT_SECONDS);
    return await body(here, there);
  } finally {
    await Promise.all([here.end(), there?.end()]);
  }
}

/** Both of its threads on the core that it was given: the one that reads commands sleeps. */
function testpmd(processor: number, mode: string, device: string, more: readonly string[] = []): string[] {
  return [
    ...[...UNBUFFERED, TESTPMD!],
    ..."--no-huge -m 128 --no-shconf --no-pci --no-telemetry --iova-mode=va --log-level=error".split(" "),
    ...["--lcores", `0@${processor},1@${processor}`, device, "--", "-i", `--forward-mode=${mode}`],
    ..."--total-num-mbufs=16384 --no-mlockall --port-topology=loop --auto-start".split(" "),
    ...more,
  ];
}

/** What testpmd says of its port since it was last asked. */
async function shown(program: Program): Promise<{ packets: number; perSecond: number }> {
  const before = program.said.length;
  program.say("show port stats all");
  return program.until((said) => {
    const text = said.slice(before);
    const packets = /RX-packets: (\d+)/.exec(text)?.[1];
    const perSecond = /Rx-pps:\s+(\d+)/.exec(text)?.[1];
    return perSecond === undefined ? null : { packets: Number(packets), perSecond: Number(perSecond) };
  });
}

async function testpmdOneWay(place: Place, frameBytes: number): Promise<number> {
  return between(
    place,
    (device) => testpmd(place.server, "rxonly", device),
    (device) => testpmd(place.client, "txonly", device, [`--txpkts=${frameBytes - 4}`]),
    shown,
    async (server) => {
      while ((await shown(server)).packets === 0) await Bun.sleep(20);
      await Bun.sleep(place.millis / 4);
      await shown(server);
      await Bun.sleep(place.millis);
      return (await shown(server)).perSecond;
    },
  );
}

type Words = readonly [what: string, idle?: string];
const ours =
  ({ packets, millis }: Place, frameBytes: number, role: "server" | "client", [what, idle = "spin"]: Words) =>
  (_: string, path: string): string[] => [
    ...[packets, role, path, what, String(frameBytes), String(millis), idle],
  ];

const said = (program: Program): Promise<boolean> =>
  program.until((text) => (text.includes('"ready"') ? true : null));

function result<T>(program: Program): Promise<T> {
  return program.until((text) => {
    const line = text.split("\n").find((each) => each.startsWith('{"result"'));
    return line?.endsWith("}}") ? (JSON.parse(line) as { result: T }).result : null;
  });
}

interface Trips {
  readonly medianMicros: number;
  readonly p99Micros: number;
}

async function oursOneWay(place: Place, frameBytes: number): Promise<number> {
  const counted = await between(
    place,
    ours(place, frameBytes, "server", ["count"]),
    ours(place, frameBytes, "client", ["flood"]),
    said,
    (server) => result<{ packetsPerSecond: number }>(server),
  );
  return counted.packetsPerSecond;
}

const oursRoundTrip = (place: Place, frameBytes: number): Promise<Trips> =>
  between(
    place,
    ours(place, frameBytes, "server", ["echo"]),
    ours(place, frameBytes, "client", ["ping"]),
    said,
    (_, client) => result<Trips>(client),
  );

/** `io` sends frames back as they are; `5tswap` exchanges the addresses first, as an answer has them. */
const testpmdRoundTrip = (place: Place, frameBytes: number, mode: "io" | "5tswap"): Promise<Trips> =>
  between(
    place,
    (device) => testpmd(place.server, mode, device),
    ours(place, frameBytes, "client", [mode === "io" ? "ping-self" : "ping-far"]),
    shown,
    (_, client) => result<Trips>(client),
  );

/** One round of all of it. What fails is told to `failed`, and has no row. */
export async function packetRound(
  place: Place,
  failed: (what: string, error: unknown) => void,
): Promise<PacketRow[]> {
  const rows: PacketRow[] = [];
  const oneWay = async (what: string, frameBytes: number, run: typeof oursOneWay): Promise<void> => {
    try {
      rows.push({ what, mode: "one way", frameBytes, value: await run(place, frameBytes) });
    } catch (error) {
      failed(`${what}, ${frameBytes} B`, error);
    }
  };
  const trip = async (what: string, frameBytes: number, run: typeof oursRoundTrip): Promise<void> => {
    try {
      const { medianMicros, p99Micros } = await run(place, frameBytes);
      rows.push({ what, mode: "round trip", frameBytes, value: medianMicros, p99: p99Micros });
    } catch (error) {
      failed(`${what}, ${frameBytes} B`, error);
    }
  };
  for (const frameBytes of FRAMES) {
    if (TESTPMD !== null) await oneWay("testpmd txonly to testpmd rxonly", frameBytes, testpmdOneWay);
    await oneWay("our queue to our queue", frameBytes, oursOneWay);
  }
  for (const frameBytes of FRAMES) {
    if (TESTPMD !== null) {
      for (const mode of ["io", "5tswap"] as const)
        await trip(`our queue and testpmd ${mode}`, frameBytes, (at, bytes) =>
          testpmdRoundTrip(at, bytes, mode),
        );
    }
    await trip("our queue and our queue", frameBytes, oursRoundTrip);
  }
  return rows;
}
