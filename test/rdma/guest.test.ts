/** The guest itself: that real verbs run in it, from C and from Bun, and that whatever goes wrong in it is no pass. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { ADDRESS, COMPILER, PLAIN, ROOT, Workshop } from "../native/toolchain.ts";
import { GuestError, runInGuest, type GuestFault, type GuestJob } from "./guest/job.ts";
import { rdma } from "./guest/wanted.ts";

/** The first one may have to download. */
const LIMIT = 400_000;
/** Long enough for the guest to see that it was too long. */
const SHORT = 3_000;

const link = "tc qdisc replace dev va root netem";

let shop: Workshop;
beforeAll(() => {
  shop = new Workshop();
});
afterAll(() => shop[Symbol.dispose]());

describe.skipIf(rdma.skip)(`the RDMA guest${rdma.because}`, () => {
  async function failure(job: GuestJob): Promise<GuestError> {
    const error: unknown = await runInGuest(job).then(
      ({ output }) => new Error(`passed, and should not have: ${output}`),
      (reason: unknown) => reason,
    );
    if (!(error instanceof GuestError)) throw error;
    return error;
  }

  const expectFault = (error: GuestError, fault: GuestFault, ...said: string[]) => {
    expect({ fault: error.fault, message: error.message }).toEqual({ fault, message: expect.any(String) });
    for (const text of said) expect(error.message).toContain(text);
  };

  test(
    "has two devices that talk to each other, seen from C and from Bun, over a link that can lose",
    async () => {
      if (COMPILER === null || !existsSync("/usr/include/infiniband/verbs.h"))
        throw new Error(
          "a C compiler and libibverbs' headers are needed: apt-get install gcc libc6-dev libibverbs-dev",
        );
      const source = join(ROOT, "test", "rdma", "verbs_ping.c");
      const programs = [
        await shop.link("verbs_ping", [source, "-libverbs"], PLAIN),
        await shop.link("verbs_ping_checked", [source, "-libverbs"], ADDRESS),
      ];
      const script = `
        set -e
        ping() { "$1" $GUEST_DEVICE_0 $GUEST_DEVICE_1 $GUEST_GID_INDEX; }
        bun test/rdma/devices.script.ts
        ping verbs_ping
        ping verbs_ping_checked
        insmod /modules/sch_netem.ko
        ${link} delay 5ms loss 5%
        ping verbs_ping
        tc -s qdisc show dev va | grep -c 'Sent [1-9]'
        printf '%s\\n' "$MINE"
        touch test/written && exit 9
        echo written >/tmp/written && cat /tmp/written`;
      const mine = `it's "mine", $HOME and all;\ttwo lines\nof it`;
      const { output } = await runInGuest({ name: "first job", programs, script, env: { MINE: mine } });
      const readOnly = "touch: test/written: Read-only file system";
      const ok = "verbs_ping: ok: sent 300 bytes from rxe0 to rxe1, read 1048576 back\n";
      expect(output).toBe(`["rxe0","rxe1"]\n${ok.repeat(3)}1\n${mine}\n${readOnly}\nwritten\n`);
    },
    LIMIT,
  );

  test(
    "gives a command its words as they are",
    async () => {
      const words = ["", "two words", "it's", "$HOME", "*"];
      const print = "console.log(JSON.stringify(process.argv.slice(1)))";
      const seen = await runInGuest({ name: "words", command: ["bun", "-e", print, "--", ...words] });
      expect(seen.output).toBe(`${JSON.stringify(words)}\n`);
    },
    LIMIT,
  );

  test(
    "fails when the job ends with another code than 0",
    async () => {
      const error = await failure({ name: "bad job", script: "echo what it said; exit 1" });
      expectFault(
        error,
        "exit",
        "bad job: the job ended with 1",
        "--- the job's output:\nwhat it said",
        "--- the console",
      );
      expect(error.output).toBe("what it said\n");
    },
    LIMIT,
  );

  test(
    "fails when the job hangs, and says what it had said",
    async () => {
      const error = await failure({
        name: "hung job",
        script: "echo before; sleep 1000",
        timeoutMillis: SHORT,
      });
      expectFault(error, "time", "hung job: the job did not end within its time limit", "before");
    },
    LIMIT,
  );

  test(
    "fails when the guest as a whole takes too long",
    async () => {
      // It cannot even boot in this time.
      const error = await failure({
        name: "slow guest",
        command: ["true"],
        timeoutMillis: 500,
        bootMillis: 500,
      });
      expectFault(error, "time", "slow guest: the guest did not end within 1500 ms and was killed");
    },
    LIMIT,
  );

  test(
    "fails when the guest's kernel panics, with its last words",
    async () => {
      const error = await failure({
        name: "panic",
        script: "echo before; echo c >/proc/sysrq-trigger; sleep 1000",
      });
      const said = "panic: the guest's kernel gave up (QEMU ended with 0): Kernel panic - ";
      expectFault(error, "panic", said, "--- the job's output:\nbefore", "--- the console");
    },
    LIMIT,
  );

  test(
    "fails when QEMU's code says that all is well and the guest does not",
    async () => {
      const leave = "printf '\\020' | dd of=/dev/port bs=1 seek=244 count=1";
      const error = await failure({ name: "early", script: `${leave}; sleep 1000` });
      expectFault(error, "verdict", 'early: the guest\'s last word was "started", and QEMU ended with 33');
    },
    LIMIT,
  );

  test("says which program of the host is not there", async () => {
    const error = await failure({ name: "lost", command: ["lost"], programs: ["/nowhere/lost"] });
    expectFault(error, "host", "lost: the guest is to have /nowhere/lost, which is not there");
  });
});
