/** Starts the two processes, brings them together, watches them, and says what came of it. */
import { Child, GRACE_MILLIS } from "./child.ts";
import { demoDevices } from "./devices.ts";
import { Display } from "./display.ts";
import type { Wishes } from "./node.ts";
import { judge } from "./verdict.ts";

/** With time for the accounts and for the end of the processes, a minute in all. */
const LIMIT_MILLIS = 60_000 - 2 * GRACE_MILLIS;
/** When nothing has come anywhere for this long, nothing more will: a slow machine may take half of it to open the transports. */
const STALL_MILLIS = 20_000;
const WATCH_MILLIS = 250;

/** Runs the whole demo and resolves with its exit status. */
export async function runDemo(wishes: Wishes): Promise<number> {
  const startedAt = performance.now();
  using devices = await demoDevices();
  const display = new Display(wishes);
  display.devices(devices.line);
  const ended = Promise.withResolvers<string>();
  const children: Child[] = [];
  const onChange = (): void => {
    display.progress(sum(children, "received"), sum(children, "bytes"));
    if (children.every((each) => each.complete)) ended.resolve("");
  };
  const watchdog = watch(children, ended.resolve);
  const interrupted = (): void => ended.resolve("interrupted");
  process.once("SIGINT", interrupted).once("SIGTERM", interrupted);
  try {
    const left = new Child("left", wishes, devices, onChange, ended.resolve);
    children.push(left);
    const right = new Child("right", wishes, devices, onChange, ended.resolve);
    children.push(right);
    bringTogether(left, right, display).catch((error: unknown) => ended.resolve(String(error)));

    const fault = await ended.promise;
    const seconds = (performance.now() - startedAt) / 1000;
    const [ofLeft, ofRight] = await Promise.all([left.account(), right.account()]);
    const verdicts = [
      judge("left to right", wishes.messages, ofLeft.sent, ofRight.received),
      judge("right to left", wishes.messages, ofRight.sent, ofLeft.received),
    ];
    // Both processes may have the same to complain of.
    const faults = new Set([fault, ...left.faults, ...right.faults].filter((text) => text !== ""));
    return display.verdict(verdicts, [...faults], left.transport, seconds);
  } finally {
    clearInterval(watchdog);
    await Promise.all(children.map((each) => each.end()));
  }
}

async function bringTogether(left: Child, right: Child, display: Display): Promise<void> {
  const [{ transport, reason, addresses }] = await Promise.all([left.opened, right.opened]);
  display.opened(transport, reason);
  right.order({ type: "connect", address: addresses[0] ?? "" });
}

/** Gives up when it takes too long, or when nothing moves any more. */
function watch(children: readonly Child[], giveUp: (reason: string) => void): Timer {
  const startedAt = performance.now();
  let received = 0;
  let movedAt = startedAt;
  return setInterval(() => {
    const now = performance.now();
    if (sum(children, "received") !== received) [received, movedAt] = [sum(children, "received"), now];
    if (now - movedAt > STALL_MILLIS) giveUp(`nothing came for ${STALL_MILLIS / 1000} s`);
    if (now - startedAt > LIMIT_MILLIS) giveUp(`not done within ${LIMIT_MILLIS / 1000} s`);
  }, WATCH_MILLIS);
}

function sum(children: readonly Child[], of: "received" | "bytes"): number {
  return children.reduce((all, each) => all + each[of], 0);
}
