import { expect, test } from "bun:test";
import { judge, type Received, type Sent } from "../../scripts/demo/verdict.ts";

const sent: Sent[] = [
  [10, "aa"],
  [20, "bb"],
  [30, "cc"],
  [40, "dd"],
];
const received: Received[] = sent.map(([bytes, hash], sequence) => [sequence, bytes, hash, true]);

function without(...sequences: number[]): Received[] {
  return received.filter(([sequence]) => !sequences.includes(sequence));
}

function changed(sequence: number, change: (message: Received) => Received): Received[] {
  return received.map((message) => (message[0] === sequence ? change(message) : message));
}

test("everything arrived", () => {
  expect(judge("way", 4, sent, received)).toEqual({ delivered: 4, bytes: 100, lost: 0, faults: [] });
});

test("nothing was to go", () => {
  expect(judge("way", 0, [], [])).toEqual({ delivered: 0, bytes: 0, lost: 0, faults: [] });
});

for (const [what, given, wanted] of [
  ["one is missing", without(1), { delivered: 3, bytes: 80, lost: 1, fault: "1 message did not come: 1" }],
  [
    "several are missing",
    without(0, 2, 3),
    { delivered: 1, bytes: 20, lost: 3, fault: "3 messages did not come: 0, 2 to 3" },
  ],
  [
    "the last is missing",
    without(3),
    { delivered: 3, bytes: 60, lost: 1, fault: "1 message did not come: 3" },
  ],
  [
    "one has another hash",
    changed(2, ([sequence, bytes]) => [sequence, bytes, "xx", true]),
    { delivered: 3, bytes: 70, lost: 1, fault: "1 message came with another SHA-256: 2" },
  ],
  [
    "one says another hash of itself",
    changed(2, ([sequence, bytes, hash]) => [sequence, bytes, hash, false]),
    { delivered: 3, bytes: 70, lost: 1, fault: "1 message came with another SHA-256: 2" },
  ],
  [
    "one has another size",
    changed(0, ([sequence, , hash]) => [sequence, 11, hash, true]),
    { delivered: 3, bytes: 90, lost: 1, fault: "1 message came with another size: 0" },
  ],
  [
    "one came twice",
    [...received.slice(0, 2), received[1]!, ...received.slice(2)],
    { delivered: 4, bytes: 100, lost: 0, fault: "1 message came more than once: 1" },
  ],
  [
    "two changed places",
    [received[0]!, received[2]!, received[1]!, received[3]!],
    { delivered: 4, bytes: 100, lost: 0, fault: "1 message came too late, out of order: 1" },
  ],
  [
    "one came that was never to be sent",
    [...received, [9, 1, "ee", true] as Received],
    { delivered: 4, bytes: 100, lost: 0, fault: "1 message came and was never to be sent: 9" },
  ],
] as const) {
  test(what, () => {
    const { fault, ...counts } = wanted;
    expect(judge("way", 4, sent, given)).toEqual({ ...counts, faults: [`way: ${fault}`] });
  });
}

test("a sender that did not get through all", () => {
  expect(judge("way", 6, sent, without(3))).toEqual({
    delivered: 3,
    bytes: 60,
    lost: 3,
    faults: ["way: 1 message did not come: 3", "way: 2 messages not sent: 4 to 5"],
  });
});
