/** When a peer that was not reached, or was lost, is dialled again. */
import type { Limits } from "../settings.ts";

/** With somebody waiting, a lost peer is tried again at least this often, milliseconds. */
const WANTED_DIAL_MILLIS = 1_000;

/** Exponential, with jitter over its upper half, so that many peers of a node that comes back do not come at once. */
export function backoffMillis({ reconnectMinMillis, reconnectMaxMillis }: Limits, attempts: number): number {
  const full = Math.min(reconnectMaxMillis, reconnectMinMillis * 2 ** Math.min(attempts, 30));
  return full * (0.5 + Math.random() / 2);
}

/** Whether the next attempt may be made; times are milliseconds of `performance.now()`. */
export function isDue(
  peer: { readonly failedDialAt: number; readonly nextDialAt: number },
  { reconnectMinMillis }: Limits,
  wanted: boolean,
  now: number,
): boolean {
  const soon = peer.failedDialAt + Math.max(reconnectMinMillis, WANTED_DIAL_MILLIS);
  return now >= (wanted ? Math.min(peer.nextDialAt, soon) : peer.nextDialAt);
}
