/* Part of metal.c: strings and errors, the device, buffers, libraries, functions, pipelines. */

/* ---- Foundation ---- */

static id string_new(const char *text) {
  size_t bytes = strlen(text) + 1;
  id one = objc.create(objc.get_class("NSString"), sizeof(char *));
  char **data = objc.data(one);
  *data = malloc(bytes);
  if (*data == NULL) abort();
  memcpy(*data, text, bytes);
  return one;
}
static id string_with(id class_, SEL selector, const char *text) {
  (void)class_;
  (void)selector;
  return text == NULL ? NULL : objc.autorelease(string_new(text));
}
static const char *string_utf8(id self, SEL selector) {
  (void)selector;
  return *(char **)objc.data(self);
}
static NSUInteger string_length(id self, SEL selector) { return strlen(string_utf8(self, selector)); }
static void string_dealloc(id self, SEL selector) {
  (void)selector;
  free(*(char **)objc.data(self));
  (void)objc.dispose(self);
}

typedef struct error {
  id text;
  long code;
} error;

static id error_new(long code, const char *text) {
  id one = objc.create(objc.get_class("NSError"), sizeof(error));
  error *data = objc.data(one);
  *data = (error){string_new(text), code};
  return one;
}
static id error_text(id self, SEL selector) {
  (void)selector;
  return ((error *)objc.data(self))->text;
}
static long error_code(id self, SEL selector) {
  (void)selector;
  return ((error *)objc.data(self))->code;
}
static void error_dealloc(id self, SEL selector) {
  (void)selector;
  objc.release(((error *)objc.data(self))->text);
  (void)objc.dispose(self);
}
static id fail(id *out, long code, const char *text) {
  if (out != NULL) *out = objc.autorelease(error_new(code, text));
  return NULL;
}

/* ---- the device ---- */

enum { SHARED = 0, PRIVATE = 2 }; /* storage modes; in the options of a buffer they stand at bit 4 */

static census *census_of(id device, const char *call) { return ((part *)data_of(device, DEVICE, call))->of; }

static id device_name(id self, SEL selector) {
  (void)enter(self, selector);
  return objc.autorelease(string_new(double_text("name", "Apple Double")));
}
static BOOL device_unified(id self, SEL selector) {
  (void)enter(self, selector);
  return double_number("unified", 1) != 0;
}
static uint64_t device_registry(id self, SEL selector) {
  (void)enter(self, selector);
  return 0x100000abc;
}
/* Apple7 is 1007, Mac2 2002, Metal3 5001. */
static BOOL device_family(id self, SEL selector, long family) {
  (void)enter(self, selector);
  return double_number_of("family", family, family <= 1008 || family == 2002 || family == 5001) != 0;
}
static uint64_t device_bytes(void) { return (uint64_t)double_number("memory", INT64_C(22906503168)); }
static uint64_t device_working_set(id self, SEL selector) {
  (void)enter(self, selector);
  return device_bytes();
}
static NSUInteger device_buffer_limit(id self, SEL selector) {
  (void)enter(self, selector);
  return (NSUInteger)double_number("buffer_limit", (int64_t)device_bytes());
}
static NSUInteger device_allocated(id self, SEL selector) {
  (void)enter(self, selector);
  return census_of(self, "currentAllocatedSize")->bytes;
}

typedef struct buffer {
  part part;
  double_block *block;
  NSUInteger length;
  NSUInteger storage;
} buffer;

static id device_buffer(id self, SEL selector, NSUInteger length, NSUInteger options) {
  if (!enter(self, selector)) return NULL;
  NSUInteger storage = options >> 4 & 15;
  if (length == 0 || (storage != SHARED && storage != PRIVATE) || (options & ~0xf1ul) != 0)
    die("newBufferWithLength:%lu options:%lu", length, options);
  if (length > device_buffer_limit(self, objc.sel("maxBufferLength"))) return NULL;
  double_block *block = double_memory_new(storage == SHARED ? DOUBLE_SHARED : DOUBLE_DEVICE, length, NULL);
  if (block == NULL) return NULL;
  census *of = census_of(self, "newBufferWithLength:options:");
  id one = object_new(of, BUFFER, sizeof(buffer));
  buffer *data = objc.data(one);
  data->block = block;
  data->length = length;
  data->storage = storage;
  __atomic_fetch_add(&of->bytes, length, __ATOMIC_RELAXED);
  return one;
}

