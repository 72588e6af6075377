/*
 * Which device, port and GID shim/gpudirect/device.c takes, and what it says when there is none, over a table of functions of our own; and
 * what the real libibverbs leads to on a host without RDMA.
 *
 * verbs_device                 over our own functions
 * verbs_device load FILE       what loading this file fails with
 * verbs_device none LIBRARY    the real one, where there is no RDMA
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../../shim/gpudirect/device.h"
#include "check.h"

#define PORTS 2
#define GIDS 4

/* ---- devices ---- */

struct fake {
  struct ibv_device device; /* first: its address is the fake's */
  struct ibv_context context;
  struct ibv_port_attr port[PORTS];
  struct ibv_gid_entry gid[PORTS][GIDS];
  int ports, open_errno, device_errno, port_errno, gid_errno;
  int opened; /* now */
};

static struct fake fakes[3];
static int fake_count, list_errno, lists;

static struct fake *fake_of(struct ibv_context *context) { return (struct fake *)(void *)context->device; }

static struct ibv_device **get_device_list(int *count) {
  if (list_errno != 0) return errno = list_errno, NULL;
  struct ibv_device **list = calloc((size_t)fake_count + 1, sizeof *list);
  for (int at = 0; list != NULL && at < fake_count; at++) list[at] = &fakes[at].device;
  *count = fake_count;
  lists++;
  return list;
}

static void free_device_list(struct ibv_device **list) {
  lists--;
  free(list);
}

static const char *get_device_name(struct ibv_device *device) { return device->name; }

static struct ibv_context *open_device(struct ibv_device *device) {
  struct fake *fake = (struct fake *)(void *)device;
  if (fake->open_errno != 0) return errno = fake->open_errno, NULL;
  fake->opened++;
  fake->context.device = device;
  return &fake->context;
}

static int close_device(struct ibv_context *context) {
  fake_of(context)->opened--;
  return 0;
}

static int query_device(struct ibv_context *context, struct ibv_device_attr *attributes) {
  *attributes = (struct ibv_device_attr){.fw_ver = "1.2.3",
                                         .max_mr_size = UINT64_C(1) << 40,
                                         .max_qp = 11,
                                         .max_qp_wr = 12,
                                         .max_sge = 13,
                                         .max_cqe = 14,
                                         .max_mr = 15,
                                         .max_qp_rd_atom = 16,
                                         .max_qp_init_rd_atom = 17,
                                         .max_mw = 18,
                                         .device_cap_flags = IBV_DEVICE_MEM_WINDOW_TYPE_2B,
                                         .phys_port_cnt = (uint8_t)fake_of(context)->ports};
  return fake_of(context)->device_errno;
}

static int query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *start) {
  /* As the real one: up to `flags`. */
  memcpy(start, &fake_of(context)->port[port - 1], offsetof(struct ibv_port_attr, port_cap_flags2));
  return fake_of(context)->port_errno;
}

static int query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid) {
  if (fake_of(context)->gid_errno != 0) return errno = fake_of(context)->gid_errno, -1;
  *gid = fake_of(context)->gid[port - 1][index].gid;
  return 0;
}

static int query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry, uint32_t flags,
                        size_t bytes) {
  if (fake_of(context)->gid_errno != 0) return fake_of(context)->gid_errno;
  *entry = fake_of(context)->gid[port - 1][index];
  static const uint8_t nothing[16];
  return flags != 0 || bytes != sizeof *entry ? EINVAL : memcmp(entry->gid.raw, nothing, sizeof nothing) == 0 ? ENODATA : 0;
}

static const char *port_state_str(enum ibv_port_state state) { return state == IBV_PORT_DOWN ? "down" : "init"; }

static struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type) { return (void)pd, (void)type, NULL; }

static const struct zap_verbs table = {
    .get_device_list = get_device_list,
    .free_device_list = free_device_list,
    .get_device_name = get_device_name,
    .open_device = open_device,
    .close_device = close_device,
    .query_device = query_device,
    .query_port = query_port,
    .query_gid = query_gid,
    .query_gid_ex = query_gid_ex,
    .port_state_str = port_state_str,
};

