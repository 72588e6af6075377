/** Bytes written by hand: hex digits, blanks for the eye, and `# ...` to the end of the line for people. */
export function hex(text: string): Uint8Array {
  return Uint8Array.fromHex(text.replaceAll(/#.*$/gm, "").replaceAll(/\s+/g, ""));
}
