import { describe, expect, test } from "bun:test";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join, relative } from "node:path";
import {
  ABI_VERSION,
  DPDK_ALLOWED,
  DPDK_DIAL,
  DPDK_EVENT,
  DPDK_EVENT_BYTES,
  DPDK_EVENTS,
  DPDK_FLAGS,
  DPDK_IDLE,
  DPDK_MESSAGES,
  DPDK_NAMES,
  DPDK_NODE,
  DPDK_QUEUE,
  DPDK_SETTINGS,
  DPDK_STATS,
  GPUDIRECT_EVENT,
  GPUDIRECT_EVENT_BYTES,
  GPUDIRECT_EVENTS,
  GPUDIRECT_FLAGS,
  GPUDIRECT_MESSAGES,
  GPUDIRECT_METHODS,
  GPUDIRECT_NAMES,
  GPUDIRECT_NODE,
  GPUDIRECT_OFFER,
  GPUDIRECT_SETTINGS,
  GPUDIRECT_STATS,
  PREREQUISITE,
  RING,
  RING_ENTRY,
  RING_MAGIC,
  RING_VERSION,
  SHIM_STATUS,
  SHIMS,
  UMA_DEVICE,
  UMA_FLAGS,
  UMA_MEMORY,
  UMA_REGION,
  UMA_SCHEMES,
  UMA_SPAN,
  type ShimName,
  type Verbs,
} from "../../lib/ffi/index.ts";
import { noNative, theNative } from "../support/native.ts";
import { CHeader, type Struct } from "./c-header.ts";
import { exportsOf } from "./exports.ts";

const ROOT = join(import.meta.dir, "..", "..");
const NATIVE = join(ROOT, "native");

const shim = new CHeader("zap_shim.h");
const uma = new CHeader("zap_uma.h");
const dpdk = new CHeader("zap_dpdk.h");
const gpudirect = new CHeader("zap_gpudirect.h");
const ring = new CHeader("zap_ring.h");
const HEADERS: Record<ShimName, CHeader> = {
  libzap_uma_cuda: uma,
  libzap_uma_hip: uma,
  libzap_uma_metal: uma,
  libzap_dpdk: dpdk,
  libzap_gpudirect: gpudirect,
};

describe("the functions", () => {
  for (const [name, { prefix, verbs }] of Object.entries(SHIMS)) {
    test(`of ${name} are those of its header, name by name and type by type`, () => {
      const table = Object.entries(verbs as Verbs).map(([verb, { args, returns }]) => [
        prefix + verb,
        { args: [...args], returns },
      ]);
      const header = HEADERS[name as ShimName].prototypes(prefix);
      expect(Object.fromEntries(table)).toEqual(Object.fromEntries(header));
    });
  }
});

describe("the structures", () => {
  for (const [name, header, { bytes, at, texts }] of [
    ["zap_prerequisite", shim, PREREQUISITE],
    ["zap_uma_device", uma, UMA_DEVICE],
    ["zap_region", uma, { texts: {}, ...UMA_REGION }],
    ["zap_span", uma, { texts: {}, ...UMA_SPAN }],
    ["zap_dpdk_settings", dpdk, DPDK_SETTINGS],
    ["zap_dpdk_allowed", dpdk, DPDK_ALLOWED],
    ["zap_dpdk_node", dpdk, DPDK_NODE],
    ["zap_dpdk_dial", dpdk, DPDK_DIAL],
    ["zap_dpdk_event", dpdk, DPDK_EVENT],
    ["zap_dpdk_stats", dpdk, DPDK_STATS],
    ["zap_dpdk_queue", dpdk, { texts: {}, ...DPDK_QUEUE }],
    ["zap_gpudirect_settings", gpudirect, GPUDIRECT_SETTINGS],
    ["zap_gpudirect_node", gpudirect, GPUDIRECT_NODE],
    ["zap_gpudirect_offer", gpudirect, GPUDIRECT_OFFER],
    ["zap_gpudirect_event", gpudirect, { texts: {}, ...GPUDIRECT_EVENT }],
    ["zap_gpudirect_stats", gpudirect, GPUDIRECT_STATS],
    ["zap_ring", ring, { texts: {}, ...RING }],
    ["zap_ring_entry", ring, { texts: {}, ...RING_ENTRY }],
  ] as const) {
    test(`${name} has the same fields in the same places`, () => {
      const struct: Struct = header.struct(name);
      const fields = struct.fields.filter((field) => !/^(reserved|fill\d)$/.test(field.name));
      expect(at).toEqual(Object.fromEntries(fields.map((field) => [field.name, field.at])) as typeof at);
      const long = fields.filter((field) => field.bytes > 8).map((field) => [field.name, field.bytes]);
      expect(texts).toEqual(Object.fromEntries(long) as typeof texts);
      expect(bytes as number).toBe(struct.bytes);
      // The head of a ring has a name for its size.
      if (name !== "zap_ring") expect(struct.documented).toBe(struct.bytes);
    });
  }
});

