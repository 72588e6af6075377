/** Whether the tests in the guest run here: a boot takes ten seconds, and the first one downloads 75 MB. */
import { hostFault } from "./packages.ts";

const set = (name: string) => ["1", "true", "yes"].includes((process.env[name] ?? "").toLowerCase());
const here = process.platform === "linux" && process.arch === "x64";
/** Asked for by name: then a host that cannot run them is a failure, anywhere. In CI only where the guest can be had at all. */
const asked = set("ZAP_TEST_RDMA") || (set("CI") && here);

/** For `describe.skipIf`, and for the name of what is skipped. */
export const rdma: { readonly skip: boolean; readonly because: string } = {
  skip: !asked,
  because: asked ? "" : ` (skipped: bun run test:rdma runs it${here ? "" : ", on Linux x86-64"})`,
};

/** Fails the tests at their beginning, and with a remedy, where they were asked for and cannot run. */
const fault = asked ? hostFault() : null;
if (fault !== null) throw new Error(fault);
