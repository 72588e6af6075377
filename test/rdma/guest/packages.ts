/**
 * What the guest is made of: Debian packages, downloaded and unpacked into `.tools/rdma-guest/`, none of them installed.
 *
 * Layout of that folder: `packages/` holds the downloaded files, `parts-KEY/` what was unpacked from one set of them, where KEY is a hash of
 * their names, versions and checksums; `current.json` says which set belonged to which state of the package lists, so that asking
 * again costs nothing until `apt-get update` has run.
 */
import { createHash } from "node:crypto";
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join, resolve } from "node:path";
import { GuestError } from "./error.ts";
import { tryRun, run } from "./run.ts";

export const ROOT: string = resolve(import.meta.dir, "..", "..", "..");
export const CACHE: string = join(ROOT, ".tools", "rdma-guest");

/** Programs that must be installed, with the package of each. */
const TOOLS: readonly (readonly [tool: string, pkg: string])[] = [
  ["qemu-system-x86_64", "qemu-system-x86"],
  ["busybox", "busybox-static"],
  ["cpio", "cpio"],
  ["depmod", "kmod"],
  ["modprobe", "kmod"],
];

/** Its only dependency is the kernel of the day: older ones leave the mirror. */
const KERNEL = "linux-image-amd64";
const WANTED: readonly string[] = [
  "libibverbs1",
  "ibverbs-providers",
  "ibverbs-utils",
  "iproute2",
  "perftest",
];

/** Of the kernel's package: the rest of it is 300 MB. */
const KERNEL_PARTS: readonly string[] = [
  "./boot/vmlinuz-*",
  "*/modules.builtin*",
  "*/modules.order",
  ...["drivers/virtio", "drivers/infiniband", "net/9p", "fs/9p", "fs/netfs", "fs/fscache", "fs/configfs"].map(
    (folder) => `*/kernel/${folder}/*`,
  ),
  ...[
    "crypto/crc32",
    "net/ipv4/udp_tunnel",
    "net/ipv6/ip6_udp_tunnel",
    "drivers/net/veth",
    "net/sched/sch_netem",
  ].map((stem) => `*/kernel/${stem}*.ko*`),
];

/** Unpacked packages. */
export interface Parts {
  /** Where they are unpacked; below it `boot`, `usr/lib` and so on. */
  readonly folder: string;
  /** The release of the kernel, as `uname -r` says it. */
  readonly release: string;
  readonly kernel: string;
  /** Folders with shared libraries of the packages. */
  readonly libraries: readonly string[];
}

/**
 * Downloads and unpacks what is not there yet.
 * @throws GuestError where this is not Debian on x86-64, a tool is not installed, or apt cannot supply a package.
 */
export function parts(): Parts {
  checkHost();
  mkdirSync(join(CACHE, "packages"), { recursive: true });
  const lists = String(statSync("/var/lib/apt/lists", { throwIfNoEntry: false })?.mtimeMs ?? "none");
  const folder = known(lists) ?? fetched(lists);
  const kernel = readdirSync(join(folder, "boot")).find((name) => name.startsWith("vmlinuz-"))!;
  return {
    folder,
    release: kernel.slice("vmlinuz-".length),
    kernel: join(folder, "boot", kernel),
    libraries: ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu", "usr/lib", "lib"]
      .map((name) => join(folder, name))
      .filter((path) => existsSync(path)),
  };
}

/** Why this host cannot run the guest at all, or null. */
export function hostFault(): string | null {
  if (process.platform !== "linux" || process.arch !== "x64") return "the RDMA guest needs Linux on x86-64";
  if (Bun.which("apt-get") === null || Bun.which("dpkg-deb") === null || !existsSync("/etc/debian_version"))
    return "the RDMA guest is made of Debian's packages, and this is no Debian: apt-get and dpkg-deb are needed";
  const missing = new Set(TOOLS.filter(([tool]) => findTool(tool) === null).map(([, pkg]) => pkg));
  if (missing.size === 0) return null;
  const line = `apt-get install --no-install-recommends ${[...missing].join(" ")}`;
  return `the RDMA guest needs packages that are not installed; as root: ${line}`;
}

function checkHost(): void {
  const fault = hostFault();
  if (fault !== null) throw new GuestError("host", fault);
}

/** kmod's programs are outside of an ordinary user's PATH. */
export function findTool(name: string): string | null {
  return Bun.which(name, { PATH: `${process.env["PATH"] ?? ""}:/usr/sbin:/sbin` });
}

interface Current {
  readonly lists: string;
  readonly wanted: string;
  readonly folder: string;
}

const CURRENT = join(CACHE, "current.json");
/** A change of what is unpacked must not be taken for what lies there already. */
const RECIPE = JSON.stringify([KERNEL, WANTED, KERNEL_PARTS]);

function known(lists: string): string | null {
  if (!existsSync(CURRENT)) return null;
  const current = JSON.parse(readFileSync(CURRENT, "utf8")) as Current;
  const same = current.lists === lists && current.wanted === RECIPE;
  const folder = join(CACHE, current.folder);
  return same && existsSync(folder) ? folder : null;
}

