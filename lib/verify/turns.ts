/** Long work on the event loop: when it is time to let others in. */

/** Lets the event loop have its turn, where it is time: null, or a promise to wait for. */
export type Turn = () => Promise<void> | null;

/** For one piece of work, which may take `millis` at a time. */
export function turns(millis: number): Turn {
  let start = performance.now();
  return () => {
    if (performance.now() - start < millis) return null;
    return new Promise((resolve) =>
      setImmediate(() => {
        start = performance.now();
        resolve();
      }),
    );
  };
}
