import { describe, expect, test } from "bun:test";
import { isIPv6 } from "node:net";
import { AddressError, ConfigError, NotAvailableError } from "../../../lib/errors/index.ts";
import { DPDK_ALLOWED, DPDK_FLAGS, DPDK_IDLE, DPDK_SETTINGS, readText } from "../../../lib/ffi/index.ts";
import { ipBytes, ipText, macBytes, macText } from "../../../lib/wire/dpdk/ip.ts";
import { packAllowed, packSettings } from "../../../lib/wire/dpdk/structures.ts";
import { dpdkEnvironment, resolveDpdkOptions, type WireOptions } from "../../../lib/wire/index.ts";

const MIB = 2 ** 20;
const ENV = {
  ZAP_DPDK_VDEV: "net_double",
  ZAP_DPDK_ADDRESS: "10.0.0.1/24,fd00::1/64",
  ZAP_DPDK_HUGEPAGES: "0",
};

function resolved(options: WireOptions = {}, env: Record<string, string> = {}, free = 0) {
  const environment = dpdkEnvironment({ ...ENV, ...env });
  return resolveDpdkOptions({ nodeId: "us", ...options }, environment, {
    device: environment.vdev ?? "0000:01:00.0",
    freeHugepageBytes: free,
  });
}

describe("the environment", () => {
  test("has defaults for everything", () => {
    expect(dpdkEnvironment({})).toEqual({
      vdev: null,
      pci: null,
      ip4: null,
      ip6: null,
      gateway4: null,
      gateway6: null,
      neighbours: [],
      queues: 1,
      queueCpus: "",
      cpus: "",
      idle: "sleep",
      idleMicros: 0,
      mtu: 0,
      memoryMib: 64,
      socket: 0,
      hugepages: true,
      regionBytes: 0,
    });
  });

  for (const [name, value] of [
    ["ZAP_DPDK_VDEV", "x".repeat(600)],
    ["ZAP_DPDK_PCI", "01:00"],
    ["ZAP_DPDK_ADDRESS", "10.0.0.1"],
    ["ZAP_DPDK_ADDRESS", "10.0.0.1/33"],
    ["ZAP_DPDK_ADDRESS", "host/24"],
    ["ZAP_DPDK_ADDRESS", "10.0.0.1/24,10.0.0.2/24"],
    ["ZAP_DPDK_ADDRESS", "0.0.0.0/0"],
    ["ZAP_DPDK_ADDRESS", "224.0.0.1/24"],
    ["ZAP_DPDK_ADDRESS", "255.255.255.255/24"],
    ["ZAP_DPDK_ADDRESS", "ff02::1/64"],
    ["ZAP_DPDK_ADDRESS", "::ffff:10.0.0.1/96"],
    ["ZAP_DPDK_GATEWAY", "10.0.0"],
    ["ZAP_DPDK_GATEWAY", "ff02::2"],
    ["ZAP_DPDK_NEIGHBOURS", "10.0.0.2=02:00"],
    ["ZAP_DPDK_NEIGHBOURS", "10.0.0.2=ff:ff:ff:ff:ff:ff"],
    ["ZAP_DPDK_QUEUES", "17"],
    ["ZAP_DPDK_CPUS", "1,2"],
    ["ZAP_DPDK_CPUS", "all"],
    ["ZAP_DPDK_EAL_CPUS", "0-"],
    ["ZAP_DPDK_IDLE", "rest"],
    ["ZAP_DPDK_IDLE_MICROS", "0"],
    ["ZAP_DPDK_IDLE_MICROS", "100001"],
    ["ZAP_DPDK_MTU", "100"],
    ["ZAP_DPDK_MEMORY_MIB", "1"],
    ["ZAP_DPDK_SOCKET", "8"],
    ["ZAP_DPDK_HUGEPAGES", "some"],
    ["ZAP_DPDK_REGION_BYTES", "1GiB"],
  ] as const) {
    test(`${name}=${value.slice(0, 40)} is an error that names it`, () => {
      expect(() => dpdkEnvironment({ [name]: value })).toThrow(ConfigError);
      expect(() => dpdkEnvironment({ [name]: value })).toThrow(name);
    });
  }
});

