/*
 * Test double of Metal, and of the few classes of Foundation that go with it. It is no framework of Apple's and reaches no device: "GPU"
 * code is the host's build of this project's own kernels. What it does is set by `double.conf` beside it (README.md).
 *
 * Objects are those of the Objective-C double, made through its ordinary functions. Where Metal's validation would stop the
 * process, this stops it too.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "double.h"
#include "kernels.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void *id;
typedef const void *SEL;
typedef unsigned long NSUInteger;
typedef signed char BOOL;
typedef void (*imp)(void);
typedef struct { NSUInteger width, height, depth; } MTLSize;

/* ---- the runtime ---- */

static struct {
  SEL (*sel)(const char *);
  const char *(*sel_name)(SEL);
  id (*get_class)(const char *);
  id (*allocate_class)(id, const char *, size_t);
  void (*register_class)(id);
  BOOL (*add_method)(id, SEL, imp, const char *);
  BOOL (*responds)(id, SEL);
  id (*class_of)(id);
  const char *(*class_name)(id);
  id (*create)(id, size_t);
  id (*dispose)(id);
  void *(*data)(id);
  id (*retain)(id);
  void (*release)(id);
  id (*autorelease)(id);
  void (*settings_read)(void);
} objc;

static bool runtime_open(void) {
  static const char *const places[] = {"libobjc.A.dylib", "../../../../usr/lib/libobjc.A.dylib"};
  static const struct {
    const char *name;
    void *at;
  } wanted[] = {
      {"sel_registerName", &objc.sel},           {"sel_getName", &objc.sel_name},
      {"objc_getClass", &objc.get_class},        {"objc_allocateClassPair", &objc.allocate_class},
      {"objc_registerClassPair", &objc.register_class}, {"class_addMethod", &objc.add_method},
      {"class_respondsToSelector", &objc.responds}, {"object_getClass", &objc.class_of},
      {"class_getName", &objc.class_name},       {"class_createInstance", &objc.create},
      {"object_dispose", &objc.dispose},         {"object_getIndexedIvars", &objc.data},
      {"objc_retain", &objc.retain},             {"objc_release", &objc.release},
      {"objc_autorelease", &objc.autorelease},   {"objc_double_settings_read", &objc.settings_read},
  };
  Dl_info here;
  void *library = NULL;
  if (dladdr((void *)&objc, &here) == 0) return false;
  int directory = (int)(strrchr(here.dli_fname, '/') - here.dli_fname + 1);
  for (size_t at = 0; at < sizeof places / sizeof places[0] && library == NULL; at++) {
    char path[4096];
    (void)snprintf(path, sizeof path, "%.*s%s", directory, here.dli_fname, places[at]);
    if (access(path, R_OK) == 0) library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  }
  for (size_t at = 0; at < sizeof wanted / sizeof wanted[0]; at++) {
    void *address = library == NULL ? NULL : dlsym(library, wanted[at].name);
    if (address == NULL) return false;
    memcpy(wanted[at].at, &address, sizeof address);
  }
  /* A framework is never unloaded; and the classes below stay known to the runtime. */
  (void)dlopen(here.dli_fname, RTLD_NOW | RTLD_NODELETE | RTLD_NOLOAD);
  return true;
}

#define die(...) double_die("Metal", __VA_ARGS__)

static bool is_missing(const char *name) {
  char setting[128];
  (void)snprintf(setting, sizeof setting, "missing.%s", name);
  return double_number(setting, 0) != 0;
}

/* Every method starts here: false where it is to fail. */
static bool enter(id self, SEL selector) {
  const char *name = objc.sel_name(selector);
  if (is_missing(name)) die("-[%s %s]: unrecognized selector", objc.class_name(objc.class_of(self)), name);
  return double_enter(name) == 0;
}

static BOOL responds(id self, SEL selector, SEL asked) {
  (void)selector;
  return objc.responds(objc.class_of(self), asked) && !is_missing(objc.sel_name(asked));
}

/* ---- what is alive of a device ---- */

enum what { DEVICE, BUFFER, LIBRARY, FUNCTION, PIPELINE, QUEUE, COMMAND, ENCODER, KINDS };

