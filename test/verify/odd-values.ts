/** Values that nobody should give, for the tests: what throws, lies or is gone when it is looked at. */
import fc from "fast-check";

function thrower(): never {
  throw new RangeError("a getter of the caller's");
}

/** An object whose property `name` throws. */
export function throwing(name: string | symbol, rest: object = {}): object {
  return Object.defineProperty({ ...rest }, name, { get: thrower, enumerable: true });
}

export function revoked(target: object): object {
  const { proxy, revoke } = Proxy.revocable(target, {});
  revoke();
  return proxy;
}

/** A proxy that throws whatever is asked of it. */
export function hostile(target: object): object {
  const traps = Object.getOwnPropertyNames(Reflect).map((trap) => [trap, thrower]);
  return new Proxy(target, Object.fromEntries(traps) as ProxyHandler<object>);
}

/** An array that says that it has `length` items. */
export function longProxy(target: readonly unknown[], length: unknown): unknown[] {
  return new Proxy([...target], {
    get: (all, name) =>
      name === "length" ? length : (all as unknown as Record<string | symbol, unknown>)[name],
  });
}

/** Bytes whose buffer was transferred away. */
export function released(bytes: Uint8Array = new Uint8Array(32)): Uint8Array {
  const copy = new Uint8Array(bytes);
  copy.buffer.transfer();
  return copy;
}

/** Bytes over a buffer that can be resized, of a fixed length. */
export function resizable(bytes: Uint8Array, room = 0): [view: Uint8Array, buffer: ArrayBuffer] {
  const buffer = new ArrayBuffer(bytes.length + room, { maxByteLength: bytes.length + room + 64 });
  const view = new Uint8Array(buffer, 0, bytes.length);
  view.set(bytes);
  return [view, buffer];
}

/** A view that lies outside of its buffer. */
export function outOfBounds(bytes: Uint8Array = new Uint8Array(32)): Uint8Array {
  const [view, buffer] = resizable(bytes);
  buffer.resize(bytes.length >> 1);
  return view;
}

/** What is neither an item nor a part of one, and makes itself felt when it is looked at. New ones each time. */
export const STRANGE: readonly Make[] = [
  () => null,
  () => undefined,
  () => 7,
  () => NaN,
  () => 5n,
  () => "text",
  () => Symbol("s"),
  () => thrower,
  () => [],
  () => ({}),
  () => Object.create(null) as unknown,
  () => Object.create(Uint8Array.prototype) as unknown,
  () => new Proxy(new Uint8Array(32), {}),
  () => revoked({}),
  () => revoked([]),
  () => hostile({}),
  () => hostile([]),
  () => hostile(new Uint8Array(32)),
  () => throwing("publicKey"),
  () => throwing("message", { publicKey: new Uint8Array(32) }),
  () => throwing("length"),
  () => throwing("bytes"),
  () => throwing("table", { bytes: new Uint8Array(3), count: 1 }),
  () => throwing(Symbol.toPrimitive),
  () => throwing("toString"),
  () => released(),
  () => outOfBounds(),
  () => new DataView(new ArrayBuffer(32)),
  () => new Uint8ClampedArray(32),
  () => new ArrayBuffer(32),
  () => new Array(2 ** 32 - 1),
  () => longProxy([], -1),
  () => longProxy([], 1.5),
  () => longProxy([], NaN),
  () => longProxy([], 3),
  () => Promise.resolve(3),
  () => Object.assign([], { bytes: new Uint8Array(0), table: new Uint32Array(0), count: 0 }),
];

/** Makes a value: fast-check looks at those that it is given, and many of these do not take that. */
export type Make = () => unknown;

export const strange: fc.Arbitrary<Make> = fc.constantFrom(...STRANGE);

const plain: fc.Arbitrary<Make> = fc
  .anything({ maxDepth: 2, withBigInt: true, withTypedArray: true, withSparseArray: true })
  .map((value) => () => value);

/** An object with some of the properties `names`, each made by one of `values`. */
export function objectOf(
  names: readonly string[],
  values: fc.Arbitrary<Make>,
  maxKeys: number,
): fc.Arbitrary<Make> {
  return fc
    .dictionary(fc.constantFrom(...names), values, { maxKeys })
    .map((makes) => () => Object.fromEntries(Object.entries(makes).map(([name, make]) => [name, make()])));
}

/** Anything: trees of plain values, and strange ones among them. */
export const anything: fc.Arbitrary<Make> = fc.oneof(
  strange,
  plain,
  fc.array(strange, { maxLength: 5 }).map((makes) => () => makes.map((make) => make())),
  objectOf(["publicKey", "message", "signature", "bytes", "table", "count", "length"], strange, 7),
);
