/**
 * Shims that a bundler has put into its output: into a compiled executable, or as files beside a bundle.
 *
 * Bundlers take along what they see in so many words, so every file is named here; the comparisons with `process.platform` and
 * `process.arch` are decided while bundling, and only the files of that target go in. A checkout without `native/` must still
 * compile: inside `try`, a file that is not there is a failure when the program runs, and not before.
 */
/// <reference path="./embedded.d.ts" />
import { isAbsolute, join } from "node:path";
import type { Platform } from "./platform.ts";
import type { ShimName } from "./symbols/index.ts";

/**
 * The path of the shim that this program was bundled with, or null. In a program that was not bundled it is the one in
 * `native/` beside the package. Never rejects.
 */
export async function embeddedShim(name: ShimName, platform: Platform): Promise<string | null> {
  if (platform.platform !== process.platform || platform.arch !== process.arch) return null;
  const file = await bundled(platform.musl ? `${name}-musl` : name);
  if (file === null) return null;
  // A bundle that is no executable names its files as seen from its own folder.
  return isAbsolute(file.default) ? file.default : join(import.meta.dir, file.default);
}

async function bundled(file: string): Promise<{ readonly default: string } | null> {
  try {
    if (process.platform === "linux" && process.arch === "x64") {
      switch (file) {
        case "libzap_uma_cuda":
          return await import("../../native/linux-x64/libzap_uma_cuda.so", { with: { type: "file" } });
        case "libzap_uma_cuda-musl":
          return await import("../../native/linux-x64-musl/libzap_uma_cuda.so", { with: { type: "file" } });
        case "libzap_uma_hip":
          return await import("../../native/linux-x64/libzap_uma_hip.so", { with: { type: "file" } });
        case "libzap_uma_hip-musl":
          return await import("../../native/linux-x64-musl/libzap_uma_hip.so", { with: { type: "file" } });
        case "libzap_dpdk":
          return await import("../../native/linux-x64/libzap_dpdk.so", { with: { type: "file" } });
        case "libzap_dpdk-musl":
          return await import("../../native/linux-x64-musl/libzap_dpdk.so", { with: { type: "file" } });
        case "libzap_gpudirect":
          return await import("../../native/linux-x64/libzap_gpudirect.so", { with: { type: "file" } });
        case "libzap_gpudirect-musl":
          return await import("../../native/linux-x64-musl/libzap_gpudirect.so", { with: { type: "file" } });
      }
    }
    if (process.platform === "linux" && process.arch === "arm64") {
      switch (file) {
        case "libzap_uma_cuda":
          return await import("../../native/linux-arm64/libzap_uma_cuda.so", { with: { type: "file" } });
        case "libzap_uma_cuda-musl":
          return await import("../../native/linux-arm64-musl/libzap_uma_cuda.so", { with: { type: "file" } });
        case "libzap_uma_hip":
          return await import("../../native/linux-arm64/libzap_uma_hip.so", { with: { type: "file" } });
        case "libzap_uma_hip-musl":
          return await import("../../native/linux-arm64-musl/libzap_uma_hip.so", { with: { type: "file" } });
        case "libzap_dpdk":
          return await import("../../native/linux-arm64/libzap_dpdk.so", { with: { type: "file" } });
        case "libzap_dpdk-musl":
          return await import("../../native/linux-arm64-musl/libzap_dpdk.so", { with: { type: "file" } });
        case "libzap_gpudirect":
          return await import("../../native/linux-arm64/libzap_gpudirect.so", { with: { type: "file" } });
        case "libzap_gpudirect-musl":
          return await import("../../native/linux-arm64-musl/libzap_gpudirect.so", {
            with: { type: "file" },
          });
      }
    }
    if (process.platform === "darwin" && process.arch === "arm64") {
      switch (file) {
        case "libzap_uma_metal":
          return await import("../../native/darwin-arm64/libzap_uma_metal.dylib", { with: { type: "file" } });
      }
    }
    if (process.platform === "darwin" && process.arch === "x64") {
      switch (file) {
        case "libzap_uma_metal":
          return await import("../../native/darwin-x64/libzap_uma_metal.dylib", { with: { type: "file" } });
      }
    }
  } catch {
    // Not there when this program was bundled.
  }
  return null;
}
