/** Reads the headers of `shim/include` as text: prototypes, structures, enums. Knows the little C that they use, and throws at any other. */
import { readFileSync } from "node:fs";
import { join } from "node:path";

const INCLUDE = join(import.meta.dir, "..", "..", "shim", "include");

export interface Prototype {
  readonly args: readonly string[];
  readonly returns: string;
}

export interface Field {
  readonly name: string;
  readonly at: number;
  readonly bytes: number;
}

export interface Struct {
  readonly bytes: number;
  readonly fields: readonly Field[];
  /** What the comment before it says: `32 bytes`. */
  readonly documented: number | null;
}

export class CHeader {
  /** With comments. */
  readonly text: string;
  private readonly code: string;

  constructor(file: string) {
    this.text = readFileSync(join(INCLUDE, file), "utf8");
    this.code = this.text.replaceAll(/\/\*[^]*?\*\//g, " ");
  }

  /** Every exported function by its whole name. `prefix` takes the place of `ZAP_UMA(...)`. */
  prototypes(prefix: string): Map<string, Prototype> {
    const found = new Map<string, Prototype>();
    for (const [, returns, macro, plain, args] of this.code.matchAll(
      /ZAP_EXPORT\s+(\w+)\s+(?:ZAP_UMA\((\w+)\)|(\w+))\s*\(([^)]*)\)\s*;/g,
    )) {
      const name = macro === undefined ? plain! : prefix + macro;
      if (found.has(name)) throw new Error(`${name} is declared twice`);
      found.set(name, { returns: type(`${returns} x`), args: list(args!) });
    }
    // The macro's own definition in zap_shim.h is no declaration.
    const exports = this.code.replaceAll(/#define ZAP_EXPORT.*/g, "").split("ZAP_EXPORT").length - 1;
    if (exports !== found.size) throw new Error(`${exports} exports, of which ${found.size} were understood`);
    return found;
  }

  struct(name: string): Struct {
    const body = new RegExp(`typedef struct ${name} \\{([^}]*)\\}\\s*${name};`).exec(this.code)?.[1];
    if (body === undefined) throw new Error(`no struct ${name}`);
    const fields: Field[] = [];
    let at = 0;
    let alignment = 1;
    for (const line of body.split(";").map((each) => each.trim())) {
      if (line === "") continue;
      const match = /^(\w+)\s+(\w+(?:\[\d+\])?(?:\s*,\s*\w+(?:\[\d+\])?)*)$/.exec(line);
      const size = SIZES[match?.[1] ?? ""];
      if (!match || size === undefined) throw new Error(`${name}: not understood: ${line}`);
      alignment = Math.max(alignment, size);
      for (const declared of match[2]!.split(",")) {
        const [field = "", count = "1"] = declared.trim().split(/[[\]]/);
        at = Math.ceil(at / size) * size;
        const bytes = size * Number(count);
        fields.push({ name: field, at, bytes });
        at += bytes;
      }
    }
    const before = this.text.slice(0, this.text.indexOf(`typedef struct ${name} {`));
    const comment = before.slice(before.lastIndexOf("/*"));
    const documented = /(\d+) bytes/.exec(comment)?.[1];
    return {
      bytes: Math.ceil(at / alignment) * alignment,
      fields,
      documented: documented === undefined ? null : Number(documented),
    };
  }

  enumeration(name: string): Record<string, number> {
    const body = new RegExp(`enum ${name} \\{([^}]*)\\}`).exec(this.code)?.[1];
    if (body === undefined) throw new Error(`no enum ${name}`);
    return Object.fromEntries(
      body.split(",").map((each) => {
        const match = /^\s*(\w+) = (-?\d+)\s*$/.exec(each);
        if (!match) throw new Error(`${name}: not understood: ${each}`);
        return [match[1]!, Number(match[2])];
      }),
    );
  }

  define(name: string): number {
    return Number(new RegExp(`#define ${name} (0x[0-9a-f]+|\\d+)u?\\s`).exec(this.code)?.[1]);
  }
}

const SIZES: Readonly<Record<string, number>> = {
  char: 1,
  uint8_t: 1,
  uint16_t: 2,
  int32_t: 4,
  uint32_t: 4,
  uint64_t: 8,
};

const TYPES: Readonly<Record<string, string>> = { int32_t: "i32", uint32_t: "u32", uint64_t: "u64" };

function list(args: string): string[] {
  return args.trim() === "void" ? [] : args.split(",").map(type);
}

/** The type of `uint32_t count`, `const char *runtime`, as `bun:ffi` calls it. */
function type(declaration: string): string {
  if (declaration.includes("*")) return "ptr";
  const word = declaration.trim().split(/\s+/)[0]!;
  const known = TYPES[word];
  if (known === undefined) throw new Error(`type not understood: ${declaration}`);
  return known;
}
