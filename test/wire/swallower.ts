/** A host that swallows every attempt to connect. Linux drops them at a listener whose backlog is full; other systems refuse them. */
import { Child } from "../support/child.ts";
import type { Net } from "../support/nodes.ts";

/** A frozen listener with a full backlog. Thawed, it is the idle node `far`. */
export async function swallower(net: Net): Promise<Child & { readonly address: string }> {
  const limits = { handshakes: 4_000, connections: 4_000 };
  const child = await Child.start({
    role: "idle",
    options: { nodeId: "far", listen: "127.0.0.1:0", limits },
  });
  child.freeze();
  for (;;) {
    const connected = await Promise.race([net.raw(child.address), Bun.sleep(200)]);
    if (connected === undefined) return child;
  }
}
