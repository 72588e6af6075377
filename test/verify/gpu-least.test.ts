/** From which size on a device gets a batch. */
import { expect, test } from "bun:test";
import { DEFAULT_PARAMS, CODE } from "../../lib/verify/contract.ts";
import { checkSample, cpuMicros, leastItems, sample, SAMPLES } from "../../lib/verify/backends/gpu-least.ts";
import { ed25519 } from "../../lib/verify/schemes/ed25519.ts";

test("the sample is valid, and a device that says otherwise is refused", () => {
  const batch = sample(20);
  const codes = new Uint8Array(20).fill(99);
  ed25519.verify(batch, 0, 20, DEFAULT_PARAMS, codes);
  expect([...codes]).toEqual(Array(20).fill(CODE.valid));
  checkSample(codes, "a device");
  for (const wrong of [CODE.signature, CODE.signatureEncoding, 255])
    expect(() => checkSample(codes.with(19, wrong), "a device")).toThrow(
      "a device refuses a valid signature (RFC 8032, test 1)",
    );
});

test("is where the lines of both cross", () => {
  const [few, many] = SAMPLES;
  // 4 ms whatever the size, and 50 us for each: from 80 on.
  expect(leastItems(4_000, 4_000, 50)).toBe(80);
  // The same on eight cores.
  expect(leastItems(4_000, 4_000, 50 / 8)).toBe(640);
  // 1 ms, and 5 us for each.
  expect(leastItems(1_000 + few * 5, 1_000 + many * 5, 10)).toBe(200);
  // Never fewer than 64, and never where each takes longer than on the CPU.
  expect(leastItems(1, 1, 1_000)).toBe(64);
  expect(leastItems(few * 60, many * 60, 50)).toBe(Infinity);
  expect(leastItems(few * 50, many * 50, 50)).toBe(Infinity);
  // Times are not exact: more items may seem to take less.
  expect(leastItems(4_000, 3_000, 50)).toBe(80);
});

test("the CPU's time is that of all workers together", () => {
  const one = cpuMicros(1);
  expect(one).toBeGreaterThan(1);
  expect(cpuMicros(1_000)).toBeLessThan(one);
  expect(cpuMicros(0)).toBeGreaterThan(1);
});
