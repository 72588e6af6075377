import { afterAll, describe, expect, test } from "bun:test";
import fc from "fast-check";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { imageFault, type Platform } from "../../lib/ffi/index.ts";
import { noCompiler } from "../support/compiler.ts";
import { forgetStandIns, standInBytes, temporary } from "./stand-in.ts";

afterAll(forgetStandIns);

const linux: Platform = { platform: "linux", arch: "x64", musl: false };
const mac: Platform = { platform: "darwin", arch: "arm64", musl: false };

const path = join(temporary(), "library");

function faultOf(bytes: Uint8Array, platform: Platform, extent?: "whole" | "mapped"): string | null {
  writeFileSync(path, bytes);
  return imageFault(path, platform, extent);
}

/** The headers of a Mach-O library with one segment of `segment` bytes, which the file has. */
function dylib(change: (view: DataView) => void = () => {}, segment = 256): Uint8Array {
  const bytes = new Uint8Array(32 + 72 + segment);
  const view = new DataView(bytes.buffer);
  const words = [0xfeedfacf, 0x0100000c, 0, 6, 1, 72, 0, 0, 0x19, 72];
  words.forEach((word, at) => view.setUint32(at * 4, word, true));
  view.setBigUint64(32 + 40, 104n, true);
  view.setBigUint64(32 + 48, BigInt(segment), true);
  change(view);
  return bytes;
}

describe("a Mach-O library", () => {
  test("that is whole has no fault", () => {
    expect(faultOf(dylib(), mac)).toBeNull();
    expect(faultOf(dylib(), { ...mac, arch: "x64" })).toBe("is built for arm64, not x64");
  });

  test("is looked at in each of its parts", () => {
    const set = (at: number, value: number) => (view: DataView) => view.setUint32(at, value, true);
    expect(faultOf(dylib(set(0, 0xfeedface)), mac)).toBe("is no Mach-O library of 64 bits");
    expect(
      faultOf(
        dylib((view) => view.setUint32(0, 0xcafebabe)),
        mac,
      ),
    ).toBe("is a universal library; needed is one for arm64 alone");
    expect(faultOf(dylib(set(4, 12)), mac)).toBe("is built for CPU type 12, not arm64");
    expect(faultOf(dylib(set(12, 2)), mac)).toBe("is a Mach-O file, but no shared library");
    expect(faultOf(dylib(set(20, 1_000_000)), mac)).toBe("is cut off: 360 bytes of at least 1000032");
    expect(faultOf(dylib(set(16, 2)), mac)).toBe("has load commands that make no sense");
    expect(faultOf(dylib(set(36, 0)), mac)).toBe("has load commands that make no sense");
    expect(faultOf(dylib(set(32, 0x1b)), mac)).toBe("is a Mach-O file without segments");
    expect(faultOf(dylib(set(32 + 52, 1)), mac)).toStartWith("is cut off: 360 bytes of at least ");
  });

  test("that was cut off anywhere is told so", () => {
    const whole = dylib();
    for (let length = 0; length < whole.length; length++) {
      const fault = faultOf(whole.subarray(0, length), mac);
      if (length === 0) expect(fault).toBe("is empty");
      else if (length < 4) expect(fault).toBe("is no Mach-O library of 64 bits");
      else expect(fault).toStartWith(`is cut off: ${length} bytes of at least `);
    }
  });
});

const onLinux = process.platform === "linux" && !noCompiler;
const here: Platform = { ...linux, arch: process.arch };

