/** Why flows and dials end, in words and as errors. The numbers are those of `docs/wire-dpdk.md`. */
import {
  ClosedError,
  ConnectionLostError,
  HandshakeError,
  PeerUnreachableError,
  type ZapError,
} from "../../errors/index.ts";

export const REASON = {
  finished: 1,
  aborted: 2,
  duplicate: 3,
  restarted: 4,
  protocol: 5,
  full: 6,
  notAllowed: 7,
  self: 8,
  settings: 9,
  dead: 64,
  timeout: 65,
  cancelled: 66,
} as const;

const WORDS: Readonly<Record<number, string>> = {
  [REASON.finished]: "it hung up",
  [REASON.aborted]: "it was closed at once, or not finished in time",
  [REASON.duplicate]: "there is another connection with that node",
  [REASON.restarted]: "the node came again as a new process",
  [REASON.protocol]: "it sent what no node sends",
  [REASON.full]: "it has no room for a further connection",
  [REASON.notAllowed]: "one of the two is not on the other's allow-list",
  [REASON.self]: "it is this node itself, or another one with its id",
  [REASON.settings]: "the settings of the two cannot work together",
  [REASON.dead]: "nothing was heard of it any more",
  [REASON.timeout]: "it did not answer",
  [REASON.cancelled]: "it was given up",
};

/** `name` is what the native side calls the reason. */
function words(reason: number, name: string): string {
  return WORDS[reason] ?? name;
}

/** What a dial to `target` failed with. `millis` is how long it was tried. */
export function dialError(target: string, reason: number, name: string, millis: number): ZapError {
  switch (reason) {
    case REASON.timeout:
    case REASON.dead:
      return new PeerUnreachableError(
        `${target} was not reached within ${millis} ms (limits.handshakeMillis)`,
      );
    case REASON.cancelled:
      return new ClosedError(`${target}: the attempt was given up`);
    case REASON.finished:
    case REASON.aborted:
    case REASON.restarted:
      return new PeerUnreachableError(`${target}: ${words(reason, name)} (${name})`);
    default:
      return new HandshakeError(`${target}: ${words(reason, name)} (${name})`);
  }
}

/** Why a flow with `peer` ended; null where that was orderly. */
export function downError(peer: string, reason: number, name: string): ConnectionLostError | null {
  if (reason === REASON.finished) return null;
  return new ConnectionLostError(`peer ${peer}: the connection was lost: ${words(reason, name)} (${name})`);
}
