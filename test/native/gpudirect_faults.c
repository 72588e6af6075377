/*
 * What zap_gpudirect.h promises where RDMA fails, against the libibverbs double (test/doubles): two nodes in one process.
 *
 * gpudirect_faults LIBIBVERBS LIBIBVERBS-OLD          all but the next
 * gpudirect_faults LIBIBVERBS LIBIBVERBS-OLD stuck    a driver that does not let go: what then stays behind, stays behind on purpose
 */
#include <errno.h>
#include <sys/mman.h>

#include "../doubles/ibverbs_double.h"
#include "../rdma/sides.h"
#include "../../shim/gpudirect/verbs_abi.h"

#define MANY 24u

enum { FINISHED = 1, ABORTED = 2, DEAD = 64, REFUSED = 65, BROKEN = 66, UNREACHABLE = 68, UNREGISTERED = 69 };

static const char *runtime;
static struct ibverbs_double verbs;
static struct side left, right_side;
static uint32_t slabs;
static uint64_t came; /* to the right one before its flow of now */

static void settings_for(zap_gpudirect_settings *s, const char *device) {
  settings_of(s, runtime, device, -1);
  s->flows = 4;
  s->message_bytes = 1u << 20;
  s->eager_area = s->message_area = s->pool_area = 4u << 20;
}

static void nothing_left(void) {
  static const char *const things[] = {"contexts", "domains", "regions", "windows", "pairs", "queues", "channels"};
  char text[256] = "";
  for (size_t i = 0; i < sizeof things / sizeof *things; i++)
    if (verbs.count(NULL, things[i]) != 0) {
      fprintf(stderr, "%s are left\n", things[i]);
      CHECK_EQUAL(verbs.count(NULL, things[i]), 0);
    }
  CHECK_EQUAL(zap_gpudirect_live(), 0);
  if (verbs.faults(text, sizeof text) > 0) fprintf(stderr, "fault: %s\n", text);
  CHECK_EQUAL(verbs.faults(NULL, 0), 0);
}

static void open_both(uint32_t flags) {
  zap_gpudirect_settings settings;
  settings_for(&settings, "double0");
  settings.flags = flags;
  open_side(&left, &settings);
  settings_for(&settings, "double1");
  settings.flags = flags;
  open_side(&right_side, &settings);
  zap_gpudirect_stats stats;
  MUST(zap_gpudirect_stats_read(left.handle, &stats));
  slabs = stats.free_slabs;
}

static void close_both(void) {
  close_side(&right_side);
  close_side(&left);
  verbs.reset();
  nothing_left();
}

/* Takes and gives back what came, whatever it is. */
static void swallow(struct side *side) {
  hear(side);
  while (zap_ring_ready(&side->handoff) > 0) {
    uint32_t token = zap_ring_read(&side->handoff)->token;
    zap_ring_consumed(&side->handoff);
    side->received++;
    give_back(side, token);
  }
}

static void both_swallow(void) {
  swallow(&left);
  swallow(&right_side);
}

static uint32_t mixed(uint32_t number) {
  static const uint32_t lengths[] = {100, 5000, 20000, 64, 150000};
  return lengths[number % 5];
}

static void burst(struct side *side, uint32_t first, uint32_t messages) {
  for (uint32_t i = first; i < first + messages; i++) {
    fill(side->base + side->node.pool_offset + i * 160000u, mixed(i), i);
    send_message(side, i * 160000u, mixed(i), i);
  }
}

static void join_again(void) {
  join(&left, &right_side);
  left.done = left.failed = right_side.done = right_side.failed = 0;
  came = right_side.received;
}

/* All that was sent has come back, each once, and everything else is where it was. */
static void all_back(struct side *side, uint32_t messages) {
  zap_gpudirect_stats stats;
  WAIT_UNTIL((both_swallow(), side->done + side->failed >= messages));
  WAIT_UNTIL((both_swallow(), zap_gpudirect_stats_read(side->handle, &stats), stats.flows == 0 && stats.free_slabs == slabs));
  pause_millis(20);
  both_swallow();
  CHECK_EQUAL(side->done + side->failed, messages);
  CHECK(side->undelivered <= side->failed);
  CHECK_EQUAL(stats.held_bytes, 0);
  CHECK_EQUAL(stats.queued_messages, 0);
}

