/** What the pages' samples import is there. */
import { expect, test } from "bun:test";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import * as library from "../../lib/index.ts";

const ROOT = join(import.meta.dir, "..", "..");
const exported = readFileSync(join(ROOT, "lib/index.ts"), "utf8");
const pages = ["README.md", ...readdirSync(join(ROOT, "docs")).map((page) => `docs/${page}`)];

/** Names in a block of TypeScript that it imports from the package. */
function importsOf(page: string): string[] {
  const text = readFileSync(join(ROOT, page), "utf8");
  return [...text.matchAll(/^```ts\n(.*?)^```/gms)].flatMap(([, code = ""]) =>
    [...code.matchAll(/import \{([^}]*)\} from "@luxfi\/zap"/g)].flatMap(([, names = ""]) =>
      names.split(",").map((name) => name.trim()),
    ),
  );
}

/** Every function of the library that a block calls without importing it. */
function forgottenIn(page: string): string[] {
  const text = readFileSync(join(ROOT, page), "utf8");
  const imported = importsOf(page);
  const called = [...text.matchAll(/^```ts\n(.*?)^```/gms)].flatMap(([, code = ""]) =>
    [...code.matchAll(/(?<![.\w])(\w+)\(/g)].map(([, name = ""]) => name),
  );
  return called.filter((name) => name in library && !imported.includes(name));
}

test("there are samples", () => {
  expect(pages.flatMap(importsOf)).toContain("batchInPlace");
});

test.each(pages)("%s", (page) => {
  for (const name of importsOf(page)) {
    if (name.startsWith("type ")) expect(exported).toMatch(new RegExp(`\\b${name.slice(5)}\\b`));
    else expect(Object.keys(library)).toContain(name);
  }
  expect(forgottenIn(page)).toEqual([]);
});
