/** Whether DPDK's environment runs in this process: then its own memory is not asked for again. */
let running = false;

/** A node has opened, and the environment with it; it stays for the life of the process. */
export function environmentStarted(): void {
  running = true;
}

export function environmentRuns(): boolean {
  return running;
}