static void add_gid(struct fake *fake, int port, int index, uint32_t type, const char *hex) {
  struct ibv_gid_entry *entry = &fake->gid[port - 1][index];
  entry->gid_type = type;
  for (int at = 0; at < 16; at++) {
    char pair[3] = {hex[2 * at], hex[2 * at + 1], 0};
    entry->gid.raw[at] = (uint8_t)strtoul(pair, NULL, 16);
  }
}

#define LOCAL "fe8000000000000000000000000000aa"
#define GLOBAL "20010db8000000000000000000000001"
#define IPV4 "00000000000000000000ffff0a07000a"
#define IPV4_LOCAL "00000000000000000000ffffa9fe0001"

static struct fake *add(const char *name, uint8_t layer, enum ibv_port_state first, enum ibv_port_state second) {
  struct fake *fake = &fakes[fake_count++];
  memset(fake, 0, sizeof *fake);
  memcpy(fake->device.name, name, strlen(name));
  fake->device.node_type = IBV_NODE_CA;
  fake->ports = PORTS;
  for (int at = 0; at < PORTS; at++) {
    fake->port[at] = (struct ibv_port_attr){.state = at == 0 ? first : second,
                                            .active_mtu = IBV_MTU_4096,
                                            .gid_tbl_len = GIDS,
                                            .lid = (uint16_t)(70 + at),
                                            .max_msg_sz = 1u << 30,
                                            .link_layer = layer};
    if (layer == IBV_LINK_LAYER_INFINIBAND) add_gid(fake, at + 1, 0, IBV_GID_TYPE_IB, LOCAL);
  }
  return fake;
}

static struct fake *ethernet(const char *name) { return add(name, IBV_LINK_LAYER_ETHERNET, IBV_PORT_ACTIVE, IBV_PORT_DOWN); }

static void start(void) { fake_count = list_errno = 0; }

/* Nothing stays open, and no list is kept. */
static void closed(void) {
  CHECK_EQUAL(lists, 0);
  for (int at = 0; at < fake_count; at++) CHECK_EQUAL(fakes[at].opened, 0);
}

static int32_t open_hca(struct zap_hca *hca, const char *device, uint8_t port, int gid) {
  return zap_hca_open(&table, &(struct zap_hca_settings){.device = device, .port = port, .gid_index = gid}, hca);
}

static void expect_gid(const char *device, uint8_t port, int gid, int index, uint32_t type) {
  struct zap_hca hca;
  int32_t status = open_hca(&hca, device, port, gid);
  CHECK_EQUAL(status, ZAP_OK);
  if (status != ZAP_OK) fprintf(stderr, "%s\n", zap_failure());
  CHECK_EQUAL(hca.gid.index, index);
  CHECK_EQUAL(hca.gid.type, type);
  zap_hca_close(&hca);
  zap_hca_close(&hca);
  closed();
}

static void expect_failure(const char *device, uint8_t port, int gid, int32_t status, const char *text) {
  struct zap_hca hca;
  CHECK_EQUAL(open_hca(&hca, device, port, gid), status);
  CHECK_CONTAINS(zap_failure(), text);
  zap_hca_close(&hca);
  closed();
}

/* ---- what is tried ---- */

static void what_it_is(void) {
  start();
  struct fake *one = ethernet("mlx5_0");
  one->context.ops.alloc_mw = alloc_mw;
  add_gid(one, 1, 1, IBV_GID_TYPE_ROCE_V2, IPV4);
  struct zap_hca hca;
  CHECK_EQUAL(open_hca(&hca, NULL, 0, -1), ZAP_OK);
  CHECK(strcmp(hca.name, "mlx5_0") == 0 && strcmp(hca.firmware, "1.2.3") == 0);
  CHECK(hca.context == &one->context && hca.ethernet && hca.routed);
  CHECK_EQUAL(hca.port, 1);
  CHECK_EQUAL(hca.mtu, IBV_MTU_4096);
  CHECK_EQUAL(hca.max_message, 1 << 30);
  CHECK(hca.max_region == UINT64_C(1) << 40);
  CHECK(hca.max_queue_pairs == 11 && hca.max_requests == 12 && hca.max_sge == 13 && hca.max_completions == 14);
  CHECK(hca.max_regions == 15 && hca.max_reads_in == 16 && hca.max_reads_out == 17 && hca.max_windows == 18);
  zap_hca_close(&hca);

  start();
  struct fake *two = add("ib0", IBV_LINK_LAYER_INFINIBAND, IBV_PORT_INIT, IBV_PORT_ACTIVE);
  CHECK_EQUAL(open_hca(&hca, "", 0, -1), ZAP_OK);
  CHECK(!hca.ethernet && !hca.routed && hca.port == 2 && hca.lid == 71 && hca.gid.index == 0 && hca.max_windows == 0);
  zap_hca_close(&hca);
  two->port[1].flags = IBV_QPF_GRH_REQUIRED;
  CHECK_EQUAL(open_hca(&hca, "ib0", 2, -1), ZAP_OK);
  CHECK(hca.routed);
  zap_hca_close(&hca);
}

