/** What the parts of one dpdk wire share. */
import { NativeHub } from "../native/hub.ts";
import type { Engine } from "./engine.ts";
import type { DpdkOptions } from "./options.ts";

export class Hub extends NativeHub<Engine, DpdkOptions> {}
