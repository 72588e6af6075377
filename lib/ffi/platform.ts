/** What kind of machine code this process can load. */
import { readFileSync } from "node:fs";

export interface Platform {
  /** As `process.platform`: `linux`, `darwin`, ... */
  readonly platform: NodeJS.Platform;
  /** As `process.arch`: `x64`, `arm64`, ... */
  readonly arch: string;
  /** True where the C library is musl, whose libraries glibc cannot load, nor the other way round. */
  readonly musl: boolean;
}

let here: Platform | undefined;

/** The platform of this process. Looked up once. */
export function platformHere(): Platform {
  here ??= {
    platform: process.platform,
    arch: process.arch,
    musl: process.platform === "linux" && runsOnMusl(),
  };
  return here;
}

/** `linux-x64`, `linux-x64-musl`, `darwin-arm64`: the folder that a shim for this platform lies in. */
export function platformLabel({ platform, arch, musl }: Platform): string {
  return `${platform}-${arch}${musl ? "-musl" : ""}`;
}

// A host may have both C libraries installed; what counts is the loader that this very process was started by.
function runsOnMusl(): boolean {
  try {
    return readFileSync("/proc/self/maps", "latin1").includes("/ld-musl-");
  } catch {
    return false;
  }
}
