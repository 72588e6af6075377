/**
 * One file per scheme: how it is verified on one thread, with which library, by which rules (`docs/verify.md`).
 *
 * May import: `../contract.ts`, `../batch.ts`, `../rows.ts`, `../views.ts`, settings, errors, and the one library that the scheme is served by, on first use.
 * Start at `ed25519.ts`.
 */
import type { MlDsaScheme, Scheme, SchemeVerifier } from "../contract.ts";

const loaded = new Map<Scheme, Promise<SchemeVerifier>>();

/** The verifier of `scheme`; loads its library on first use. Every scheme has one everywhere. */
export function schemeVerifier(scheme: Scheme): Promise<SchemeVerifier> {
  let verifier = loaded.get(scheme);
  if (verifier === undefined) {
    loaded.set(scheme, (verifier = load(scheme)));
    // What failed may be mended: the next batch tries again.
    verifier.catch(() => loaded.delete(scheme));
  }
  return verifier;
}

async function load(scheme: Scheme): Promise<SchemeVerifier> {
  if (scheme === "ed25519") return (await import("./ed25519.ts")).ed25519;
  if (scheme === "secp256k1") {
    const [{ secp256k1Over }, { bestSecp256k1 }] = await Promise.all([
      import("./secp256k1.ts"),
      import("./secp256k1-engines.ts"),
    ]);
    return secp256k1Over(await bestSecp256k1());
  }
  if (scheme === "bls12-381") return (await import("./bls.ts")).bls();
  if (isMlDsa(scheme)) return (await import("./ml-dsa.ts")).mlDsa(scheme);
  return (await import("./slh-dsa.ts")).slhDsa(scheme);
}

function isMlDsa(scheme: Scheme): scheme is MlDsaScheme {
  return scheme.startsWith("ml-dsa-");
}
