import { expect, test } from "bun:test";
import { cText, PREREQUISITE, readPrerequisites, readText, statusName } from "../../lib/ffi/index.ts";

test("rows of a probe are read to their last byte and no further", () => {
  const rows = [
    { name: "libcuda.so.1", met: true, seen: "/usr/lib/libcuda.so.1", fix: "" },
    { name: "n".repeat(56), met: false, seen: "s".repeat(256), fix: "f".repeat(192) },
    { name: "GPU", met: false, seen: "keiner – nirgends", fix: "Needs one.\nsudo get one" },
  ];
  const memory = new Uint8Array(rows.length * PREREQUISITE.bytes + 7).subarray(7);
  const view = new DataView(memory.buffer, 7);
  rows.forEach((row, index) => {
    const start = index * PREREQUISITE.bytes;
    for (const field of ["name", "seen", "fix"] as const) {
      new TextEncoder().encodeInto(row[field], memory.subarray(start + PREREQUISITE.at[field]));
    }
    view.setInt32(start + PREREQUISITE.at.met, row.met ? 1 : 0, true);
  });
  expect(readPrerequisites(memory, 3)).toEqual(rows);
  expect(readPrerequisites(memory, 0)).toEqual([]);
});

test("a text that was cut inside a character ends before it", () => {
  const text = new TextEncoder().encode("GPU – €");
  expect(readText(text, 0, text.length)).toBe("GPU – €");
  expect(readText(text, 0, text.length - 1)).toBe("GPU – ");
  expect(readText(text, 0, text.length - 2)).toBe("GPU – ");
  expect(readText(new Uint8Array(8), 0, 8)).toBe("");
});

test("a text for C ends in a zero byte", () => {
  expect([...cText("aé")]).toEqual([0x61, 0xc3, 0xa9, 0]);
  expect([...cText("")]).toEqual([0]);
});

test("a status has its name in the header, or its number", () => {
  expect([0, -1, -13, -14, 5].map(statusName)).toEqual([
    "ZAP_OK",
    "ZAP_E_INVALID",
    "ZAP_E_RESET",
    "status -14",
    "status 5",
  ]);
});
