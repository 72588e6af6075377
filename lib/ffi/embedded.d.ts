/** What importing a native library with `{ type: "file" }` gives: a path. */
declare module "*.so" {
  const path: string;
  export default path;
}
declare module "*.dylib" {
  const path: string;
  export default path;
}
