/*
 * What shim/gpudirect/verbs_abi.h says of libibverbs' ABI: every structure, member and number, one a line. Compiled with ZAP_VERBS_SYSTEM
 * it says the same of <infiniband/verbs.h>, and does not compile where a function is of another type there. Runs no RDMA.
 */
#include "../../shim/gpudirect/verbs.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define S(structure) printf("sizeof(%s) = %zu\n", #structure, sizeof(structure));
#define M(structure, member) \
  printf("%s.%s = %zu + %zu\n", #structure, #member, offsetof(structure, member), sizeof(((structure *)0)->member));
#define N(name, value) printf("%s = %lld\n", name, (long long)(value));
#define C(constant) N(#constant, constant)

/* Of a structure and its members in one. */
#define M1(s, a) M(s, a)
#define M2(s, a, b) M(s, a) M(s, b)
#define M3(s, a, b, c) M2(s, a, b) M(s, c)
#define M4(s, a, b, c, d) M2(s, a, b) M2(s, c, d)
/* Not over C: the real header has macros among them. */
#define C4(a, b, c, d) N(#a, a) N(#b, b) N(#c, c) N(#d, d)

static void devices(void) {
  S(struct ibv_device)
  M3(struct ibv_device, node_type, transport_type, name) M3(struct ibv_device, dev_name, dev_path, ibdev_path)
  S(struct ibv_device_attr)
  M4(struct ibv_device_attr, fw_ver, node_guid, sys_image_guid, max_mr_size)
  M4(struct ibv_device_attr, page_size_cap, vendor_id, vendor_part_id, hw_ver)
  M4(struct ibv_device_attr, max_qp, max_qp_wr, device_cap_flags, max_sge)
  M4(struct ibv_device_attr, max_sge_rd, max_cq, max_cqe, max_mr)
  M4(struct ibv_device_attr, max_pd, max_qp_rd_atom, max_ee_rd_atom, max_res_rd_atom)
  M4(struct ibv_device_attr, max_qp_init_rd_atom, max_ee_init_rd_atom, atomic_cap, max_ee)
  M4(struct ibv_device_attr, max_rdd, max_mw, max_raw_ipv6_qp, max_raw_ethy_qp)
  M4(struct ibv_device_attr, max_mcast_grp, max_mcast_qp_attach, max_total_mcast_qp_attach, max_ah)
  M4(struct ibv_device_attr, max_fmr, max_map_per_fmr, max_srq, max_srq_wr)
  M4(struct ibv_device_attr, max_srq_sge, max_pkeys, local_ca_ack_delay, phys_port_cnt)
  /* Not its size: it grows at its end. */
  M4(struct ibv_port_attr, state, max_mtu, active_mtu, gid_tbl_len)
  M4(struct ibv_port_attr, port_cap_flags, max_msg_sz, bad_pkey_cntr, qkey_viol_cntr)
  M4(struct ibv_port_attr, pkey_tbl_len, lid, sm_lid, lmc)
  M4(struct ibv_port_attr, max_vl_num, sm_sl, subnet_timeout, init_type_reply)
  M4(struct ibv_port_attr, active_width, active_speed, phys_state, link_layer)
  M2(struct ibv_port_attr, flags, port_cap_flags2)
  S(union ibv_gid)
  M3(union ibv_gid, raw, global.subnet_prefix, global.interface_id)
  S(struct ibv_gid_entry)
  M3(struct ibv_gid_entry, gid, gid_index, port_num) M2(struct ibv_gid_entry, gid_type, ndev_ifindex)
  S(struct ibv_async_event)
  M3(struct ibv_async_event, element.cq, element.qp, element.srq)
  M3(struct ibv_async_event, element.wq, element.port_num, event_type)
}

static void contexts(void) {
  S(struct ibv_context)
  M4(struct ibv_context, device, ops, cmd_fd, async_fd)
  M3(struct ibv_context, num_comp_vectors, mutex, abi_compat)
  S(struct ibv_context_ops)
  M2(struct ibv_context_ops, alloc_mw, dealloc_mw)
  M4(struct ibv_context_ops, poll_cq, req_notify_cq, post_send, post_recv)
  S(struct ibv_comp_channel)
  M3(struct ibv_comp_channel, context, fd, refcnt)
  S(struct ibv_cq)
  M4(struct ibv_cq, context, channel, cq_context, handle)
  M3(struct ibv_cq, cqe, mutex, cond) M2(struct ibv_cq, comp_events_completed, async_events_completed)
}

static void memory(void) {
  S(struct ibv_pd)
  M2(struct ibv_pd, context, handle)
  S(struct ibv_mr)
  M4(struct ibv_mr, context, pd, addr, length) M3(struct ibv_mr, handle, lkey, rkey)
  S(struct ibv_mw)
  M3(struct ibv_mw, context, pd, rkey) M2(struct ibv_mw, handle, type)
  S(struct ibv_mw_bind_info)
  M4(struct ibv_mw_bind_info, mr, addr, length, mw_access_flags)
}

static void queue_pairs(void) {
  S(struct ibv_qp_cap)
  M3(struct ibv_qp_cap, max_send_wr, max_recv_wr, max_send_sge) M2(struct ibv_qp_cap, max_recv_sge, max_inline_data)
  S(struct ibv_qp_init_attr)
  M4(struct ibv_qp_init_attr, qp_context, send_cq, recv_cq, srq) M3(struct ibv_qp_init_attr, cap, qp_type, sq_sig_all)
  S(struct ibv_global_route)
  M3(struct ibv_global_route, dgid, flow_label, sgid_index) M2(struct ibv_global_route, hop_limit, traffic_class)
  S(struct ibv_ah_attr)
  M4(struct ibv_ah_attr, grh, dlid, sl, src_path_bits) M3(struct ibv_ah_attr, static_rate, is_global, port_num)
  S(struct ibv_qp_attr)
  M4(struct ibv_qp_attr, qp_state, cur_qp_state, path_mtu, path_mig_state)
  M4(struct ibv_qp_attr, qkey, rq_psn, sq_psn, dest_qp_num)
  M4(struct ibv_qp_attr, qp_access_flags, cap, ah_attr, alt_ah_attr)
  M4(struct ibv_qp_attr, pkey_index, alt_pkey_index, en_sqd_async_notify, sq_draining)
  M4(struct ibv_qp_attr, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer, port_num)
  M3(struct ibv_qp_attr, timeout, retry_cnt, rnr_retry) M3(struct ibv_qp_attr, alt_port_num, alt_timeout, rate_limit)
  S(struct ibv_qp)
  M4(struct ibv_qp, context, qp_context, pd, send_cq) M4(struct ibv_qp, recv_cq, srq, handle, qp_num)
  M4(struct ibv_qp, state, qp_type, mutex, cond) M1(struct ibv_qp, events_completed)
}

static void work(void) {
  S(struct ibv_sge)
  M3(struct ibv_sge, addr, length, lkey)
  S(struct ibv_send_wr)
  M4(struct ibv_send_wr, wr_id, next, sg_list, num_sge)
  M4(struct ibv_send_wr, opcode, send_flags, imm_data, invalidate_rkey)
  M2(struct ibv_send_wr, wr.rdma.remote_addr, wr.rdma.rkey)
  M4(struct ibv_send_wr, wr.atomic.remote_addr, wr.atomic.compare_add, wr.atomic.swap, wr.atomic.rkey)
  M4(struct ibv_send_wr, wr.ud.ah, wr.ud.remote_qpn, wr.ud.remote_qkey, qp_type.xrc.remote_srqn)
  M3(struct ibv_send_wr, bind_mw.mw, bind_mw.rkey, bind_mw.bind_info) M3(struct ibv_send_wr, tso.hdr, tso.hdr_sz, tso.mss)
  S(struct ibv_recv_wr)
  M4(struct ibv_recv_wr, wr_id, next, sg_list, num_sge)
  S(struct ibv_wc)
  M4(struct ibv_wc, wr_id, status, opcode, vendor_err) M4(struct ibv_wc, byte_len, imm_data, invalidated_rkey, qp_num)
  M3(struct ibv_wc, src_qp, wc_flags, pkey_index) M3(struct ibv_wc, slid, sl, dlid_path_bits)
}

static void numbers_of_devices(void) {
  C4(IBV_NODE_UNKNOWN, IBV_NODE_CA, IBV_NODE_SWITCH, IBV_NODE_ROUTER)
  C4(IBV_NODE_RNIC, IBV_NODE_USNIC, IBV_NODE_USNIC_UDP, IBV_NODE_UNSPECIFIED)
  C4(IBV_TRANSPORT_UNKNOWN, IBV_TRANSPORT_IB, IBV_TRANSPORT_IWARP, IBV_TRANSPORT_USNIC)
  C4(IBV_TRANSPORT_USNIC_UDP, IBV_TRANSPORT_UNSPECIFIED, IBV_SYSFS_NAME_MAX, IBV_SYSFS_PATH_MAX)
  C4(IBV_DEVICE_PORT_ACTIVE_EVENT, IBV_DEVICE_RC_RNR_NAK_GEN, IBV_DEVICE_MEM_WINDOW, IBV_DEVICE_MEM_MGT_EXTENSIONS)
  C(IBV_DEVICE_MEM_WINDOW_TYPE_2A) C(IBV_DEVICE_MEM_WINDOW_TYPE_2B)
  C(IBV_ATOMIC_NONE) C(IBV_ATOMIC_HCA) C(IBV_ATOMIC_GLOB)
  C4(IBV_MTU_256, IBV_MTU_512, IBV_MTU_1024, IBV_MTU_2048) C(IBV_MTU_4096)
  C4(IBV_PORT_NOP, IBV_PORT_DOWN, IBV_PORT_INIT, IBV_PORT_ARMED) C(IBV_PORT_ACTIVE) C(IBV_PORT_ACTIVE_DEFER)
  C4(IBV_LINK_LAYER_UNSPECIFIED, IBV_LINK_LAYER_INFINIBAND, IBV_LINK_LAYER_ETHERNET, IBV_QPF_GRH_REQUIRED)
  C(IBV_GID_TYPE_IB) C(IBV_GID_TYPE_ROCE_V1) C(IBV_GID_TYPE_ROCE_V2)
  C4(IBV_EVENT_CQ_ERR, IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR)
  C4(IBV_EVENT_COMM_EST, IBV_EVENT_SQ_DRAINED, IBV_EVENT_PATH_MIG, IBV_EVENT_PATH_MIG_ERR)
  C4(IBV_EVENT_DEVICE_FATAL, IBV_EVENT_PORT_ACTIVE, IBV_EVENT_PORT_ERR, IBV_EVENT_LID_CHANGE)
  C4(IBV_EVENT_PKEY_CHANGE, IBV_EVENT_SM_CHANGE, IBV_EVENT_SRQ_ERR, IBV_EVENT_SRQ_LIMIT_REACHED)
  C4(IBV_EVENT_QP_LAST_WQE_REACHED, IBV_EVENT_CLIENT_REREGISTER, IBV_EVENT_GID_CHANGE, IBV_EVENT_WQ_FATAL)
}

static void numbers_of_queue_pairs(void) {
  C4(IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_ATOMIC)
  C4(IBV_ACCESS_MW_BIND, IBV_ACCESS_ZERO_BASED, IBV_ACCESS_ON_DEMAND, IBV_ACCESS_HUGETLB)
  C4(IBV_ACCESS_OPTIONAL_FIRST, IBV_ACCESS_OPTIONAL_RANGE, IBV_ACCESS_RELAXED_ORDERING, IBV_MW_TYPE_1) C(IBV_MW_TYPE_2)
  C(IBV_QPT_RC) C(IBV_QPT_UC) C(IBV_QPT_UD)
  C4(IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS) C4(IBV_QPS_SQD, IBV_QPS_SQE, IBV_QPS_ERR, IBV_QPS_UNKNOWN)
  C(IBV_MIG_MIGRATED) C(IBV_MIG_REARM) C(IBV_MIG_ARMED)
  C4(IBV_QP_STATE, IBV_QP_CUR_STATE, IBV_QP_EN_SQD_ASYNC_NOTIFY, IBV_QP_ACCESS_FLAGS)
  C4(IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_QKEY, IBV_QP_AV)
  C4(IBV_QP_PATH_MTU, IBV_QP_TIMEOUT, IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY)
  C4(IBV_QP_RQ_PSN, IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_ALT_PATH, IBV_QP_MIN_RNR_TIMER)
  C4(IBV_QP_SQ_PSN, IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_PATH_MIG_STATE, IBV_QP_CAP) C(IBV_QP_DEST_QPN)
}

static void numbers_of_work(void) {
  C4(IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM)
  C4(IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_LOCAL_INV)
  C(IBV_WR_BIND_MW) C(IBV_WR_SEND_WITH_INV)
  C4(IBV_SEND_FENCE, IBV_SEND_SIGNALED, IBV_SEND_SOLICITED, IBV_SEND_INLINE) C(IBV_SEND_IP_CSUM)
  C4(IBV_WC_SUCCESS, IBV_WC_LOC_LEN_ERR, IBV_WC_LOC_QP_OP_ERR, IBV_WC_LOC_EEC_OP_ERR)
  C4(IBV_WC_LOC_PROT_ERR, IBV_WC_WR_FLUSH_ERR, IBV_WC_MW_BIND_ERR, IBV_WC_BAD_RESP_ERR)
  C4(IBV_WC_LOC_ACCESS_ERR, IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_OP_ERR)
  C4(IBV_WC_RETRY_EXC_ERR, IBV_WC_RNR_RETRY_EXC_ERR, IBV_WC_LOC_RDD_VIOL_ERR, IBV_WC_REM_INV_RD_REQ_ERR)
  C4(IBV_WC_REM_ABORT_ERR, IBV_WC_INV_EECN_ERR, IBV_WC_INV_EEC_STATE_ERR, IBV_WC_FATAL_ERR)
  C(IBV_WC_RESP_TIMEOUT_ERR) C(IBV_WC_GENERAL_ERR)
  C4(IBV_WC_SEND, IBV_WC_RDMA_WRITE, IBV_WC_RDMA_READ, IBV_WC_COMP_SWAP)
  C4(IBV_WC_FETCH_ADD, IBV_WC_BIND_MW, IBV_WC_LOCAL_INV, IBV_WC_RECV) C(IBV_WC_RECV_RDMA_WITH_IMM)
  C(IBV_WC_GRH) C(IBV_WC_WITH_IMM) C(IBV_WC_WITH_INV)
}

#ifdef ZAP_VERBS_SYSTEM
/* The table's functions are the header's. */
#define SAME(result, name, parameters) \
  _Static_assert(__builtin_types_compatible_p(result(*) parameters, __typeof__(&ibv_##name)), "ibv_" #name);
ZAP_VERBS_REQUIRED(SAME)
ZAP_VERBS_OPTIONAL(SAME)
_Static_assert(__builtin_types_compatible_p(__typeof__(((struct zap_verbs *)0)->query_gid_ex), __typeof__(&_ibv_query_gid_ex)), "");
#endif

/* The inline functions go through the operations, with what they were given. */
static int seen;
static int poll_seen(struct ibv_cq *cq, int entries, struct ibv_wc *wc) { return (void)cq, (void)wc, seen = 1, entries; }
static int notify_seen(struct ibv_cq *cq, int solicited) { return (void)cq, seen = 2, solicited; }
static int send_seen(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad) { return (void)qp, seen = 3, *bad = wr, 5; }
static int receive_seen(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) { return (void)qp, seen = 4, *bad = wr, 6; }
static struct ibv_mw *alloc_seen(struct ibv_pd *pd, enum ibv_mw_type type) { return (void)pd, seen = 5 + (int)type, NULL; }
static int dealloc_seen(struct ibv_mw *mw) { return (void)mw, seen = 8, 9; }

static void inline_functions(void) {
  struct ibv_context context;
  memset(&context, 0, sizeof context);
  struct ibv_cq cq = {.context = &context};
  struct ibv_qp qp = {.context = &context};
  struct ibv_pd pd = {.context = &context};
  struct ibv_mw mw = {.context = &context};
  struct ibv_send_wr send = {.wr_id = 1}, *bad_send = NULL;
  struct ibv_recv_wr receive = {.wr_id = 1}, *bad_receive = NULL;
  errno = 0;
  struct ibv_mw *none = ibv_alloc_mw(&pd, IBV_MW_TYPE_2);
  printf("no windows: %d %d\n", none == NULL, errno == EOPNOTSUPP);
  context.ops.poll_cq = poll_seen;
  context.ops.req_notify_cq = notify_seen;
  context.ops.post_send = send_seen;
  context.ops.post_recv = receive_seen;
  context.ops.alloc_mw = alloc_seen;
  context.ops.dealloc_mw = dealloc_seen;
  int answer = ibv_poll_cq(&cq, 7, NULL);
  printf("poll: %d %d\n", answer, seen);
  answer = ibv_req_notify_cq(&cq, 1);
  printf("notify: %d %d\n", answer, seen);
  answer = ibv_post_send(&qp, &send, &bad_send);
  printf("send: %d %d %d\n", answer, seen, bad_send == &send);
  answer = ibv_post_recv(&qp, &receive, &bad_receive);
  printf("receive: %d %d %d\n", answer, seen, bad_receive == &receive);
  none = ibv_alloc_mw(&pd, IBV_MW_TYPE_2);
  printf("alloc: %d %d\n", none == NULL, seen);
  answer = ibv_dealloc_mw(&mw);
  printf("dealloc: %d %d\n", answer, seen);
  printf("keys: %" PRIx32 " %" PRIx32 "\n", ibv_inc_rkey(0x12345678), ibv_inc_rkey(0xffffffff));
}

int main(void) {
  devices();
  contexts();
  memory();
  queue_pairs();
  work();
  numbers_of_devices();
  numbers_of_queue_pairs();
  numbers_of_work();
  inline_functions();
  return 0;
}
