import { describe, expect, test } from "bun:test";
import {
  NotAvailableError,
  Pick,
  pick,
  Registered,
  registered,
  UnknownTransportError,
  type PickOptions,
  type Transport,
} from "../../lib/index.ts";
import { failureOf } from "../support/wait.ts";

type Env = NonNullable<PickOptions["env"]>;

async function picked(preferred?: string, env: Env = {}, options: PickOptions = {}): Promise<Transport> {
  const transport = await pick(preferred, {
    onEvent: () => {},
    ...options,
    env: { ZAP_TRANSPORT_QUIET: "1", ...env },
  });
  await transport.close();
  return transport;
}

async function refused(preferred?: string, env: Env = {}, options: PickOptions = {}): Promise<Error> {
  return failureOf(picked(preferred, env, options));
}

/** The transports that this host can open, as `pick` sees it; none but `default` where no hardware is there. */
const best = (await picked()).name;

describe("pick", () => {
  test("opens default where it is asked for, however it is written", async () => {
    for (const wish of ["default", " DEFAULT ", "Default\n"]) {
      const { name, selection } = await picked(wish);
      expect([name, selection.name, selection.tried.length]).toEqual(["default", "default", 1]);
      expect(selection.reason).toContain("was asked for by the caller");
    }
  });

  test("opens the best there is where nothing is asked for", async () => {
    for (const wish of [undefined, "", " ", "auto", "AUTO"]) {
      const { name, selection } = await picked(wish);
      expect(name).toBe(best);
      expect(selection.tried.at(-1)).toEqual({ name, code: "ok", reason: "usable here" });
      expect(selection.tried.map((tried) => tried.name)).toEqual(
        registered().slice(0, selection.tried.length),
      );
    }
  });

  test.if(best === "default")(
    "falls through from what is not usable here, and says what was tried",
    async () => {
      const { name, selection } = await picked("dpdk");
      expect(name).toBe("default");
      expect(selection.tried.map(({ name, code }) => [name, code])).toEqual([
        ["dpdk", "ERR_ZAP_NOT_AVAILABLE"],
        ["uma", "ERR_ZAP_NOT_AVAILABLE"],
        ["default", "ok"],
      ]);
      expect(selection.reason).toContain("dpdk was asked for");
    },
  );

  test.if(best === "default")("fails where it may not fall through, and says how to mend it", async () => {
    const cases: [string | undefined, Env, PickOptions][] = [
      ["gpudirect", {}, { strict: true }],
      ["gpudirect", { ZAP_TRANSPORT_STRICT: "1" }, {}],
      [undefined, { ZAP_TRANSPORT: "gpudirect", ZAP_TRANSPORT_STRICT: "yes" }, {}],
    ];
    for (const [preferred, env, options] of cases) {
      const error = await refused(preferred, env, options);
      expect(error).toBeInstanceOf(NotAvailableError);
      expect(error.message).toContain("gpudirect was asked for");
      expect((error as NotAvailableError).tried.map((tried) => tried.name)).toEqual(["gpudirect"]);
    }
    const lenient = await picked("gpudirect", { ZAP_TRANSPORT_STRICT: "1" }, { strict: false });
    expect(lenient.name).toBe("default");
  });

  test("takes its wish from ZAP_TRANSPORT where the caller has none", async () => {
    const { name, selection } = await picked(undefined, { ZAP_TRANSPORT: " Default " });
    expect(name).toBe("default");
    expect(selection.reason).toContain("by ZAP_TRANSPORT");
    expect((await picked("default", { ZAP_TRANSPORT: "no-such" })).name).toBe("default");
    expect((await picked("auto", { ZAP_TRANSPORT: "no-such" })).name).toBe(best);
  });

  test("refuses a name that no transport has, and lists those there are", async () => {
    for (const [preferred, env] of [
      ["verbs", {}],
      [undefined, { ZAP_TRANSPORT: "verbs" }],
    ] as const) {
      const error = await refused(preferred, env);
      expect(error).toBeInstanceOf(UnknownTransportError);
      for (const name of [...registered(), "verbs"]) expect(error.message).toContain(name);
    }
  });

  test("refuses a ZAP_TRANSPORT_STRICT that is neither yes nor no", async () => {
    const error = await refused("default", { ZAP_TRANSPORT_STRICT: "maybe" });
    expect((error as { code?: string }).code).toBe("ERR_ZAP_CONFIG");
    expect(error.message).toContain("ZAP_TRANSPORT_STRICT");
  });

  test("does not fall through for an option that cannot be used", async () => {
    const error = await refused(undefined, {}, { limits: { frameBytes: -1 } });
    expect((error as { code?: string }).code).toBe("ERR_ZAP_CONFIG");
  });

  test("has the names of the Go package too", () => {
    expect(Pick).toBe(pick);
    expect(Registered).toBe(registered);
  });
});