/* The left one is down by itself; the right one may not have noticed. */
static void left_is_down(uint32_t reason, uint32_t status) {
  WAIT_UNTIL((both_swallow(), left.downs == 1));
  CHECK_EQUAL(left.reason, reason);
  CHECK_EQUAL(left.status, status);
  MUST(zap_gpudirect_flow_abort(right_side.handle, right_side.flow));
  WAIT_UNTIL((both_swallow(), right_side.downs == 1));
}

static void still_works(void) {
  join_again();
  exchange(&left, &right_side, 12, 4);
  exchange(&right_side, &left, 12, 4);
  MUST(zap_gpudirect_flow_close(left.handle, left.flow));
  WAIT_UNTIL((both_swallow(), left.downs == 1 && right_side.downs == 1));
  CHECK_EQUAL(left.reason, FINISHED);
  CHECK_EQUAL(right_side.reason, FINISHED);
}

/* ---- opening ---- */

struct refusal {
  const char *call, *setting; /* one of them */
  int64_t value;
  int32_t status;
  const char *text[5];
};

static void refused_to_open(const struct refusal *of) {
  zap_gpudirect_settings settings;
  zap_gpudirect_node node;
  if (of->call != NULL) CHECK_EQUAL(verbs.fail(NULL, of->call, (int)of->value, 0), 0);
  else CHECK_EQUAL(verbs.set(NULL, of->setting, of->value), 0);
  settings_for(&settings, "double0");
  int32_t handle = zap_gpudirect_open(&settings);
  MUST(handle);
  CHECK_EQUAL(wait_open(handle, &node), of->status);
  for (int i = 0; i < 5 && of->text[i] != NULL; i++) CHECK_CONTAINS(zap_failure(), of->text[i]);
  CHECK_EQUAL(zap_gpudirect_closed(handle), ZAP_E_HANDLE);
  nothing_left();
  verbs.reset();
}

static void opens_that_fail(void) {
  static const struct refusal refusals[] = {
      {NULL, "devices", 0, ZAP_E_DEVICE, {"no RDMA device"}},
      {"ibv_get_device_list", NULL, ENOSYS, ZAP_E_DEVICE, {"ibv_get_device_list", "ENOSYS (38)", "modprobe ib_uverbs"}},
      {"ibv_open_device", NULL, EACCES, ZAP_E_DRIVER, {"ibv_open_device of double0", "EACCES (13)", "/dev/infiniband"}},
      {"ibv_query_device", NULL, EIO, ZAP_E_DRIVER, {"ibv_query_device of double0", "EIO (5)", "dmesg"}},
      {"ibv_query_port", NULL, EIO, ZAP_E_DEVICE, {"double0 has no active port", "port 1", "EIO (5)"}},
      {NULL, "port_state", IBV_PORT_DOWN, ZAP_E_DEVICE, {"double0 has no active port", "port 1 is down (Ethernet)"}},
      {NULL, "gids", 0, ZAP_E_DEVICE, {"double0 port 1 has no GID", "needs an address"}},
      {NULL, "gids", 1, ZAP_E_DEVICE, {"double0 port 1 has no RoCE v2 GID"}},
      {"ibv_alloc_pd", NULL, ENOMEM, ZAP_E_MEMORY, {"ibv_alloc_pd of double0", "ENOMEM (12)"}},
      {"ibv_create_comp_channel", NULL, EMFILE, ZAP_E_DRIVER, {"ibv_create_comp_channel of double0", "EMFILE (24)", "ulimit -n"}},
      {"ibv_create_cq", NULL, ENOMEM, ZAP_E_MEMORY, {"ibv_create_cq of double0", "ENOMEM (12)"}},
      {NULL, "reg_errno", ENOMEM, ZAP_E_MEMORY, {"ibv_reg_mr of ", " bytes of this process's own host memory at 0x", "ENOMEM (12)", "ulimit -l"}},
      {NULL, "reg_errno", EFAULT, ZAP_E_DRIVER, {"ibv_reg_mr of ", "EFAULT (14)", "not mapped"}},
      {NULL, "reg_errno", EINVAL, ZAP_E_DRIVER, {"ibv_reg_mr of ", "EINVAL (22)", "region of this size"}},
  };
  for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) refused_to_open(&refusals[i]);
  zap_gpudirect_settings settings;
  zap_gpudirect_node node;
  /* Not the size that the probe tries: that passes, and the region does not. */
  zap_prerequisite rows[3];
  CHECK_EQUAL(verbs.set(NULL, "reg_errno", ENOMEM), 0);
  CHECK_EQUAL(verbs.set(NULL, "reg_above", 1 << 20), 0);
  CHECK_EQUAL(zap_gpudirect_probe(runtime, "", 0, -1, rows, 3), 3);
  for (int i = 0; i < 3; i++) CHECK_EQUAL(rows[i].met, 1);
  settings_for(&settings, "");
  int32_t handle = zap_gpudirect_open(&settings);
  CHECK_EQUAL(wait_open(handle, &node), ZAP_E_MEMORY);
  verbs.reset();
  nothing_left();
  /* The first that does. */
  CHECK_EQUAL(verbs.fail("double0", "ibv_open_device", EACCES, 0), 0);
  open_side(&left, &settings);
  CHECK(strcmp(left.node.device, "double1") == 0);
  CHECK_EQUAL(left.node.gid_index, 3);
  close_side(&left);
  CHECK_EQUAL(verbs.fail("double1", "ibv_open_device", EIO, 0), 0);
  handle = zap_gpudirect_open(&settings);
  CHECK_EQUAL(wait_open(handle, &node), ZAP_E_DEVICE);
  CHECK_CONTAINS(zap_failure(), "none of 2 RDMA devices");
  CHECK_CONTAINS(zap_failure(), "EACCES (13)");
  CHECK_CONTAINS(zap_failure(), "EIO (5)");
  verbs.reset();
  nothing_left();
  /* Closed while it opens. */
  handle = zap_gpudirect_open(&settings);
  MUST(handle);
  MUST(zap_gpudirect_close(handle));
  int32_t status = ZAP_E_AGAIN;
  for (int i = 0; i < 20000 && (status = zap_gpudirect_closed(handle)) == ZAP_E_AGAIN; i++) pause_millis(1);
  CHECK_EQUAL(status, ZAP_OK);
  nothing_left();
}

