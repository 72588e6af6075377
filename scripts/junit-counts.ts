/**
 * Prints `N passed, N failed` for a JUnit file of `bun test`, and exits 1 where a test failed, none ran, or one was skipped:
 * where this runs, nothing may be skipped.
 */
const [path] = process.argv.slice(2);
if (path === undefined) {
  console.error("usage: bun scripts/junit-counts.ts FILE");
  process.exit(2);
}
const text = await Bun.file(path).text();
const root = /<testsuites\b[^>]*>/.exec(text)?.[0] ?? "";
const count = (name: string): number =>
  Number(new RegExp(`\\b${name}="(\\d+)"`).exec(root)?.[1] ?? Number.NaN);
const [tests, failures, skipped] = [count("tests"), count("failures"), count("skipped")];
const passed = tests - failures - skipped;
for (const [, name] of skipped > 0
  ? text.matchAll(/<testcase\b[^>]*\bname="([^"]*)"[^>]*>\s*<skipped/g)
  : []) {
  console.error(`skipped: ${name}`);
}
console.log(`${passed} passed, ${failures} failed${skipped > 0 ? `, ${skipped} skipped` : ""}`);
process.exit(passed > 0 && failures === 0 && skipped === 0 ? 0 : 1);
