/** Lengths of messages, in an order that both sides know. */
const KIB = 1024;

/** 16 B is the smallest message that there is. Each class holds its own power of two, and lengths below it. */
const COUNTS: Readonly<Record<number, number>> = {
  16: 800,
  32: 900,
  64: 900,
  128: 900,
  256: 900,
  512: 900,
  [KIB]: 900,
  [2 * KIB]: 900,
  [4 * KIB]: 900,
  [8 * KIB]: 900,
  [16 * KIB]: 500,
  [32 * KIB]: 300,
  [64 * KIB]: 200,
  [128 * KIB]: 50,
  [256 * KIB]: 20,
  [512 * KIB]: 13,
  [KIB * KIB]: 8,
  [2 * KIB * KIB]: 4,
  [4 * KIB * KIB]: 2,
  [8 * KIB * KIB]: 2,
  [16 * KIB * KIB]: 1,
};

function lengthsOf(counts: Readonly<Record<number, number>>): number[] {
  const lengths = Object.entries(counts).flatMap(([most, count]) =>
    // The first is as long as its class allows, the others end at odd places.
    Array.from({ length: count }, (_, at) =>
      Math.max(16, Number(most) - Math.min(at * 13, Number(most) / 2 - 1)),
    ),
  );
  return shuffled(lengths);
}

/** By a generator with a fixed seed: both sides get the same. */
function shuffled(lengths: number[]): number[] {
  let state = 1;
  for (let at = lengths.length - 1; at > 0; at--) {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
    const other = (state >>> 8) % (at + 1);
    [lengths[at], lengths[other]] = [lengths[other]!, lengths[at]!];
  }
  return lengths;
}

/** 10,000 of all classes up to 16 MiB, about 125 MB. */
export const MANY: readonly number[] = lengthsOf(COUNTS);

/** For a link that loses: some of each class up to 1 MiB. */
export const FEW: readonly number[] = lengthsOf(
  Object.fromEntries(
    Object.entries(COUNTS)
      .filter(([most]) => Number(most) <= KIB * KIB)
      .map(([most, count]) => [most, Math.ceil(count / 60)]),
  ),
);
