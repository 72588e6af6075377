/** What `zap-info` shows to people: one row for each transport, and below it what is missing. 80 columns wide. */
import type { Capabilities, Prerequisite, Probe, TransportName } from "../index.ts";
import { pad, wrap, type Format, type Paint } from "./style.ts";

const WIDTH = 80;
const NOTHING = "–";

interface Column {
  readonly title: string;
  readonly width: number;
  readonly cell: (probe: Probe, chosen: boolean) => string[];
  readonly format?: (probe: Probe, chosen: boolean) => Format;
}

// With two blanks between them, the widths add up to 80.
const COLUMNS: readonly Column[] = [
  {
    title: "transport",
    width: 9,
    cell: ({ name }) => [name],
    format: (_, chosen) => (chosen ? ["bold", "green"] : "bold"),
  },
  { title: "built", width: 5, cell: ({ built }) => [yesNo(built)], format: ({ built }) => light(built) },
  {
    title: "usable",
    width: 6,
    cell: ({ available }) => [yesNo(available)],
    format: ({ available }) => light(available),
  },
  {
    title: "chosen",
    width: 6,
    cell: (_, chosen) => [chosen ? "→ yes" : "no"],
    format: (_, chosen) => (chosen ? ["bold", "green"] : "dim"),
  },
  { title: "wire", width: 7, cell: ({ wire }) => wrap(wire, 7) },
  { title: "memory", width: 9, cell: ({ memory }) => wrap(memory, 9) },
  { title: "device", width: 12, cell: ({ device }) => wrap(device ?? NOTHING, 12) },
  { title: "capabilities", width: 12, cell: ({ caps }) => capabilities(caps) },
];

const LEGEND = [
  "built: in this version · usable: on this host · chosen: what pick() opens here",
  "≥ N µs: the least one-way latency to expect of this wire",
];

/** The lines of the table. `chosen` is what `pick` resolves to, or null where that is an error. */
export function table(probes: readonly Probe[], chosen: TransportName | null, paint: Paint): string[] {
  const titles = COLUMNS.map(({ title, width }) => paint("bold", pad(title, width)));
  const rule = COLUMNS.map(({ width }) => paint("dim", "─".repeat(width)));
  const rows = probes.flatMap((probe) => row(probe, probe.name === chosen, paint));
  return [line(titles), line(rule), ...rows, "", ...LEGEND.map((text) => paint("dim", text))];
}

function row(probe: Probe, chosen: boolean, paint: Paint): string[] {
  const cells = COLUMNS.map((column) => column.cell(probe, chosen));
  const height = Math.max(...cells.map((cell) => cell.length));
  return Array.from({ length: height }, (_, at) =>
    line(
      COLUMNS.map(({ width, format }, column) => {
        const text = cells[column]?.[at] ?? "";
        const blanks = pad(text, width).slice(text.length);
        return (format && text !== "" ? paint(format(probe, chosen), text) : text) + blanks;
      }),
    ),
  );
}

function line(cells: readonly string[]): string {
  return cells.join("  ").trimEnd();
}

function capabilities(caps: Capabilities | null): string[] {
  if (caps === null) return [NOTHING];
  return [
    ...(caps.gpuResident ? ["GPU-resident"] : []),
    ...(caps.zeroCopy ? ["zero-copy"] : []),
    ...wrap(`≥ ${caps.minLatencyMicros} µs`, 12),
  ];
}

function yesNo(value: boolean): string {
  return value ? "yes" : "no";
}

function light(value: boolean): Format {
  return value ? "green" : "red";
}

/**
 * For a transport that is not usable: each missing thing, what was seen, and what mends it. For one that drives a device itself: what was
 * seen of that. Nothing for any other.
 */
export function details({ name, wire, available, prerequisites }: Probe, paint: Paint): string[] {
  if (available) {
    if (wire === "sockets") return [];
    const title = `${paint("bold", name)} is ${paint("green", "usable")} here`;
    return [
      "",
      title,
      ...prerequisites.flatMap((each) => hang("  ✓ ", each.name, each.seen, "green", paint)),
    ];
  }
  const missing = prerequisites.filter((each) => !each.met);
  const found = prerequisites.filter((each) => each.met);
  return [
    "",
    `${paint("bold", name)} is ${paint("red", "not usable")} here: ${missing.length} of ${prerequisites.length} things missing`,
    ...(found.length > 0
      ? hang("  ✓ ", "", `found: ${found.map((each) => each.name).join(", ")}`, "green", paint)
      : []),
    ...missing.flatMap((each) => shortcoming(each, paint)),
  ];
}

function shortcoming({ name, seen, fix }: Prerequisite, paint: Paint): string[] {
  const mend = fix.split("\n").filter((each) => each !== "");
  return [
    ...hang("  ✗ ", name, seen, "red", paint),
    ...mend.flatMap((each) =>
      // By the convention of prerequisites, what ends like a sentence is one. A command stays whole: it is there to be copied.
      /[.:]$/.test(each)
        ? wrap(each, WIDTH - 5).map((text) => `     ${text}`)
        : [`     ${paint("cyan", each)}`],
    ),
  ];
}

/** `mark name: text`, broken at 80 columns, with the later lines indented below the name. */
function hang(mark: string, name: string, text: string, format: Format, paint: Paint): string[] {
  const label = name === "" ? "" : `${name}:`;
  const [first = "", ...rest] = wrap(`${label} ${text}`.trim(), WIDTH - mark.length);
  const named = first.startsWith(label) ? paint("bold", label) + first.slice(label.length) : first;
  return [
    paint(format, mark) + (label === "" ? first : named),
    ...rest.map((each) => " ".repeat(mark.length) + each),
  ];
}
