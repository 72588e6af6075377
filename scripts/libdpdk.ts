/** This machine's libdpdk, as pkg-config knows it. */

export interface Libdpdk {
  readonly version: string;
  /** Folders of its headers. */
  readonly include: readonly string[];
  /** Folder of its libraries. */
  readonly libdir: string;
}

/** Null where there is none, or no pkg-config to ask. */
export function findLibdpdk(): Libdpdk | null {
  const tool = Bun.which("pkg-config");
  if (process.platform !== "linux" || tool === null) return null;
  const ask = (...words: string[]): string | null => {
    const { exitCode, stdout } = Bun.spawnSync([tool, ...words, "libdpdk"], { stderr: "ignore" });
    return exitCode === 0 ? stdout.toString().trim() : null;
  };
  const version = ask("--modversion");
  const libdir = ask("--variable=libdir");
  if (!version || !libdir) return null;
  const folders = (ask("--cflags-only-I") ?? "").split(/\s+/).filter((word) => word.startsWith("-I"));
  return { version, include: folders.map((word) => word.slice(2)), libdir };
}

/** For `zig build`. */
export function zigOptions({ version, include, libdir }: Libdpdk): string[] {
  return [`-Ddpdk-version=${version}`, `-Ddpdk-include=${include.join(":")}`, `-Ddpdk-libdir=${libdir}`];
}
