/** The functions that a library exports, read from its symbol table; for libraries of any platform, on any. */

export function exportsOf(file: Uint8Array): string[] {
  const view = new DataView(file.buffer, file.byteOffset, file.byteLength);
  if (view.getUint32(0) === 0x7f454c46) return elfExports(file, view);
  if (view.getUint32(0, true) === 0xfeedfacf) return machoExports(file, view);
  throw new Error("neither ELF nor Mach-O of 64 bits");
}

function elfExports(file: Uint8Array, view: DataView): string[] {
  const SHT_DYNSYM = 11;
  const [table, count] = [long(view, 40), view.getUint16(60, true)];
  const section = (index: number) => {
    const at = table + index * 64;
    return {
      type: view.getUint32(at + 4, true),
      at: long(view, at + 24),
      bytes: long(view, at + 32),
      link: view.getUint32(at + 40, true),
    };
  };
  const sections = Array.from({ length: count }, (_, index) => section(index));
  const symbols = sections.find((each) => each.type === SHT_DYNSYM);
  if (symbols === undefined) throw new Error("no dynamic symbols");
  const names = sections[symbols.link]!.at;
  const found: string[] = [];
  for (let at = symbols.at; at < symbols.at + symbols.bytes; at += 24) {
    const defined = view.getUint16(at + 6, true) !== 0;
    const local = view.getUint8(at + 4) >> 4 === 0;
    // STV_INTERNAL and STV_HIDDEN; protected symbols are for others, too.
    const hidden = [1, 2].includes(view.getUint8(at + 5) & 3);
    if (defined && !local && !hidden) found.push(text(file, names + view.getUint32(at, true)));
  }
  return found.sort();
}

function machoExports(file: Uint8Array, view: DataView): string[] {
  const LC_SYMTAB = 2;
  const [N_EXT, N_PEXT, N_TYPE, N_SECT] = [1, 0x10, 0x0e, 0x0e];
  for (let left = view.getUint32(16, true), at = 32; left > 0; left--, at += view.getUint32(at + 4, true)) {
    if (view.getUint32(at, true) !== LC_SYMTAB) continue;
    const [symbols, count, names] = [8, 12, 16].map((field) => view.getUint32(at + field, true)) as [
      number,
      number,
      number,
    ];
    const found: string[] = [];
    for (let index = 0; index < count; index++) {
      const symbol = symbols + index * 16;
      const kind = view.getUint8(symbol + 4);
      const exported = (kind & N_EXT) !== 0 && (kind & N_PEXT) === 0 && (kind & N_TYPE) === N_SECT;
      // C names have an underscore before them there.
      if (exported) found.push(text(file, names + view.getUint32(symbol, true)).slice(1));
    }
    // What the linker puts into every library there.
    return found.filter((name) => !["__dso_handle", "_mh_dylib_header"].includes(name)).sort();
  }
  throw new Error("no symbol table");
}

function long(view: DataView, at: number): number {
  return Number(view.getBigUint64(at, true));
}

function text(file: Uint8Array, at: number): string {
  return new TextDecoder().decode(file.subarray(at, file.indexOf(0, at)));
}
