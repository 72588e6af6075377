/** How a call that waits is told of its end, and stops listening to its signal then. */
export interface Settle {
  readonly done: () => void;
  readonly failed: (error: Error) => void;
}

/** `onAbort` is called once, with the signal's reason, unless one of the two was called before. */
export function settling(
  resolve: () => void,
  reject: (error: Error) => void,
  signal: AbortSignal | undefined,
  onAbort: (reason: unknown) => void,
): Settle {
  if (signal === undefined) return { done: resolve, failed: reject };
  const listener = (): void => onAbort(signal.reason);
  signal.addEventListener("abort", listener, { once: true });
  return {
    done: () => (signal.removeEventListener("abort", listener), resolve()),
    failed: (error) => (signal.removeEventListener("abort", listener), reject(error)),
  };
}
