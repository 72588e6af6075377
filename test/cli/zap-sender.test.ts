/** `zap send` against receivers that are not what they should be, made by hand with the library. */
import { describe, expect, test } from "bun:test";
import {
  encodeReceipt,
  readFileMessage,
  STATUS,
  type FileMessage,
  type FileReceipt,
} from "../../lib/cli/transfer/messages.ts";
import { MessageBuilder, parse } from "../../lib/index.ts";
import { HandMade, sha256, someBytes, TestFolder, ZapProcess } from "./zap-kit.ts";

type Answer = Partial<FileReceipt> | Uint8Array | "hang up" | null;

/** A receiver that answers each message as it is told to. */
async function receiver(answer: (message: FileMessage) => Answer) {
  const node = await HandMade.open({ nodeId: "odd", listen: "127.0.0.1:0" });
  const run = async (): Promise<void> => {
    for await (const envelope of node.transport) {
      const { peer } = envelope;
      const message = readFileMessage(parse(envelope.message.slice()));
      envelope.release();
      const what = message && answer(message);
      if (what === null || message === null) continue;
      if (what === "hang up") return void (await node.transport.close());
      const empty = { status: STATUS.ready, size: 0, hash: new Uint8Array(32), reason: "" };
      const reply = what instanceof Uint8Array ? what : encodeReceipt({ id: message.id, ...empty, ...what });
      await node.transport.send(peer, reply);
    }
  };
  run().catch(() => {});
  return node;
}

async function sendTo(node: HandMade, size: number, ...argv: string[]) {
  using folder = new TestFolder();
  const file = await folder.write("file", someBytes(size));
  using sender = new ZapProcess(["send", node.address, file, ...argv]);
  const code = await sender.end();
  return { code, stdout: sender.stdout, stderr: sender.stderr.replaceAll(file, "FILE") };
}

const MIB = 1024 * 1024;
const LAST = "zap: 1 of 1 files not confirmed\n";

describe("zap send fails, and says why,", () => {
  test("where the receiver confirms another hash", async () => {
    await using node = await receiver(({ kind }) => {
      if (kind === "end") return { status: STATUS.saved, size: 10, hash: sha256("something else") };
      return kind === "start" ? {} : null;
    });
    const { code, stderr } = await sendTo(node, 10);
    expect({ code, stderr }).toEqual({
      code: 1,
      stderr: `✗ FILE: the receiver confirms another file than the one sent\n${LAST}`,
    });
  });

  test("where it refuses at once, in the middle or at the end; its words are made fit to print", async () => {
    for (const at of ["start", "data", "end"]) {
      await using node = await receiver(({ kind }) => {
        if (kind === at) return { status: STATUS.disk, reason: "no \x1b[31mroom\n" };
        return kind === "start" ? {} : null;
      });
      const { code, stderr } = await sendTo(node, 5 * MIB);
      expect({ code, stderr }).toEqual({
        code: 1,
        stderr: `✗ FILE: the receiver did not take it: no \ufffd[31mroom\ufffd\n${LAST}`,
      });
    }
  });

  test("where it gives no reason", async () => {
    await using node = await receiver(() => ({ status: 77 }));
    const { stderr } = await sendTo(node, 1);
    expect(stderr).toBe(`✗ FILE: the receiver did not take it: status 77\n${LAST}`);
  });

  test("where it hangs up at any moment", async () => {
    for (const at of ["start", "data", "end"]) {
      await using node = await receiver(({ kind }) => {
        if (kind === at) return "hang up";
        return kind === "start" ? {} : null;
      });
      const { code, stderr } = await sendTo(node, 3 * MIB);
      expect(code).toBe(1);
      expect(stderr).toMatch(/^✗ the receiver .*\nzap: 1 of 1 files not confirmed\n$/);
    }
  });

  test("where it never answers, at any moment", async () => {
    for (const at of ["start", "end"]) {
      await using node = await receiver(({ kind }) => (kind === at || kind !== "start" ? null : {}));
      const { code, stderr } = await sendTo(node, 1, "--timeout", "0.4");
      expect({ code, stderr }).toEqual({
        code: 1,
        stderr: `✗ FILE: nothing moved for 0.4 s: the receiver does not answer, or takes no files\n${LAST}`,
      });
    }
  });

  test("where it stops reading", async () => {
    await using node = await HandMade.open({ nodeId: "odd", listen: "127.0.0.1:0" });
    const run = async (): Promise<void> => {
      const envelope = await node.transport.recv();
      const start = readFileMessage(parse(envelope.message));
      const ready = { status: STATUS.ready, size: 0, hash: new Uint8Array(32), reason: "" };
      if (start !== null) await node.transport.send(envelope.peer, encodeReceipt({ id: start.id, ...ready }));
      envelope.release();
    };
    run().catch(() => {});
    const { code, stderr } = await sendTo(node, 64 * MIB, "--timeout", "0.5");
    expect(code).toBe(1);
    expect(stderr).toStartWith("✗ FILE: nothing moved for 0.5 s");
  });
});

test("messages that are no receipts, or receipts of other transfers, change nothing", async () => {
  const size = 2 * MIB;
  await using node = await receiver((message) => {
    if (message.kind === "start") return {};
    if (message.kind === "end") return { status: STATUS.saved, size, hash: message.hash };
    if (message.kind !== "data") return null;
    if (message.offset === 0) return new MessageBuilder().finish({ type: 9 });
    return { id: message.id ^ 1n, status: STATUS.disk, reason: "not yours" };
  });
  const { code, stdout, stderr } = await sendTo(node, size);
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  expect(stdout).toContain("✓ file  2,097,152 bytes in ");
});
