/** Peers that were not reached, or were lost: when they are dialled again, and what is said of it. */
import { ZapError } from "../../errors/index.ts";
import type { Limits } from "../settings.ts";

/** With somebody waiting, a lost peer is tried again at least this often, milliseconds. */
const WANTED_DIAL_MILLIS = 1_000;

/** What is known of a peer for dialling it; times are milliseconds of `performance.now()`. */
export interface DialledPeer {
  readonly id: string;
  readonly address: string | null;
  readonly configured: boolean;
  /** There is a connection with it. */
  readonly reached: boolean;
  /** Somebody waits for it. */
  readonly wanted: boolean;
  dialling: boolean;
  fault: ZapError | null;
  attempts: number;
  failedDialAt: number;
  nextDialAt: number;
}

export interface DialHub {
  readonly limits: Limits;
  readonly closing: boolean;
  fault(peer: string | null, error: ZapError): void;
}

/** `settle` is called exactly once, never from inside the call. */
export type StartDial = (address: string, expected: string, settle: (outcome: unknown) => void) => void;

/** Dials a peer whose address is known, unless that is under way, done, or not due yet. */
export function keepUp(peer: DialledPeer, hub: DialHub, now: number, dial: StartDial): void {
  if (peer.address === null || peer.reached || peer.dialling || hub.closing) return;
  if (!peer.configured && !peer.wanted) return;
  if (!isDue(peer, hub.limits, now)) return;
  peer.dialling = true;
  dial(peer.address, peer.id, (outcome) => {
    peer.dialling = false;
    if (!(outcome instanceof ZapError)) return;
    // Said once per cause: a peer that stays away must not fill the log.
    if (peer.fault?.message !== outcome.message && outcome.code !== "ERR_ZAP_CLOSED")
      hub.fault(peer.id, outcome);
    peer.fault = outcome;
    pauseDialling(peer, hub.limits);
  });
}

/** Sets when a peer that was not reached, or was lost, is dialled again. */
export function pauseDialling(peer: DialledPeer, limits: Limits): void {
  peer.failedDialAt = performance.now();
  peer.nextDialAt = peer.failedDialAt + backoffMillis(limits, peer.attempts++);
}

/** Exponential, with jitter over its upper half, so that many peers of a node that comes back do not come at once. */
function backoffMillis({ reconnectMinMillis, reconnectMaxMillis }: Limits, attempts: number): number {
  const full = Math.min(reconnectMaxMillis, reconnectMinMillis * 2 ** Math.min(attempts, 30));
  return full * (0.5 + Math.random() / 2);
}

function isDue(peer: DialledPeer, { reconnectMinMillis }: Limits, now: number): boolean {
  const soon = peer.failedDialAt + Math.max(reconnectMinMillis, WANTED_DIAL_MILLIS);
  return now >= (peer.wanted ? Math.min(peer.nextDialAt, soon) : peer.nextDialAt);
}
