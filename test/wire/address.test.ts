import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { AddressError } from "../../lib/errors/index.ts";
import { formatAddress, parseAddress } from "../../lib/wire/common/address.ts";

function faultOf(text: string, forListening = false): string {
  try {
    parseAddress(text, forListening);
  } catch (error) {
    if (error instanceof AddressError) return error.message;
    throw error;
  }
  return "no error";
}

describe("an address", () => {
  const good: [string, ReturnType<typeof parseAddress>][] = [
    ["127.0.0.1:80", { kind: "tcp", host: "127.0.0.1", port: 80 }],
    ["localhost:65535", { kind: "tcp", host: "localhost", port: 65_535 }],
    [" node-1.example.org:9000\n", { kind: "tcp", host: "node-1.example.org", port: 9_000 }],
    ["[::1]:9000", { kind: "tcp", host: "::1", port: 9_000 }],
    ["[::ffff:10.0.0.1]:9000", { kind: "tcp", host: "::ffff:10.0.0.1", port: 9_000 }],
    ["[fe80::1%eth0]:9000", { kind: "tcp", host: "fe80::1%eth0", port: 9_000 }],
    ["unix:/tmp/zap.sock", { kind: "unix", path: "/tmp/zap.sock" }],
    ["unix:relative/zap.sock", { kind: "unix", path: "relative/zap.sock" }],
    ["unix:/with:colons/and [brackets]", { kind: "unix", path: "/with:colons/and [brackets]" }],
  ];
  for (const [text, address] of good) {
    test(`may be ${JSON.stringify(text)}`, () => expect(parseAddress(text)).toEqual(address));
  }

  const bad: [string, string][] = [
    ["", "host:port"],
    ["localhost", "host:port"],
    ["localhost:", "host:port"],
    ["localhost:http", "host:port"],
    ["localhost:-1", "host:port"],
    ["localhost:1.5", "host:port"],
    ["localhost:123456", "host:port"],
    ["localhost:65536", "at most 65535"],
    ["::1:9000", "[v6]:port"],
    ["[::1]", "[v6]:port"],
    ["[::1]9000", "[v6]:port"],
    ["[]:9000", "[v6]:port"],
    ["two words:9000", "host:port"],
    ["tcp://host:9000", "host:port"],
    ["host/path:9000", "host:port"],
    ["unix:", "a path must follow"],
    ["unix:/a\0b", "a path must follow"],
    [`unix:/${"x".repeat(107)}`, "at most"],
    [`unix:/${"ü".repeat(54)}`, "at most"],
  ];
  for (const [text, words] of bad) {
    test(`cannot be ${JSON.stringify(text.slice(0, 40))}`, () => {
      const fault = faultOf(text);
      expect(fault).toContain(words);
      expect(fault).toContain(JSON.stringify(text));
    });
  }

  test("is text", () => expect(faultOf(9_000 as unknown as string)).toContain("number"));

  test("may leave out the host and the port for listening alone", () => {
    expect(parseAddress(":0", true)).toEqual({ kind: "tcp", host: "::", port: 0 });
    expect(parseAddress(":9000", true)).toEqual({ kind: "tcp", host: "::", port: 9_000 });
    expect(parseAddress("127.0.0.1:0", true)).toEqual({ kind: "tcp", host: "127.0.0.1", port: 0 });
    expect(faultOf(":9000")).toContain("a host is needed");
    expect(faultOf("127.0.0.1:0")).toContain("only for listening");
  });

  test("in brackets is an IPv6 address", () => {
    // What is not one would be written back without its brackets, and mean another host.
    expect(faultOf("[face]:80")).toContain("[v6]:port");
    expect(faultOf("[127.0.0.1]:80")).toContain("[v6]:port");
  });

  test("reads back as it was written", () => {
    const port = fc.integer({ min: 1, max: 65_535 });
    const host = fc.oneof(fc.ipV4(), fc.ipV6(), fc.domain());
    const path = fc.stringMatching(/^[\w/.:-]{1,80}$/);
    const address = fc.oneof(
      fc.record({ kind: fc.constant("tcp" as const), host, port }),
      fc.record({ kind: fc.constant("unix" as const), path }),
    );
    fc.assert(fc.property(address, (one) => expect(parseAddress(formatAddress(one))).toEqual(one)));
  });

  test("of any kind of text is either understood or refused with an AddressError", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary" }), fc.boolean(), (text, forListening) => {
        const fault = faultOf(text, forListening);
        if (fault !== "no error") return;
        const address = parseAddress(text, forListening);
        expect(parseAddress(formatAddress(address), forListening)).toEqual(address);
      }),
    );
  });
});