describe("the options", () => {
  test("are packed as the native side reads them", () => {
    const env = {
      ZAP_DPDK_GATEWAY: "10.0.0.254,fd00::ff",
      ZAP_DPDK_QUEUES: "2",
      ZAP_DPDK_CPUS: "2,3",
      ZAP_DPDK_EAL_CPUS: "0-1",
      ZAP_DPDK_IDLE: "yield",
      ZAP_DPDK_MTU: "1400",
    };
    const options = resolved({ listen: ":7000", versions: [1, 2], limits: { keepaliveMillis: 300 } }, env);
    const memory = packSettings(options);
    const view = new DataView(memory.buffer);
    const { at } = DPDK_SETTINGS;
    expect(readText(memory, at.device, 512)).toBe("net_double");
    expect(readText(memory, at.pci, 256)).toBe("");
    expect(readText(memory, at.queue_cpus, 256)).toBe("2,3");
    expect(readText(memory, at.cpus, 256)).toBe("0-1");
    expect(readText(memory, at.id, memory[at.id_length]!)).toBe("us");
    expect([...memory.slice(at.ip4, at.ip4 + 4)]).toEqual([10, 0, 0, 1]);
    expect(ipText(memory.slice(at.ip6, at.ip6 + 16))).toBe("fd00::1");
    expect([...memory.slice(at.gateway4, at.gateway4 + 4)]).toEqual([10, 0, 0, 254]);
    expect(ipText(memory.slice(at.gateway6, at.gateway6 + 16))).toBe("fd00::ff");
    expect([memory[at.prefix4], memory[at.prefix6]]).toEqual([24, 64]);
    const { listen, strangers, ip4, ip6, gateway4, gateway6 } = DPDK_FLAGS;
    expect(view.getUint32(at.flags, true)).toBe(listen | strangers | ip4 | ip6 | gateway4 | gateway6);
    expect(view.getUint32(at.idle, true)).toBe(DPDK_IDLE.yield);
    expect(view.getUint16(at.udp_port, true)).toBe(7000);
    expect(view.getUint16(at.mtu, true)).toBe(1400);
    expect([view.getUint32(at.keepalive_ms, true), view.getUint32(at.dead_ms, true)]).toEqual([300, 1500]);
    expect(view.getBigUint64(at.versions, true)).toBe(0x0002_0001n);
    expect(view.getUint32(at.message_bytes, true)).toBe(10 * MIB);
  });

  test("the rings of many connections are part of the region", () => {
    const whole = { ZAP_DPDK_HUGEPAGES: "1" };
    for (const connections of [1, 1_024, 8_000, 65_535]) {
      const { areas } = resolved({ limits: { connections } }, whole, 320 * MIB);
      // As lay_out() of shim/dpdk/node.c: four rings of messages, and one of events.
      let slots = 64;
      while (slots < 4 * (connections + Math.min(1_024, Math.max(64, connections))) + 64) slots *= 2;
      const rings = 4 * (2 * MIB + 4_096) + slots * 128 + 4_096;
      const pages = Math.ceil(rings / (2 * MIB)) * 2 * MIB;
      expect(pages + areas.packets + areas.messages + areas.pool).toBeLessThanOrEqual(256 * MIB);
    }
  });

  test("the longest keepalive still leaves time for five of them", () => {
    const memory = packSettings(resolved({ limits: { keepaliveMillis: 2_147_483_647 } }));
    const view = new DataView(memory.buffer);
    const { at } = DPDK_SETTINGS;
    const [keepalive, dead] = [view.getUint32(at.keepalive_ms, true), view.getUint32(at.dead_ms, true)];
    expect([keepalive, dead]).toEqual([429_496, 2_147_483]);
  });

  test("a card is the only one that the process may open, and keepalive is a second where nobody says so", () => {
    const memory = packSettings(resolved({}, { ZAP_DPDK_VDEV: "" }));
    expect(readText(memory, DPDK_SETTINGS.at.pci, 256)).toBe("0000:01:00.0");
    expect(new DataView(memory.buffer).getUint32(DPDK_SETTINGS.at.keepalive_ms, true)).toBe(1_000);
  });

  test("listen takes the port's own addresses and none of them means all", () => {
    expect(resolved().addresses).toEqual([]);
    expect(resolved().listening).toBe(false);
    expect(resolved().udpPort).toBeGreaterThanOrEqual(49_152);
    expect(resolved({ listen: ":7000" }).addresses).toEqual(["10.0.0.1:7000", "[fd00::1]:7000"]);
    expect(resolved({ listen: "0.0.0.0:7000" }).addresses).toHaveLength(2);
    expect(resolved({ listen: "[FD00:0::1]:7000" }).addresses).toEqual(["[fd00::1]:7000"]);
    expect(resolved({ listen: ["10.0.0.1:0", "[fd00::1]:7000"] }).udpPort).toBe(7000);
    expect(() => resolved({ listen: "127.0.0.1:7000" })).toThrow(NotAvailableError);
    expect(() => resolved({ listen: "127.0.0.1:7000" })).toThrow("10.0.0.1 and fd00::1");
    expect(() => resolved({ listen: "unix:/tmp/x" })).toThrow(NotAvailableError);
    expect(() => resolved({ listen: [":1", ":2"] })).toThrow(NotAvailableError);
    expect(() => resolved({ listen: "nonsense" })).toThrow(AddressError);
  });

  test("what this wire does not have is for another transport", () => {
    const tls = { cert: "", key: "", ca: "" };
    expect(() => resolved({ tls })).toThrow(NotAvailableError);
    expect(() => resolved({}, { ZAP_DPDK_ADDRESS: "" })).toThrow("ZAP_DPDK_ADDRESS");
    expect(() => resolved({ versions: [1, 2, 3, 4, 5] })).toThrow(NotAvailableError);
    expect(() => resolved({ limits: { connections: 70_000 } })).toThrow(NotAvailableError);
  });

  test("the region is split, and too little of it is said", () => {
    const { areas } = resolved({}, { ZAP_DPDK_REGION_BYTES: String(256 * MIB) });
    expect(areas).toEqual({ packets: 30 * MIB, messages: 122 * MIB, pool: 92 * MIB });
    expect(() => resolved({}, { ZAP_DPDK_REGION_BYTES: String(64 * MIB) })).toThrow(ConfigError);
    const huge = { ZAP_DPDK_HUGEPAGES: "1" };
    expect(() => resolved({}, huge, 60 * MIB)).toThrow(NotAvailableError);
    expect(resolved({}, huge, 300 * MIB).areas.pool).toBeLessThan(100 * MIB);
    expect(resolved({}, huge, 2 ** 40).areas.packets).toBe(64 * MIB);
  });

  test("ids are allowed, and bound to their address where that is a literal", () => {
    const { at, bytes } = DPDK_ALLOWED;
    const rows = (options: WireOptions): [string, string | null][] => {
      const { memory, entries } = packAllowed(resolved(options));
      return Array.from({ length: entries }, (_, row) => {
        const entry = memory.slice(row * bytes, (row + 1) * bytes);
        const ip = ipText(entry.slice(at.ip, at.ip + 16));
        return [readText(entry, at.id, entry[at.id_length]!), entry[at.pinned] === 1 ? ip : null];
      });
    };
    const peers = { near: "10.0.0.2:7000", six: "[fd00::2]:7000", named: "host.example:7000" };
    expect(rows({})).toEqual([]);
    expect(rows({ peers })).toEqual([
      ["near", "10.0.0.2"],
      ["six", "fd00::2"],
    ]);
    expect(rows({ peers, allow: ["other"] })).toEqual([
      ["other", null],
      ["near", "10.0.0.2"],
      ["six", "fd00::2"],
      ["named", null],
    ]);
    // No entries would mean everybody.
    expect(rows({ allow: [] })).toEqual([["us", null]]);
  });
});

describe("addresses as bytes", () => {
  test("come back as they are usually written", () => {
    for (const text of [
      "10.0.0.1",
      "fd00::1",
      "::1",
      "fd00:0:0:1::",
      "1:2:3:4:5:6:7:8",
      "2001:db8::a:0:0:1",
    ]) {
      expect(ipText(ipBytes(text)!)).toBe(text);
      if (isIPv6(text)) expect(ipBytes(text.toUpperCase())).toEqual(ipBytes(text));
    }
    expect(ipText(ipBytes("::ffff:1.2.3.4")!)).toBe("1.2.3.4");
    expect(ipText(ipBytes("64:ff9b::1.2.3.4")!)).toBe("64:ff9b::102:304");
    for (const text of ["host", "1.2.3", "fe80::1%eth0", ""]) expect(ipBytes(text)).toBeNull();
    expect(macText(macBytes("02:00:00:00:00:0A")!)).toBe("02:00:00:00:00:0a");
    expect(macBytes("02:00:00:00:00")).toBeNull();
  });
});