/* ---- a GPU's memory: a memory file, of which the CPU sees the addresses alone ---- */

struct gpu {
  int fd;
  uint8_t *address, *backing;
  uint64_t bytes;
};

static struct gpu gpu;

void *zap_double_cuda_backing(uint64_t address, uint64_t bytes);
void *zap_double_cuda_backing(uint64_t address, uint64_t bytes) {
  uint64_t offset = address - (uintptr_t)gpu.address;
  return gpu.address != NULL && offset < gpu.bytes && bytes <= gpu.bytes - offset ? gpu.backing + offset : NULL;
}

static void make_gpu(uint64_t bytes) {
  gpu = (struct gpu){.fd = memfd_create("gpu", MFD_CLOEXEC), .bytes = bytes};
  if (gpu.fd < 0 || ftruncate(gpu.fd, (off_t)bytes) != 0) exit(1);
  gpu.address = mmap(NULL, bytes, PROT_NONE, MAP_SHARED, gpu.fd, 0);
  gpu.backing = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, gpu.fd, 0);
  if (gpu.address == MAP_FAILED || gpu.backing == MAP_FAILED) exit(1);
}

static void drop_gpu(void) {
  (void)munmap(gpu.address, gpu.bytes);
  (void)munmap(gpu.backing, gpu.bytes);
  (void)close(gpu.fd);
  gpu = (struct gpu){.fd = -1};
}

static void probed(const char *library, uint32_t method, int fd, int32_t wanted, const char *first, const char *second) {
  CHECK_EQUAL(zap_gpudirect_probe_memory(library, "double0", method, (uintptr_t)gpu.address, gpu.bytes, fd), wanted);
  if (wanted != ZAP_OK) CHECK_CONTAINS(zap_failure(), first);
  if (wanted != ZAP_OK) CHECK_CONTAINS(zap_failure(), second);
  verbs.reset();
  nothing_left();
}

