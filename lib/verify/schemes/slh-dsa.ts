/**
 * SLH-DSA (FIPS 205, algorithm 24: pure, with a context), all twelve sets. Without a context liboqs as WebAssembly verifies where it loads;
 * with one, and elsewhere, @noble/post-quantum, some three times slower.
 */
import * as noble from "@noble/post-quantum/slh-dsa.js";
import { CODE, type SchemeVerifier, type SlhDsaScheme } from "../contract.ts";
import { verifyEach, type Lengths } from "./items.ts";

/** Bytes of a signature: FIPS 205, table 2. A key is two hashes. */
const SIGNATURE_BYTES = {
  "128s": 7856,
  "128f": 17088,
  "192s": 16224,
  "192f": 35664,
  "256s": 29792,
  "256f": 49856,
} as const;

/** Messages above this are not copied into WebAssembly memory. */
const WASM_MESSAGE_BYTES = 1024 * 1024;

type Check = (signature: Uint8Array, message: Uint8Array, key: Uint8Array) => boolean;

/** The verifier of `scheme`, with liboqs where it loads. */
export async function slhDsa(scheme: SlhDsaScheme): Promise<SchemeVerifier> {
  return slhDsaOver(scheme, await wasmCheck(scheme));
}

/** The verifier of `scheme` with `fast` for what has no context and is not too long; with noble alone where it is null. */
export function slhDsaOver(scheme: SlhDsaScheme, fast: Check | null): SchemeVerifier {
  const { size, hash } = parse(scheme);
  const slow = noble[`slh_dsa_${hash}_${size}`];
  const keyLength = Number.parseInt(size) / 4;
  const lengths: Lengths = {
    publicKey: (length) => length === keyLength,
    message: null,
    signature: (length) => length === SIGNATURE_BYTES[size],
  };
  return {
    library: fast === null ? "@noble/post-quantum" : "liboqs (WebAssembly)",
    verify(batch, from, to, { context }, codes) {
      const quick = context.length === 0 ? fast : null;
      verifyEach(batch, from, to, lengths, codes, (key, message, signature) => {
        const valid =
          quick !== null && message.length <= WASM_MESSAGE_BYTES
            ? quick(signature, message, key)
            : slow.verify(signature, message, key, { context });
        return valid ? CODE.valid : CODE.signature;
      });
    },
  };
}

type Size = keyof typeof SIGNATURE_BYTES;
type Hash = "sha2" | "shake";

function parse(scheme: SlhDsaScheme): { size: Size; hash: Hash } {
  const [, , hash, size] = scheme.split("-") as [string, string, Hash, Size];
  return { size, hash };
}

/** liboqs' check for the set, null where the package cannot be loaded, as in an executable that was built from this. */
export async function wasmCheck(scheme: SlhDsaScheme): Promise<Check | null> {
  const { size, hash } = parse(scheme);
  try {
    const liboqs = await import("@oqs/liboqs-js/sig");
    const family = hash === "sha2" ? "Sha2" : "Shake";
    const instance = await liboqs[`createSlhDsa${family}${size}`]();
    return (signature, message, key) => instance.verify(message, signature, key);
  } catch {
    return null;
  }
}
