/** The options of a verbs wire and the environment, brought to what the native node is opened with. */
import { ConfigError, NotAvailableError } from "../../errors/index.ts";
import { GPUDIRECT_EVENT_BYTES, GPUDIRECT_MESSAGES, RING, RING_ENTRY } from "../../ffi/index.ts";
import { resolveCommon, type CommonOptions } from "../common/options.ts";
import type { WireOptions } from "../contract.ts";
import type { GpudirectEnvironment } from "./settings.ts";

const MIB = 1024 * 1024;
/** Peers that are reached by RDMA at once. */
const FLOWS_MAX = 256;
const VERSIONS_MAX = 4;
/** What two nodes say to each other on their link is of this version. */
const LINK_VERSION = 1;
/** What the native side has for the requests of one peer, and for each slab: their heads. */
const SENDS_OF_FLOW = 256;
const HEAD_BYTES = 64;
/** An area is a multiple of it. */
const AREA_STEP = 64 * 1024;

export interface Areas {
  readonly eager: number;
  readonly messages: number;
  readonly pool: number;
}

export interface VerbsOptions extends CommonOptions {
  readonly environment: GpudirectEnvironment;
  readonly flows: number;
  readonly areas: Areas;
  /** What the sockets wire is opened with. */
  readonly given: WireOptions;
}

/**
 * Throws `ConfigError` or `AddressError` for what can never be used, and `NotAvailableError` for what this wire does not have, so that
 * another transport may do.
 */
export function resolveVerbsOptions(options: WireOptions, environment: GpudirectEnvironment): VerbsOptions {
  const common = resolveCommon(options);
  const { versions, limits, nodeId } = common;
  if (versions !== undefined && (versions.length > VERSIONS_MAX || !versions.includes(LINK_VERSION)))
    throw new NotAvailableError(`versions: the verbs wire takes at most ${VERSIONS_MAX}, 1 among them`);
  const flows = Math.min(limits.connections, FLOWS_MAX);
  return {
    ...common,
    environment,
    flows,
    areas: resolveAreas(environment, flows, limits.frameBytes),
    given: { ...options, nodeId },
  };
}

/** Whole messages get half, slabs an eighth, and what is to be sent the rest. Throws `ConfigError` where that is too little. */
function resolveAreas(environment: GpudirectEnvironment, flows: number, frameBytes: number): Areas {
  const { regionBytes, eagerBytes, receives } = environment;
  const least = 32 * MIB + 4 * frameBytes;
  if (regionBytes < least)
    throw new ConfigError(
      `ZAP_GPUDIRECT_REGION_BYTES is ${regionBytes}; with limits.frameBytes ${frameBytes} gpudirect needs at least ${least}`,
    );
  const rings = 4 * (RING.bytes + GPUDIRECT_MESSAGES * RING_ENTRY.bytes) + 8 * flows * GPUDIRECT_EVENT_BYTES;
  const heads = flows * SENDS_OF_FLOW * HEAD_BYTES;
  const room = regionBytes - rings - heads - MIB;
  const slabBytes = eagerBytes + HEAD_BYTES;
  const eager = step(Math.max((room / 8 / slabBytes) * eagerBytes, 2 * receives * eagerBytes));
  const messages = step(room / 2);
  const pool = step(room - eager - (eager / eagerBytes) * HEAD_BYTES - messages);
  if (pool < frameBytes + MIB)
    throw new ConfigError(
      `ZAP_GPUDIRECT_REGION_BYTES is ${regionBytes}: ${receives} receives of ${eagerBytes} bytes leave too little of it`,
    );
  return { eager, messages, pool };
}

function step(bytes: number): number {
  return Math.floor(bytes / AREA_STEP) * AREA_STEP;
}