static void probes_of_memory(const char *old) {
  make_gpu(65536);
  probed(runtime, ZAP_GPUDIRECT_DMA_BUF, gpu.fd, ZAP_OK, NULL, NULL);
  probed(old, ZAP_GPUDIRECT_DMA_BUF, gpu.fd, ZAP_E_UNSUPPORTED, "ibv_reg_dmabuf_mr", "");
  static const struct {
    int number;
    int32_t status;
    const char *text;
  } failures[] = {{EOPNOTSUPP, ZAP_E_UNSUPPORTED, "EOPNOTSUPP (95)"}, {EPROTONOSUPPORT, ZAP_E_UNSUPPORTED, "EPROTONOSUPPORT (93)"},
                  {EBADF, ZAP_E_DRIVER, "EBADF (9)"},                 {EINVAL, ZAP_E_DRIVER, "EINVAL (22)"},
                  {EFAULT, ZAP_E_DRIVER, "EFAULT (14)"},              {ENOMEM, ZAP_E_MEMORY, "ENOMEM (12)"}};
  for (size_t i = 0; i < sizeof failures / sizeof *failures; i++) {
    CHECK_EQUAL(verbs.set(NULL, "dmabuf_errno", failures[i].number), 0);
    probed(runtime, ZAP_GPUDIRECT_DMA_BUF, gpu.fd, failures[i].status, "ibv_reg_dmabuf_mr of 65536 bytes of GPU memory, by dma-buf, at 0x",
           failures[i].text);
  }
  probed(runtime, ZAP_GPUDIRECT_DMA_BUF, 999, ZAP_E_DRIVER, "EBADF (9)", "no dma-buf");
  probed(runtime, ZAP_GPUDIRECT_PEERMEM, -1, ZAP_E_DRIVER, "EFAULT (14)", "nvidia-peermem is not loaded");
  CHECK_EQUAL(verbs.set(NULL, "peermem", 1), 0);
  probed(runtime, ZAP_GPUDIRECT_PEERMEM, -1, ZAP_OK, NULL, NULL);
  drop_gpu();
}

/* What is received lies where only the device writes. */
static void into_gpu(uint32_t method) {
  make_gpu(8u << 20);
  zap_gpudirect_settings settings;
  CHECK_EQUAL(verbs.set(NULL, "peermem", 1), 0);
  settings_for(&settings, "double0");
  open_side(&left, &settings);
  settings_for(&settings, "double1");
  settings.device_address = (uintptr_t)gpu.address;
  settings.device_bytes = gpu.bytes;
  settings.method = method;
  settings.dma_buf_fd = method == ZAP_GPUDIRECT_DMA_BUF ? gpu.fd : -1;
  open_side(&right_side, &settings);
  CHECK_EQUAL(right_side.node.method, method);
  CHECK_EQUAL(verbs.count("double1", "regions"), 2);
  join_again();
  burst(&left, 0, MANY);
  while (right_side.received < came + MANY && left.downs + right_side.downs == 0) {
    hear(&left);
    hear(&right_side);
    while (zap_ring_ready(&right_side.handoff) > 0) {
      zap_ring_entry entry = *zap_ring_read(&right_side.handoff);
      zap_ring_consumed(&right_side.handoff);
      uint32_t number = (uint32_t)(right_side.received++ - came);
      const uint8_t *bytes = zap_double_cuda_backing(entry.address, entry.length);
      CHECK(bytes != NULL && entry.length == mixed(number) &&
            memcmp(bytes, left.base + left.node.pool_offset + number * 160000u, entry.length) == 0);
      give_back(&right_side, entry.token);
    }
    (void)sched_yield();
  }
  CHECK_EQUAL(right_side.received, came + MANY);
  close_both();
  drop_gpu();
}

/* A second registration that fails undoes the first. */
static void gpu_refused(void) {
  make_gpu(8u << 20);
  zap_gpudirect_settings settings;
  zap_gpudirect_node node;
  settings_for(&settings, "double0");
  settings.device_address = (uintptr_t)gpu.address;
  settings.device_bytes = gpu.bytes;
  settings.method = ZAP_GPUDIRECT_PEERMEM;
  settings.dma_buf_fd = -1;
  int32_t handle = zap_gpudirect_open(&settings);
  CHECK_EQUAL(wait_open(handle, &node), ZAP_E_DRIVER);
  CHECK_CONTAINS(zap_failure(), "EFAULT (14)");
  nothing_left();
  drop_gpu();
}

/* ---- devices that lack something ---- */

static void infiniband(void) {
  CHECK_EQUAL(verbs.set(NULL, "infiniband", 1), 0);
  open_both(0);
  CHECK_EQUAL(left.node.ethernet, 0);
  CHECK_EQUAL(left.node.lid, 7);
  CHECK_EQUAL(right_side.node.lid, 8);
  still_works();
  close_both();
}

