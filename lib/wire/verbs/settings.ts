/** What an operator sets for the verbs wire: environment variables, read and checked. Nothing here looks at the host. */
import { ConfigError } from "../../errors/index.ts";
import { GPUDIRECT_SETTINGS } from "../../ffi/index.ts";
import { readDecimal, readFlag, type Env } from "../../settings/index.ts";

const MIB = 1024 * 1024;
const EAGER_STEP = 64;

const METHODS = ["auto", "dma-buf", "peermem", "page-locked"] as const;
export type MethodChoice = (typeof METHODS)[number];

export interface GpudirectEnvironment {
  /** `ZAP_GPUDIRECT_DEVICE`: such as `mlx5_0`; empty for the first with an active port. */
  readonly device: string;
  /** 0 for the first active one. */
  readonly port: number;
  /** -1 for a chosen one. */
  readonly gidIndex: number;
  readonly spin: boolean;
  readonly eagerBytes: number;
  readonly receives: number;
  readonly trafficClass: number;
  /** What is not acknowledged is sent again after this, milliseconds. */
  readonly timeoutMillis: number;
  /** RDMA into page-locked memory without any GPU is wanted. */
  readonly hostMemory: boolean;
  /** `ZAP_GPUDIRECT_METHOD`: the one way to register memory of a GPU that is tried; `auto` for all, best first. */
  readonly method: MethodChoice;
  readonly regionBytes: number;
}

/** Throws `ConfigError`, which names the variable, for a value that cannot be used. */
export function gpudirectEnvironment(env: Env = process.env): GpudirectEnvironment {
  return {
    device: readDevice(env),
    port: readDecimal(env, "ZAP_GPUDIRECT_PORT", { byDefault: 0, least: 1, most: 255 }),
    gidIndex: readDecimal(env, "ZAP_GPUDIRECT_GID_INDEX", { byDefault: -1, least: 0, most: 255 }),
    spin: readIdle(env) === "spin",
    eagerBytes: readEagerBytes(env),
    receives: readDecimal(env, "ZAP_GPUDIRECT_RECEIVES", { byDefault: 64, least: 16, most: 1024 }),
    trafficClass: readDecimal(env, "ZAP_GPUDIRECT_TRAFFIC_CLASS", { byDefault: 0, least: 0, most: 255 }),
    timeoutMillis: readDecimal(env, "ZAP_GPUDIRECT_TIMEOUT_MILLIS", {
      byDefault: 250,
      least: 1,
      most: 60_000,
    }),
    hostMemory: readFlag(env, "ZAP_GPUDIRECT_HOST_MEMORY"),
    method: readMethod(env),
    regionBytes: readDecimal(env, "ZAP_GPUDIRECT_REGION_BYTES", {
      byDefault: 256 * MIB,
      least: 32 * MIB,
      // One `ArrayBuffer` has less than 4 GiB.
      most: 4095 * MIB,
    }),
  };
}

function readDevice(env: Env): string {
  const given = env["ZAP_GPUDIRECT_DEVICE"]?.trim() ?? "";
  const most = GPUDIRECT_SETTINGS.texts.device - 1;
  if (/^[\w.-]*$/.test(given) && given.length <= most) return given;
  throw bad(
    "ZAP_GPUDIRECT_DEVICE",
    given,
    `the name of an RDMA device, such as mlx5_0, of at most ${most} bytes`,
  );
}

function readIdle(env: Env): "spin" | "sleep" {
  const given = env["ZAP_GPUDIRECT_IDLE"]?.trim().toLowerCase() ?? "";
  if (given === "" || given === "sleep") return "sleep";
  if (given === "spin") return "spin";
  throw bad("ZAP_GPUDIRECT_IDLE", given, "spin or sleep");
}

function readMethod(env: Env): MethodChoice {
  const given = env["ZAP_GPUDIRECT_METHOD"]?.trim().toLowerCase() ?? "";
  if (given === "") return "auto";
  const method = METHODS.find((each) => each === given);
  if (method !== undefined) return method;
  throw bad("ZAP_GPUDIRECT_METHOD", given, "auto, dma-buf, peermem or page-locked");
}

function readEagerBytes(env: Env): number {
  const name = "ZAP_GPUDIRECT_EAGER_BYTES";
  const bytes = readDecimal(env, name, { byDefault: 8192, least: 256, most: MIB });
  if (bytes % EAGER_STEP === 0) return bytes;
  throw bad(name, String(bytes), `a multiple of ${EAGER_STEP}`);
}

function bad(name: string, given: string, needed: string): ConfigError {
  return new ConfigError(`${name} is ${JSON.stringify(given.slice(0, 60))}; it takes ${needed}`);
}
