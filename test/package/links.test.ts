import { describe, expect, test } from "bun:test";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";

const ROOT = join(import.meta.dir, "..", "..");
const { files: packed } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8")) as { files: string[] };

/** The files that a page links to, as paths from the root. */
function linksOf(page: string): string[] {
  const text = readFileSync(join(ROOT, page), "utf8");
  const targets = [...text.matchAll(/\]\(([^)#\s]+)[^)]*\)/g)].map((match) => match[1]!);
  return targets
    .filter((target) => !/^[a-z]+:/.test(target))
    .map((target) => normalize(join(dirname(page), target)));
}

const pages = ["README.md", ...readdirSync(join(ROOT, "docs")).map((page) => `docs/${page}`)];

describe("the published pages", () => {
  for (const page of pages) {
    test(`link to what is published with them: ${page}`, () => {
      for (const link of linksOf(page)) {
        expect(existsSync(join(ROOT, link)) ? link : `${link} is missing`).toBe(link);
        expect(packed.some((each) => link === each || link.startsWith(`${each}/`)) ? link : "").toBe(link);
      }
    });
  }

  test("are all to be found from the README", () => {
    const found = new Set(["README.md", ...linksOf("README.md")]);
    expect(pages.filter((page) => !found.has(page))).toEqual([]);
  });
});

test("what is read in the repository alone links to files that are there", () => {
  for (const link of linksOf("shim/README.md")) expect(existsSync(join(ROOT, link)) ? "" : link).toBe("");
});