static void without_inline(void) {
  for (int trims = 0; trims < 2; trims++) {
    CHECK_EQUAL(verbs.set(NULL, "inline_bytes", trims == 0 ? 0 : 100), 0);
    CHECK_EQUAL(verbs.set(NULL, "inline_trims", trims), 0);
    open_both(0);
    int64_t before = verbs.count(NULL, "inline_sends");
    still_works();
    CHECK_EQUAL(verbs.count(NULL, "inline_sends") > before, trims);
    close_both();
  }
}

static void without_windows(void) {
  CHECK_EQUAL(verbs.set("double0", "windows", 0), 0);
  open_both(0);
  CHECK_EQUAL(left.node.windows, 0);
  CHECK_EQUAL(right_side.node.windows, 1);
  still_works();
  close_both();
  /* It says that it has some. The first is given, the others are not. */
  CHECK_EQUAL(verbs.fail("double0", "ibv_alloc_mw", ENOMEM, 1), 0);
  open_both(0);
  CHECK_EQUAL(left.node.windows, 1);
  join_again();
  burst(&left, 0, MANY);
  WAIT_UNTIL((both_swallow(), left.done == MANY && right_side.received == came + MANY));
  CHECK(verbs.count("double0", "windows") <= 1);
  CHECK_EQUAL(verbs.count("double0", "regions"), 1);
  close_both();
}

/* ---- bringing up ---- */

static void flows_that_fail(void) {
  zap_gpudirect_offer offer, of_left, of_right;
  zap_gpudirect_stats stats;
  open_both(0);
  CHECK_EQUAL(verbs.fail("double0", "ibv_create_qp", ENOMEM, 0), 0);
  CHECK_EQUAL(zap_gpudirect_flow_begin(left.handle, &offer), ZAP_E_MEMORY);
  CHECK_CONTAINS(zap_failure(), "ibv_create_qp of double0 failed with ENOMEM (12)");
  CHECK_EQUAL(verbs.fail("double0", "ibv_create_qp", 0, 0), 0);
  CHECK_EQUAL(verbs.fail("double0", "ibv_modify_qp", EINVAL, 0), 0);
  CHECK_EQUAL(zap_gpudirect_flow_begin(left.handle, &offer), ZAP_E_DRIVER);
  CHECK_CONTAINS(zap_failure(), "to INIT");
  /* To RTR, and to RTS. */
  for (int step = 0; step < 2; step++) {
    CHECK_EQUAL(verbs.fail("double0", "ibv_modify_qp", 0, 0), 0);
    int32_t flow = zap_gpudirect_flow_begin(left.handle, &of_left), other = zap_gpudirect_flow_begin(right_side.handle, &of_right);
    MUST(flow);
    MUST(other);
    CHECK_EQUAL(verbs.fail("double0", "ibv_modify_qp", ETIMEDOUT, step), 0);
    left.downs = 0;
    MUST(zap_gpudirect_flow_accept(left.handle, (uint32_t)flow, &of_right));
    WAIT_UNTIL((both_swallow(), left.downs == 1));
    CHECK_EQUAL(left.reason, UNREACHABLE);
    CHECK_EQUAL(left.error, ETIMEDOUT);
    CHECK_EQUAL(zap_gpudirect_flow_accept(left.handle, (uint32_t)flow, &of_right), ZAP_E_HANDLE);
    MUST(zap_gpudirect_flow_abort(right_side.handle, (uint32_t)other));
    WAIT_UNTIL((both_swallow(), zap_gpudirect_stats_read(left.handle, &stats), stats.flows == 0 && stats.free_slabs == slabs));
    WAIT_UNTIL((both_swallow(), zap_gpudirect_stats_read(right_side.handle, &stats), stats.flows == 0 && stats.free_slabs == slabs));
  }
  verbs.reset();
  still_works();
  close_both();
}

/* ---- flows that end ---- */

static void peer_gone(void) {
  zap_gpudirect_stats stats;
  join_again();
  MUST(zap_gpudirect_flow_abort(right_side.handle, right_side.flow));
  WAIT_UNTIL((both_swallow(), right_side.downs == 1));
  burst(&left, 0, MANY);
  left_is_down(DEAD, IBV_WC_RETRY_EXC_ERR);
  all_back(&left, MANY);
  CHECK_EQUAL(left.done, 0);
  MUST(zap_gpudirect_stats_read(left.handle, &stats));
  CHECK_EQUAL(stats.retries_exceeded, 1);
}

