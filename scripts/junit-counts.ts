/**
 * Prints `N passed, N failed` for JUnit files of `bun test`, all together, and exits 1 where a test failed, a file has none, or one was
 * skipped: where this runs, nothing may be skipped.
 */
const paths = process.argv.slice(2);
if (paths.length === 0) {
  console.error("usage: bun scripts/junit-counts.ts FILE...");
  process.exit(2);
}
let good = true;
const sum = { passed: 0, failed: 0, skipped: 0 };
for (const path of paths) {
  const text = await Bun.file(path).text();
  const root = /<testsuites\b[^>]*>/.exec(text)?.[0] ?? "";
  const count = (name: string): number =>
    Number(new RegExp(`\\b${name}="(\\d+)"`).exec(root)?.[1] ?? Number.NaN);
  const [tests, failed, skipped] = [count("tests"), count("failures"), count("skipped")];
  const passed = tests - failed - skipped;
  if (skipped > 0) {
    for (const [, name] of text.matchAll(/<testcase\b[^>]*\bname="([^"]*)"[^>]*>\s*<skipped/g))
      console.error(`skipped: ${name}`);
  }
  good &&= passed > 0 && failed === 0 && skipped === 0;
  sum.passed += passed;
  sum.failed += failed;
  sum.skipped += skipped;
}
const skipped = sum.skipped > 0 ? `, ${sum.skipped} skipped` : "";
console.log(`${sum.passed} passed, ${sum.failed} failed${skipped}`);
process.exit(good ? 0 : 1);
