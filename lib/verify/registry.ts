/** The backends of this build, best first, and which of them a call gets. A further backend is a row here. */
import { ConfigError, NotAvailableError } from "../errors/index.ts";
import type { Env } from "../settings/index.ts";
import { CpuBackend } from "./backends/cpu.ts";
import { gpuSettings } from "./backends/gpu-settings.ts";
import { GpuBackend } from "./backends/gpu.ts";
import { poolSettings } from "./pool/index.ts";
import { blsKeysSetting } from "./schemes/bls-keys.ts";
import { SCHEMES, type Backend, type BackendName, type Scheme } from "./contract.ts";

/** Every name that an option or `ZAP_VERIFY_BACKEND` may have, beside `auto`; best first. */
export const BACKEND_NAMES: readonly BackendName[] = ["cuda", "cpu"];

let made: readonly Backend[] | undefined;

/** The backends of this process, made on first use. Making them opens nothing. */
export function backends(): readonly Backend[] {
  if (made === undefined) {
    const cpu = new CpuBackend();
    made = [new GpuBackend(cpu), cpu];
  }
  return made;
}

/** What was asked for: an option, or else the environment. Null: whichever is best. Throws `ConfigError` for a name that there is not. */
export function wantedBackend(option: string | undefined, env: Env = process.env): BackendName | null {
  const given = option ?? env["ZAP_VERIFY_BACKEND"] ?? "";
  const wanted = String(given).trim().toLowerCase();
  if (wanted === "" || wanted === "auto") return null;
  const found = BACKEND_NAMES.find((name) => name === wanted);
  if (found !== undefined) return found;
  const what = option === undefined ? "ZAP_VERIFY_BACKEND" : "the option backend";
  const names = [...BACKEND_NAMES, "auto"].join(", ");
  throw new ConfigError(`${what} is ${JSON.stringify(String(given).slice(0, 60))}; it takes ${names}`);
}

/** Throws `ConfigError` that names the first variable of verification with a value that cannot be used, other than the backend. */
function readSettings(env: Env): void {
  poolSettings(env);
  blsKeysSetting(env);
  gpuSettings(env);
}

let areRead = false;

/** The same for this process, whether or not it needs the variable; once they are good they are not looked at again. */
export function checkSettingsOnce(): void {
  if (!areRead) readSettings(process.env);
  areRead = true;
}

/**
 * Throws `ConfigError` that names the first variable of verification with a value that cannot be used, and `NotAvailableError` where
 * `ZAP_VERIFY_BACKEND` forces a backend that serves nothing here.
 */
export function checkVerifySettings(
  env: Env = process.env,
  reports: readonly BackendReport[] = verifyBackends(),
): void {
  readSettings(env);
  const wanted = wantedBackend(undefined, env);
  const report = reports.find(({ name }) => name === wanted);
  if (wanted === null || report?.available === true) return;
  const reason = report?.schemes[0]?.reason ?? "this build does not have it";
  throw new NotAvailableError(`ZAP_VERIFY_BACKEND is ${wanted}, and that verifies nothing here: ${reason}`);
}

/**
 * The backend for `scheme`: the one that is `wanted`, otherwise the best that serves it. Throws `NotAvailableError` that says why the one
 * that is wanted does not.
 */
export function chooseBackend(
  scheme: Scheme,
  wanted: BackendName | null,
  rows: readonly Backend[] = backends(),
): Backend {
  const whyNot: string[] = [];
  for (const backend of rows) {
    if (wanted !== null && backend.name !== wanted) continue;
    const served = backend.serves(scheme);
    if (served === true) return backend;
    whyNot.push(`${backend.name}: ${served}`);
  }
  const reasons = whyNot.join("; ") || `this build has no backend named ${wanted ?? "so"}`;
  throw new NotAvailableError(`no backend verifies ${scheme} here as asked for: ${reasons}`);
}

/** What one backend is on this host. */
export interface BackendReport {
  readonly name: BackendName;
  /** Whether it serves any scheme. */
  readonly available: boolean;
  /** Batches of fewer items are left to the CPU; null where there is no such number, or it was not measured yet. `never`: all of them. */
  readonly leastItems: number | "never" | null;
  readonly schemes: readonly SchemeReport[];
}

export interface SchemeReport {
  readonly scheme: Scheme;
  readonly served: boolean;
  /** Why it is not served, and what would mend it; empty where it is. */
  readonly reason: string;
}

/** Every backend, best first, and which scheme it serves on this host, or why not. Verifies nothing. */
export function verifyBackends(rows: readonly Backend[] = backends()): BackendReport[] {
  return rows.map((backend) => {
    const schemes = SCHEMES.map((scheme): SchemeReport => {
      const served = backend.serves(scheme);
      return { scheme, served: served === true, reason: served === true ? "" : served };
    });
    const available = schemes.some(({ served }) => served);
    const { leastItems = null } = backend;
    return {
      name: backend.name,
      available,
      leastItems: leastItems === Infinity ? "never" : leastItems,
      schemes,
    };
  });
}