/* Nothing at the far end to receive into: the sender waits, for ever if need be, by credits and not by RNR. */
static void no_receives(void) {
  join_again();
  int64_t waits = verbs.count(NULL, "waits");
  CHECK_EQUAL(verbs.fail("double1", "ibv_post_recv", ENOMEM, 0), 0);
  fill(left.base + left.node.pool_offset, 64, 1);
  for (uint32_t i = 0; i < 200; i++) send_message(&left, 0, 64, i);
  for (int i = 0; i < 200; i++) {
    both_swallow();
    pause_millis(1);
  }
  CHECK(right_side.received - came < 64);
  CHECK_EQUAL(left.downs, 0);
  CHECK_EQUAL(verbs.fail("double1", "ibv_post_recv", 0, 0), 0);
  WAIT_UNTIL((both_swallow(), left.done == 200));
  CHECK_EQUAL(verbs.count(NULL, "waits"), waits);
  MUST(zap_gpudirect_flow_abort(left.handle, left.flow));
  MUST(zap_gpudirect_flow_abort(right_side.handle, right_side.flow));
  WAIT_UNTIL((both_swallow(), left.downs == 1 && right_side.downs == 1));
  all_back(&left, 200);
}

static void failing_status(bool read, enum ibv_wc_status status, uint32_t reason) {
  join_again();
  struct side *hit = read ? &right_side : &left, *other = read ? &left : &right_side;
  burst(&left, 0, 4);
  WAIT_UNTIL((both_swallow(), left.done == 4));
  CHECK_EQUAL(verbs.set(read ? "double1" : "double0", read ? "read_status" : "send_status", status), 0);
  burst(&left, 4, MANY - 4);
  WAIT_UNTIL((both_swallow(), hit->downs == 1));
  CHECK_EQUAL(hit->reason, reason);
  CHECK_EQUAL(hit->status, status);
  MUST(zap_gpudirect_flow_abort(other->handle, other->flow));
  WAIT_UNTIL((both_swallow(), other->downs == 1));
  all_back(&left, MANY);
  all_back(&right_side, 0);
  CHECK(left.failed > 0);
}

static void statuses(void) {
  failing_status(false, IBV_WC_REM_INV_REQ_ERR, REFUSED);
  failing_status(false, IBV_WC_REM_OP_ERR, REFUSED);
  failing_status(false, IBV_WC_RNR_RETRY_EXC_ERR, DEAD);
  failing_status(false, IBV_WC_LOC_PROT_ERR, BROKEN);
  failing_status(false, IBV_WC_FATAL_ERR, BROKEN);
  failing_status(true, IBV_WC_REM_ACCESS_ERR, REFUSED);
  failing_status(true, IBV_WC_RETRY_EXC_ERR, DEAD);
  failing_status(true, IBV_WC_LOC_LEN_ERR, BROKEN);
}

static void pair_breaks(void) {
  join_again();
  burst(&left, 0, MANY);
  CHECK_EQUAL(verbs.break_pair("double0", 0), 0);
  WAIT_UNTIL((both_swallow(), left.downs == 1));
  CHECK_EQUAL(left.reason, BROKEN);
  MUST(zap_gpudirect_flow_abort(right_side.handle, right_side.flow));
  all_back(&left, MANY);
  /* One that has nothing posted but receives, and nothing to say. */
  join_again();
  CHECK_EQUAL(verbs.break_pair("double0", 0), 0);
  WAIT_UNTIL((both_swallow(), left.downs == 1));
  CHECK_EQUAL(left.reason, BROKEN);
  MUST(zap_gpudirect_flow_abort(right_side.handle, right_side.flow));
  WAIT_UNTIL((both_swallow(), right_side.downs == 1));
  all_back(&left, 0);
}

static void port_goes(void) {
  zap_gpudirect_stats stats;
  join_again();
  CHECK_EQUAL(verbs.set(NULL, "retry_ms", 5000), 0);
  left.ports = 0;
  CHECK_EQUAL(verbs.port("double0", 0), 0);
  burst(&left, 0, MANY);
  WAIT_UNTIL((both_swallow(), left.ports == 1));
  CHECK_EQUAL(left.done, 0);
  CHECK_EQUAL(verbs.port("double0", 1), 0);
  WAIT_UNTIL((both_swallow(), left.ports == 2));
  WAIT_UNTIL((both_swallow(), left.done == MANY));
  MUST(zap_gpudirect_stats_read(left.handle, &stats));
  CHECK_EQUAL(stats.port_events, 2);
  CHECK_EQUAL(left.downs, 0);
  CHECK_EQUAL(right_side.ports, 0);
  /* It does not come back in time. */
  CHECK_EQUAL(verbs.set(NULL, "retry_ms", 100), 0);
  CHECK_EQUAL(verbs.port("double1", 0), 0);
  burst(&left, 0, 4);
  left_is_down(DEAD, IBV_WC_RETRY_EXC_ERR);
  all_back(&left, MANY + 4);
  CHECK_EQUAL(verbs.port("double1", 1), 0);
  verbs.reset();
}

