/*
 * Nodes whose received messages lie in memory that the CPU cannot touch, over the double of libibverbs: what is sent arrives there, whatever
 * fails on the way is told with all that one has to know, and nothing stays registered. Argument: the double.
 */
#include <errno.h>
#include <sys/mman.h>

#include "../doubles/ibverbs_double.h"
#include "../rdma/sides.h"

/* What zap_gpudirect.h's areas need, as sides.h sets them: 8 MiB of slabs and 64 MiB of larger messages. */
#define DEVICE_BYTES (UINT64_C(72) << 20)

static const char *runtime;
static struct ibverbs_double told;

/* Memory of no GPU: a file, mapped without access where the NIC is told that it is, and once more for this program. */
struct own {
  uint8_t *at, *seen;
  uint64_t bytes;
  int fd;
};

static struct own owned[4];

static struct own *own_new(uint64_t bytes) {
  struct own *own = &owned[0];
  while (own->at != NULL) own++;
  own->bytes = bytes;
  own->fd = memfd_create("own", MFD_CLOEXEC);
  if (own->fd < 0 || ftruncate(own->fd, (off_t)bytes) != 0) exit(1);
  own->at = mmap(NULL, bytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE, own->fd, 0);
  own->seen = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, own->fd, 0);
  if (own->at == MAP_FAILED || own->seen == MAP_FAILED) exit(1);
  return own;
}

static void own_free(struct own *own) {
  (void)munmap(own->at, own->bytes);
  (void)munmap(own->seen, own->bytes);
  (void)close(own->fd);
  own->at = NULL;
}

/* What the double asks for peer memory. */
__attribute__((visibility("default"))) void *zap_double_cuda_backing(uint64_t address, uint64_t bytes);
void *zap_double_cuda_backing(uint64_t address, uint64_t bytes) {
  for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) {
    uint64_t at = address - (uintptr_t)owned[i].at;
    if (owned[i].at != NULL && at <= owned[i].bytes && bytes <= owned[i].bytes - at) return owned[i].seen + at;
  }
  return NULL;
}

static void settings_with(zap_gpudirect_settings *s, const char *device, const struct own *own, uint32_t method) {
  settings_of(s, runtime, device, -1);
  s->device_address = (uintptr_t)own->at;
  s->device_bytes = own->bytes;
  s->dma_buf_fd = method == ZAP_GPUDIRECT_DMA_BUF ? own->fd : -1;
  s->method = method;
}

static void nothing_left(void) {
  CHECK_EQUAL(zap_gpudirect_live(), 0);
  CHECK_EQUAL(told.count(NULL, "regions"), 0);
  CHECK_EQUAL(told.count(NULL, "domains"), 0);
  CHECK_EQUAL(told.count(NULL, "contexts"), 0);
  char text[256] = "";
  CHECK_EQUAL(told.faults(text, sizeof text), 0);
  if (text[0] != 0) fprintf(stderr, "%s\n", text);
}

/* ---- messages ---- */

static void take_own(struct side *side, const struct own *own) {
  hear(side);
  while (zap_ring_ready(&side->handoff) > 0) {
    zap_ring_entry entry = *zap_ring_read(&side->handoff);
    zap_ring_consumed(&side->handoff);
    uint64_t at = entry.address - (uintptr_t)own->at;
    CHECK(at <= own->bytes && entry.length <= own->bytes - at);
    CHECK(right(own->seen + at, entry.length, side->expected));
    side->expected++;
    side->received++;
    give_back(side, entry.token);
  }
}

static void exchange_own(struct side *from, struct side *to, const struct own *own, uint32_t messages) {
  uint64_t until = zap_now() + 60000000000ull;
  for (uint32_t number = 0; number < messages && zap_now() < until; number++) {
    fill(from->base + from->node.pool_offset, length_of(number), number);
    uint64_t done = from->done;
    send_message(from, 0, length_of(number), 0);
    while ((from->done == done || to->received <= number) && from->failed == 0 && zap_now() < until) {
      take_own(to, own);
      hear(from);
      (void)sched_yield();
    }
  }
  CHECK_EQUAL(to->received, messages);
  CHECK_EQUAL(from->failed, 0);
}

