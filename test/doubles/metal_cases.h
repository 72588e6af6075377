/* Part of doubles.test.c: the doubles of libobjc and Metal. */

typedef void *id;

static struct {
  void (*send)(void);
  const void *(*sel)(const char *);
  id (*get_class)(const char *);
  void *(*push)(void);
  void (*pop)(void *);
  id (*retain)(id);
  void (*release)(id);
  id (*create)(void);
} objc;

#define SEND(type, object, selector) (((type(*)(id, const void *))objc.send)(object, objc.sel(selector)))

static id new_buffer(id device, unsigned long bytes) {
  return ((id(*)(id, const void *, unsigned long, unsigned long))objc.send)(device, objc.sel("newBufferWithLength:options:"), bytes, 0);
}

/* Every register that may hold an argument, and the stack: what comes in must come out. */
static double take_all(id self, const void *selector, long a, long b, long c, long d, double e, double f, double g, double h, double i,
                       double j, double k, double l, long m, double n) {
  (void)self;
  (void)selector;
  return (double)(a + b * 2 + c * 3 + d * 4) + e + f * 2 + g * 3 + h * 4 + i * 5 + j * 6 + k * 7 + l * 8 + (double)m * 9 + n * 10;
}

static void test_objc(void *library) {
  harness_behave("objc", "");
  id (*allocate)(id, const char *, size_t) = (id(*)(id, const char *, size_t))(uintptr_t)find(library, "objc_allocateClassPair");
  void (*registered)(id) = (void (*)(id))(uintptr_t)find(library, "objc_registerClassPair");
  signed char (*add)(id, const void *, void (*)(void), const char *) =
      (signed char (*)(id, const void *, void (*)(void), const char *))(uintptr_t)find(library, "class_addMethod");
  id class_ = allocate(objc.get_class("NSObject"), "Trampoline", 0);
  CHECK_EQUAL(add(class_, objc.sel("take:"), (void (*)(void))take_all, ""), 1);
  registered(class_);
  CHECK(objc.get_class("Trampoline") == class_);
  CHECK(objc.get_class("Unknown") == NULL);
  CHECK(objc.sel("take:") == objc.sel("take:") && objc.sel("take:") != objc.sel("take"));
  id one = SEND(id, class_, "new");
  double sum = ((double (*)(id, const void *, long, long, long, long, double, double, double, double, double, double, double, double, long,
                            double))objc.send)(one, objc.sel("take:"), 1, 2, 3, 4, 0.5, 1, 2, 3, 4, 5, 6, 7, 8, 9.5);
  CHECK(sum == take_all(NULL, NULL, 1, 2, 3, 4, 0.5, 1, 2, 3, 4, 5, 6, 7, 8, 9.5));
  CHECK(SEND(id, NULL, "anything") == NULL);
  CHECK_EQUAL(SEND(unsigned long, objc.retain(one), "retainCount"), 2);
  objc.release(one);
  void *pool = objc.push();
  CHECK(SEND(id, objc.retain(one), "autorelease") == one);
  CHECK_EQUAL(SEND(unsigned long, one, "retainCount"), 2);
  objc.pop(pool);
  CHECK_EQUAL(SEND(unsigned long, one, "retainCount"), 1);
  objc.release(one);
}

static void use_freed(void *object) { (void)SEND(unsigned long, object, "length"); }
static void use_unknown(void *object) { (void)SEND(id, object, "noSuchMethod"); }
static void leave_open(void *device) {
  void *pool = objc.push();
  id queue = SEND(id, device, "newCommandQueue");
  (void)SEND(id, SEND(id, queue, "commandBuffer"), "computeCommandEncoder");
  objc.pop(pool);
}

static void test_metal(void) {
  harness_behave("metal", "name=M1\nmemory=1048576\n");
  void *pool = objc.push();
  id device = objc.create();
  CHECK(device != NULL);
  CHECK(strcmp(SEND(const char *, SEND(id, device, "name"), "UTF8String"), "M1") == 0);
  CHECK_EQUAL(SEND(signed char, device, "hasUnifiedMemory"), 1);
  id buffer = new_buffer(device, 4096);
  CHECK(new_buffer(device, 2 << 20) == NULL);
  uint64_t address = SEND(uint64_t, buffer, "gpuAddress");
  CHECK(address != 0 && address != (uint64_t)(uintptr_t)SEND(void *, buffer, "contents"));
  id kept = new_buffer(device, 64);
  objc.release(buffer);
  CHECK_EQUAL(harness_signal_of(use_freed, buffer), SIGABRT);
  CHECK_TEXT(harness_reported(), "sent to a freed object");
  CHECK_EQUAL(harness_signal_of(use_unknown, kept), SIGABRT);
  CHECK_TEXT(harness_reported(), "unrecognized selector");
  CHECK_EQUAL(harness_signal_of(leave_open, device), SIGABRT);
  CHECK_TEXT(harness_reported(), "without endEncoding");
  objc.pop(pool);
  objc.release(device);
  CHECK_TEXT(harness_reported(), "release device buffers=1 bytes=64 ");
  objc.release(kept);
  harness_behave("metal: no pool", "");
  device = objc.create();
  id name = SEND(id, device, "name");
  CHECK_TEXT(harness_reported(), "autoreleased without a pool");
  objc.release(name);
  objc.release(device);
  harness_behave("metal: no device", "devices=0");
  CHECK(objc.create() == NULL);
}