/* A post that fails, at each of the first so many. */
static void posts_that_fail(int error) {
  for (int after = 0; after < 7; after++) {
    join_again();
    CHECK_EQUAL(verbs.fail("double0", "ibv_post_send", error, after), 0);
    burst(&left, 0, MANY);
    WAIT_UNTIL((both_swallow(), left.downs == 1));
    CHECK_EQUAL(left.reason, BROKEN);
    CHECK_EQUAL(verbs.fail("double0", "ibv_post_send", 0, 0), 0);
    MUST(zap_gpudirect_flow_abort(right_side.handle, right_side.flow));
    WAIT_UNTIL((both_swallow(), right_side.downs == 1));
    all_back(&left, MANY);
    all_back(&right_side, 0);
  }
}

/* A registration for a large message that fails, with no other that could make room: what was sent before it is delivered, and the rest is not. */
static void shown_without_memory(void) {
  open_both(ZAP_GPUDIRECT_NO_WINDOWS);
  join_again();
  CHECK_EQUAL(verbs.set("double0", "reg_errno", ENOMEM), 0);
  burst(&left, 0, 5);
  WAIT_UNTIL((both_swallow(), left.downs == 1));
  CHECK_EQUAL(left.reason, UNREGISTERED);
  CHECK_EQUAL(left.error, ENOMEM);
  /* What the node took only afterwards comes back afterwards. */
  WAIT_UNTIL((both_swallow(), left.failed == 3));
  CHECK_EQUAL(left.done, 2);
  CHECK_EQUAL(verbs.set("double0", "reg_errno", 0), 0);
  CHECK_EQUAL(verbs.count("double0", "regions"), 1);
  MUST(zap_gpudirect_flow_abort(right_side.handle, right_side.flow));
  WAIT_UNTIL((both_swallow(), right_side.downs == 1));
  close_both();
}

/* What comes late, and ends while it does. */
static void ends_amid(uint32_t flags) {
  CHECK_EQUAL(verbs.set(NULL, "delay_us", 3000), 0);
  open_both(flags);
  for (int round = 0; round < 6; round++) {
    join_again();
    burst(&left, 0, MANY);
    int until = round * 7;
    for (int i = 0; i < until; i++) {
      both_swallow();
      pause_millis(1);
    }
    struct side *ends = round % 2 == 0 ? &left : &right_side, *other = round % 2 == 0 ? &right_side : &left;
    MUST(zap_gpudirect_flow_abort(ends->handle, ends->flow));
    WAIT_UNTIL((both_swallow(), ends->downs == 1));
    MUST(zap_gpudirect_flow_abort(other->handle, other->flow));
    WAIT_UNTIL((both_swallow(), other->downs == 1));
    all_back(&left, MANY);
    all_back(&right_side, 0);
  }
  still_works();
  /* Closed as it is. */
  join_again();
  burst(&left, 0, MANY);
  close_both();
}

/* ---- completions that never come ---- */

static void silence(void) {
  open_both(0);
  join_again();
  burst(&left, 0, 4);
  WAIT_UNTIL((both_swallow(), left.done == 4));
  CHECK_EQUAL(verbs.set("double0", "silent", 1), 0);
  burst(&left, 4, MANY - 4);
  for (int i = 0; i < 100; i++) {
    both_swallow();
    pause_millis(1);
  }
  MUST(zap_gpudirect_flow_abort(left.handle, left.flow));
  WAIT_UNTIL((both_swallow(), left.downs == 1));
  CHECK_EQUAL(left.reason, ABORTED);
  MUST(zap_gpudirect_flow_abort(right_side.handle, right_side.flow));
  all_back(&left, MANY);
  verbs.reset();
  still_works();
  /* And closing does not wait for ever for them. */
  join_again();
  CHECK_EQUAL(verbs.set(NULL, "silent", 1), 0);
  burst(&left, 0, MANY);
  uint64_t before = zap_now();
  close_side(&left);
  close_side(&right_side);
  CHECK(zap_now() - before < 15000000000u);
  verbs.reset();
  nothing_left();
}

