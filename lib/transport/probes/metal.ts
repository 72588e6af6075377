/** What memory of Apple's Metal asks of the host. */
import type { Prerequisite } from "../contract.ts";
import * as hosts from "../host.ts";
import type { Host } from "../host.ts";
import { met, missing } from "./prerequisite.ts";

export const METAL = "/System/Library/Frameworks/Metal.framework";

export function metalPrerequisites(host: Host): Prerequisite[] {
  return [
    isSilicon(host)
      ? met("Apple silicon", host.cpu ?? "arm64")
      : missing(
          "Apple silicon",
          `this is ${host.arch}, whose GPU has a memory of its own`,
          "Needs a Mac with an M1 or later, and Bun for arm64 on it.",
        ),
    hosts.exists(host, METAL)
      ? met("Metal.framework", METAL)
      : missing("Metal.framework", `not at ${METAL}`, "Needs macOS 11 or later."),
  ];
}

/** The GPU's name, or null where there is none with the CPU's memory. */
export function metalDevice(host: Host): string | null {
  return isSilicon(host) && hosts.exists(host, METAL) ? (host.cpu ?? "Apple GPU") : null;
}

function isSilicon({ arch }: Host): boolean {
  return arch === "arm64";
}