static void messages(uint32_t method) {
  struct own *own[2] = {own_new(DEVICE_BYTES), own_new(DEVICE_BYTES + 4096)};
  struct side sides[2];
  told.reset();
  told.set(NULL, "peermem", method == ZAP_GPUDIRECT_PEERMEM);
  for (int i = 0; i < 2; i++) {
    zap_gpudirect_settings s;
    settings_with(&s, i == 0 ? "double0" : "double1", own[i], method);
    open_side(&sides[i], &s);
    const zap_gpudirect_node *node = &sides[i].node;
    CHECK_EQUAL(node->method, method);
    CHECK_EQUAL(node->region_method, ZAP_GPUDIRECT_HOST);
    CHECK_EQUAL(node->device_address, (uintptr_t)own[i]->at);
    CHECK_EQUAL(node->device_bytes, own[i]->bytes);
    CHECK_EQUAL(node->eager_offset, 0);
    CHECK(node->message_offset >= 8u << 20 && node->pool_offset < 64u << 20);
    CHECK(node->bytes == node->registered_bytes && node->pool_bytes == node->bytes - node->pool_offset);
  }
  CHECK_EQUAL(told.count("double0", "regions"), 2);
  join(&sides[0], &sides[1]);
  exchange_own(&sides[0], &sides[1], own[1], 60);
  exchange_own(&sides[1], &sides[0], own[0], 60);

  /* What was received cannot be sent from where it lies: that is no memory of the region. Nor can the rings. */
  const uint64_t wrong[] = {(uintptr_t)own[0]->at, sides[0].node.address, sides[0].node.address + sides[0].node.pool_offset - 64};
  for (uint32_t i = 0; i < 3; i++) {
    CHECK(zap_ring_free(&sides[0].sends, 1) > 0);
    *zap_ring_write(&sides[0].sends) = (zap_ring_entry){.address = wrong[i], .length = 64, .peer = sides[0].flow, .token = 7 + i};
    rouse(&sides[0], &sides[0].sends);
  }
  for (int i = 0; i < 2000 && sides[0].failed < 3; i++) {
    hear(&sides[0]);
    pause_millis(1);
  }
  CHECK_EQUAL(sides[0].failed, 3);
  zap_gpudirect_stats stats;
  MUST(zap_gpudirect_stats_read(sides[0].handle, &stats));
  CHECK_EQUAL(stats.unusable, 3);
  CHECK_EQUAL(stats.held_bytes, 0);
  for (int i = 0; i < 2; i++) close_side(&sides[i]);
  nothing_left();
  for (int i = 0; i < 2; i++) own_free(own[i]);
}

/* ---- failures ---- */

static void expect_failure(const zap_gpudirect_settings *s, int32_t status, const char *const *parts) {
  int32_t handle = zap_gpudirect_open(s);
  zap_gpudirect_node node;
  if (handle > 0) handle = wait_open(handle, &node);
  CHECK_EQUAL(handle, status);
  char text[ZAP_TEXT_BYTES];
  (void)zap_gpudirect_error(text, sizeof text);
  for (; *parts != NULL; parts++) CHECK_CONTAINS(text, *parts);
}
#define EXPECT_FAILURE(settings, status, ...) expect_failure(settings, status, (const char *const[]){__VA_ARGS__, NULL})

static void refused_settings(void) {
  struct own *own = own_new(DEVICE_BYTES);
  zap_gpudirect_settings s;
  settings_with(&s, "double0", own, ZAP_GPUDIRECT_DMA_BUF);
  s.dma_buf_fd = -1;
  EXPECT_FAILURE(&s, ZAP_E_INVALID, "needs the descriptor");
  settings_with(&s, "double0", own, ZAP_GPUDIRECT_LOCKED);
  EXPECT_FAILURE(&s, ZAP_E_INVALID, "3 is no method of registering GPU memory");
  settings_with(&s, "double0", own, ZAP_GPUDIRECT_PEERMEM);
  s.device_address += 1;
  EXPECT_FAILURE(&s, ZAP_E_INVALID, "whole pages");
  settings_with(&s, "double0", own, ZAP_GPUDIRECT_PEERMEM);
  s.device_address = 0;
  EXPECT_FAILURE(&s, ZAP_E_INVALID, "no GPU memory to register");
  settings_with(&s, "double0", own, ZAP_GPUDIRECT_PEERMEM);
  s.device_bytes -= 4096;
  EXPECT_FAILURE(&s, ZAP_E_INVALID, "75493376 bytes of GPU memory, and 75497472 are needed");
  nothing_left();
  own_free(own);
}

