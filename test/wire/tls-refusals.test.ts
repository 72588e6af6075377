import { beforeAll, describe, expect, test } from "bun:test";
import type { TlsOptions } from "../../lib/wire/index.ts";
import { Authority } from "../support/certificates.ts";
import { frameOf, helloOf, joined, messageOf } from "../support/messages.ts";
import { Net, type Node } from "../support/nodes.ts";
import { RawListener } from "../support/raw.ts";
import { failureOf, until } from "../support/wait.ts";

let ours: Authority;
let theirs: Authority;
/** Calls itself what ours is called. */
let impostor: Authority;
let nodeTls: TlsOptions;
beforeAll(async () => {
  [ours, theirs, impostor] = (await Promise.all(
    ["Ours", "Theirs", "Ours"].map((name) => Authority.make(name)),
  )) as [Authority, Authority, Authority];
  nodeTls = await ours.issue({ cn: "node" });
});

const QUICK = { limits: { handshakeMillis: 400, sendMillis: 1_000 } };

/** Nothing of a stranger has got through, and a friend still does. */
async function expectUntouched(net: Net, node: Node): Promise<void> {
  expect(node.transport.tryRecv()).toBeNull();
  expect(node.transport.peers()).toEqual([]);
  expect(node.transport.stats()).toMatchObject({ messagesIn: 0, connections: 0 });
  expect(node.events.filter((event) => event.type === "connected")).toEqual([]);
  const friend = await net.node("friend", { tls: await ours.issue({ cn: "friend" }) });
  expect(await friend.transport.connect(node.address)).toBe("node");
}

describe("a node that dials in is refused", () => {
  const strangers: [string, () => Promise<TlsOptions>, RegExp][] = [
    [
      "with a certificate for another id",
      () => ours.issue({ cn: "honest" }),
      /its certificate is for honest/,
    ],
    ["with a certificate for no id", () => ours.issue({}), /its certificate is for no name/],
    ["with a certificate of another authority", () => theirs.issue({ cn: "stranger" }, ours), /TLS: /],
    [
      "with a certificate of a namesake of our authority",
      () => impostor.issue({ cn: "stranger" }, ours),
      /TLS: /,
    ],
    [
      "with an expired certificate",
      () => ours.issue({ cn: "stranger", from: -20, to: -1 }),
      /CERT_HAS_EXPIRED/,
    ],
    [
      "with a certificate that is not valid yet",
      () => ours.issue({ cn: "stranger", from: 1, to: 20 }),
      /CERT_NOT_YET_VALID/,
    ],
    [
      "with an id hidden in another name by a comma",
      () => ours.issue({ cn: "x", dns: ["evil.example, DNS:stranger"] }),
      /its certificate is for x$/,
    ],
    [
      "with an id hidden in another name by a zero",
      () => ours.issue({ cn: "stranger\0.evil.example" }),
      /certificate is for|TLS: /,
    ],
    [
      "with its id as a wildcard",
      () => ours.issue({ cn: "*", dns: ["*", "*.example.org"] }),
      /its certificate is for/,
    ],
  ];
  for (const [what, issue, reason] of strangers) {
    test(what, async () => {
      await using net = new Net(QUICK);
      const node = await net.node("node", { tls: nodeTls });
      const tls = await issue();
      const stranger = await net.node("stranger", { tls });
      const error = await failureOf(stranger.transport.connect(node.address));
      expect(error.code).toBe("ERR_ZAP_HANDSHAKE");
      expect(error.message).toContain(node.address);
      expect(await node.untilError("ERR_ZAP_HANDSHAKE", null)).toMatch(reason);
      // By hand: a hello and a message in the first breath, without waiting for what the node thinks of it.
      const { cert, key, ca } = tls;
      const raw = await net.raw(node, {
        tls: { cert, key, ca, rejectUnauthorized: false } as Bun.TLSOptions,
      });
      raw.write(joined(helloOf("stranger"), frameOf(messageOf(64, 1))));
      await raw.untilClosed();
      expect(raw.received).toHaveLength(0);
      await expectUntouched(net, node);
    });
  }

  test("with no certificate", async () => {
    await using net = new Net(QUICK);
    const node = await net.node("node", { tls: nodeTls });
    const raw = await net.raw(node, { tls: { rejectUnauthorized: false } });
    raw.write(joined(helloOf("stranger"), frameOf(messageOf(64, 1))));
    await raw.untilClosed();
    expect(raw.received).toHaveLength(0);
    expect(await node.untilError("ERR_ZAP_HANDSHAKE", null)).toContain("TLS: ");
    await expectUntouched(net, node);
  });

  test("in plaintext, at once", async () => {
    await using net = new Net({ limits: { handshakeMillis: 4_000 } });
    const node = await net.node("node", { tls: nodeTls });
    const stranger = await net.node("stranger");
    const error = await failureOf(stranger.transport.connect(node.address), 1_000);
    expect(error.code).toBe("ERR_ZAP_HANDSHAKE");
    expect(error.message).toMatch(/TLS|no ZAP hello/);
    const raw = await net.raw(node);
    raw.write(joined(helloOf("stranger"), frameOf(messageOf(64, 1))));
    await raw.untilClosed(1_000);
    await until(() => node.errors.length >= 2, "two errors to be reported");
    await expectUntouched(net, node);
  });

  test("in TLS that stops in the middle of its handshake", async () => {
    await using net = new Net(QUICK);
    const node = await net.node("node", { tls: nodeTls });
    const raw = await net.raw(node);
    // The head of a TLS record that never comes.
    raw.write(Uint8Array.fromHex("1603010200010001fc0303"));
    await raw.untilClosed(1_500);
    expect(await node.untilError("ERR_ZAP_HANDSHAKE", null)).toContain("limits.handshakeMillis");
    await expectUntouched(net, node);
  });

  test("in TLS 1.2", async () => {
    await using net = new Net(QUICK);
    const node = await net.node("node", { tls: nodeTls });
    const { cert, key, ca } = await ours.issue({ cn: "stranger" });
    const tls = { cert, key, ca, rejectUnauthorized: false, maxVersion: 0x0303 } as unknown as Bun.TLSOptions;
    const raw = await net.raw(node, { tls });
    raw.write(joined(helloOf("stranger"), frameOf(messageOf(64, 1))));
    await raw.untilClosed(1_500);
    await expectUntouched(net, node);
  });

  test("when it is not on the allow-list, its good certificate notwithstanding", async () => {
    await using net = new Net(QUICK);
    const node = await net.node("node", { tls: nodeTls, allow: ["friend"] });
    const stranger = await net.node("stranger", { tls: await ours.issue({ cn: "stranger" }) });
    expect((await failureOf(stranger.transport.connect(node.address))).code).toBe("ERR_ZAP_HANDSHAKE");
    expect(await node.untilError("ERR_ZAP_HANDSHAKE", null)).toContain("allow-list");
    await expectUntouched(net, node);
  });
});

