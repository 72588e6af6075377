/**
 * Loads a library cut off at many lengths, and with zeros from there to its end, in a process of its own: if the loader ever gets to see
 * one of them, it may be the end of this process. Arguments: the whole library, an empty folder. Says as JSON what came of it.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { tryShim, type ShimName } from "../../lib/ffi/index.ts";
import { probeUma } from "../../lib/transport/probes/index.ts";
import { forgetHosts, madeUpHost, nvidia } from "../probe/made-up-host.ts";

export interface CutOffReport {
  readonly bytes: number;
  readonly tried: number;
  /** Lengths at which it was loaded. */
  readonly loaded: number[];
  /** Lengths at which it was loaded with zeros behind. The last 31 bytes are none that a loader looks at, and not tried. */
  readonly zerosLoaded: number[];
  /** What was said of it, without paths and numbers. */
  readonly said: string[];
  /** What the probe's row of the shim said in the end, one for each length that was probed. */
  readonly rows: string[];
}

async function main(library: string, folder: string): Promise<CutOffReport> {
  const whole = new Uint8Array(readFileSync(library));
  const name = library.split("/").at(-1)!;
  const path = join(folder, name);
  const env = { ZAP_LIB_DIR: folder };
  const shim = name.split(".")[0] as ShimName;
  const host = { ...madeUpHost(nvidia), env };

  const lengths = new Set<number>([0, 1, 3, 4, 5, 16, 63, 64, 65, whole.length - 1, whole.length]);
  for (let at = 0; at < whole.length; at += Math.max(1, Math.floor(whole.length / 400))) lengths.add(at);
  for (let at = 0; at <= whole.length; at += 4096)
    for (const by of [-1, 0, 1]) lengths.add(Math.max(0, at + by));
  for (let back = 0; back < 256; back += 8) lengths.add(whole.length - back);

  const [loaded, zerosLoaded]: [number[], number[]] = [[], []];
  const [said, rows] = [new Set<string>(), new Set<string>()];
  for (const length of [...lengths].sort((a, b) => a - b)) {
    if (length > whole.length) continue;
    if (length <= whole.length - 32) {
      writeFileSync(path, Uint8Array.from(whole).fill(0, length));
      const found = await tryShim(shim, env);
      if ("shim" in found) zerosLoaded.push(length);
      else said.add(plain(found.seen));
    }
    // Only once, at the end: a file that is loaded must not be written to.
    writeFileSync(path, whole.subarray(0, length));
    const found = await tryShim(shim, env);
    if ("shim" in found) loaded.push(length);
    else said.add(plain(found.seen));
    if (length < whole.length && length % 7 === 0) {
      const row = (await probeUma(host)).prerequisites.find((each) => each.name === shim);
      rows.add(row === undefined ? "no row" : `${row.met}: ${plain(row.seen)}`);
    }
  }
  return { bytes: whole.length, tried: lengths.size, loaded, zerosLoaded, said: [...said], rows: [...rows] };
}

function plain(text: string): string {
  return text.replaceAll(/\/\S+/g, "FILE").replaceAll(/\d+/g, "N");
}

const [library, folder] = process.argv.slice(2);
console.log(JSON.stringify(await main(library!, folder!)));
forgetHosts();
