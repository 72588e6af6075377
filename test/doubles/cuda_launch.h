/* Part of cuda.c: modules, and launches of the kernels in them. */

/* ---- modules ---- */

/* The driver that first took this version of PTX: 7.8 came with CUDA 11.8, 8.0 with 12.0, 6.5 with 10.2. */
static int driver_for_ptx(int major, int minor) {
  if (major == 6) return minor < 3 ? 9000 + minor * 10 : 10000 + (minor - 3) * 10;
  return (major + 4) * 1000 + minor * 10;
}

/* What the driver's compiler would say of the text; the first things it looks at. */
static CUresult ptx_check(const char *text, char *log, size_t capacity) {
  const char *version = strstr(text, ".version");
  const char *target = strstr(text, ".target");
  int major = 0;
  int minor = 0;
  int needs = 0;
  int has = (int)(attribute_of(75) * 10 + attribute_of(76));
  if (version == NULL || target == NULL || sscanf(version, ".version %d.%d", &major, &minor) != 2 ||
      sscanf(target, ".target sm_%d", &needs) != 1) {
    (void)snprintf(log, capacity, "ptxas fatal: Missing .version or .target directive");
    return strstr(text, ".entry") == NULL ? INVALID_IMAGE : INVALID_PTX;
  }
  if (driver_version() < driver_for_ptx(major, minor)) {
    (void)snprintf(log, capacity, "ptxas fatal: Unsupported .version %d.%d", major, minor);
    return UNSUPPORTED_PTX_VERSION;
  }
  if (needs > has) {
    (void)snprintf(log, capacity, "ptxas fatal: SM version specified by .target is higher than this device's: sm_%d", needs);
    return INVALID_PTX;
  }
  return SUCCESS;
}

static CUresult module_load(thing **out, const void *image, char *log, size_t capacity) {
  if (out == NULL || image == NULL) return INVALID_VALUE;
  CUresult code = ptx_check(image, log, capacity);
  if (code != SUCCESS) return code;
  thing *module = thing_new(MODULE);
  if (module == NULL) return OUT_OF_MEMORY;
  module->text = strdup(image);
  if (module->text == NULL) {
    thing_free(module);
    return OUT_OF_MEMORY;
  }
  *out = module;
  return SUCCESS;
}

DOUBLE_EXPORT CUresult cuModuleLoadData(thing **out, const void *image) {
  char log[128] = "";
  ENTER_CONTEXT("cuModuleLoadData");
  return module_load(out, image, log, sizeof log);
}

/* Options are numbers with a value each; of interest are the buffer for errors (5) and its size (6). */
DOUBLE_EXPORT CUresult cuModuleLoadDataEx(thing **out, const void *image, unsigned count, const int *options, void **values) {
  char nowhere[128] = "";
  char *log = nowhere;
  size_t capacity = sizeof nowhere;
  for (unsigned at = 0; at < count; at++) {
    if (options[at] == 5) log = values[at];
    if (options[at] == 6) capacity = (size_t)(uintptr_t)values[at];
  }
  if (log == nowhere) capacity = sizeof nowhere;
  if (log != NULL && capacity > 0) log[0] = 0;
  /* Also where the call is made to fail, as a compiler that fails has something to say. */
  CUresult code = enter_context("cuModuleLoadDataEx");
  if (code != SUCCESS) {
    if (log != NULL) (void)snprintf(log, capacity, "ptxas fatal: the double was told to fail");
    return code;
  }
  return module_load(out, image, log, capacity);
}

DOUBLE_EXPORT CUresult cuModuleUnload(thing *module) {
  ENTER_CONTEXT("cuModuleUnload");
  if (!is_thing("cuModuleUnload", module, MODULE)) return INVALID_HANDLE;
  double_wait(double_submitted());
  thing_free(module);
  return SUCCESS;
}