describe.if(onLinux)("an ELF library", () => {
  const whole = onLinux ? standInBytes("libzap_uma_cuda") : new Uint8Array();
  const changed = (change: (view: DataView) => void): Uint8Array => {
    const bytes = whole.slice();
    change(new DataView(bytes.buffer));
    return bytes;
  };

  test("that is whole has no fault, and none for a platform that we do not know either", () => {
    expect(faultOf(whole, here)).toBeNull();
    expect(faultOf(whole, { ...here, arch: "riscv64" })).toBeNull();
    expect(faultOf(whole, { ...here, platform: "win32" })).toBe(`is no library for win32-${here.arch}`);
    expect(faultOf(whole, { ...here, musl: true })).toBe("is built for glibc, and this system has musl");
  });

  test("may have no section table, which the loader does not need", () => {
    expect(
      faultOf(
        changed((view) => view.setBigUint64(40, 0n, true)),
        here,
      ),
    ).toBeNull();
  });

  test("whose section table is elsewhere is no whole one, but can be mapped", () => {
    const stripped = changed((view) => view.setBigUint64(40, 1n << 40n, true));
    expect(faultOf(stripped, here)).toStartWith("is cut off: ");
    expect(faultOf(stripped, here, "mapped")).toBeNull();
  });

  test("with zeros from somewhere to its end is told so", () => {
    for (let at = 0; at <= whole.length - 32; at += at > whole.length - 256 ? 1 : 61) {
      expect(faultOf(whole.slice().fill(0, at), here)).toMatch(/^(is|has) /);
    }
    expect(faultOf(whole.slice().fill(0, whole.length - 64), here)).toBe("is damaged: no names of sections");
  });

  test("has a dynamic section that leads somewhere, also where it has no section table", () => {
    const view = new DataView(whole.buffer, whole.byteOffset);
    const segments = Array.from({ length: view.getUint16(56, true) }, (_, index) => 64 + index * 56);
    const dynamic = segments.find((at) => view.getUint32(at, true) === 2)!;
    const start = Number(view.getBigUint64(dynamic + 8, true));
    const entry = (tag: number) => {
      let at = start;
      while (view.getUint32(at, true) !== tag) at += 16;
      return at;
    };
    const stripped = (change: (view: DataView) => void) =>
      changed((copy) => {
        copy.setBigUint64(40, 0n, true);
        change(copy);
      });
    const cases: [string, (copy: DataView) => void][] = [
      ["names", (copy) => new Uint8Array(copy.buffer).fill(0, start, start + 16)],
      ["names", (copy) => copy.setBigUint64(entry(5) + 8, 1n << 40n, true)],
      ["symbols", (copy) => copy.setBigUint64(entry(6) + 8, 1n << 40n, true)],
      ["symbols", (copy) => copy.setUint32(entry(6), 0x6ffffff0, true)],
    ];
    // That there is none at all the loader says by itself.
    expect(
      faultOf(
        stripped((copy) => copy.setUint32(dynamic, 0x6ffffff0, true)),
        here,
      ),
    ).toBeNull();
    for (const [what, change] of cases) {
      const fault = `is damaged: its dynamic section leads to no ${what}`;
      expect(faultOf(stripped(change), here)).toBe(fault);
      expect(faultOf(stripped(change), here, "mapped")).toBeNull();
    }
  });

  test("is looked at in each of its parts", () => {
    const half = (at: number, value: number) => changed((view) => view.setUint16(at, value, true));
    expect(faultOf(half(16, 2), here)).toBe("is an ELF file, but no shared library");
    expect(faultOf(half(56, 0), here)).toBe("is an ELF file without segments");
    expect(faultOf(half(54, 32), here)).toBe("is an ELF file without segments");
    expect(faultOf(half(58, 40), here)).toBe("has a section table of unknown form");
    expect(faultOf(half(60, 0), here)).toBe("has a section table of unknown form");
    // No section, one of another kind, one that is not there.
    for (const index of [0, 1, 0xfffe]) {
      expect(faultOf(half(62, index), here)).toBe("is damaged: no names of sections");
    }
    expect(
      faultOf(
        changed((view) => view.setBigUint64(32, 1n << 63n, true)),
        here,
      ),
    ).toStartWith("is cut off: ");
  });

  test("with any damage to its headers is judged, and never makes the judge fail", () => {
    const byte = fc.record({ at: fc.nat(1023), value: fc.nat(255) });
    fc.assert(
      fc.property(fc.array(byte, { minLength: 1, maxLength: 8 }), (damage) => {
        const bytes = whole.slice();
        for (const { at, value } of damage) bytes[at] = value;
        const fault = faultOf(bytes, here);
        expect(fault === null || /^(is|has) /.test(fault)).toBe(true);
      }),
      { numRuns: 2_000, seed: 42 },
    );
  });
});

test("a folder and a file that is not there are told so", () => {
  expect(imageFault(temporary(), linux)).toBe("is no file");
  expect(imageFault("/no/such/library.so", linux)).toStartWith("cannot be read: ENOENT");
});
