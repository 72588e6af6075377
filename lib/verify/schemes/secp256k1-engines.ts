/**
 * Libraries that verify ECDSA over secp256k1, fastest first: libsecp256k1 as a native addon, the same compiled to WebAssembly, and
 * @noble/curves, which loads everywhere.
 */
import { secp256k1 } from "@noble/curves/secp256k1.js";
import { CODE } from "../contract.ts";

export interface Secp256k1Engine {
  readonly library: string;
  /**
   * `signature` is r and s, in range, S low; `digest` has 32 bytes; `key` 33 or 65 with a first byte of 2, 3 or 4. Gives `CODE.valid`,
   * `CODE.signature`, or `CODE.publicKey` for a key that is no point.
   */
  verify(signature: Uint8Array, digest: Uint8Array, key: Uint8Array): number;
}

/** The fastest that loads here. */
export async function bestSecp256k1(): Promise<Secp256k1Engine> {
  return nativeSecp256k1() ?? (await wasmSecp256k1()) ?? nobleSecp256k1;
}

interface Addon {
  /** 0 valid, 1 a signature that does not parse, 2 a key that does not, 3 not valid. */
  ecdsaVerify(signature: Uint8Array, digest: Uint8Array, key: Uint8Array): number;
}

const ADDON_CODES: readonly (number | undefined)[] = [CODE.valid, undefined, CODE.publicKey, CODE.signature];

/** The addon of the package `secp256k1`; null where it has none for this platform. Its fallback in JavaScript is never loaded. */
export function nativeSecp256k1(): Secp256k1Engine | null {
  const addon = loadAddon();
  if (addon === null) return null;
  return {
    library: "libsecp256k1 (native)",
    verify(signature, digest, key) {
      const code = ADDON_CODES[addon.ecdsaVerify(signature, digest, key)];
      if (code === undefined) throw new Error("libsecp256k1 refuses a signature with r and s in range");
      return code;
    },
  };
}

/** Each name stands in full, so that `bun build --compile` embeds the file. */
const ADDONS: Readonly<Record<string, readonly (() => { readonly Secp256k1: new () => Addon })[]>> = {
  "linux-x64": [
    () => require("secp256k1/prebuilds/linux-x64/secp256k1.glibc.node"),
    () => require("secp256k1/prebuilds/linux-x64/secp256k1.musl.node"),
  ],
  "darwin-arm64": [() => require("secp256k1/prebuilds/darwin-arm64/secp256k1.node")],
  "win32-x64": [() => require("secp256k1/prebuilds/win32-x64/secp256k1.node")],
};

function loadAddon(): Addon | null {
  for (const load of ADDONS[`${process.platform}-${process.arch}`] ?? []) {
    try {
      return new (load().Secp256k1)();
    } catch {
      // Not for this C library, or not installed: the next one.
    }
  }
  return null;
}

/** The package `tiny-secp256k1`; null where its file cannot be read, as in an executable that was built from this. */
export async function wasmSecp256k1(): Promise<Secp256k1Engine | null> {
  try {
    const { verify, isPoint } = await import("tiny-secp256k1");
    return {
      library: "libsecp256k1 (WebAssembly)",
      verify(signature, digest, key) {
        if (!isPoint(key)) return CODE.publicKey;
        return verify(digest, key, signature, true) ? CODE.valid : CODE.signature;
      },
    };
  } catch {
    return null;
  }
}

export const nobleSecp256k1: Secp256k1Engine = {
  library: "@noble/curves",
  verify(signature, digest, key) {
    if (!secp256k1.utils.isValidPublicKey(key)) return CODE.publicKey;
    const valid = secp256k1.verify(signature, digest, key, { prehash: false, lowS: true });
    return valid ? CODE.valid : CODE.signature;
  },
};
