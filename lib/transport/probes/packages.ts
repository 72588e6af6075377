/** The command that installs something, in the words of the distribution at hand. */
import { distribution, type Host } from "../host.ts";

type Family = "debian" | "fedora" | "suse" | "arch";

const COMMANDS = {
  "libibverbs.so.1": {
    debian: "sudo apt-get install libibverbs1 ibverbs-providers",
    fedora: "sudo dnf install libibverbs",
    suse: "sudo zypper install libibverbs1",
    arch: "sudo pacman -S rdma-core",
  },
  libdpdk: {
    debian: "sudo apt-get install dpdk libdpdk-dev",
    fedora: "sudo dnf install dpdk dpdk-devel",
    suse: "sudo zypper install dpdk dpdk-devel",
    arch: "sudo pacman -S dpdk",
  },
  "libcuda.so.1": {
    debian: "sudo apt-get install nvidia-driver libcuda1",
    fedora: "sudo dnf install nvidia-driver-cuda",
    suse: "sudo zypper install nvidia-compute-G06",
    arch: "sudo pacman -S nvidia-open nvidia-utils",
  },
  "libamdhip64.so": {
    debian: "sudo apt-get install libamdhip64-dev",
    fedora: "sudo dnf install rocm-hip",
    arch: "sudo pacman -S hip-runtime-amd",
  },
} as const satisfies Record<string, Partial<Record<Family, string>>>;

const FAMILIES: Readonly<Record<string, Family>> = {
  debian: "debian",
  ubuntu: "debian",
  fedora: "fedora",
  rhel: "fedora",
  centos: "fedora",
  suse: "suse",
  opensuse: "suse",
  arch: "arch",
};

/** What has to be set up before NVIDIA's command finds anything. */
const NVIDIA_SOURCES: Partial<Record<Family, string>> = {
  debian: "Once Debian's non-free component is enabled:",
  fedora: "Once NVIDIA's own repository is set up:",
  suse: "Once NVIDIA's own repository is set up:",
};

/** A command, with a sentence before it where it takes more than that; a sentence alone where we know none for this system. */
export function install(host: Host, what: keyof typeof COMMANDS): string[] {
  const ids = distribution(host);
  const family = ids.map((id) => FAMILIES[id]).find((known) => known !== undefined);
  const commands: Partial<Record<Family, string>> = COMMANDS[what];
  const command = family && commands[family];
  if (!family || !command) return [`Install the package of your system that brings ${what}.`];
  if (what !== "libcuda.so.1") return [command];

  // Ubuntu names a package for each driver version; its own tool picks the right one.
  if (ids.includes("ubuntu")) return ["sudo ubuntu-drivers install"];
  const source = NVIDIA_SOURCES[family];
  return source === undefined ? [command] : [source, command];
}
