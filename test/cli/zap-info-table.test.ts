import { describe, expect, test } from "bun:test";
import { stripVTControlCharacters } from "node:util";
import { painter, wrap, type Paint } from "../../lib/cli/style.ts";
import { details, table } from "../../lib/cli/table.ts";
import { commands, poor, rich } from "./zap-info-rows.ts";

const write = () => true;
const plain = painter({ write }, {});
const colour = painter({ write }, { FORCE_COLOR: "1" });

function page(
  probes: typeof rich,
  paint: Paint,
  chosen: "default" | "gpudirect" | null = "default",
): string[] {
  return [...table(probes, chosen, paint), ...probes.flatMap((each) => details(each, paint))];
}

test("what drives a device itself is shown with what was seen of it", () => {
  const row = { name: "port", met: true, seen: "0000:01:00.0 (vfio-pci)", fix: "" };
  const usable = { ...rich[0]!, name: "dpdk", wire: "dpdk", available: true, prerequisites: [row] } as const;
  expect(details(usable, plain)).toEqual(["", "dpdk is usable here", "  ✓ port: 0000:01:00.0 (vfio-pci)"]);
  expect(details({ ...usable, wire: "sockets" }, plain)).toEqual([]);
});

describe("the table", () => {
  for (const [kind, paint] of Object.entries({ plain, colour })) {
    for (const [name, probes] of Object.entries({ rich, poor })) {
      test(`fits 80 columns, but for commands (${kind}, ${name} host)`, () => {
        const long = page(probes, paint).filter((line) => Bun.stringWidth(line) > 80);
        expect(long.map((line) => stripVTControlCharacters(line).trim())).toEqual(
          probes === poor ? [...commands] : [],
        );
      });
    }
  }

  test("shows the same words with colour and without", () => {
    for (const probes of [rich, poor]) {
      const stripped = page(probes, colour).map((line) => stripVTControlCharacters(line));
      expect(stripped).toEqual(page(probes, plain));
    }
    expect(page(poor, plain).join("")).not.toContain("\x1b");
    expect(page(poor, colour).join("")).toContain("\x1b[");
  });

  test("says built, usable and chosen in three columns, and marks the chosen row with more than colour", () => {
    const [titles = "", , ...rows] = table(poor, "default", plain);
    expect(titles.trim().split(/ {2,}/)).toEqual([
      ...["transport", "built", "usable", "chosen", "wire", "memory", "device", "capabilities"],
    ]);
    const words = rows.slice(0, 4).map((row) => row.trim().split(/ {2,}/));
    expect(words).toEqual([
      ["gpudirect", "no", "no", "no", "verbs", "cuda", "–", "–"],
      ["dpdk", "yes", "no", "no", "dpdk", "hugepages", "–", "–"],
      ["uma", "no", "no", "no", "sockets", "none", "–", "–"],
      ["default", "yes", "yes", "→ yes", "sockets", "heap", "–", "≥ 15 µs"],
    ]);
    expect(table(poor, null, plain).join("\n")).not.toContain("→");
  });

  test("keeps every cell below its title, however many lines it takes", () => {
    const lines = table(rich, "gpudirect", plain);
    const [titles = ""] = lines;
    const device = titles.indexOf("device");
    const capabilities = titles.indexOf("capabilities");
    const cells = lines.slice(2, lines.indexOf("")).map((line) => line.slice(device, capabilities).trim());
    expect(cells.filter((each) => each !== "").join(" ")).toBe(
      "mlx5_0 + 8 × NVIDIA RTX PRO 6000 Blackwell-Se rver-Edition 0000:03:00.0 Apple M4 Max –",
    );
    const abilities = lines.slice(2, lines.indexOf("")).map((line) => line.slice(capabilities).trim());
    expect(abilities.filter((each) => each !== "")).toEqual([
      ...["GPU-resident", "zero-copy", "≥ 2 µs"],
      ...["zero-copy", "≥ 0.5 µs"],
      ...["GPU-resident", "≥ 12345.678", "µs"],
      "≥ 15 µs",
    ]);
  });
});

describe("what is missing", () => {
  test("is nothing for a usable transport", () => {
    for (const probe of rich) if (probe.wire === "sockets") expect(details(probe, plain)).toEqual([]);
  });

  test("says what was seen, and puts each command on a line of its own, unbroken", () => {
    const dpdk = poor[1];
    expect(dpdk && details(dpdk, plain)).toEqual([
      "",
      "dpdk is not usable here: 1 of 3 things missing",
      "  ✓ found: libdpdk, port",
      "  ✗ hugepages: 0 of 1024 pages of 2 MiB free, 0 of 0 pages of 1 GiB free;",
      "    needed: 64 MiB free in one size",
      "     Take away as many as other programs can spare, since they too may want some",
      "     of them:",
      `     ${commands[0]}`,
    ]);
  });

  test("is there for a transport whose probe failed", () => {
    const [failed] = poor;
    expect(failed && details(failed, plain).join("\n")).toContain(
      "✗ probe: looking at this host failed: EIO",
    );
  });
});

describe("colour", () => {
  const on = (isTTY: boolean, env: Record<string, string>) =>
    painter({ write, isTTY }, env)("red", "x") === "\x1b[31mx\x1b[39m";

  test("is for terminals", () => {
    expect(on(true, {})).toBe(true);
    expect(on(false, {})).toBe(false);
    expect(on(true, { TERM: "dumb" })).toBe(false);
  });

  test("respects NO_COLOR, unless it is empty", () => {
    expect(on(true, { NO_COLOR: "1" })).toBe(false);
    expect(on(true, { NO_COLOR: "0" })).toBe(false);
    expect(on(true, { NO_COLOR: "" })).toBe(true);
  });

  test("respects FORCE_COLOR before anything else", () => {
    expect(on(false, { FORCE_COLOR: "1" })).toBe(true);
    expect(on(false, { FORCE_COLOR: "", NO_COLOR: "1" })).toBe(true);
    expect(on(true, { FORCE_COLOR: "0" })).toBe(false);
    expect(on(true, { FORCE_COLOR: "false" })).toBe(false);
  });
});

test("wrap keeps every character and never exceeds the width", () => {
  const text = "a bb   ccc dddddddddddd\neeee µ";
  for (let width = 1; width < 30; width++) {
    const lines = wrap(text, width);
    expect(lines.every((line) => Bun.stringWidth(line) <= width)).toBe(true);
    expect(lines.join("").replaceAll(" ", "")).toBe(text.replaceAll(/\s/g, ""));
  }
  expect(wrap("", 5)).toEqual([""]);
});
