/**
 * The guest's root, as two cpio archives that the kernel unpacks one after the other: the base (busybox, the modules, libibverbs and tools), and
 * what one job adds. Neither is compressed: an emulated processor takes longer to unpack than QEMU to read.
 *
 * The root has a merged /usr as Debian has it; all libraries lie in one folder that the loader knows by itself.
 */
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { GuestError } from "./error.ts";
import { findTool, type Parts } from "./packages.ts";
import { run, tryRun } from "./run.ts";

/** Loaded by the init script; `modprobe` adds what they need and puts it into order. rxe needs crc32 and does not say so. */
const MODULES = ["virtio_pci", "9pnet_virtio", "9p", "crc32_generic", "rdma_rxe", "veth"];
/** There for jobs that want them: `insmod /modules/NAME.ko`. rdma_ucm comes with all that it needs, loaded. */
const SPARE_MODULES = ["sch_netem"];
const CM_MODULES = ["rdma_ucm"];

/**
 * Whatever runs programs: busybox's shell, `env` and `timeout` take its own programs for those on the PATH, so that `ip` is not the real
 * one. Every Debian has these.
 */
const HOST_TOOLS: readonly string[] = ["dash", "env", "timeout"];

/** Of the packages. */
const TOOLS: readonly string[] = [
  ...["ip", "tc", "rdma", "ss", "bridge"],
  ...["ibv_devices", "ibv_devinfo", "ibv_rc_pingpong"],
  ...["send", "read", "write"].flatMap((verb) => [`ib_${verb}_bw`, `ib_${verb}_lat`]),
];
/** By dlopen, so that ldd does not tell of them. libgcc_s: glibc's, when a thread ends. */
const PROVIDER = "libibverbs/librxe-rdmav34.so";
const LIBRARIES: readonly string[] = ["libibverbs.so.1", "librdmacm.so.1"];
const LIBGCC = "/lib/x86_64-linux-gnu/libgcc_s.so.1";

const LIB = "usr/lib/x86_64-linux-gnu";

/** What a job adds to the root. */
export interface Additions {
  /** Executables and shared libraries of the host; they and what they load come to /job/bin and the library folder. */
  readonly programs: readonly string[];
  /** Files, by their path in the guest without the leading slash. */
  readonly files: Readonly<Record<string, string>>;
}