DOUBLE_EXPORT CUresult cuModuleGetFunction(thing **out, thing *module, const char *name) {
  ENTER_CONTEXT("cuModuleGetFunction");
  if (out == NULL || name == NULL) return INVALID_VALUE;
  if (!is_thing("cuModuleGetFunction", module, MODULE)) return INVALID_HANDLE;
  const double_kernel *kernel = double_kernel_named(name);
  if (kernel == NULL || !double_kernel_in_text(module->text, ".entry", name)) return NOT_FOUND;
  thing *function = thing_new(FUNCTION);
  if (function == NULL) return OUT_OF_MEMORY;
  function->module = module;
  function->kernel = kernel;
  *out = function;
  return SUCCESS;
}

/* Attribute 0: the most threads per block. */
DOUBLE_EXPORT CUresult cuFuncGetAttribute(int *value, int attribute, thing *function) {
  ENTER_CONTEXT("cuFuncGetAttribute");
  if (value == NULL || attribute < 0) return INVALID_VALUE;
  if (!is_thing("cuFuncGetAttribute", function, FUNCTION)) return INVALID_HANDLE;
  *value = attribute == 0 ? (int)attribute_of(1) : 0;
  return SUCCESS;
}

/* ---- launches ---- */

typedef struct job {
  const double_kernel *kernel;
  uint64_t threads;
  uint8_t bytes[KERNEL_PARAMETERS_MAX][8];
} job;

static void *reach(void *unused, uint64_t address, uint64_t bytes) {
  (void)unused;
  double_block *block = double_memory_find(address, true);
  if (block == NULL) return NULL;
  uint64_t offset = address - (uint64_t)(uintptr_t)block->device;
  /* By the device's address only: one of the CPU's is a mistake where they differ. */
  if (offset >= block->bytes || bytes > block->bytes - offset) return NULL;
  return block->device + offset;
}

static void job_run(void *argument) {
  job *one = argument;
  const void *parameters[KERNEL_PARAMETERS_MAX];
  for (int at = 0; at < KERNEL_PARAMETERS_MAX; at++) parameters[at] = one->bytes[at];
  double_memory_run(true);
  bool fine = one->kernel->run(parameters, one->threads, reach, NULL);
  double_memory_run(false);
  if (!fine) {
    double_report("fault: %s touched memory that is not there", one->kernel->name);
    __atomic_store_n(&sticky, ILLEGAL_ADDRESS, __ATOMIC_RELAXED);
  }
  free(one);
}

DOUBLE_EXPORT CUresult cuLaunchKernel(thing *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                                      unsigned block_y, unsigned block_z, unsigned shared_bytes, thing *stream,
                                      void **parameters, void **extra) {
  ENTER_CONTEXT("cuLaunchKernel");
  uint64_t ticket;
  if (!is_thing("cuLaunchKernel", function, FUNCTION) || !stream_ticket("cuLaunchKernel", stream, &ticket))
    return INVALID_HANDLE;
  uint64_t block = (uint64_t)block_x * block_y * block_z;
  uint64_t grid = (uint64_t)grid_x * grid_y * grid_z;
  if (block == 0 || grid == 0 || parameters == NULL || extra != NULL) return INVALID_VALUE;
  if (block > (uint64_t)attribute_of(1)) return INVALID_VALUE;
  if (shared_bytes > 49152) return LAUNCH_OUT_OF_RESOURCES;
  job *one = calloc(1, sizeof *one);
  if (one == NULL) return OUT_OF_MEMORY;
  one->kernel = function->kernel;
  one->threads = grid * block;
  /* Copied now: a driver does not look at them after the call. */
  for (int at = 0; at < KERNEL_PARAMETERS_MAX && one->kernel->parameter_bytes[at] > 0; at++)
    memcpy(one->bytes[at], parameters[at], one->kernel->parameter_bytes[at]);
  double_memory_launched();
  ticket = double_submit(job_run, one, double_kernel_millis());
  if (stream != NULL) stream->ticket = ticket;
  return SUCCESS;
}