static void which_gid(void) {
  start();
  struct fake *one = ethernet("mlx5_0");
  add_gid(one, 1, 0, IBV_GID_TYPE_ROCE_V1, GLOBAL);
  expect_failure("mlx5_0", 0, -1, ZAP_E_DEVICE, "mlx5_0 port 1 has no RoCE v2 GID among 1");
  expect_gid("mlx5_0", 0, 0, 0, IBV_GID_TYPE_ROCE_V1);
  add_gid(one, 1, 1, IBV_GID_TYPE_ROCE_V2, LOCAL);
  expect_gid("mlx5_0", 0, -1, 1, IBV_GID_TYPE_ROCE_V2);
  add_gid(one, 1, 2, IBV_GID_TYPE_ROCE_V2, IPV4_LOCAL);
  expect_gid("", 0, -1, 1, IBV_GID_TYPE_ROCE_V2);
  add_gid(one, 1, 3, IBV_GID_TYPE_ROCE_V2, IPV4);
  expect_gid("", 1, -1, 3, IBV_GID_TYPE_ROCE_V2);
  add_gid(one, 1, 2, IBV_GID_TYPE_ROCE_V2, GLOBAL);
  expect_gid("", 0, -1, 2, IBV_GID_TYPE_ROCE_V2);
  expect_gid("", 0, 3, 3, IBV_GID_TYPE_ROCE_V2);
  expect_failure("", 0, 4, ZAP_E_INVALID, "mlx5_0 port 1 has no GID of index 4: its table has 4 places");
  expect_failure("", 0, 256, ZAP_E_INVALID, "a GID index is 0 to 255, or -1 for a choice, not 256");
  expect_failure("", 0, -2, ZAP_E_INVALID, "not -2");
  one->gid_errno = EACCES;
  expect_failure("", 0, 3, ZAP_E_DRIVER, "ibv_query_gid of mlx5_0 port 1 failed with EACCES (13)");
  memset(one->gid, 0, sizeof one->gid);
  expect_failure("", 0, -1, ZAP_E_DRIVER, "ibv_query_gid of mlx5_0 port 1 failed with EACCES (13)");
  one->gid_errno = 0;
  expect_failure("", 0, -1, ZAP_E_DEVICE, "mlx5_0 port 1 has no GID in a table of 4");
  expect_failure("", 0, 2, ZAP_E_DEVICE, "the GID of index 2 of mlx5_0 port 1 is empty");
}

/* A library without _ibv_query_gid_ex, and no sysfs: better an address of an unknown type than none. */
static void untold_gid(void) {
  start();
  struct fake *one = ethernet("mlx5_0");
  add_gid(one, 1, 1, IBV_GID_TYPE_ROCE_V2, IPV4);
  struct zap_verbs old = table;
  old.query_gid_ex = NULL;
  struct zap_hca hca;
  CHECK_EQUAL(zap_hca_open(&old, &(struct zap_hca_settings){.gid_index = -1}, &hca), ZAP_OK);
  CHECK_EQUAL(hca.gid.index, 1);
  CHECK_EQUAL(hca.gid.type, ZAP_HCA_GID_UNKNOWN);
  zap_hca_close(&hca);
  closed();
}

