/*
 * Metal in plain C: the Objective-C runtime's functions, the selectors that we use, and one inline function for each prototype that
 * messages have. objc_msgSend has no prototype of its own: it is called as the method that it reaches, to the letter, as arguments go
 * into registers by their types.
 *
 * Ownership is Cocoa's: what `new...` and MTLCreateSystemDefaultDevice give is ours to release; all else belongs to the innermost
 * pool, and is kept beyond it only by objc_retain. So every entry from outside opens a pool.
 */
#ifndef ZAP_METAL_OBJC_H
#define ZAP_METAL_OBJC_H

#include "../common/backend.h"

typedef void *id;
typedef const void *SEL;
typedef unsigned long NSUInteger;

#if defined(__APPLE__) && !defined(__aarch64__)
typedef signed char BOOL;
#else
typedef bool BOOL;
#endif

typedef struct {
  NSUInteger width, height, depth;
} MTLSize;

enum {
  MTLResourceStorageModeShared = 0,
  MTLResourceUsageRead = 1,
  MTLCommandBufferStatusCompleted = 4,
  MTLCommandBufferStatusError = 5,
  MTLGPUFamilyMetal3 = 5001
};

/* The member of the table, and the selector. */
#define ZAP_METAL_SELECTORS(X)                                                                \
  X(string, "stringWithUTF8String:")                                                          \
  X(utf8, "UTF8String")                                                                       \
  X(description, "localizedDescription")                                                      \
  X(responds, "respondsToSelector:")                                                          \
  X(name, "name")                                                                             \
  X(unified, "hasUnifiedMemory")                                                              \
  X(working_set, "recommendedMaxWorkingSetSize")                                              \
  X(longest, "maxBufferLength")                                                               \
  X(family, "supportsFamily:")                                                                \
  X(new_buffer, "newBufferWithLength:options:")                                               \
  X(new_library, "newLibraryWithSource:options:error:")                                       \
  X(new_function, "newFunctionWithName:")                                                     \
  X(new_pipeline, "newComputePipelineStateWithFunction:error:")                               \
  X(new_queue, "newCommandQueue")                                                             \
  X(contents, "contents")                                                                     \
  X(address, "gpuAddress")                                                                    \
  X(most_threads, "maxTotalThreadsPerThreadgroup")                                            \
  X(command, "commandBuffer")                                                                 \
  X(encoder, "computeCommandEncoder")                                                         \
  X(set_pipeline, "setComputePipelineState:")                                                 \
  X(set_buffer, "setBuffer:offset:atIndex:")                                                  \
  X(set_bytes, "setBytes:length:atIndex:")                                                    \
  X(use, "useResource:usage:")                                                                \
  X(dispatch, "dispatchThreadgroups:threadsPerThreadgroup:")                                  \
  X(end, "endEncoding")                                                                       \
  X(commit, "commit")                                                                         \
  X(wait, "waitUntilCompleted")                                                               \
  X(status, "status")                                                                         \
  X(error, "error")

/* What a message is called, for the text of a timeout; and what it is sent by. */
struct zap_selector {
  SEL sel;
  const char *name;
};

#define ZAP_METAL_MEMBER(member, selector) struct zap_selector member;
struct zap_objc {
  SEL (*sel_registerName)(const char *name);
  id (*objc_getClass)(const char *name);
  id (*objc_retain)(id object);
  void (*objc_release)(id object); /* nil is fine */
  void *(*objc_autoreleasePoolPush)(void);
  void (*objc_autoreleasePoolPop)(void *pool);
  void (*objc_msgSend)(void);
  id (*MTLCreateSystemDefaultDevice)(void);
  id NSString; /* the class */
  struct {
    ZAP_METAL_SELECTORS(ZAP_METAL_MEMBER)
  } sel;
};
#undef ZAP_METAL_MEMBER

/* Opens libobjc at `support` and Metal at `runtime`, which stay open, and fills the table. */
int32_t zap_metal_load(const char *runtime, const char *support, struct zap_objc *objc);

/* ---- messages, by prototype ---- */

/* Any of them may be the one that hangs. */
static inline SEL zap_said(struct zap_selector selector) {
  zap_calling(selector.name);
  return selector.sel;
}

