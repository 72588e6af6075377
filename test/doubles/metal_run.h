/* Part of metal.c: queues, command buffers, encoders, and the run of what was encoded. */

enum { BINDINGS = 31, BYTES_MAX = 4096 };
enum { NOT_ENQUEUED = 0, COMMITTED = 2, COMPLETED = 4, FAILED = 5 };

typedef struct binding {
  id buffer;   /* kept by the command buffer */
  NSUInteger offset;
  NSUInteger length; /* of `bytes`; 0 without */
  uint8_t bytes[16]; /* no kernel here takes a larger value */
} binding;

typedef struct dispatch {
  struct dispatch *next;
  const double_kernel *kernel;
  uint64_t threads;
  binding bound[KERNEL_PARAMETERS_MAX];
} dispatch;

/* A resource that the command buffer keeps until it is done. */
typedef struct kept {
  struct kept *next;
  id what;
  bool resident; /* a kernel may reach it by address */
} kept;

typedef struct command {
  part part;
  uint32_t status;
  uint64_t ticket;
  bool encoding;
  id problem;
  dispatch *first;
  dispatch **end;
  kept *keeps;
} command;

typedef struct encoder {
  part part;
  id owner; /* the command buffer */
  bool ended;
  const double_kernel *kernel;
  binding bound[BINDINGS];
} encoder;

static id device_queue(id self, SEL selector) {
  if (!enter(self, selector)) return NULL;
  return object_new(census_of(self, "newCommandQueue"), QUEUE, sizeof(part));
}

static id queue_command(id self, SEL selector) {
  if (!enter(self, selector)) return NULL;
  id one = object_new(((part *)data_of(self, QUEUE, "commandBuffer"))->of, COMMAND, sizeof(command));
  command *data = objc.data(one);
  data->end = &data->first;
  return objc.autorelease(one);
}

static void command_clear(command *data) {
  while (data->keeps != NULL) {
    kept *one = data->keeps;
    data->keeps = one->next;
    objc.release(one->what);
    free(one);
  }
  while (data->first != NULL) {
    dispatch *one = data->first;
    data->first = one->next;
    free(one);
  }
  data->end = &data->first;
}

static void keep(command *data, id what, bool resident) {
  for (kept *one = data->keeps; one != NULL; one = one->next) {
    if (one->what != what) continue;
    one->resident = one->resident || resident;
    return;
  }
  kept *one = calloc(1, sizeof *one);
  if (one == NULL) abort();
  *one = (kept){data->keeps, objc.retain(what), resident};
  data->keeps = one;
}

static void command_dealloc(id self, SEL selector) {
  (void)selector;
  command *data = objc.data(self);
  command_clear(data);
  if (data->problem != NULL) objc.release(data->problem);
  object_end(self);
}

static void *reach(void *context, uint64_t address, uint64_t bytes) {
  command *data = context;
  for (kept *one = data->keeps; one != NULL; one = one->next) {
    buffer *held = objc.data(one->what);
    uint64_t first = (uint64_t)(uintptr_t)held->block->device;
    if (!one->resident || address < first || address - first > held->length || bytes > held->length - (address - first)) continue;
    return held->block->device + (address - first);
  }
  return NULL;
}

/* A parameter is the GPU's address of what was bound; where the kernel takes a value, it is the value that stands there. */
static bool dispatch_run(command *data, dispatch *one) {
  uint64_t addresses[KERNEL_PARAMETERS_MAX];
  const void *parameters[KERNEL_PARAMETERS_MAX];
  for (uint32_t at = 0; at < KERNEL_PARAMETERS_MAX && one->kernel->parameter_bytes[at] > 0; at++) {
    binding *bound = &one->bound[at];
    bool value = (one->kernel->metal_values >> at & 1) != 0;
    if (bound->length > 0 && value && bound->length >= one->kernel->parameter_bytes[at]) {
      parameters[at] = bound->bytes;
      continue;
    }
    if (bound->buffer == NULL) {
      double_report("fault: %s was dispatched with nothing of use at index %u", one->kernel->name, at);
      return false;
    }
    addresses[at] = (uint64_t)(uintptr_t)((buffer *)objc.data(bound->buffer))->block->device + bound->offset;
    parameters[at] = value ? (const void *)(uintptr_t)addresses[at] : &addresses[at];
  }
  return one->kernel->run(parameters, one->threads, reach, data);
}

/* On the double's own thread, or in `commit`. */
static void command_run(void *argument) {
  command *data = objc.data(argument);
  bool fine = double_number("kernel_fault", 0) == 0;
  double_memory_run(true);
  for (dispatch *one = data->first; one != NULL && fine; one = one->next) {
    fine = dispatch_run(data, one);
    if (!fine) double_report("fault: %s touched memory that is not there, or not resident", one->kernel->name);
  }
  double_memory_run(false);
  if (!fine) data->problem = error_new(11, "Caused GPU Address Fault Error (0000000b:kIOGPUCommandBufferCallbackErrorPageFault)");
  command_clear(data);
  __atomic_store_n(&data->status, fine ? COMPLETED : FAILED, __ATOMIC_RELEASE);
  objc.release(argument);
}