static void refused_by_the_device(void) {
  static const struct {
    uint32_t method;
    int number;
    int32_t status;
    const char *said, *cause;
  } cases[] = {
      {ZAP_GPUDIRECT_DMA_BUF, EOPNOTSUPP, ZAP_E_UNSUPPORTED, "EOPNOTSUPP (95)", "takes no dma-buf"},
      {ZAP_GPUDIRECT_DMA_BUF, EPROTONOSUPPORT, ZAP_E_UNSUPPORTED, "EPROTONOSUPPORT (93)", "takes no dma-buf"},
      {ZAP_GPUDIRECT_DMA_BUF, EBADF, ZAP_E_DRIVER, "EBADF (9)", "no dma-buf"},
      {ZAP_GPUDIRECT_DMA_BUF, EINVAL, ZAP_E_DRIVER, "EINVAL (22)", "whole pages"},
      {ZAP_GPUDIRECT_DMA_BUF, EFAULT, ZAP_E_DRIVER, "EFAULT (14)", "IOMMU"},
      {ZAP_GPUDIRECT_DMA_BUF, ENOMEM, ZAP_E_MEMORY, "ENOMEM (12)", "BAR1"},
      {ZAP_GPUDIRECT_DMA_BUF, EIO, ZAP_E_DRIVER, "EIO (5)", "dmesg"},
      {ZAP_GPUDIRECT_PEERMEM, EFAULT, ZAP_E_DRIVER, "EFAULT (14)", "nvidia-peermem is not loaded"},
      {ZAP_GPUDIRECT_PEERMEM, EINVAL, ZAP_E_DRIVER, "EINVAL (22)", "64 KiB"},
      {ZAP_GPUDIRECT_PEERMEM, ENOMEM, ZAP_E_MEMORY, "ENOMEM (12)", "BAR1"},
      {ZAP_GPUDIRECT_PEERMEM, EOPNOTSUPP, ZAP_E_UNSUPPORTED, "EOPNOTSUPP (95)", "peer memory"},
      {ZAP_GPUDIRECT_HOST, ENOMEM, ZAP_E_MEMORY, "ENOMEM (12)", "ulimit -l"},
      {ZAP_GPUDIRECT_HOST, EFAULT, ZAP_E_DRIVER, "EFAULT (14)", "not mapped"},
  };
  struct own *own = own_new(DEVICE_BYTES);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    uint32_t method = cases[i].method;
    bool dma_buf = method == ZAP_GPUDIRECT_DMA_BUF, host = method == ZAP_GPUDIRECT_HOST;
    zap_gpudirect_settings s;
    told.reset();
    told.set(NULL, dma_buf ? "dmabuf_errno" : "reg_errno", cases[i].number);
    /* The region is smaller: what fails is the GPU's memory, after it. */
    if (!host) told.set(NULL, "reg_above", 71 << 20);
    settings_with(&s, "double0", own, method);
    if (host) settings_of(&s, runtime, "double0", -1);
    const char *call = dma_buf ? "ibv_reg_dmabuf_mr of 75497472 bytes of GPU memory, by dma-buf, at 0x"
                       : host  ? "ibv_reg_mr of "
                               : "ibv_reg_mr of 75497472 bytes of GPU memory, by peermem, at 0x";
    char address[32];
    (void)snprintf(address, sizeof address, "0x%llx", (unsigned long long)(uintptr_t)own->at);
    EXPECT_FAILURE(&s, cases[i].status, call, host ? "at 0x" : address, " with double0 failed with ", cases[i].said, cases[i].cause);
    nothing_left();
    /* The same by the probe, which opens no node. */
    told.set(NULL, "reg_above", 0);
    void *memory = host ? own->seen : own->at;
    int32_t status = zap_gpudirect_probe_memory(runtime, "double0", method, (uintptr_t)memory, 65536, dma_buf ? own->fd : -1);
    CHECK_EQUAL(status, cases[i].status);
    CHECK_CONTAINS(zap_failure(), cases[i].said);
    CHECK_CONTAINS(zap_failure(), cases[i].cause);
    CHECK_CONTAINS(zap_failure(), "of 65536 bytes of ");
    nothing_left();
  }
  told.reset();
  own_free(own);
}