static const char *const class_names[KINDS] = {"MTLDoubleDevice", "MTLDoubleBuffer", "MTLDoubleLibrary", "MTLDoubleFunction",
                                               "MTLDoublePipeline", "MTLDoubleQueue", "MTLDoubleCommandBuffer",
                                               "MTLDoubleEncoder"};

/* Counts what was made on one device. Outlives it where something does. */
typedef struct census {
  uint32_t references;
  uint32_t alive[KINDS];
  uint64_t bytes;
} census;

/* The start of every object's own data. */
typedef struct part {
  census *of;
  enum what what;
} part;

static void census_release(census *one) {
  if (__atomic_sub_fetch(&one->references, 1, __ATOMIC_ACQ_REL) == 0) free(one);
}

/* A new object with one reference, the caller's. `size` is that of its data, which starts with a part. */
static id object_new(census *of, enum what what, size_t size) {
  id one = objc.create(objc.get_class(class_names[what]), size);
  if (one == NULL) abort();
  part *data = objc.data(one);
  *data = (part){of, what};
  __atomic_fetch_add(&of->references, 1, __ATOMIC_RELAXED);
  __atomic_fetch_add(&of->alive[what], 1, __ATOMIC_RELAXED);
  return one;
}

static void object_end(id one) {
  part *data = objc.data(one);
  census *of = data->of;
  __atomic_fetch_sub(&of->alive[data->what], 1, __ATOMIC_RELAXED);
  if (data->what == DEVICE) {
    double_report("release device buffers=%u bytes=%llu libraries=%u functions=%u pipelines=%u queues=%u commands=%u encoders=%u "
                  "faults=%llu",
                  of->alive[BUFFER], (unsigned long long)of->bytes, of->alive[LIBRARY], of->alive[FUNCTION],
                  of->alive[PIPELINE], of->alive[QUEUE], of->alive[COMMAND], of->alive[ENCODER],
                  (unsigned long long)double_faults());
  }
  (void)objc.dispose(one);
  census_release(of);
}

static void plain_dealloc(id self, SEL selector) {
  (void)selector;
  object_end(self);
}

/* Also the check that an argument is what it is said to be. */
static void *data_of(id one, enum what what, const char *call) {
  part *data = one == NULL ? NULL : objc.data(one);
  if (data == NULL || data->what != what) die("%s with %s in place of a %s", call, one == NULL ? "nil" : "something", class_names[what]);
  return data;
}

/* One translation unit in several files, so that each can be read in one sitting and the build stays one command. */
#include "metal_device.h"
#include "metal_run.h"

/* ---- the classes ---- */

#define METHOD(function) ((imp)(void (*)(void))(function))

