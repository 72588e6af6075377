/*
 * Test double of the Objective-C runtime, libobjc.A.dylib, as much of it as plain C needs to talk to Metal. It is no runtime of Apple's.
 * Messages are sent by a real trampoline that leaves every argument where it was, so a wrong prototype goes wrong here too.
 *
 * Stricter than the real one: an object that was freed is kept for a while and a message to it ends the process, as does a
 * selector that nobody knows; an object that is autoreleased without a pool is a fault in the report.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "double.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct selector selector;
typedef struct class class;
typedef struct object object;
typedef void (*imp)(void);

struct selector {
  selector *next;
  char name[];
};

typedef struct method {
  struct method *next;
  const selector *name;
  imp run;
} method;

struct class {
  class *isa; /* of a class, the class of its class methods */
  class *parent;
  const char *name;
  method *methods;
  class *next;
  bool registered;
  bool is_meta;
};

struct object {
  class *isa;
  uint32_t retains;
  uint32_t freed;
  _Alignas(16) unsigned char data[];
};

enum { ZOMBIES = 1024, POOL_MAX = 4096 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static selector *selectors;
static class *classes;
static object *zombies[ZOMBIES];
static uint32_t zombie_next;

static _Thread_local object *pool[POOL_MAX];
static _Thread_local uint32_t pool_used;
static _Thread_local uint32_t pool_depth; /* pools that are open */

#define die(...) double_die("objc", __VA_ARGS__)

DOUBLE_EXPORT const selector *sel_registerName(const char *name) {
  if (name == NULL) return NULL;
  pthread_mutex_lock(&lock);
  selector *one = selectors;
  while (one != NULL && strcmp(one->name, name) != 0) one = one->next;
  if (one == NULL) {
    one = malloc(sizeof *one + strlen(name) + 1);
    if (one == NULL) abort();
    strcpy(one->name, name);
    one->next = selectors;
    selectors = one;
  }
  pthread_mutex_unlock(&lock);
  return one;
}
DOUBLE_EXPORT const selector *sel_getUid(const char *name) { return sel_registerName(name); }
DOUBLE_EXPORT const char *sel_getName(const selector *one) { return one == NULL ? "<null selector>" : one->name; }

/* ---- classes ---- */

DOUBLE_EXPORT class *objc_getClass(const char *name) {
  pthread_mutex_lock(&lock);
  class *one = classes;
  while (one != NULL && (name == NULL || !one->registered || strcmp(one->name, name) != 0)) one = one->next;
  pthread_mutex_unlock(&lock);
  return one;
}
DOUBLE_EXPORT class *objc_lookUpClass(const char *name) { return objc_getClass(name); }

DOUBLE_EXPORT class *objc_allocateClassPair(class *parent, const char *name, size_t extra) {
  (void)extra;
  if (name == NULL || objc_getClass(name) != NULL) return NULL;
  class *one = calloc(1, sizeof *one);
  class *meta = calloc(1, sizeof *meta);
  if (one == NULL || meta == NULL) abort();
  *meta = (class){.parent = parent == NULL ? NULL : parent->isa, .name = name, .is_meta = true};
  *one = (class){.isa = meta, .parent = parent, .name = name};
  return one;
}

DOUBLE_EXPORT void objc_registerClassPair(class *one) {
  pthread_mutex_lock(&lock);
  one->registered = true;
  one->next = classes;
  classes = one;
  pthread_mutex_unlock(&lock);
}

DOUBLE_EXPORT signed char class_addMethod(class *one, const selector *name, imp run, const char *types) {
  (void)types;
  for (method *other = one->methods; other != NULL; other = other->next) {
    if (other->name == name) return 0;
  }
  method *added = calloc(1, sizeof *added);
  if (added == NULL) abort();
  *added = (method){one->methods, name, run};
  one->methods = added;
  return 1;
}

static imp find(const class *one, const selector *name) {
  for (; one != NULL; one = one->parent) {
    for (const method *each = one->methods; each != NULL; each = each->next) {
      if (each->name == name) return each->run;
    }
  }
  return NULL;
}

DOUBLE_EXPORT const char *class_getName(const class *one) { return one == NULL ? "nil" : one->name; }
DOUBLE_EXPORT class *class_getSuperclass(const class *one) { return one == NULL ? NULL : one->parent; }
DOUBLE_EXPORT signed char class_respondsToSelector(const class *one, const selector *name) { return find(one, name) != NULL; }
DOUBLE_EXPORT class *object_getClass(const object *one) { return one == NULL ? NULL : one->isa; }
DOUBLE_EXPORT const char *object_getClassName(const object *one) { return class_getName(object_getClass(one)); }
DOUBLE_EXPORT void *object_getIndexedIvars(object *one) { return one == NULL ? NULL : one->data; }

/* ---- objects ---- */

DOUBLE_EXPORT object *class_createInstance(class *of, size_t extra) {
  object *one = calloc(1, sizeof *one + extra);
  if (one == NULL) return NULL;
  one->isa = of;
  one->retains = 1;
  return one;
}

/* Keeps the object for a while, so that a message to it can be told from one to a new object at its address. */
DOUBLE_EXPORT object *object_dispose(object *one) {
  if (one == NULL) return NULL;
  pthread_mutex_lock(&lock);
  one->freed = 1;
  object *oldest = zombies[zombie_next];
  zombies[zombie_next] = one;
  zombie_next = (zombie_next + 1) % ZOMBIES;
  pthread_mutex_unlock(&lock);
  free(oldest);
  return NULL;
}

/* The first field of a class and of an object is the same, and a class has nothing else of an object's. */
static bool is_class(const object *one) { return one->isa->is_meta; }

DOUBLE_HIDDEN int64_t double_objc_nil(void) { return 0; }

DOUBLE_HIDDEN imp double_objc_lookup(object *self, const selector *name) {
  if (self == NULL) return (imp)(void (*)(void))double_objc_nil;
  if (name == NULL) die("a message without a selector");
  if (!is_class(self) && self->freed != 0)
    die("-[%s %s] sent to a freed object", self->isa->name, name->name);
  imp run = find(self->isa, name);
  if (run == NULL) die("[%s %s]: unrecognized selector", self->isa->name, name->name);
  return run;
}

#include "objc_send.h"

static const selector *dealloc_name(void) {
  static const selector *name;
  if (name == NULL) name = sel_registerName("dealloc");
  return name;
}

static void check_live(const object *one, const char *what) {
  if (one->freed != 0) die("%s of a freed %s", what, one->isa->name);
}

DOUBLE_EXPORT object *objc_retain(object *one) {
  if (one == NULL || is_class(one)) return one;
  check_live(one, "retain");
  __atomic_fetch_add(&one->retains, 1, __ATOMIC_RELAXED);
  return one;
}

DOUBLE_EXPORT void objc_release(object *one) {
  if (one == NULL || is_class(one)) return;
  check_live(one, "release");
  if (__atomic_fetch_sub(&one->retains, 1, __ATOMIC_ACQ_REL) != 1) return;
  void (*end)(object *, const selector *);
  imp run = find(one->isa, dealloc_name());
  memcpy(&end, &run, sizeof end);
  end(one, dealloc_name());
}

DOUBLE_EXPORT object *objc_autorelease(object *one) {
  if (one == NULL || is_class(one)) return one;
  check_live(one, "autorelease");
  if (pool_depth == 0) {
    double_report("fault: %s autoreleased without a pool", one->isa->name);
    return one;
  }
  if (pool_used == POOL_MAX) die("more than %d objects in the pools of a thread", POOL_MAX);
  pool[pool_used++] = one;
  return one;
}

DOUBLE_EXPORT void *objc_autoreleasePoolPush(void) {
  pool_depth += 1;
  return (void *)(uintptr_t)((uint64_t)pool_depth << 32 | (uint64_t)(pool_used + 1));
}

DOUBLE_EXPORT void objc_autoreleasePoolPop(void *token) {
  uint64_t number = (uint64_t)(uintptr_t)token;
  if (number >> 32 != pool_depth) die("a pool was popped out of order");
  uint32_t keep = (uint32_t)number - 1;
  while (pool_used > keep) objc_release(pool[--pool_used]);
  pool_depth -= 1;
}

/* ---- NSObject ---- */

static object *ns_retain(object *self, const selector *name) { (void)name; return objc_retain(self); }
static void ns_release(object *self, const selector *name) { (void)name; objc_release(self); }
static object *ns_autorelease(object *self, const selector *name) { (void)name; return objc_autorelease(self); }
static unsigned long ns_count(object *self, const selector *name) { (void)name; return self->retains; }
static object *ns_self(object *self, const selector *name) { (void)name; return self; }
static class *ns_class(object *self, const selector *name) { (void)name; return self->isa; }
static void ns_dealloc(object *self, const selector *name) { (void)name; (void)object_dispose(self); }
static signed char ns_responds(object *self, const selector *name, const selector *asked) {
  (void)name;
  return find(self->isa, asked) != NULL;
}
static object *ns_alloc(class *self, const selector *name) { (void)name; return class_createInstance(self, 0); }

/* The double's own: Metal's double has it read `double.conf` again. */
DOUBLE_EXPORT void objc_double_settings_read(void) { double_settings_read(); }

__attribute__((constructor)) static void begin(void) {
  Dl_info here;
  class *root = objc_allocateClassPair(NULL, "NSObject", 0);
  class_addMethod(root, sel_registerName("retain"), (imp)(void (*)(void))ns_retain, "@@:");
  class_addMethod(root, sel_registerName("release"), (imp)(void (*)(void))ns_release, "v@:");
  class_addMethod(root, sel_registerName("autorelease"), (imp)(void (*)(void))ns_autorelease, "@@:");
  class_addMethod(root, sel_registerName("retainCount"), (imp)(void (*)(void))ns_count, "Q@:");
  class_addMethod(root, sel_registerName("self"), (imp)(void (*)(void))ns_self, "@@:");
  class_addMethod(root, sel_registerName("init"), (imp)(void (*)(void))ns_self, "@@:");
  class_addMethod(root, sel_registerName("class"), (imp)(void (*)(void))ns_class, "#@:");
  class_addMethod(root, sel_registerName("dealloc"), (imp)(void (*)(void))ns_dealloc, "v@:");
  class_addMethod(root, sel_registerName("respondsToSelector:"), (imp)(void (*)(void))ns_responds, "c@::");
  class_addMethod(root->isa, sel_registerName("alloc"), (imp)(void (*)(void))ns_alloc, "@#:");
  class_addMethod(root->isa, sel_registerName("new"), (imp)(void (*)(void))ns_alloc, "@#:");
  class_addMethod(root->isa, sel_registerName("class"), (imp)(void (*)(void))ns_self, "##:");
  objc_registerClassPair(root);
  /* The real one is never unloaded either, and others keep pointers into it. */
  if (dladdr((void *)(uintptr_t)&begin, &here) != 0) (void)dlopen(here.dli_fname, RTLD_NOW | RTLD_NODELETE | RTLD_NOLOAD);
}