describe("the numbers", () => {
  test("the ABI's version and every status", () => {
    expect(shim.define("ZAP_ABI_VERSION")).toBe(ABI_VERSION);
    expect(shim.enumeration("zap_status")).toEqual(SHIM_STATUS);
  });

  test("kinds of memory and flags of devices", () => {
    expect(camel("ZAP_MEMORY_", uma.enumeration("zap_memory"))).toEqual(UMA_MEMORY);
    expect(camel("ZAP_UMA_", uma.enumeration("zap_uma_flag"))).toEqual(UMA_FLAGS);
    expect(camel("ZAP_SCHEME_", uma.enumeration("zap_scheme"))).toEqual(UMA_SCHEMES);
  });

  test("of the dpdk node", () => {
    expect(camel("ZAP_DPDK_", dpdk.enumeration("zap_dpdk_flag"))).toEqual(DPDK_FLAGS);
    expect(camel("ZAP_DPDK_", dpdk.enumeration("zap_dpdk_idle"))).toEqual(DPDK_IDLE);
    expect(camel("ZAP_DPDK_", dpdk.enumeration("zap_dpdk_event_kind"))).toEqual(DPDK_EVENTS);
    expect(camel("ZAP_DPDK_", dpdk.enumeration("zap_dpdk_names"))).toEqual(DPDK_NAMES);
    expect(dpdk.define("ZAP_DPDK_MESSAGES")).toBe(DPDK_MESSAGES);
    expect(dpdk.define("ZAP_DPDK_EVENT_BYTES")).toBe(DPDK_EVENT_BYTES);
  });

  test("of the gpudirect node", () => {
    expect(camel("ZAP_GPUDIRECT_", gpudirect.enumeration("zap_gpudirect_flag"))).toEqual(GPUDIRECT_FLAGS);
    expect(camel("ZAP_GPUDIRECT_", gpudirect.enumeration("zap_gpudirect_method"))).toEqual(GPUDIRECT_METHODS);
    expect(camel("ZAP_GPUDIRECT_", gpudirect.enumeration("zap_gpudirect_event_kind"))).toEqual(
      GPUDIRECT_EVENTS,
    );
    expect(camel("ZAP_GPUDIRECT_", gpudirect.enumeration("zap_gpudirect_names"))).toEqual(GPUDIRECT_NAMES);
    expect(gpudirect.define("ZAP_GPUDIRECT_MESSAGES")).toBe(GPUDIRECT_MESSAGES);
    expect(gpudirect.define("ZAP_GPUDIRECT_EVENT_BYTES")).toBe(GPUDIRECT_EVENT_BYTES);
  });

  test("of the rings", () => {
    expect(ring.define("ZAP_RING_MAGIC")).toBe(RING_MAGIC);
    expect(ring.define("ZAP_RING_VERSION")).toBe(RING_VERSION);
    expect(ring.define("ZAP_RING_HEAD_BYTES")).toBe(RING.bytes);
    expect(ring.define("ZAP_RING_ENTRY_BYTES")).toBe(RING_ENTRY.bytes);
  });

  function camel(prefix: string, numbers: Record<string, number>): Record<string, number> {
    return Object.fromEntries(
      Object.entries(numbers).map(([name, value]) => {
        const words = name.slice(prefix.length).toLowerCase();
        return [words.replaceAll(/_(\w)/g, (_, letter: string) => letter.toUpperCase()), value];
      }),
    );
  }
});

describe.skipIf(noNative)("the libraries that were built", () => {
  /** This machine's, and those of every other platform that `bun run build` has left. */
  const folders = noNative ? [] : [theNative().shims];
  if (existsSync(NATIVE)) folders.push(...readdirSync(NATIVE).map((platform) => join(NATIVE, platform)));

  for (const folder of folders) {
    test(`in ${relative(ROOT, folder)} export exactly these functions`, () => {
      const files = readdirSync(folder).filter((file) => file.split(".")[0]! in SHIMS);
      expect(files.length).toBeGreaterThan(0);
      for (const file of files) {
        const { prefix, verbs } = SHIMS[file.split(".")[0] as ShimName];
        const expected = Object.keys(verbs).map((verb) => prefix + verb);
        expect([file, ...exportsOf(readFileSync(join(folder, file)))]).toEqual([file, ...expected.sort()]);
      }
    });
  }
});
