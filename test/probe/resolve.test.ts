import { describe, expect, test } from "bun:test";
import { ConfigError, NotAvailableError, UnknownTransportError } from "../../lib/errors/index.ts";
import { TRANSPORT_NAMES, type Probe, type TransportName } from "../../lib/transport/contract.ts";
import { readPreference, resolveSelection, type ResolveOptions } from "../../lib/transport/resolve.ts";

/** The probes of a host on which exactly these transports are usable. */
function usable(...names: TransportName[]): Probe[] {
  return TRANSPORT_NAMES.map((name) => {
    const available = names.includes(name);
    return {
      ...{ name, built: true, available, wire: "sockets", memory: "heap", device: null },
      caps: available ? { gpuResident: false, zeroCopy: false, minLatencyMicros: 15 } : null,
      prerequisites: [
        { name: "thing", met: available, seen: "one lies here", fix: available ? "" : "sudo get thing" },
        { name: "air", met: true, seen: "all around", fix: "" },
      ],
    };
  });
}

async function resolved(preferred: string | undefined, options: ResolveOptions = {}) {
  return resolveSelection(preferred, { env: {}, probes: usable("default"), ...options });
}

async function refused(preferred: string | undefined, options: ResolveOptions = {}): Promise<Error> {
  return resolved(preferred, options).then(
    (selection) => Promise.reject(new Error(`resolved to ${selection.name}`)),
    (error: Error) => error,
  );
}

describe("the best available", () => {
  for (const wish of [undefined, "", "  ", "auto", " AUTO\t"]) {
    test(`is meant by ${JSON.stringify(wish)}`, async () => {
      expect((await resolved(wish, { probes: usable("dpdk", "default") })).name).toBe("dpdk");
    });
  }

  test("comes with what was tried, the chosen one last", async () => {
    const { name, reason, tried } = await resolved(undefined, { probes: usable("uma", "default") });
    expect(name).toBe("uma");
    expect(reason).toBe("uma is the best that is usable here; gpudirect and dpdk are not");
    expect(tried).toEqual([
      { name: "gpudirect", code: "ERR_ZAP_NOT_AVAILABLE", reason: "missing here: thing (one lies here)" },
      { name: "dpdk", code: "ERR_ZAP_NOT_AVAILABLE", reason: "missing here: thing (one lies here)" },
      { name: "uma", code: "ok", reason: "usable here" },
    ]);
  });

  test("is the first of all where that is usable", async () => {
    const { name, tried } = await resolved("auto", { probes: usable(...TRANSPORT_NAMES) });
    expect(name).toBe("gpudirect");
    expect(tried).toHaveLength(1);
  });

  test("is default on this host, which has nothing else to offer yet", async () => {
    const { name, tried } = await resolveSelection(undefined, { env: {} });
    expect(name).toBe("default");
    expect(tried.map((each) => each.name)).toEqual(["gpudirect", "dpdk", "uma", "default"]);
  });

  test("is an error where not even default is usable", async () => {
    const error = await refused(undefined, { probes: usable() });
    expect(error).toBeInstanceOf(NotAvailableError);
    expect((error as NotAvailableError).tried).toHaveLength(4);
  });
});

