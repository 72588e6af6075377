/** One launch of the kernel on what a stage holds, and what may be done when it has failed. */
import { ShimError, TimeoutError, ZapError } from "../../errors/index.ts";
import type { DeviceMemory, VerifySpans } from "../../memory/index.ts";
import type { Stage } from "./gpu-stage.ts";

/** Looks at a running kernel this often without sleeping. */
const SPINS = 16;

/** Fence, launch, fence. Gives a copy of the codes. Rejects with what the device fails with, `TimeoutError` for a kernel that does not end. */
export async function launch(memory: DeviceMemory, stage: Stage, spans: VerifySpans): Promise<Uint8Array> {
  stage.forget(spans.count);
  memory.fenceToDevice();
  const job = memory.verifyBegin("ed25519", spans);
  const deadline = performance.now() + memory.timeoutMillis;
  for (let looks = 0; !memory.verifyPoll(job); looks++) {
    if (performance.now() > deadline) throw late(memory, "verify a batch", memory.timeoutMillis);
    await (looks < SPINS ? new Promise((resolve) => setImmediate(resolve)) : Bun.sleep(1));
  }
  memory.fenceToHost();
  const codes = stage.answer(spans.count);
  if (codes === null)
    throw new ZapError("ERR_ZAP_VERIFY", `${nameOf(memory)}: a launch left codes unwritten`);
  return codes;
}

/** Runs `use`, and frees the stage unless a kernel may still use it: then its memory stays, and goes with the device. */
export async function borrowed(stage: Stage, use: () => Promise<void>): Promise<void> {
  let isFree = true;
  try {
    await use();
  } catch (error) {
    isFree = !mayStillRun(error);
    throw error;
  } finally {
    if (isFree) stage.free();
  }
}

/** Whether a kernel may still run after this error, or a call into the driver: then nobody may touch the memory, and a close would wait. */
export function mayStillRun(error: unknown): boolean {
  return error instanceof TimeoutError || (error instanceof ShimError && error.status === "ZAP_E_TIMEOUT");
}

export function late(memory: DeviceMemory, what: string, millis: number): TimeoutError {
  return new TimeoutError(`${nameOf(memory)} did not ${what} within ${millis} ms (ZAP_DEVICE_MILLIS)`);
}

/** For people. */
export function nameOf({ name, device }: DeviceMemory): string {
  return `${name} device ${device.index} (${device.name})`;
}