static const struct row {
  const char *of;
  const char *selector;
  imp run;
} rows[] = {
    {"NSString", "UTF8String", METHOD(string_utf8)},
    {"NSString", "length", METHOD(string_length)},
    {"NSString", "dealloc", METHOD(string_dealloc)},
    {"NSError", "localizedDescription", METHOD(error_text)},
    {"NSError", "code", METHOD(error_code)},
    {"NSError", "dealloc", METHOD(error_dealloc)},
    {"MTLDoubleDevice", "name", METHOD(device_name)},
    {"MTLDoubleDevice", "hasUnifiedMemory", METHOD(device_unified)},
    {"MTLDoubleDevice", "registryID", METHOD(device_registry)},
    {"MTLDoubleDevice", "supportsFamily:", METHOD(device_family)},
    {"MTLDoubleDevice", "recommendedMaxWorkingSetSize", METHOD(device_working_set)},
    {"MTLDoubleDevice", "maxBufferLength", METHOD(device_buffer_limit)},
    {"MTLDoubleDevice", "currentAllocatedSize", METHOD(device_allocated)},
    {"MTLDoubleDevice", "newBufferWithLength:options:", METHOD(device_buffer)},
    {"MTLDoubleDevice", "newBufferWithBytes:length:options:", METHOD(device_buffer_bytes)},
    {"MTLDoubleDevice", "newLibraryWithSource:options:error:", METHOD(device_library)},
    {"MTLDoubleDevice", "newComputePipelineStateWithFunction:error:", METHOD(device_pipeline)},
    {"MTLDoubleDevice", "newCommandQueue", METHOD(device_queue)},
    {"MTLDoubleDevice", "dealloc", METHOD(plain_dealloc)},
    {"MTLDoubleBuffer", "contents", METHOD(buffer_contents)},
    {"MTLDoubleBuffer", "length", METHOD(buffer_length)},
    {"MTLDoubleBuffer", "gpuAddress", METHOD(buffer_address)},
    {"MTLDoubleBuffer", "storageMode", METHOD(buffer_storage)},
    {"MTLDoubleBuffer", "dealloc", METHOD(buffer_dealloc)},
    {"MTLDoubleLibrary", "newFunctionWithName:", METHOD(library_function)},
    {"MTLDoubleLibrary", "dealloc", METHOD(library_dealloc)},
    {"MTLDoubleFunction", "dealloc", METHOD(plain_dealloc)},
    {"MTLDoublePipeline", "maxTotalThreadsPerThreadgroup", METHOD(pipeline_threads)},
    {"MTLDoublePipeline", "threadExecutionWidth", METHOD(pipeline_width)},
    {"MTLDoublePipeline", "dealloc", METHOD(plain_dealloc)},
    {"MTLDoubleQueue", "commandBuffer", METHOD(queue_command)},
    {"MTLDoubleQueue", "dealloc", METHOD(plain_dealloc)},
    {"MTLDoubleCommandBuffer", "computeCommandEncoder", METHOD(command_encoder)},
    {"MTLDoubleCommandBuffer", "commit", METHOD(command_commit)},
    {"MTLDoubleCommandBuffer", "waitUntilCompleted", METHOD(command_wait)},
    {"MTLDoubleCommandBuffer", "status", METHOD(command_status)},
    {"MTLDoubleCommandBuffer", "error", METHOD(command_error)},
    {"MTLDoubleCommandBuffer", "dealloc", METHOD(command_dealloc)},
    {"MTLDoubleEncoder", "setComputePipelineState:", METHOD(encoder_pipeline)},
    {"MTLDoubleEncoder", "setBuffer:offset:atIndex:", METHOD(encoder_buffer)},
    {"MTLDoubleEncoder", "setBytes:length:atIndex:", METHOD(encoder_bytes)},
    {"MTLDoubleEncoder", "useResource:usage:", METHOD(encoder_use)},
    {"MTLDoubleEncoder", "dispatchThreadgroups:threadsPerThreadgroup:", METHOD(encoder_groups)},
    {"MTLDoubleEncoder", "dispatchThreads:threadsPerThreadgroup:", METHOD(encoder_threads)},
    {"MTLDoubleEncoder", "endEncoding", METHOD(encoder_end)},
    {"MTLDoubleEncoder", "dealloc", METHOD(encoder_dealloc)},
};

static void add_class(const char *name) {
  id one = objc.allocate_class(objc.get_class("NSObject"), name, 0);
  if (one == NULL) return;
  (void)objc.add_method(one, objc.sel("respondsToSelector:"), METHOD(responds), "c@::");
  for (size_t at = 0; at < sizeof rows / sizeof rows[0]; at++) {
    if (strcmp(rows[at].of, name) == 0) (void)objc.add_method(one, objc.sel(rows[at].selector), rows[at].run, "");
  }
  /* A class's own methods are those of its class. */
  if (strcmp(name, "NSString") == 0)
    (void)objc.add_method(objc.class_of(one), objc.sel("stringWithUTF8String:"), METHOD(string_with), "@#:*");
  objc.register_class(one);
}

static bool ready;

__attribute__((constructor)) static void begin(void) {
  ready = runtime_open();
  if (!ready) return;
  add_class("NSString");
  add_class("NSError");
  for (int at = 0; at < KINDS; at++) add_class(class_names[at]);
}

/* The caller's to release; NULL where there is no device. */
DOUBLE_EXPORT id MTLCreateSystemDefaultDevice(void) {
  double_settings_read();
  if (!ready) {
    double_report("fault: the Metal double found no libobjc.A.dylib");
    return NULL;
  }
  objc.settings_read();
  if (double_enter("MTLCreateSystemDefaultDevice") != 0 || double_number("devices", 1) <= 0) return NULL;
  census *of = calloc(1, sizeof *of);
  if (of == NULL) return NULL;
  return object_new(of, DEVICE, sizeof(part));
}
