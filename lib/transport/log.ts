/** The library's own log: single JSON lines on standard error, which `ZAP_TRANSPORT_QUIET=1` silences. */
import { readFlag, type Env } from "../settings/index.ts";
import type { TransportEvent } from "./contract.ts";

/** Lines of one kind that go out in a second; what is above is counted in the next line of that kind. */
const LINES_PER_SECOND_MAX = 5;

type Fields = Readonly<Record<string, unknown>>;

/** Throws `ConfigError` for a value that is neither yes nor no. */
export function isQuiet(env: Env = process.env): boolean {
  return readFlag(env, "ZAP_TRANSPORT_QUIET");
}

export function logLine(level: "info" | "warn", event: string, fields: Fields): void {
  const line = { time: new Date().toISOString(), level, component: "zap", event, ...fields };
  process.stderr.write(`${JSON.stringify(line)}\n`);
}

/** What happens to events when nobody asked for them: losses are logged, comings and goings are not. */
export function logEvents(env: Env = process.env): (event: TransportEvent) => void {
  if (isQuiet(env)) return () => {};
  const windows = new Map<string, { second: number; lines: number; suppressed: number }>();
  return (event) => {
    if (event.type === "connected" || event.type === "disconnected") return;
    const kind = event.type === "error" ? event.error.code : event.type;
    const second = Math.floor(performance.now() / 1_000);
    const window = windows.get(kind) ?? { second, lines: 0, suppressed: 0 };
    windows.set(kind, window);
    if (window.second !== second) Object.assign(window, { second, lines: 0 });
    if (++window.lines > LINES_PER_SECOND_MAX) {
      window.suppressed++;
      return;
    }
    const suppressed = window.suppressed > 0 ? { suppressed: window.suppressed } : {};
    window.suppressed = 0;
    if (event.type === "error") {
      const { code, message } = event.error;
      logLine("warn", "transport_error", { peer: event.peer, code, message, ...suppressed });
    } else {
      const { peer, envelopes } = event;
      logLine("warn", "envelopes_unreleased", { peer, envelopes, ...suppressed });
    }
  };
}
