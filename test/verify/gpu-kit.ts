/** A GPU backend over a double of the CUDA driver, for the tests of what goes wrong with it. */
import { expect } from "bun:test";
import type { ZapError } from "../../lib/errors/index.ts";
import { GpuBackend } from "../../lib/verify/backends/gpu.ts";
import { DEFAULT_PARAMS, type Backend, type Job, type PackedBatch } from "../../lib/verify/contract.ts";
import { runJob } from "../../lib/verify/dispatch.ts";
import { ed25519 } from "../../lib/verify/schemes/ed25519.ts";
import { DoubleHost, type Behaviour } from "../support/double-host.ts";

/** The CPU, which verifies when it is let. */
export class GatedCpu implements Backend {
  readonly name = "cpu";
  jobs = 0;
  gate: PromiseWithResolvers<void> | null = null;

  serves(): true {
    return true;
  }

  /** From now on jobs wait until the returned function is called. */
  shut(): () => void {
    const gate = (this.gate = Promise.withResolvers<void>());
    return gate.resolve;
  }

  async run({ batch, params, codes }: Job): Promise<void> {
    this.jobs++;
    await this.gate?.promise;
    ed25519.verify(batch, 0, batch.count, params, codes);
  }
}

export interface Made<Cpu extends Backend = Backend> {
  readonly gpu: GpuBackend;
  readonly cpu: Cpu;
  readonly on: DoubleHost;
  /** What `onDeviceError` was told. */
  readonly errors: ZapError[];
  /** Through the layer that every call goes through. */
  readonly ask: (batch: PackedBatch, job?: Partial<Job>, backend?: Backend) => Promise<Uint8Array>;
}

/** `cpu` is what gets the batches that the device does not. */
export function makeGpu<Cpu extends Backend>(
  cpu: Cpu,
  behaviour: Behaviour = {},
  env: Record<string, string> = {},
): Made<Cpu> {
  const on = new DoubleHost("cuda", behaviour, {}, { ZAP_VERIFY_GPU_LEAST: "64", ...env });
  const gpu = new GpuBackend(cpu, { env: on.host.env, root: on.host.root, platform: on.host });
  const errors: ZapError[] = [];
  const ask = (batch: PackedBatch, job: Partial<Job> = {}, backend: Backend = gpu) =>
    runJob(backend, {
      scheme: "ed25519",
      batch,
      params: DEFAULT_PARAMS,
      codes: new Uint8Array(batch.count).fill(0xee),
      signal: undefined,
      onDeviceError: (error) => errors.push(error),
      ...job,
    });
  return { gpu, cpu, on, errors, ask };
}

/** Nothing was left behind, and nothing misused. */
export function expectClean(on: DoubleHost): void {
  for (const line of on.reported())
    expect(line).toEndWith("blocks=0 bytes=0 streams=0 events=0 modules=0 faults=0");
}
