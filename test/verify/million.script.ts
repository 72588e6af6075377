/**
 * So many Ed25519 signatures (the first argument) in one batch through the public call, every 1,000th of them bad: prints whether the answers
 * are right, and by how much the process grew meanwhile.
 */
import { batchVerifyEd25519, pack, type Item, type PackedBatch } from "../../lib/index.ts";
import { items, spoiled } from "./kit.ts";

const count = Number(process.argv[2]);
const good = pack(items("ed25519", 64));
const bad = pack(items("ed25519", 64).map(spoiled));
const bytes = new Uint8Array(good.bytes.length + bad.bytes.length);
bytes.set(good.bytes);
bytes.set(bad.bytes, good.bytes.length);

function isBad(at: number): boolean {
  return at % 1_000 === 77;
}

const table = new Uint32Array(6 * count);
for (let at = 0; at < count; at++) {
  const from = isBad(at) ? bad : good;
  const row = from.table.subarray((at % 64) * 6, (at % 64) * 6 + 6);
  table.set(row, 6 * at);
  if (isBad(at)) for (const part of [0, 2, 4]) table[6 * at + part]! += good.bytes.length;
}
const batch: PackedBatch = { bytes, table, count };

const warm: Item[] = items("ed25519", 64);
await batchVerifyEd25519(Array.from({ length: 2_000 }, (_, at) => warm[at % 64]!));
Bun.gc(true);
await Bun.sleep(20);

const before = process.memoryUsage.rss();
let most = before;
const look = setInterval(() => (most = Math.max(most, process.memoryUsage.rss())), 5);
const answers = await batchVerifyEd25519(batch);
clearInterval(look);
let wrong = answers.length === count ? 0 : 1;
for (const [at, answer] of answers.entries()) if (answer === isBad(at)) wrong++;
console.log(JSON.stringify({ wrong, grownBytes: Math.max(most, process.memoryUsage.rss()) - before }));
process.exit(0);