describe("the log", () => {
  /** Standard error of a process that opens two transports and lets a stranger talk nonsense to the second. */
  const run = async (env: Record<string, string>): Promise<string[]> => {
    const script = `
      import { pick } from ${JSON.stringify(new URL("../../lib/index.ts", import.meta.url).pathname)};
      const first = await pick("default");
      const second = await pick("default", { listen: "127.0.0.1:0" });
      const [host, port] = second.addresses[0].split(":");
      const socket = await Bun.connect({ hostname: host, port: Number(port), socket: { data() {} } });
      socket.write("GET / HTTP/1.1\\r\\n\\r\\n");
      while (second.stats().drops.handshake === undefined) await Bun.sleep(5);
      await first.close(); await second.close();`;
    const { ZAP_TRANSPORT, ZAP_TRANSPORT_QUIET, ZAP_TRANSPORT_STRICT, ...clean } = process.env;
    const child = Bun.spawn([process.execPath, "-e", script], {
      env: { ...clean, ...env },
      stderr: "pipe",
      stdout: "pipe",
    });
    const [text, out, code] = await Promise.all([
      new Response(child.stderr).text(),
      new Response(child.stdout).text(),
      child.exited,
    ]);
    expect([code, out]).toEqual([0, ""]);
    return text.split("\n").filter((line) => line !== "");
  };

  test("is one line for the first transport of a process, and one for what was turned away", async () => {
    const lines = (await run({})).map((line) => JSON.parse(line) as Record<string, unknown>);
    expect(lines).toMatchObject([
      { level: "info", component: "zap", event: "transport_picked", transport: "default" },
      { level: "warn", component: "zap", event: "transport_error", code: "ERR_ZAP_HANDSHAKE" },
    ]);
    expect(Date.parse(String(lines[0]?.["time"]))).toBeGreaterThan(0);
  });

  test("is silent with ZAP_TRANSPORT_QUIET", async () => {
    expect(await run({ ZAP_TRANSPORT_QUIET: "1" })).toEqual([]);
  });

  test.each(["true", " YES "])("takes ZAP_TRANSPORT_QUIET=%p for yes", async (quiet) => {
    expect(await run({ ZAP_TRANSPORT_QUIET: quiet })).toEqual([]);
  });

  test("obeys the env option too", async () => {
    const written: string[] = [];
    const original = process.stderr.write;
    process.stderr.write = ((text: string) => (written.push(text), true)) as typeof process.stderr.write;
    try {
      const transport = await pick("default", {
        listen: "127.0.0.1:0",
        env: { ZAP_TRANSPORT_QUIET: "1" },
      });
      const port = Number(transport.addresses[0]?.split(":")[1]);
      const socket = await Bun.connect({ hostname: "127.0.0.1", port, socket: { data() {} } });
      socket.write("GET / HTTP/1.1\r\n\r\n");
      while (transport.stats().drops["handshake"] === undefined) await Bun.sleep(5);
      await transport.close();
    } finally {
      process.stderr.write = original;
    }
    expect(written).toEqual([]);
  });
});
