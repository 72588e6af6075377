/** What a command talks to, and how a command ends. */
import type { Output } from "../style.ts";

/** Standard error, where progress is shown. */
export interface Screen extends Output {
  /** Width in characters, where it is known. */
  readonly columns?: number | undefined;
}

export interface Io {
  /** What came of it. */
  readonly stdout: Output;
  /** Progress, warnings and errors. */
  readonly stderr: Screen;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Fires when the person wants out: the command cleans up and ends. */
  readonly signal?: AbortSignal;
}

export const EXIT_OK = 0;
export const EXIT_FAILED = 1;
export const EXIT_USAGE = 2;
/** As shells have it for a command that Ctrl-C ended. */
export const EXIT_INTERRUPTED = 130;

/** A command line that cannot be meant: the usage is shown, and nothing was done. */
export class UsageError extends Error {}

/** Something that went wrong and is fully said by its message. */
export class CommandError extends Error {}

/** What to say of any error, in one line or a few, without a stack. */
export function errorText(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** What an error of the file system means, without the path and the system call. */
export function fileErrorText(error: unknown): string {
  const code = (error as { code?: unknown } | null)?.code;
  const known: Readonly<Record<string, string>> = {
    ENOENT: "there is no such file or folder",
    EACCES: "permission denied",
    EPERM: "not permitted",
    ENOTDIR: "a part of the path is not a folder",
    EISDIR: "it is a folder",
    ENOSPC: "no space is left",
    EDQUOT: "the disk quota is used up",
    EFBIG: "the file system cannot hold a file of this size",
    EROFS: "the file system is read-only",
    EMFILE: "too many files are open",
    ENAMETOOLONG: "the name is too long",
    ELOOP: "too many symbolic links",
    EIO: "the disk reports an error",
  };
  return (typeof code === "string" ? (known[code] ?? code) : undefined) ?? errorText(error);
}