function fetched(lists: string): string {
  const names = packageNames();
  const files = packageFiles(names);
  const key = createHash("sha256")
    .update(`${RECIPE}\n${files.map(({ line }) => line).join("\n")}`)
    .digest("hex")
    .slice(0, 16);
  const folder = `parts-${key}`;
  if (!existsSync(join(CACHE, folder))) {
    apt(["apt-get", "download", "-qq", ...names], join(CACHE, "packages"));
    unpack(files, folder);
    prune(files, folder);
  }
  const current: Current = { lists, wanted: RECIPE, folder };
  writeFileSync(`${CURRENT}.${process.pid}`, JSON.stringify(current));
  renameSync(`${CURRENT}.${process.pid}`, CURRENT);
  return join(CACHE, folder);
}

/**
 * The kernel's image, what is wanted, and the libraries that it depends on. Everything else of the dependencies is of no use in the guest,
 * or is in every Debian and taken from the host, like libc, whose loader must be the one that the host's programs know.
 */
function packageNames(): string[] {
  const only = ["recommends", "suggests", "conflicts", "breaks", "replaces", "enhances", "pre-depends"];
  const words = [
    "apt-cache",
    "depends",
    "--recurse",
    ...only.map((name) => `--no-${name}`),
    KERNEL,
    ...WANTED,
  ];
  const graph = new Map<string, string[]>();
  let at: string[] = [];
  for (const line of apt(words).split("\n")) {
    const [, needed] = /^ +Depends: ([^<\s]+)/.exec(line) ?? [];
    if (needed !== undefined) at.push(needed);
    else if (/^[a-z0-9]/.test(line)) graph.set(line.trim(), (at = []));
  }
  const [image] = graph.get(KERNEL) ?? [];
  if (image === undefined || !image.startsWith("linux-image-"))
    throw new GuestError("host", `apt knows no ${KERNEL}; as root: apt-get update`);
  const names = new Set<string>([...WANTED]);
  for (const name of names) {
    for (const needed of graph.get(name) ?? [])
      if (needed.startsWith("lib") && !/^lib(c6|gcc-s1|crypt1)$/.test(needed)) names.add(needed);
  }
  return [image, ...names].sort();
}

interface PackageFile {
  readonly name: string;
  readonly line: string;
}

function packageFiles(names: readonly string[]): PackageFile[] {
  const lines = apt(["apt-get", "download", "--print-uris", "-qq", ...names]).split("\n");
  const files = lines.flatMap((line) => {
    // 'URI' NAME SIZE CHECKSUM; the URI depends on the mirror alone.
    const [, name, size, checksum] = /^'[^']*' (\S+) (\d+)(?: (\S+))?/.exec(line) ?? [];
    return name === undefined ? [] : [{ name, line: `${name} ${size} ${checksum ?? ""}` }];
  });
  if (files.length !== names.length)
    throw new GuestError(
      "host",
      `apt offers ${files.length} of ${names.length} packages: ${names.join(" ")}`,
    );
  return files.sort((a, b) => (a.name < b.name ? -1 : 1));
}

function apt(words: readonly string[], cwd: string = ROOT): string {
  // APT warns where it cannot drop root's rights for a folder that only root may write.
  const { code, out, error } = tryRun(words, {
    cwd,
    env: { LC_ALL: "C", DEBIAN_FRONTEND: "noninteractive" },
  });
  if (code === 0) return out;
  const advice = "where the package lists are old or missing, as root: apt-get update";
  throw new GuestError("host", `${words.slice(0, 2).join(" ")} failed; ${advice}\n${error.trim()}`);
}

function unpack(files: readonly PackageFile[], folder: string): void {
  const fresh = join(CACHE, `${folder}.${process.pid}`);
  mkdirSync(fresh, { recursive: true });
  for (const { name } of files) {
    const path = join(CACHE, "packages", name);
    if (!name.startsWith("linux-image-")) run(["dpkg-deb", "--extract", path, fresh]);
    else {
      const words = KERNEL_PARTS.map((part) => `'${part}'`).join(" ");
      const script = `set -o pipefail; dpkg-deb --fsys-tarfile "$1" | tar --extract --directory "$2" --no-same-owner --wildcards ${words}`;
      run(["bash", "-c", script, "unpack", path, fresh]);
    }
  }
  const release = readdirSync(join(fresh, "boot"))[0]!.slice("vmlinuz-".length);
  // Debian's kernels of late have their modules below usr/lib, which the rest of the world calls lib.
  if (!existsSync(join(fresh, "lib", "modules"))) {
    mkdirSync(join(fresh, "lib"), { recursive: true });
    renameSync(join(fresh, "usr", "lib", "modules"), join(fresh, "lib", "modules"));
  }
  run([findTool("depmod")!, "-b", fresh, release]);
  // Somebody else's may be there by now, and in use.
  if (existsSync(join(CACHE, folder))) rmSync(fresh, { recursive: true, force: true });
  else renameSync(fresh, join(CACHE, folder));
}

/** Packages and parts of earlier versions; nobody asks for them again. */
function prune(files: readonly PackageFile[], folder: string): void {
  const kept = new Set(files.map(({ name }) => name));
  for (const name of readdirSync(join(CACHE, "packages")))
    if (name.endsWith(".deb") && !kept.has(name)) rmSync(join(CACHE, "packages", name), { force: true });
  for (const name of readdirSync(CACHE))
    if (/^parts-[0-9a-f]{16}$/.test(name) && name !== folder)
      rmSync(join(CACHE, name), { recursive: true, force: true });
}