/* Who destroys slowly holds up nobody but who closes. */
static void slow_to_destroy(void) {
  open_both(0);
  CHECK_EQUAL(verbs.set("double0", "destroy_ms", 1500), 0);
  join_again();
  MUST(zap_gpudirect_flow_abort(left.handle, left.flow));
  WAIT_UNTIL((both_swallow(), left.downs == 1));
  CHECK_EQUAL(verbs.count("double0", "pairs"), 1);
  MUST(zap_gpudirect_flow_abort(right_side.handle, right_side.flow));
  WAIT_UNTIL((both_swallow(), right_side.downs == 1));
  still_works();
  close_both();
}

/* ---- a driver that does not let go ---- */

static int32_t close_status(struct side *side) {
  int32_t status = ZAP_E_AGAIN;
  MUST(zap_gpudirect_close(side->handle));
  for (int i = 0; i < 20000 && (status = zap_gpudirect_closed(side->handle)) == ZAP_E_AGAIN; i++) pause_millis(1);
  return status;
}

static void stuck(void) {
  open_both(0);
  CHECK_EQUAL(verbs.set("double0", "destroy_ms", 7000), 0);
  join_again();
  join_again();
  CHECK_EQUAL(close_status(&left), ZAP_E_TIMEOUT);
  CHECK_CONTAINS(zap_failure(), "does not come back from destroying a queue pair");
  CHECK_EQUAL(verbs.count("double0", "regions"), 1);
  MUST(zap_gpudirect_region_free(left.node.region));
  (void)close(left.node.wake_fd);
  CHECK_EQUAL(verbs.set("double0", "destroy_ms", 0), 0);
  /* It comes back after all: what it then needs is still there. */
  for (int i = 0; i < 20000 && verbs.count("double0", "pairs") > 0; i++) pause_millis(1);
  CHECK_EQUAL(verbs.count("double0", "pairs"), 0);
  CHECK_EQUAL(verbs.faults(NULL, 0), 0);
  CHECK_EQUAL(verbs.fail("double1", "ibv_dereg_mr", EBUSY, 0), 0);
  CHECK_EQUAL(close_status(&right_side), ZAP_E_DRIVER);
  CHECK_CONTAINS(zap_failure(), "ibv_dereg_mr of double1 failed with EBUSY (16)");
  CHECK_EQUAL(verbs.count("double1", "regions"), 1);
  MUST(zap_gpudirect_region_free(right_side.node.region));
  (void)close(right_side.node.wake_fd);
  CHECK_EQUAL(zap_gpudirect_live(), 0);
  CHECK_EQUAL(verbs.faults(NULL, 0), 0);
}

#define RUN(step)                                                        \
  do {                                                                   \
    uint64_t from_ = zap_now();                                          \
    step;                                                                \
    printf("%s: %d ms\n", #step, (int)((zap_now() - from_) / 1000000u)); \
    (void)fflush(stdout);                                                \
  } while (0)

int main(int count, char **words) {
  if (count < 3) return 2;
  runtime = words[1];
  if (!ibverbs_double_load(runtime, &verbs)) return 2;
  if (count > 3 && strcmp(words[3], "stuck") == 0) {
    RUN(stuck());
    return checks_done("stuck");
  }
  RUN(opens_that_fail());
  RUN(probes_of_memory(words[2]));
  RUN(into_gpu(ZAP_GPUDIRECT_DMA_BUF));
  RUN(into_gpu(ZAP_GPUDIRECT_PEERMEM));
  RUN(gpu_refused());
  RUN(infiniband());
  RUN(without_inline());
  RUN(without_windows());
  RUN(flows_that_fail());
  open_both(0);
  RUN(peer_gone());
  RUN(no_receives());
  RUN(statuses());
  RUN(pair_breaks());
  RUN(port_goes());
  RUN(posts_that_fail(ENOMEM));
  RUN(still_works());
  close_both();
  RUN(shown_without_memory());
  RUN(ends_amid(0));
  RUN(ends_amid(ZAP_GPUDIRECT_NO_WINDOWS));
  RUN(silence());
  RUN(slow_to_destroy());
  return checks_done("faults");
}