/* Whatever fails behind the registration: both are undone. */
static void fails_midway(void) {
  static const char *const calls[] = {"ibv_create_comp_channel", "ibv_create_cq", "ibv_alloc_pd"};
  struct own *own = own_new(DEVICE_BYTES);
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    zap_gpudirect_settings s;
    told.reset();
    CHECK_EQUAL(told.fail(NULL, calls[i], ENOMEM, 0), 0);
    settings_with(&s, "double0", own, ZAP_GPUDIRECT_DMA_BUF);
    EXPECT_FAILURE(&s, ZAP_E_MEMORY, calls[i]);
    nothing_left();
  }
  told.reset();
  own_free(own);
}

static void probes(void) {
  struct own *own = own_new(65536);
  told.reset();
  uintptr_t at = (uintptr_t)own->at;
  CHECK_EQUAL(zap_gpudirect_probe_memory(runtime, "", ZAP_GPUDIRECT_DMA_BUF, at, 65536, own->fd), ZAP_OK);
  CHECK_EQUAL(zap_gpudirect_probe_memory(runtime, "double1", ZAP_GPUDIRECT_PEERMEM, at, 65536, -1), ZAP_E_DRIVER);
  told.set(NULL, "peermem", 1);
  CHECK_EQUAL(zap_gpudirect_probe_memory(runtime, "double1", ZAP_GPUDIRECT_PEERMEM, at, 65536, -1), ZAP_OK);
  CHECK_EQUAL(zap_gpudirect_probe_memory(runtime, "", ZAP_GPUDIRECT_LOCKED, (uintptr_t)own->seen, 65536, -1), ZAP_OK);
  CHECK_EQUAL(zap_gpudirect_probe_memory(runtime, "", ZAP_GPUDIRECT_DMA_BUF, at, 65536, -1), ZAP_E_INVALID);
  CHECK_EQUAL(zap_gpudirect_probe_memory(runtime, "", 0, at, 65536, -1), ZAP_E_INVALID);
  CHECK_EQUAL(zap_gpudirect_probe_memory(runtime, "", ZAP_GPUDIRECT_HOST, at, 0, -1), ZAP_E_INVALID);
  CHECK_EQUAL(zap_gpudirect_probe_memory(NULL, "", ZAP_GPUDIRECT_HOST, at, 4096, -1), ZAP_E_INVALID);
  CHECK(zap_gpudirect_probe_memory(runtime, "double9", ZAP_GPUDIRECT_DMA_BUF, at, 65536, own->fd) < 0);
  CHECK_CONTAINS(zap_failure(), "double9");
  CHECK(zap_gpudirect_probe_memory("/nowhere/libibverbs.so.1", "", ZAP_GPUDIRECT_DMA_BUF, at, 65536, own->fd) < 0);
  CHECK_CONTAINS(zap_failure(), "cannot be opened");
  nothing_left();
  told.fail(NULL, "ibv_dereg_mr", EBUSY, 0);
  CHECK_EQUAL(zap_gpudirect_probe_memory(runtime, "", ZAP_GPUDIRECT_DMA_BUF, at, 65536, own->fd), ZAP_E_TIMEOUT);
  CHECK_CONTAINS(zap_failure(), "ibv_dereg_mr of what was registered by dma-buf with double0 failed with EBUSY (16)");
  /* It stays registered for good, and so does its memory. */
  CHECK_EQUAL(told.count(NULL, "regions"), 1);
  told.reset();
}

int main(int argc, char **argv) {
  if (argc < 2) return 2;
  runtime = argv[1];
  if (!ibverbs_double_load(runtime, &told)) return 2;
  messages(ZAP_GPUDIRECT_DMA_BUF);
  messages(ZAP_GPUDIRECT_PEERMEM);
  refused_settings();
  refused_by_the_device();
  fails_midway();
  probes();
  return checks_done("gpudirect_memory");
}