static inline id zap_send(const struct zap_objc *objc, id self, struct zap_selector selector) {
  return ((id(*)(id, SEL))objc->objc_msgSend)(self, zap_said(selector));
}
static inline void zap_send_void(const struct zap_objc *objc, id self, struct zap_selector selector) {
  ((void (*)(id, SEL))objc->objc_msgSend)(self, zap_said(selector));
}
static inline void *zap_send_pointer(const struct zap_objc *objc, id self, struct zap_selector selector) {
  return ((void *(*)(id, SEL))objc->objc_msgSend)(self, zap_said(selector));
}
static inline const char *zap_send_text(const struct zap_objc *objc, id self, struct zap_selector selector) {
  return ((const char *(*)(id, SEL))objc->objc_msgSend)(self, zap_said(selector));
}
static inline uint64_t zap_send_u64(const struct zap_objc *objc, id self, struct zap_selector selector) {
  return ((uint64_t(*)(id, SEL))objc->objc_msgSend)(self, zap_said(selector));
}
static inline NSUInteger zap_send_number(const struct zap_objc *objc, id self, struct zap_selector selector) {
  return ((NSUInteger(*)(id, SEL))objc->objc_msgSend)(self, zap_said(selector));
}
static inline bool zap_send_bool(const struct zap_objc *objc, id self, struct zap_selector selector) {
  return ((BOOL(*)(id, SEL))objc->objc_msgSend)(self, zap_said(selector)) != 0;
}
static inline bool zap_send_family(const struct zap_objc *objc, id self, struct zap_selector selector, long family) {
  return ((BOOL(*)(id, SEL, long))objc->objc_msgSend)(self, zap_said(selector), family) != 0;
}
static inline bool zap_responds(const struct zap_objc *objc, id self, struct zap_selector asked) {
  return ((BOOL(*)(id, SEL, SEL))objc->objc_msgSend)(self, zap_said(objc->sel.responds), asked.sel) != 0;
}
static inline id zap_send_id(const struct zap_objc *objc, id self, struct zap_selector selector, id argument) {
  return ((id(*)(id, SEL, id))objc->objc_msgSend)(self, zap_said(selector), argument);
}
static inline id zap_send_id_error(const struct zap_objc *objc, id self, struct zap_selector selector, id argument, id *error) {
  return ((id(*)(id, SEL, id, id *))objc->objc_msgSend)(self, zap_said(selector), argument, error);
}
static inline id zap_send_ids_error(const struct zap_objc *objc, id self, struct zap_selector selector, id first, id second, id *error) {
  return ((id(*)(id, SEL, id, id, id *))objc->objc_msgSend)(self, zap_said(selector), first, second, error);
}
static inline id zap_send_numbers(const struct zap_objc *objc, id self, struct zap_selector selector, NSUInteger first, NSUInteger second) {
  return ((id(*)(id, SEL, NSUInteger, NSUInteger))objc->objc_msgSend)(self, zap_said(selector), first, second);
}
static inline void zap_send_set(const struct zap_objc *objc, id self, struct zap_selector selector, id argument) {
  ((void (*)(id, SEL, id))objc->objc_msgSend)(self, zap_said(selector), argument);
}
static inline void zap_send_use(const struct zap_objc *objc, id self, struct zap_selector selector, id resource, NSUInteger usage) {
  ((void (*)(id, SEL, id, NSUInteger))objc->objc_msgSend)(self, zap_said(selector), resource, usage);
}
static inline void zap_send_buffer(const struct zap_objc *objc, id self, struct zap_selector selector, id buffer, NSUInteger offset,
                                   NSUInteger index) {
  ((void (*)(id, SEL, id, NSUInteger, NSUInteger))objc->objc_msgSend)(self, zap_said(selector), buffer, offset, index);
}
static inline void zap_send_bytes(const struct zap_objc *objc, id self, struct zap_selector selector, const void *bytes, NSUInteger length,
                                  NSUInteger index) {
  ((void (*)(id, SEL, const void *, NSUInteger, NSUInteger))objc->objc_msgSend)(self, zap_said(selector), bytes, length, index);
}
static inline void zap_send_sizes(const struct zap_objc *objc, id self, struct zap_selector selector, MTLSize first, MTLSize second) {
  ((void (*)(id, SEL, MTLSize, MTLSize))objc->objc_msgSend)(self, zap_said(selector), first, second);
}

/* An NSString that belongs to the pool; NULL where out of memory. */
static inline id zap_metal_string(const struct zap_objc *objc, const char *text) {
  return ((id(*)(id, SEL, const char *))objc->objc_msgSend)(objc->NSString, zap_said(objc->sel.string), text);
}

/* What an NSError says, or that it says nothing. Holds as long as the pool. */
const char *zap_metal_reason(const struct zap_objc *objc, id error);

#endif
