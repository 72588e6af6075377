/** Waiting for something to become true, and for promises that must fail. */

/** Resolves as soon as `condition` holds; rejects with `what` after `millis`. */
export async function until(condition: () => boolean, what: string, millis = 4_000): Promise<void> {
  const deadline = performance.now() + millis;
  while (!condition()) {
    if (performance.now() > deadline) throw new Error(`waited ${millis} ms in vain for: ${what}`);
    await Bun.sleep(2);
  }
}

/** Resolves with a value that has stayed the same for `quietMillis`; rejects with `what` after `millis`. */
export async function untilStable<T>(
  read: () => T,
  what: string,
  { quietMillis = 300, millis = 10_000 } = {},
): Promise<T> {
  const deadline = performance.now() + millis;
  for (let value = read(), since = performance.now(); ; await Bun.sleep(5)) {
    const next = read();
    const now = performance.now();
    if (next !== value) [value, since] = [next, now];
    else if (now - since >= quietMillis) return value;
    if (now > deadline) throw new Error(`waited ${millis} ms in vain for: ${what}`);
  }
}

/** The result of `promise`, or a rejection that says `what` did not come within `millis`. */
export async function within<T>(promise: Promise<T>, what: string, millis = 4_000): Promise<T> {
  let timer: Timer | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`waited ${millis} ms in vain for: ${what}`)), millis);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** The error that `promise` rejects with; an error of its own where it resolves or takes too long. */
export async function failureOf(
  promise: Promise<unknown>,
  millis = 4_000,
): Promise<Error & { code?: string }> {
  const outcome = await within(
    promise.then(
      (value) => ({ value }),
      (error: unknown) => ({ error: error as Error & { code?: string } }),
    ),
    "a rejection",
    millis,
  );
  if ("error" in outcome) return outcome.error;
  throw new Error(`a rejection was expected, got ${Bun.inspect(outcome.value, { depth: 0 })}`);
}

/** Whether `promise` has settled by now (a few turns of the loop later). */
export async function isSettled(promise: Promise<unknown>): Promise<boolean> {
  let settled = false;
  const note = (): void => void (settled = true);
  promise.then(note, note);
  for (let i = 0; i < 3; i++) await Bun.sleep(1);
  return settled;
}
