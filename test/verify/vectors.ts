/** The official vectors, where a checkout has them beside it or `ZAP_VECTORS` names their folder. */
import { existsSync } from "node:fs";
import { join, resolve } from "node:path";
import type { Item } from "../../lib/index.ts";

const folder = resolve(
  process.env["ZAP_VECTORS"] ?? join(import.meta.dir, "..", "..", "..", "shared", "vectors"),
);

export const hasVectors = existsSync(join(folder, "wycheproof"));
export const whyNot = hasVectors ? "" : ` (skipped: no vectors in ${folder}; ZAP_VECTORS names their folder)`;

/** Those of the schemes that the folder has a file for; all of them where there is no folder, so that each says that it is skipped. */
export function withVectors<Name extends string>(names: readonly Name[]): Name[] {
  return names.filter((name) => !hasVectors || existsSync(join(folder, "wycheproof", vectorsOf(name))));
}

function vectorsOf(scheme: string): string {
  return `${scheme.replace("ml-dsa-", "mldsa_")}_verify_test.json`;
}

/** What the tests use of a Wycheproof file. */
export interface Vector {
  readonly tcId: number;
  readonly comment: string;
  readonly flags: readonly string[];
  readonly msg: string;
  readonly sig: string;
  readonly ctx?: string;
  readonly result: "valid" | "invalid" | "acceptable";
}

export interface VectorGroup {
  readonly publicKey: string | { readonly pk?: string; readonly uncompressed?: string };
  readonly ciphersuite?: string;
  readonly tests: readonly Vector[];
}

export async function wycheproof(name: string): Promise<readonly VectorGroup[]> {
  const file: { testGroups: VectorGroup[] } = await Bun.file(
    join(folder, "wycheproof", `${name}.json`),
  ).json();
  return file.testGroups;
}

/** A vector as an item, with what must come out. */
export interface Case extends Item {
  readonly vector: Vector;
  readonly valid: boolean;
}

export function casesOf(group: VectorGroup): Case[] {
  const { publicKey } = group;
  const hex = typeof publicKey === "string" ? publicKey : (publicKey.pk ?? publicKey.uncompressed ?? "");
  return group.tests.map((vector) => ({
    publicKey: Uint8Array.fromHex(hex),
    message: Uint8Array.fromHex(vector.msg),
    signature: Uint8Array.fromHex(vector.sig),
    vector,
    valid: vector.result === "valid",
  }));
}
