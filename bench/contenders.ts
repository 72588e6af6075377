/** The table of contenders. To add one, write `peers/NAME.ts` and add a row. */
import { join } from "node:path";
import { prepare as prepareC } from "./peers/c-epoll.ts";

/** The command that the arguments of `child.ts` are appended to, or why this contender cannot run here. */
export type Prepared = { readonly command: readonly string[] } | { readonly skip: string };

export interface Contender {
  readonly name: string;
  readonly what: string;
  /** Makes ready to run; what it builds goes into `folder`, which is removed at the end. */
  prepare(folder: string): Promise<Prepared>;
}

/** A contender in TypeScript: `peers/NAME.ts` exports `peer`. */
function inBun(name: string, what: string): Contender {
  return {
    name,
    what,
    prepare: async () => ({ command: [process.execPath, join(import.meta.dir, "child.ts"), name] }),
  };
}

/** All figures are compared with this one. */
export const YARDSTICK = "bun-bare";

export const CONTENDERS: readonly Contender[] = [
  inBun("zap", "this library, transport default"),
  inBun("zap-try", "the same through trySend and tryRecv"),
  inBun("bun-bare", "bare Bun.listen and Bun.connect, framed by hand"),
  inBun("node-net", "node:net in Bun, framed by hand"),
  inBun("ws", "the module ws"),
  inBun("grpc", "@grpc/grpc-js streams"),
  { name: "c-epoll", what: "plain C over epoll, framed by hand", prepare: prepareC },
];
