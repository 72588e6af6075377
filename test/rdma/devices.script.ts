/** Prints the names of this machine's RDMA devices as a JSON array, by libibverbs over bun:ffi. */
import { CString, dlopen, ptr, read, type Pointer } from "bun:ffi";

const verbs = dlopen("libibverbs.so.1", {
  ibv_get_device_list: { args: ["ptr"], returns: "ptr" },
  ibv_get_device_name: { args: ["ptr"], returns: "ptr" },
  ibv_free_device_list: { args: ["ptr"], returns: "void" },
});
const count = new Int32Array(1);
const list = verbs.symbols.ibv_get_device_list(ptr(count));
if (list === null) throw new Error("ibv_get_device_list: no list");
const names = Array.from({ length: count[0]! }, (_, at) => {
  const name = verbs.symbols.ibv_get_device_name(read.ptr(list, at * 8) as Pointer);
  return name === null ? null : new CString(name).toString();
});
verbs.symbols.ibv_free_device_list(list);
verbs.close();
console.log(JSON.stringify(names.sort()));
