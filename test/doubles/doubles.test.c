/*
 * Tests of the doubles themselves: doubles_test FOLDER, where FOLDER holds libcuda.so.1, libobjc.A.dylib and Metal as zig-out/doubles
 * does. What the shims are tested against has to behave like the real thing where it matters, and to notice misuse.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "harness.h"

#include <signal.h>
#include <sys/mman.h>

static void *find(void *library, const char *name) {
  void *address = dlsym(library, name);
  if (address == NULL) {
    (void)fprintf(stderr, "%s is missing\n", name);
    exit(2);
  }
  return address;
}

#include "cuda_cases.h"
#include "metal_cases.h"

int main(int count, char **arguments) {
  static const char *const files[] = {"libcuda.so.1", "libobjc.A.dylib", "Metal", NULL};
  if (count != 2) {
    (void)fprintf(stderr, "usage: %s FOLDER\n", arguments[0]);
    return 2;
  }
  harness_begin();
  for (int at = 0; files[at] != NULL; at++) harness_copy(arguments[1], files[at], files[at]);
  harness_behave("opening", "");
  cuda = dlopen(harness_path("libcuda.so.1"), RTLD_NOW | RTLD_LOCAL);
  void *runtime = dlopen(harness_path("libobjc.A.dylib"), RTLD_NOW | RTLD_LOCAL);
  void *metal = dlopen(harness_path("Metal"), RTLD_NOW | RTLD_LOCAL);
  if (cuda == NULL || runtime == NULL || metal == NULL) {
    (void)fprintf(stderr, "%s\n", dlerror());
    return 2;
  }
  load_cuda();
  test_cuda_contexts();
  test_cuda_attributes();
  test_cuda_memory();
  test_cuda_registered();
  test_cuda_modules();
  test_cuda_kernels("", false, false);
  test_cuda_kernels("kernel_millis=500", true, false);
  test_cuda_kernels("attribute.89=0", false, true);
  test_cuda_kernels("attribute.89=0\nkernel_millis=500", true, true);
  harness_behave("cuda: a call that hangs", "hang.cuInit=1");
  CHECK_EQUAL(harness_signal_of(hang, NULL), SIGALRM);

  void *const wanted[][2] = {{&objc.send, find(runtime, "objc_msgSend")},
                             {&objc.sel, find(runtime, "sel_registerName")},
                             {&objc.get_class, find(runtime, "objc_getClass")},
                             {&objc.push, find(runtime, "objc_autoreleasePoolPush")},
                             {&objc.pop, find(runtime, "objc_autoreleasePoolPop")},
                             {&objc.retain, find(runtime, "objc_retain")},
                             {&objc.release, find(runtime, "objc_release")},
                             {&objc.create, find(metal, "MTLCreateSystemDefaultDevice")}};
  for (size_t at = 0; at < sizeof wanted / sizeof wanted[0]; at++) memcpy(wanted[at][0], &wanted[at][1], sizeof(void *));
  test_objc(runtime);
  test_metal();
  (void)dlclose(cuda);
  return harness_end();
}
