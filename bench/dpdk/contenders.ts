/** Who carries messages between two processes here. */
import { join } from "node:path";
import type { Contender } from "../contenders.ts";
import { IDLES, type Idle } from "./rig.ts";

/** What the others are compared with. */
export const DEFAULT = "default";
const CHILD = [process.execPath, join(import.meta.dir, "..", "child.ts")];

/** `pair` is the program of `test/native/dpdk_pair.c`; both are built by whoever asks. */
export function linkContenders(built: () => Promise<{ pair: string; shims: string }>): Contender[] {
  const idles = Object.keys(IDLES) as Idle[];
  const environment = (folder: string, shims: string, idle: Idle): string[] => [
    ...["env", `ZAP_BENCH_FOLDER=${folder}`, `ZAP_LIB_DIR=${shims}`, `ZAP_BENCH_IDLE=${idle}`],
  ];
  return [
    {
      name: DEFAULT,
      what: "this library, transport default, over loopback",
      prepare: async () => ({ command: [...CHILD, "zap"] }),
    },
    ...idles.map((idle) => ({
      name: `dpdk-${idle}`,
      what: `this library, transport dpdk over net_memif, ZAP_DPDK_IDLE=${idle}`,
      prepare: async (folder: string) => {
        const { shims } = await built();
        return { command: [...environment(folder, shims, idle), ...CHILD, "zap-dpdk"] };
      },
    })),
    ...idles.map((idle) => ({
      name: `c-${idle}`,
      what: `the same nodes driven by C, without Bun, ${idle}`,
      prepare: async (folder: string) => {
        const { pair, shims } = await built();
        return { command: [...environment(folder, shims, idle), pair] };
      },
    })),
  ];
}