static id command_encoder(id self, SEL selector) {
  if (!enter(self, selector)) return NULL;
  command *data = data_of(self, COMMAND, "computeCommandEncoder");
  if (data->status != NOT_ENQUEUED || data->encoding) die("computeCommandEncoder of a buffer that is committed or being encoded");
  id one = object_new(data->part.of, ENCODER, sizeof(encoder));
  ((encoder *)objc.data(one))->owner = objc.retain(self);
  data->encoding = true;
  return objc.autorelease(one);
}

static void command_commit(id self, SEL selector) {
  (void)enter(self, selector);
  command *data = data_of(self, COMMAND, "commit");
  if (data->encoding) die("commit before endEncoding");
  if (data->status != NOT_ENQUEUED) die("commit for the second time");
  data->status = COMMITTED;
  data->ticket = double_submit(command_run, objc.retain(self), double_kernel_millis());
}

static void command_wait(id self, SEL selector) {
  (void)enter(self, selector);
  command *data = data_of(self, COMMAND, "waitUntilCompleted");
  if (__atomic_load_n(&data->status, __ATOMIC_ACQUIRE) == NOT_ENQUEUED) die("waitUntilCompleted before commit");
  double_wait(data->ticket);
}

static NSUInteger command_status(id self, SEL selector) {
  (void)enter(self, selector);
  return __atomic_load_n(&((command *)data_of(self, COMMAND, "status"))->status, __ATOMIC_ACQUIRE);
}

static id command_error(id self, SEL selector) {
  (void)enter(self, selector);
  return ((command *)data_of(self, COMMAND, "error"))->problem;
}

/* ---- encoding ---- */

static encoder *encoding(id self, const char *call, command **owner) {
  encoder *data = data_of(self, ENCODER, call);
  if (data->ended) die("%s after endEncoding", call);
  *owner = objc.data(data->owner);
  return data;
}

static void encoder_pipeline(id self, SEL selector, id pipeline) {
  (void)enter(self, selector);
  command *owner;
  encoding(self, "setComputePipelineState:", &owner)->kernel =
      ((code *)data_of(pipeline, PIPELINE, "setComputePipelineState:"))->kernel;
}

static void encoder_buffer(id self, SEL selector, id what, NSUInteger offset, NSUInteger index) {
  (void)enter(self, selector);
  command *owner;
  encoder *data = encoding(self, "setBuffer:offset:atIndex:", &owner);
  if (index >= BINDINGS) die("setBuffer:offset:atIndex:%lu", index);
  if (what != NULL && offset >= ((buffer *)data_of(what, BUFFER, "setBuffer:offset:atIndex:"))->length)
    die("setBuffer: with an offset behind its end");
  if (what != NULL) keep(owner, what, true);
  data->bound[index] = (binding){.buffer = what, .offset = offset};
}

static void encoder_bytes(id self, SEL selector, const void *bytes, NSUInteger length, NSUInteger index) {
  (void)enter(self, selector);
  command *owner;
  encoder *data = encoding(self, "setBytes:length:atIndex:", &owner);
  if (index >= BINDINGS || bytes == NULL || length == 0 || length > BYTES_MAX) die("setBytes:length:%lu atIndex:%lu", length, index);
  binding *bound = &data->bound[index];
  *bound = (binding){.length = length};
  memcpy(bound->bytes, bytes, length < sizeof bound->bytes ? length : sizeof bound->bytes);
}

/* Usage: read 1, write 2. */
static void encoder_use(id self, SEL selector, id what, NSUInteger usage) {
  (void)enter(self, selector);
  command *owner;
  (void)encoding(self, "useResource:usage:", &owner);
  if (usage == 0 || usage > 3) die("useResource:usage:%lu", usage);
  (void)data_of(what, BUFFER, "useResource:usage:");
  keep(owner, what, true);
}

static void add_dispatch(id self, const char *call, uint64_t threads, MTLSize group) {
  command *owner;
  encoder *data = encoding(self, call, &owner);
  uint64_t per_group = (uint64_t)group.width * group.height * group.depth;
  if (data->kernel == NULL) die("%s without a pipeline", call);
  if (threads == 0 || per_group == 0 || per_group > (uint64_t)double_number("threads", 1024))
    die("%s with %llu threads, %llu in a group", call, (unsigned long long)threads, (unsigned long long)per_group);
  dispatch *one = calloc(1, sizeof *one);
  if (one == NULL) abort();
  one->kernel = data->kernel;
  one->threads = threads;
  memcpy(one->bound, data->bound, sizeof one->bound);
  *owner->end = one;
  owner->end = &one->next;
}

static void encoder_groups(id self, SEL selector, MTLSize groups, MTLSize group) {
  (void)enter(self, selector);
  uint64_t threads = (uint64_t)groups.width * groups.height * groups.depth * group.width * group.height * group.depth;
  add_dispatch(self, "dispatchThreadgroups:threadsPerThreadgroup:", threads, group);
}

static void encoder_threads(id self, SEL selector, MTLSize threads, MTLSize group) {
  (void)enter(self, selector);
  add_dispatch(self, "dispatchThreads:threadsPerThreadgroup:", (uint64_t)threads.width * threads.height * threads.depth, group);
}

static void encoder_end(id self, SEL selector) {
  (void)enter(self, selector);
  command *owner;
  encoding(self, "endEncoding", &owner)->ended = true;
  owner->encoding = false;
}

static void encoder_dealloc(id self, SEL selector) {
  (void)selector;
  encoder *data = objc.data(self);
  if (!data->ended) die("an encoder was released without endEncoding");
  objc.release(data->owner);
  object_end(self);
}