describe("a preferred transport", () => {
  for (const wish of ["dpdk", " DPDK ", "Dpdk\n"]) {
    test(`may be written ${JSON.stringify(wish)}`, async () => {
      const { name, reason, tried } = await resolved(wish, { probes: usable(...TRANSPORT_NAMES) });
      expect(name).toBe("dpdk");
      expect(reason).toBe("dpdk was asked for by the caller and is usable here");
      expect(tried).toEqual([{ name: "dpdk", code: "ok", reason: "usable here" }]);
    });
  }

  test("falls through to the next below it in rank, never above", async () => {
    const { name, reason, tried } = await resolved("dpdk", { probes: usable("gpudirect", "uma", "default") });
    expect(name).toBe("uma");
    expect(reason).toBe(
      "dpdk was asked for by the caller, but is not usable here; uma is the next in rank that is",
    );
    expect(tried.map(({ name, code }) => [name, code])).toEqual([
      ["dpdk", "ERR_ZAP_NOT_AVAILABLE"],
      ["uma", "ok"],
    ]);
  });

  test("falls through to default in the end", async () => {
    const { name, reason } = await resolved("gpudirect");
    expect(name).toBe("default");
    expect(reason).toBe(
      "gpudirect was asked for by the caller, but gpudirect, dpdk and uma are not usable here; default is the next in rank that is",
    );
  });

  test("default is not passed over for a better one", async () => {
    expect((await resolved("default", { probes: usable(...TRANSPORT_NAMES) })).name).toBe("default");
  });

  test("comes from ZAP_TRANSPORT where the caller names none", async () => {
    const options = { env: { ZAP_TRANSPORT: " Uma " }, probes: usable(...TRANSPORT_NAMES) };
    const { name, reason } = await resolved(undefined, options);
    expect(name).toBe("uma");
    expect(reason).toContain("by ZAP_TRANSPORT");
    expect((await resolved("dpdk", options)).name).toBe("dpdk");
    expect((await resolved("auto", options)).name).toBe("gpudirect");
    expect((await resolved(undefined, { ...options, env: { ZAP_TRANSPORT: "" } })).name).toBe("gpudirect");
    expect((await resolved(" ", options)).name).toBe("uma");
    expect((await resolved("auto", options)).name).toBe("gpudirect");
  });

  test("with a name that nothing has is an error, strict or not", async () => {
    for (const strict of [true, false]) {
      const error = await refused("rdma", { strict });
      expect(error).toBeInstanceOf(UnknownTransportError);
      expect(error.message).toBe(
        'no transport is named "rdma" (asked for by the caller); there are gpudirect, dpdk, uma, default, auto',
      );
    }
    const error = await refused(undefined, { env: { ZAP_TRANSPORT: "tcp" } });
    expect(error.message).toContain('"tcp" (asked for by ZAP_TRANSPORT)');
  });

  test("is probed when its turn comes, where no probe is given", async () => {
    const { name, tried } = await resolved("dpdk", { probes: [] });
    expect(name).toBe("default");
    expect(tried.map((each) => each.name)).toEqual(["dpdk", "uma", "default"]);
    expect(tried[0]?.reason).toContain("address");
  });
});

describe("strict", () => {
  test("turns a fall-through into an error that says what is missing and how to mend it", async () => {
    const error = await refused("dpdk", { strict: true });
    expect(error).toBeInstanceOf(NotAvailableError);
    expect(error.message).toBe(
      "dpdk was asked for by the caller and is not usable here; strict allows no other\n" +
        "  thing: one lies here\n" +
        "    sudo get thing",
    );
    expect((error as NotAvailableError).tried).toEqual([
      { name: "dpdk", code: "ERR_ZAP_NOT_AVAILABLE", reason: "missing here: thing (one lies here)" },
    ]);
  });

  test("says only what was seen where nothing is known to mend it", async () => {
    const probes = usable("default").map((each) => ({
      ...each,
      prerequisites: each.prerequisites.map((one) => ({ ...one, fix: "" })),
    }));
    const error = await refused("uma", { strict: true, probes });
    expect(error.message.split("\n").slice(1)).toEqual(["  thing: one lies here"]);
  });

  test("changes nothing where the preferred transport is usable", async () => {
    expect((await resolved("default", { strict: true })).name).toBe("default");
  });

  test("says nothing about the best available", async () => {
    expect((await resolved("auto", { strict: true })).name).toBe("default");
    expect((await resolved(undefined, { env: { ZAP_TRANSPORT_STRICT: "1" } })).name).toBe("default");
  });

  for (const yes of ["1", "true", "yes", " YES "]) {
    test(`is meant by ZAP_TRANSPORT_STRICT=${JSON.stringify(yes)}`, async () => {
      const env = { ZAP_TRANSPORT: "uma", ZAP_TRANSPORT_STRICT: yes };
      expect(await refused(undefined, { env })).toBeInstanceOf(NotAvailableError);
      expect((await resolved(undefined, { env, strict: false })).name).toBe("default");
    });
  }

  for (const no of ["0", "false", "No", "", undefined]) {
    test(`is not meant by ZAP_TRANSPORT_STRICT=${JSON.stringify(no)}`, async () => {
      expect((await resolved("uma", { env: { ZAP_TRANSPORT_STRICT: no } })).name).toBe("default");
    });
  }

  test("takes no other value of ZAP_TRANSPORT_STRICT", async () => {
    const error = await refused("uma", { env: { ZAP_TRANSPORT_STRICT: "perhaps" } });
    expect(error).toBeInstanceOf(ConfigError);
    expect(error.message).toBe('ZAP_TRANSPORT_STRICT is "perhaps"; it takes 1, true, yes, 0, false or no');
  });
});

test("readPreference says who asked", () => {
  expect(readPreference("uma", { env: { ZAP_TRANSPORT: "dpdk" } })).toEqual({
    name: "uma",
    strict: false,
    source: "by the caller",
  });
  expect(readPreference(undefined, { env: { ZAP_TRANSPORT: "dpdk", ZAP_TRANSPORT_STRICT: "yes" } })).toEqual({
    name: "dpdk",
    strict: true,
    source: "by ZAP_TRANSPORT",
  });
});