/** Writes both archives, one after the other, into the file `path`. */
export function writeImage(parts: Parts, additions: Additions, path: string): void {
  const folder = mkdtempSync(join(tmpdir(), "zap-guest-image-"));
  try {
    const root = new Root(folder, parts);
    base(root, parts);
    for (const program of additions.programs) root.program(program, `job/bin/${basename(program)}`);
    // Bun itself comes over 9p; its libraries are the host's.
    root.librariesOf([process.execPath]);
    for (const [name, text] of Object.entries(additions.files)) root.text(name, text);
    root.archive(path);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function base(root: Root, parts: Parts): void {
  for (const name of ["dev", "proc", "sys", "run", "tmp", "project", "bun", "job/bin", "modules", "root"])
    root.folder(name);
  for (const name of ["usr/bin", "usr/sbin", "usr/lib64", LIB]) root.folder(name);
  for (const name of ["bin", "sbin", "lib", "lib64"]) root.link(`usr/${name}`, name);
  root.program(findTool("busybox")!, "usr/bin/busybox");
  for (const name of HOST_TOOLS) root.program(onHost(name), `usr/bin/${name}`);
  for (const name of TOOLS) root.program(inPackages(parts, name), `usr/bin/${name}`);
  for (const name of LIBRARIES) root.library(join(parts.folder, LIB, name));
  // Here and not in the guest, where 300 processes take seconds. A name that is there, like `ip`, stays what it is.
  for (const name of run([findTool("busybox")!, "--list"])
    .trim()
    .split("\n"))
    if (!root.has(`usr/bin/${name}`)) root.link(name === "sh" ? "dash" : "busybox", `usr/bin/${name}`);
  root.folder(`${LIB}/libibverbs`);
  root.program(join(parts.folder, LIB, PROVIDER), `${LIB}/${PROVIDER}`);
  root.text("etc/libibverbs.d/rxe.driver", "driver rxe\n");
  if (existsSync(LIBGCC)) root.library(LIBGCC);
  root.text("etc/passwd", "root:x:0:0:root:/tmp:/bin/dash\n");
  root.text("etc/group", "root:x:0:\n");
  root.text("etc/hosts", "127.0.0.1 localhost\n::1 localhost\n");
  root.text("modules/order", root.modules(MODULES).join("\n") + "\n");
  root.modules(SPARE_MODULES);
  root.text("modules/cm-order", root.modules(CM_MODULES).join("\n") + "\n");
  root.script("init", readFileSync(join(import.meta.dir, "init.sh"), "utf8"));
}

function onHost(name: string): string {
  const path = Bun.which(name);
  if (path === null) throw new GuestError("host", `${name} is not here, which every Debian has`);
  return path;
}

function inPackages({ folder }: Parts, name: string): string {
  const places = ["usr/bin", "bin", "usr/sbin", "sbin"].map((place) => join(folder, place, name));
  const path = places.find((place) => existsSync(place));
  if (path === undefined)
    throw new GuestError("host", `none of the guest's packages has the program ${name}`);
  return path;
}

/** The folder that becomes the guest's root. */
class Root {
  private readonly at: string;
  private readonly parts: Parts;
  /** Whose libraries are still to be looked up: one call of ldd for all. */
  private readonly loaded: string[] = [];

  constructor(at: string, parts: Parts) {
    this.at = at;
    this.parts = parts;
  }

  folder(name: string): void {
    mkdirSync(join(this.at, name), { recursive: true });
  }

  link(target: string, name: string): void {
    symlinkSync(target, join(this.at, name));
  }

  has(name: string): boolean {
    return existsSync(join(this.at, name));
  }

  text(name: string, text: string): void {
    this.folder(join(name, ".."));
    writeFileSync(join(this.at, name), text);
  }

  script(name: string, text: string): void {
    this.text(name, text);
    chmodSync(join(this.at, name), 0o755);
  }

  /** A file of the host, and with it the libraries that it loads. */
  program(path: string, name: string): void {
    if (!existsSync(path)) throw new GuestError("host", `the guest is to have ${path}, which is not there`);
    copyFileSync(path, join(this.at, name));
    chmodSync(join(this.at, name), 0o755);
    this.loaded.push(path);
  }

  library(path: string): void {
    this.program(path, `${LIB}/${basename(path)}`);
  }

  librariesOf(paths: readonly string[]): void {
    this.loaded.push(...paths);
  }

  /** Copies modules with all that they need; their file names in the order of loading. */
  modules(names: readonly string[]): string[] {
    const { folder, release } = this.parts;
    const words = [findTool("modprobe")!, "-d", folder, "-S", release, "--show-depends", "-a", ...names];
    const paths = run(words, { env: { MODPROBE_OPTIONS: "" } })
      .split("\n")
      .flatMap((line) => /^insmod (\S+)/.exec(line)?.[1] ?? []);
    const unique = [...new Set(paths)];
    for (const path of unique) this.module(path);
    return unique.map((path) => basename(path).replace(/\.xz$/, ""));
  }

  private module(path: string): void {
    const name = join(this.at, "modules", basename(path).replace(/\.xz$/, ""));
    if (!path.endsWith(".xz")) copyFileSync(path, name);
    else run(["sh", "-c", 'xz --decompress --stdout "$1" >"$2"', "xz", path, name]);
  }

  /** Adds the libraries that are still missing, and writes it all to the file `path`. */
  archive(path: string): void {
    this.addLibraries();
    // The names come from `find` in the order of the folder; a folder comes before what is in it. Owner: root, whoever builds it.
    const script = 'cd "$1" && find . | cpio --create --format=newc --owner=+0:+0 --quiet >"$2"';
    run(["sh", "-c", script, "archive", this.at, path]);
  }

  private addLibraries(): void {
    const env = { LD_LIBRARY_PATH: this.parts.libraries.join(":"), LC_ALL: "C" };
    // A static program makes ldd end with 1, which says nothing about the others.
    const { out } = tryRun(["ldd", ...new Set(this.loaded)], { env });
    let program = this.loaded[0] ?? "";
    for (const line of out.split("\n")) {
      if (/^\S.*:$/.test(line)) program = line.slice(0, -1);
      const missing = /^\s+(\S+) => not found/.exec(line)?.[1];
      if (missing !== undefined)
        throw new GuestError(
          "host",
          `${program} loads ${missing}, which is neither on this host nor in the guest's packages`,
        );
      const [, name, found] = /^\s+(\S+)(?: => (\S+))? \(0x/.exec(line) ?? [];
      if (name !== undefined) this.addLibrary(name, found ?? name);
    }
  }

  /** `name` is how programs ask for it: the loader by its path, all others by a bare name. */
  private addLibrary(name: string, path: string): void {
    if (!path.startsWith("/")) return;
    const place = name.startsWith("/lib64/") ? `usr${name}` : `${LIB}/${basename(name)}`;
    if (existsSync(join(this.at, place))) return;
    copyFileSync(path, join(this.at, place));
    chmodSync(join(this.at, place), 0o755);
  }
}
