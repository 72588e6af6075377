/** Why flows end, in words and as errors. The numbers are those of the native side. */
import { ConnectionLostError } from "../../errors/index.ts";

export const REASON = {
  finished: 1,
  aborted: 2,
  protocol: 5,
  dead: 64,
  refused: 65,
  broken: 66,
  closed: 67,
  unreachable: 68,
  unregistered: 69,
} as const;

const WORDS: Readonly<Record<number, string>> = {
  [REASON.aborted]: "it was closed at once",
  [REASON.protocol]: "it sent what no node sends",
  [REASON.dead]: "it does not answer any more",
  [REASON.refused]: "it refused what it was sent",
  [REASON.broken]: "the queue pair is in error",
  [REASON.closed]: "it did not finish in time",
  [REASON.unreachable]: "its queue pair cannot be reached",
  [REASON.unregistered]: "a message could not be registered with the device",
};

/**
 * Why a flow with `peer` ended; null where that was orderly. `name` is what the native side calls the reason, `detail` the completion or
 * the error behind it, empty where there is none.
 */
export function downError(
  peer: string,
  reason: number,
  name: string,
  detail: string,
): ConnectionLostError | null {
  if (reason === REASON.finished) return null;
  const more = detail === "" ? "" : `, ${detail}`;
  const what = reason === REASON.unreachable ? "RDMA cannot be set up" : "the RDMA connection was lost";
  return new ConnectionLostError(`peer ${peer}: ${what}: ${WORDS[reason] ?? name} (${name}${more})`);
}