static id device_buffer_bytes(id self, SEL selector, const void *bytes, NSUInteger length, NSUInteger options) {
  if (!enter(self, selector)) return NULL;
  if (bytes == NULL || (options >> 4 & 15) != SHARED) die("newBufferWithBytes: without bytes, or not of shared storage");
  id one = device_buffer(self, objc.sel("newBufferWithLength:options:"), length, options);
  if (one != NULL) memcpy(((buffer *)objc.data(one))->block->host, bytes, length);
  return one;
}

static void *buffer_contents(id self, SEL selector) {
  (void)enter(self, selector);
  buffer *data = data_of(self, BUFFER, "contents");
  return data->storage == SHARED ? data->block->host : NULL;
}
static NSUInteger buffer_length(id self, SEL selector) {
  (void)enter(self, selector);
  return ((buffer *)data_of(self, BUFFER, "length"))->length;
}
static uint64_t buffer_address(id self, SEL selector) {
  (void)enter(self, selector);
  return (uint64_t)(uintptr_t)((buffer *)data_of(self, BUFFER, "gpuAddress"))->block->device;
}
static NSUInteger buffer_storage(id self, SEL selector) {
  (void)enter(self, selector);
  return ((buffer *)data_of(self, BUFFER, "storageMode"))->storage;
}
static void buffer_dealloc(id self, SEL selector) {
  (void)selector;
  buffer *data = objc.data(self);
  __atomic_fetch_sub(&data->part.of->bytes, data->length, __ATOMIC_RELAXED);
  double_memory_free(data->block);
  object_end(self);
}

/* ---- code ---- */

typedef struct library {
  part part;
  char *source;
} library;

typedef struct code {
  part part;
  const double_kernel *kernel;
} code; /* a function, and a pipeline of it */

static id device_library(id self, SEL selector, id source, id options, id *out) {
  (void)options;
  if (!enter(self, selector))
    return fail(out, 3, "program_source:1:1: error: the double was told to fail\n1 error generated.");
  if (source == NULL) die("newLibraryWithSource: without a source");
  const char *text = string_utf8(source, selector);
  /* As much of a compiler as tells a source from something else. */
  if (strstr(text, "kernel void ") == NULL || strstr(text, "#include <metal_stdlib>") == NULL)
    return fail(out, 3, "program_source:1:1: error: unknown type name 'kernel'\n1 error generated.");
  /* The compiler has none of the project's files. */
  if (strstr(text, "#include \"") != NULL) return fail(out, 3, "program_source: fatal error: file not found");
  id one = object_new(census_of(self, "newLibraryWithSource:options:error:"), LIBRARY, sizeof(library));
  library *data = objc.data(one);
  data->source = strdup(text);
  if (data->source == NULL) abort();
  return one;
}
static void library_dealloc(id self, SEL selector) {
  (void)selector;
  free(((library *)objc.data(self))->source);
  object_end(self);
}

static id library_function(id self, SEL selector, id name) {
  if (!enter(self, selector) || name == NULL) return NULL;
  library *data = data_of(self, LIBRARY, "newFunctionWithName:");
  const char *text = string_utf8(name, selector);
  const double_kernel *kernel = double_kernel_named(text);
  if (kernel == NULL || !double_kernel_in_text(data->source, "kernel void", text)) return NULL;
  id one = object_new(data->part.of, FUNCTION, sizeof(code));
  ((code *)objc.data(one))->kernel = kernel;
  return one;
}

static id device_pipeline(id self, SEL selector, id function, id *out) {
  if (!enter(self, selector)) return fail(out, 2, "Compute function could not be compiled: the double was told to fail");
  code *of = data_of(function, FUNCTION, "newComputePipelineStateWithFunction:error:");
  id one = object_new(census_of(self, "newComputePipelineStateWithFunction:error:"), PIPELINE, sizeof(code));
  ((code *)objc.data(one))->kernel = of->kernel;
  return one;
}
static NSUInteger pipeline_threads(id self, SEL selector) {
  (void)enter(self, selector);
  return (NSUInteger)double_number("threads", 1024);
}
static NSUInteger pipeline_width(id self, SEL selector) {
  (void)enter(self, selector);
  return 32;
}