static void which_device(void) {
  start();
  expect_failure("", 0, -1, ZAP_E_DEVICE, "no RDMA device: this host has none");
  list_errno = ENOSYS;
  expect_failure("", 0, -1, ZAP_E_DEVICE, "ibv_get_device_list of this host failed with ENOSYS (");
  list_errno = 0;
  add("mlx5_0", IBV_LINK_LAYER_ETHERNET, IBV_PORT_DOWN, IBV_PORT_INIT);
  expect_failure("", 0, -1, ZAP_E_DEVICE,
                 "mlx5_0 has no active port: port 1 is down (Ethernet); port 2 is init (Ethernet)");
  expect_failure("", 1, -1, ZAP_E_DEVICE, "mlx5_0 has no active port: port 1 is down (Ethernet)");
  expect_failure("mlx5_0", 3, -1, ZAP_E_INVALID, "mlx5_0 has no port 3: it has 2");
  struct fake *two = add("ib0", IBV_LINK_LAYER_INFINIBAND, IBV_PORT_ACTIVE, IBV_PORT_ACTIVE);
  expect_gid("", 0, -1, 0, IBV_GID_TYPE_IB);
  expect_failure("mlx5_1", 0, -1, ZAP_E_DEVICE, "no RDMA device \"mlx5_1\" here: there is mlx5_0; ib0");
  two->open_errno = EACCES;
  expect_failure("ib0", 0, -1, ZAP_E_DRIVER, "ibv_open_device of ib0 failed with EACCES (13)");
  expect_failure("", 0, -1, ZAP_E_DEVICE, "none of 2 RDMA devices can be used: mlx5_0 has no active port");
  CHECK_CONTAINS(zap_failure(), "; ibv_open_device of ib0 failed with EACCES (13)");
  two->open_errno = 0;
  two->device_errno = EIO;
  expect_failure("ib0", 0, -1, ZAP_E_DRIVER, "ibv_query_device of ib0 failed with EIO (5)");
  two->device_errno = 0;
  two->port_errno = ENODEV;
  expect_failure("ib0", 2, -1, ZAP_E_DEVICE, "ibv_query_port of ib0 port 2 failed with ENODEV (19)");
  expect_failure("ib0", 0, -1, ZAP_E_DEVICE, "port 1: ibv_query_port failed with ENODEV (19); port 2: ibv_query_port failed");
  two->port_errno = 0;
  two->device.transport_type = IBV_TRANSPORT_IWARP;
  expect_failure("ib0", 0, -1, ZAP_E_UNSUPPORTED, "ib0 cannot be used: it speaks iWARP");
  two->ports = 0;
  two->device.transport_type = IBV_TRANSPORT_IB;
  expect_failure("ib0", 0, -1, ZAP_E_DEVICE, "ib0 has no active port: it has no ports");
}

static void the_list(void) {
  start();
  struct zap_hca_row rows[6];
  CHECK_EQUAL(zap_hca_list(&table, rows, 6), 0);
  struct fake *one = ethernet("mlx5_0");
  add_gid(one, 1, 0, IBV_GID_TYPE_ROCE_V1, LOCAL);
  add_gid(one, 1, 3, IBV_GID_TYPE_ROCE_V2, IPV4);
  struct fake *two = ethernet("mlx5_1");
  two->open_errno = EPERM;
  struct fake *three = add("iw0", IBV_LINK_LAYER_INFINIBAND, IBV_PORT_ACTIVE, IBV_PORT_DOWN);
  three->device.transport_type = IBV_TRANSPORT_IWARP;
  CHECK_EQUAL(zap_hca_list(&table, rows, 6), 5);
  CHECK(strcmp(rows[0].device, "mlx5_0") == 0 && strcmp(rows[0].firmware, "1.2.3") == 0 && rows[0].port == 1 && rows[0].gids == 2);
  CHECK(rows[0].state == IBV_PORT_ACTIVE && rows[0].link_layer == IBV_LINK_LAYER_ETHERNET && rows[0].mtu == IBV_MTU_4096);
  CHECK(rows[1].port == 2 && rows[1].state == IBV_PORT_DOWN && rows[1].gids == 0 && rows[1].fault[0] == 0);
  CHECK(strcmp(rows[2].device, "mlx5_1") == 0 && rows[2].port == 0 && rows[2].firmware[0] == 0);
  CHECK_CONTAINS(rows[2].fault, "ibv_open_device of mlx5_1 failed with EPERM (1)");
  CHECK_CONTAINS(rows[3].fault, "iWARP");
  CHECK(rows[4].port == 2 && rows[4].lid == 71 && strcmp(zap_hca_layer(rows[4].link_layer), "InfiniBand") == 0);
  memset(&rows[2], 1, sizeof rows[2]);
  CHECK_EQUAL(zap_hca_list(&table, rows, 2), 5);
  CHECK_EQUAL(rows[2].port, 1);
  three->port_errno = EIO;
  CHECK_EQUAL(zap_hca_list(&table, rows, 6), 5);
  CHECK_CONTAINS(rows[3].fault, "ibv_query_port of iw0 port 1 failed with EIO");
  three->device_errno = EIO;
  CHECK_EQUAL(zap_hca_list(&table, rows, 6), 4);
  CHECK_CONTAINS(rows[3].fault, "ibv_query_device of iw0 failed with EIO");
  closed();
  list_errno = EPERM;
  CHECK_EQUAL(zap_hca_list(&table, rows, 6), ZAP_E_DRIVER);
}