describe("a node that is dialled is refused", () => {
  const others: [string, string, () => Promise<TlsOptions>, RegExp][] = [
    [
      "with a certificate for another id",
      "other",
      () => ours.issue({ cn: "honest" }),
      /certificate is for honest/,
    ],
    [
      "with a certificate of another authority",
      "other",
      () => theirs.issue({ cn: "other" }, ours),
      /TLS: \w*(CERT|ISSUER|SIGNATURE)/,
    ],
    [
      "with a certificate of a namesake of our authority",
      "other",
      () => impostor.issue({ cn: "other" }, ours),
      /TLS: \w*(CERT|ISSUER|SIGNATURE)/,
    ],
    [
      "with an expired certificate",
      "other",
      () => ours.issue({ cn: "other", from: -20, to: -1 }),
      /CERT_HAS_EXPIRED/,
    ],
    [
      "with an expired certificate for the very host that is dialled",
      "other",
      () => ours.issue({ cn: "other", dns: ["localhost"], from: -20, to: -1 }),
      /CERT_HAS_EXPIRED/,
    ],
  ];
  for (const [what, id, issue, reason] of others) {
    test(what, async () => {
      await using net = new Net(QUICK);
      const node = await net.node("node", { tls: nodeTls });
      // The other side would take us: what matters is that we do not take it.
      const { cert, key } = await issue();
      const tls = { cert, key, ca: [ours.pem, theirs.pem] };
      const other = await net.node(id, { tls, listen: "localhost:0" });
      const error = await failureOf(node.transport.connect(other.address));
      expect(error.code).toBe("ERR_ZAP_HANDSHAKE");
      expect(error.message).toMatch(reason);
      expect(error.message).toContain(other.address);
      expect(node.transport.peers()).toEqual([]);
      await until(() => other.transport.peers().length === 0, "the other side to notice");
      expect(node.transport.stats()).toMatchObject({ messagesIn: 0, messagesOut: 0 });
    });
  }

  test("as another than the one expected, its good certificate notwithstanding", async () => {
    await using net = new Net(QUICK);
    const other = await net.node("other", { tls: await ours.issue({ cn: "other" }) });
    const node = await net.node("node", { tls: nodeTls, peers: { honest: other.address } });
    const error = await failureOf(node.transport.send("honest", messageOf(64)));
    expect(error.code).toBe("ERR_ZAP_PEER_UNREACHABLE");
    expect(error.message).toContain("is other, not honest");
    expect(other.transport.stats().messagesIn).toBe(0);
  });

  test("in plaintext, and no hello is said to it", async () => {
    await using net = new Net(QUICK);
    using listener = new RawListener();
    const node = await net.node("node", { tls: nodeTls });
    const connecting = node.transport.connect(listener.address);
    const socket = await listener.socket();
    await until(() => socket.received.length > 0, "the first bytes");
    expect(Buffer.from(socket.received).includes("ZAP\0")).toBe(false);
    socket.write(helloOf("stranger"));
    expect((await failureOf(connecting)).code).toBe("ERR_ZAP_HANDSHAKE");
    expect(node.transport.peers()).toEqual([]);
  });

  test("by a node of this library in plaintext, at once", async () => {
    await using net = new Net({ limits: { handshakeMillis: 4_000 } });
    const node = await net.node("node", { tls: nodeTls });
    const plain = await net.node("plain");
    const error = await failureOf(node.transport.connect(plain.address), 1_000);
    expect(error.code).toBe("ERR_ZAP_HANDSHAKE");
    expect(await plain.untilError("ERR_ZAP_HANDSHAKE", null)).toContain("no ZAP hello");
  });

  test("and nothing that was to be sent to it is said to it", async () => {
    await using net = new Net(QUICK);
    const { cert, key } = await theirs.issue({ cn: "honest" });
    // It takes anybody, so that the handshake succeeds on its side.
    using listener = new RawListener({ tls: { cert, key, rejectUnauthorized: false } as Bun.TLSOptions });
    const node = await net.node("node", { tls: nodeTls, peers: { honest: listener.address } });
    const error = await failureOf(node.transport.send("honest", messageOf(64, 1)));
    expect(error.code).toBe("ERR_ZAP_PEER_UNREACHABLE");
    expect(error.message).toContain("TLS: ");
    await Bun.sleep(50);
    expect(listener.sockets.length).toBeGreaterThan(0);
    for (const socket of listener.sockets) expect(socket.received).toHaveLength(0);
  });
});
