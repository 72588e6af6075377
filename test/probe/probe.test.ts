import { afterAll, expect, test } from "bun:test";
import { UnknownTransportError } from "../../lib/errors/index.ts";
import { TRANSPORT_NAMES } from "../../lib/transport/contract.ts";
import { probe, probeAll, probeRows, registered, transportName } from "../../lib/transport/probe.ts";
import { probeDefault } from "../../lib/transport/probes/index.ts";
import type { Registry } from "../../lib/transport/registry.ts";
import { forgetHosts, madeUpHost } from "./made-up-host.ts";

afterAll(forgetHosts);

test("all transports are probed here, best first", async () => {
  expect((await probeAll()).map((each) => each.name)).toEqual([...TRANSPORT_NAMES]);
});

test("one transport is probed by name, whatever its case and blanks", async () => {
  for (const name of ["default", " Default\n", "DEFAULT"]) expect((await probe(name)).name).toBe("default");
  expect((await probe("GPUdirect")).name).toBe("gpudirect");
});

test("an unknown name is an error that lists the known ones", async () => {
  for (const name of ["rdma", "", "auto", "x".repeat(10_000)]) {
    const error = await probe(name).catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(UnknownTransportError);
    expect(String(error)).toContain("gpudirect, dpdk, uma, default");
    expect(String(error).length).toBeLessThan(200);
  }
  expect(() => transportName("rdma", "asked for by a test", ["auto"])).toThrow(
    'no transport is named "rdma" (asked for by a test); there are gpudirect, dpdk, uma, default, auto',
  );
});

test("a probe that fails becomes a row that says so, and hides no other", async () => {
  const rows: Registry = {
    gpudirect: {
      wire: "verbs",
      memory: "cuda",
      probe: () => {
        throw new Error("at once");
      },
      open: null,
    },
    dpdk: { wire: "dpdk", memory: "hugepages", probe: () => Promise.reject(new Error("later")), open: null },
    uma: { wire: "sockets", memory: "none", probe: () => Promise.reject("not even an error"), open: null },
    default: { wire: "sockets", memory: "heap", probe: probeDefault, open: null },
  };
  const [gpudirect, dpdk, uma, fallback] = await probeRows(madeUpHost(), rows);
  expect(gpudirect).toMatchObject({
    name: "gpudirect",
    built: false,
    available: false,
    wire: "verbs",
    caps: null,
  });
  expect(gpudirect?.prerequisites).toMatchObject([{ name: "probe", met: false }]);
  expect(gpudirect?.prerequisites[0]?.seen).toContain("at once");
  expect(dpdk?.prerequisites[0]?.seen).toContain("later");
  expect(uma?.prerequisites[0]?.seen).toContain("not even an error");
  expect(fallback?.available).toBe(true);
});

test("what can be attempted depends on the operating system", () => {
  expect(registered("linux")).toEqual(["gpudirect", "dpdk", "uma", "default"]);
  expect(registered("darwin")).toEqual(["uma", "default"]);
  expect(registered("win32")).toEqual(["default"]);
  expect(registered().at(-1)).toBe("default");
  // A caller may do with the list as it likes.
  registered("linux").pop();
  expect(registered("linux")).toHaveLength(4);
});