static int optional_access;
static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *address, size_t bytes, int access) {
  return (void)pd, (void)address, (void)bytes, optional_access = access, NULL;
}
static struct ibv_mr *reg_mr_iova2(struct ibv_pd *pd, void *address, size_t bytes, uint64_t iova, unsigned access) {
  CHECK(iova == (uintptr_t)address);
  return (void)pd, (void)bytes, optional_access = -(int)access, NULL;
}

static void answers(void) {
  struct zap_verbs verbs = {.reg_mr = reg_mr};
  char byte = 0;
  zap_verbs_register(&verbs, NULL, &byte, 1, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
  CHECK_EQUAL(optional_access, IBV_ACCESS_LOCAL_WRITE);
  verbs.reg_mr_iova2 = reg_mr_iova2;
  zap_verbs_register(&verbs, NULL, &byte, 1, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
  CHECK_EQUAL(optional_access, -(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING));
  zap_verbs_register(&verbs, NULL, &byte, 1, IBV_ACCESS_LOCAL_WRITE);
  CHECK_EQUAL(optional_access, IBV_ACCESS_LOCAL_WRITE);
  errno = EBUSY;
  CHECK_EQUAL(zap_verbs_errno(-1), EBUSY);
  CHECK_EQUAL(zap_verbs_errno(-EINVAL), EINVAL);
  CHECK_EQUAL(zap_verbs_errno(ENOMEM), ENOMEM);
  CHECK_EQUAL(zap_verbs_fail("ibv_reg_dmabuf_mr", "4096 bytes", EOPNOTSUPP), ZAP_E_UNSUPPORTED);
  CHECK_EQUAL(zap_verbs_fail("ibv_reg_mr", "4096 bytes", ENOMEM), ZAP_E_MEMORY);
  CHECK_CONTAINS(zap_failure(), "ibv_reg_mr of 4096 bytes failed with ENOMEM (12): ");
  CHECK_EQUAL(zap_verbs_fail("ibv_modify_qp", "a queue pair", 9999), ZAP_E_DRIVER);
  CHECK_CONTAINS(zap_failure(), "failed with errno (9999): look at dmesg");
}

static int real(const char *library) {
  struct zap_verbs verbs;
  struct zap_hca hca;
  struct zap_hca_row row;
  CHECK_EQUAL(zap_verbs_load(library, &verbs), ZAP_OK);
  CHECK_EQUAL(zap_hca_open(&verbs, &(struct zap_hca_settings){.gid_index = -1}, &hca), ZAP_E_DEVICE);
  CHECK_CONTAINS(zap_failure(), "ibv_get_device_list of this host failed with ENOSYS (38): this host's kernel has no RDMA: modprobe");
  zap_hca_close(&hca);
  CHECK_EQUAL(zap_hca_list(&verbs, &row, 1), ZAP_E_DEVICE);
  return checks_done("none");
}

int main(int count, char **words) {
  if (count == 3 && strcmp(words[1], "none") == 0) return real(words[2]);
  if (count == 3 && strcmp(words[1], "load") == 0) {
    struct zap_verbs verbs;
    printf("%d %s\n", zap_verbs_load(words[2], &verbs), zap_failure());
    return 0;
  }
  what_it_is();
  which_gid();
  untold_gid();
  which_device();
  the_list();
  answers();
  return checks_done("device");
}
