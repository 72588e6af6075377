/** What `zap-info` shows of batch verification: each backend, the schemes that it serves here, and why not the others. */
import { SCHEMES, type BackendName, type BackendReport, type Scheme } from "../index.ts";
import { wrap, type Paint } from "./style.ts";

const WIDTH = 80;
const MARGIN = 4;

/** The lines of the section. `wanted` is the backend that the settings force, null where the best one is taken. */
export function verifyLines(
  reports: readonly BackendReport[],
  wanted: BackendName | null,
  paint: Paint,
): string[] {
  const rows = reports.flatMap(({ name, available, schemes }) => {
    const served = schemes.filter((each) => each.served).map((each) => each.scheme);
    const lines = available ? indented("✓", names(served), "green", paint) : [];
    const forced = name === wanted ? ", and forced by ZAP_VERIFY_BACKEND" : "";
    const title = `  ${paint("bold", name)} is ${paint(available ? "green" : "red", available ? "usable" : "not usable")} here${forced}`;
    return [title, ...lines, ...refusals(schemes, paint)];
  });
  return ["", paint("bold", "batch verification"), ...rows];
}

/** Schemes that are refused for the same reason share a line. */
function refusals(schemes: BackendReport["schemes"], paint: Paint): string[] {
  const byReason = Map.groupBy(
    schemes.filter(({ served }) => !served),
    ({ scheme, reason }) => reason.replaceAll(scheme, "them"),
  );
  return [...byReason].flatMap(([reason, some]) =>
    indented(
      "✗",
      `${names(some.map(({ scheme }) => scheme))}: ${some.length === 1 ? some[0]?.reason : reason}`,
      "red",
      paint,
    ),
  );
}

/** The schemes by name; a family that is there as a whole by its own. */
export function names(schemes: readonly Scheme[]): string {
  if (schemes.length === SCHEMES.length) return "every scheme";
  const found: string[] = [];
  for (const family of ["ml-dsa", "slh-dsa"]) {
    const all = SCHEMES.filter((scheme) => scheme.startsWith(family));
    if (all.every((scheme) => schemes.includes(scheme))) found.push(`${family} (all ${all.length} sets)`);
  }
  const single = schemes.filter(
    (scheme) => !found.some((family) => scheme.startsWith(family.split(" ")[0] ?? "")),
  );
  return [...single, ...found].join(", ");
}

function indented(mark: string, text: string, format: "green" | "red", paint: Paint): string[] {
  const [first = "", ...rest] = wrap(text, WIDTH - MARGIN - 2);
  const margin = " ".repeat(MARGIN);
  return [`${margin}${paint(format, mark)} ${first}`, ...rest.map((line) => `${margin}  ${line}`)];
}
