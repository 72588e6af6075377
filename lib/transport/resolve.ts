/** Which transport is meant: the caller's wish, the environment and the host, brought to one name. Opens nothing. */
import { NotAvailableError, type TriedTransport } from "../errors/index.ts";
import type { Env } from "../settings/index.ts";
import { TRANSPORT_NAMES, type Probe, type Selection, type TransportName } from "./contract.ts";
import { thisHost } from "./host.ts";
import { probeRow, transportName } from "./probe.ts";
import { checkSettings, isStrict } from "./settings.ts";

export interface ResolveOptions {
  /** Fail where the preferred transport is not available. Default: `ZAP_TRANSPORT_STRICT`, else false. */
  readonly strict?: boolean;
  /** Default: the environment of the process. */
  readonly env?: Env;
  /** What was probed already; a transport that is not among them is probed when its turn comes. */
  readonly probes?: readonly Probe[];
}

export interface Preference {
  /** The transport asked for, or null for the best available. */
  readonly name: TransportName | null;
  /** True where nothing but `name` will do. */
  readonly strict: boolean;
  /** Who asked, in words that fit behind "asked for". */
  readonly source: string;
}

/**
 * What the caller and the environment ask for. A blank `preferred` falls back to `ZAP_TRANSPORT`; case and surrounding
 * blanks do not matter; `auto`, and nothing named at all, mean the best available. Throws `UnknownTransportError` for a name that no
 * transport has, `ConfigError` for a `ZAP_TRANSPORT_STRICT` that is neither yes nor no.
 */
export function readPreference(preferred?: string, options: ResolveOptions = {}): Preference {
  const env = options.env ?? process.env;
  const strict = options.strict ?? isStrict(env);
  const given = String(preferred ?? "").trim() !== "";
  const wanted = given ? String(preferred) : (env["ZAP_TRANSPORT"] ?? "");
  const source = given ? "by the caller" : "by ZAP_TRANSPORT";

  const auto = ["", "auto"].includes(String(wanted).trim().toLowerCase());
  if (auto) return { name: null, strict: false, source };
  return { name: transportName(wanted, `asked for ${source}`, ["auto"]), strict, source };
}

/** The transports to try for a preference, in order: it and all below it in rank; all of them for none. */
export function candidates({ name, strict }: Preference): readonly TransportName[] {
  if (name === null) return TRANSPORT_NAMES;
  return strict ? [name] : TRANSPORT_NAMES.slice(TRANSPORT_NAMES.indexOf(name));
}

/**
 * What `pick` would choose here, without opening it: the first candidate whose probe says that it is available. Rejects with
 * `NotAvailableError`, which carries what was tried, where a strict preference is not available, and with the errors of
 * `checkSettings` and `readPreference`.
 */
export async function resolveSelection(preferred?: string, options: ResolveOptions = {}): Promise<Selection> {
  checkSettings(options.env);
  const preference = readPreference(preferred, options);
  const host = thisHost(options.env);
  const tried: TriedTransport[] = [];
  let asked: Probe | undefined;

  for (const name of candidates(preference)) {
    const probed = options.probes?.find((each) => each.name === name) ?? (await probeRow(name, host));
    asked ??= probed;
    if (!probed.available) {
      tried.push({ name, code: "ERR_ZAP_NOT_AVAILABLE", reason: whyNot(probed) });
      continue;
    }
    const reason = whyThis(name, preference, tried);
    tried.push({ name, code: "ok", reason: "usable here" });
    return { name, reason, tried };
  }
  throw new NotAvailableError(refusal(preference, asked), { tried });
}

/** One sentence on the choice of `name`, for the log line and for people. */
export function whyThis(
  name: TransportName,
  preference: Preference,
  ruledOut: readonly TriedTransport[],
): string {
  if (preference.name === name) return `${name} was asked for ${preference.source} and is usable here`;
  const others = enumerate(ruledOut.map((each) => each.name));
  if (preference.name !== null) {
    const failed = ruledOut.length === 1 ? "is" : `${others} are`;
    return `${preference.name} was asked for ${preference.source}, but ${failed} not usable here; ${name} is the next in rank that is`;
  }
  if (ruledOut.length === 0) return `${name} is the best there is, and usable here`;
  return `${name} is the best that is usable here; ${others} ${ruledOut.length === 1 ? "is" : "are"} not`;
}

/** What an unavailable transport lacks here, in one sentence: by name, with what was seen where it is one thing only. */
export function whyNot({ prerequisites }: Probe): string {
  const missing = prerequisites.filter((each) => !each.met);
  const [only] = missing;
  if (only !== undefined && missing.length === 1) return `missing here: ${only.name} (${only.seen})`;
  return `missing here: ${missing.map((each) => each.name).join(", ")}`;
}

/** The first line says what is the matter; then comes each missing thing, and further in how to mend it. */
function refusal(preference: Preference, asked: Probe | undefined): string {
  if (preference.name === null || !preference.strict) return "no transport is usable here, not even default";
  const missing = (asked?.prerequisites ?? []).filter((each) => !each.met);
  return [
    `${preference.name} was asked for ${preference.source} and is not usable here; strict allows no other`,
    ...missing.flatMap(({ name, seen, fix }) => [
      `  ${name}: ${seen}`,
      ...fix.split("\n").flatMap((line) => (line === "" ? [] : [`    ${line}`])),
    ]),
  ].join("\n");
}

function enumerate(names: readonly string[]): string {
  return names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;
}
