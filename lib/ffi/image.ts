/**
 * Whether a file is a shared library that this process could load, and all of it: found out by reading its headers.
 *
 * The system's loader maps a library before it looks at it closely. Of one that was cut off on its way here it maps pages that the
 * file does not have, and touching those ends the process with SIGBUS.
 */
import { elfFault, type Extent } from "./elf.ts";
import { openImage, type Image, type OpenImage } from "./image-bytes.ts";
import { machoFault } from "./macho.ts";
import { platformLabel, type Platform } from "./platform.ts";

/**
 * What keeps the library at `path` from being loaded on `platform`, in words that fit behind its path; null where nothing was
 * found. `path` may lie inside a compiled executable. Never throws.
 */
export function imageFault(path: string, platform: Platform, extent: Extent = "whole"): string | null {
  let file: OpenImage;
  try {
    file = openImage(path);
  } catch (error) {
    return `cannot be read: ${error instanceof Error ? error.message : String(error)}`;
  }
  try {
    return file.isFile ? fault(file, platform, extent) : "is no file";
  } catch (error) {
    return `cannot be read: ${error instanceof Error ? error.message : String(error)}`;
  } finally {
    file.close();
  }
}

function fault(image: Image, platform: Platform, extent: Extent): string | null {
  if (image.bytes === 0) return "is empty";
  switch (platform.platform) {
    case "linux":
      return elfFault(image, platform, extent);
    case "darwin":
      return machoFault(image, platform);
    default:
      return `is no library for ${platformLabel(platform)}`;
  }
}
