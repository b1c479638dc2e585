// SPDX-License-Identifier: Apache-2.0
#include "cli/card_check/loop.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "cli/card_check/subject.h"
#include "pmd/verbs/ports.h"

namespace sluice::card_check {
namespace {

using Clock = std::chrono::steady_clock;
namespace verbs = rdma::verbs;

constexpr std::chrono::seconds kLimit{5};
constexpr std::chrono::seconds kEventLimit{1};
constexpr std::size_t kMemoryBytes = 1u << 20;
constexpr std::uint32_t kMaxSges = 16;

[[noreturn]] void fail(const std::string& what, int error) {
  throw LoopError(what + " (" + std::strerror(error) + ").");
}

}  // namespace

Context open_subject() {
  Context context(verbs::open_by_name(subject().device, subject().port));
  if (context == nullptr) throw LoopError("The RDMA device " + subject().device + " cannot be opened.");
  return context;
}

ibv_device_attr attributes_of(ibv_context* context) {
  ibv_device_attr attributes{};
  if (ibv_query_device(context, &attributes) != 0) throw LoopError("The device cannot be queried.");
  return attributes;
}

ibv_send_wr request_of(std::uint64_t wr_id, ibv_wr_opcode opcode, std::span<ibv_sge> pieces) {
  ibv_send_wr wr{};
  wr.wr_id = wr_id;
  wr.opcode = opcode;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.sg_list = pieces.data();
  wr.num_sge = static_cast<int>(pieces.size());
  return wr;
}

ibv_send_wr read_of(std::uint64_t wr_id, std::span<ibv_sge> into, std::uint64_t address, std::uint32_t rkey) {
  ibv_send_wr wr = request_of(wr_id, IBV_WR_RDMA_READ, into);
  wr.wr.rdma = {.remote_addr = address, .rkey = rkey};
  return wr;
}

ibv_gid_entry gid_at(ibv_context* context, std::optional<std::uint32_t> index) {
  for (const ibv_gid_entry& entry : verbs::gids_of(context))
    if (verbs::is_usable_gid(entry, subject().port) && (!index || entry.gid_index == *index)) return entry;
  throw LoopError("The port has no such RoCEv2 GID any more.");
}

Loop::Loop(const LoopConfig& config)
    : config_(config),
      inline_bytes_(config.inline_bytes),
      context_(open_subject()),
      attributes_(attributes_of(context_.get())),
      memory_(kMemoryBytes) {
  max_sges_ = static_cast<std::uint32_t>(std::clamp<int>(attributes_.max_sge, 1, kMaxSges));
  domain_.reset(ibv_alloc_pd(context_.get()));
  if (domain_ == nullptr) fail("A protection domain cannot be allocated", errno);
  const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
                     (config.windows ? IBV_ACCESS_MW_BIND : 0);
  region_.reset(ibv_reg_mr(domain_.get(), memory_.data(), memory_.size(), access));
  if (region_ == nullptr) fail("Memory cannot be registered", errno);
  const std::uint32_t entries = 4 * config.depth;
  if (config.extended_polling) {
    ibv_cq_init_attr_ex wanted{};
    wanted.cqe = entries;
    wanted.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM;
    extended_queue_ = ibv_create_cq_ex(context_.get(), &wanted);
    if (extended_queue_ == nullptr) fail("An extended completion queue cannot be created", errno);
    queue_.reset(ibv_cq_ex_to_cq(extended_queue_));
  } else {
    queue_.reset(ibv_create_cq(context_.get(), static_cast<int>(entries), nullptr, nullptr, 0));
  }
  if (queue_ == nullptr) fail("A completion queue cannot be created", errno);
  if (config.shared_receives) {
    ibv_srq_init_attr wanted{};
    wanted.attr = {.max_wr = config.depth, .max_sge = 1, .srq_limit = 0};
    shared_.reset(ibv_create_srq(domain_.get(), &wanted));
    if (shared_ == nullptr) fail("A shared receive queue cannot be created", errno);
  }
  left_ = make_pair();
  right_ = make_pair();
  const ibv_gid_entry from = gid_at(context_.get(), subject().left_gid);
  const ibv_gid_entry to =
      gid_at(context_.get(), subject().right_gid ? subject().right_gid : subject().left_gid);
  connect(left_.get(), right_.get(), from, to);
  connect(right_.get(), left_.get(), to, from);
  const int flags = ::fcntl(context_->async_fd, F_GETFL);
  ::fcntl(context_->async_fd, F_SETFL, flags | O_NONBLOCK);
}

Loop::~Loop() {
  take_events();
  std::string failed;
  std::string events;
  for (const Done& done : done_)
    if (done.status != IBV_WC_SUCCESS && done.status != IBV_WC_WR_FLUSH_ERR)
      failed += (failed.empty() ? "" : ", ") + std::string(ibv_wc_status_str(done.status)) + " of request " +
                std::to_string(done.wr_id) + " (vendor error " + std::to_string(done.vendor_error) + ")";
  for (const Event& event : events_)
    events += (events.empty() ? "" : ", ") + std::string(ibv_event_type_str(event.type));
  if (!failed.empty()) testing::Test::RecordProperty("failed_completions", failed);
  if (!events.empty()) testing::Test::RecordProperty("asynchronous_events", events);
}

Pair Loop::make_pair() {
  ibv_qp_init_attr_ex wanted{};
  wanted.send_cq = wanted.recv_cq = queue_.get();
  wanted.srq = shared_.get();
  wanted.qp_type = IBV_QPT_RC;
  wanted.pd = domain_.get();
  wanted.comp_mask = IBV_QP_INIT_ATTR_PD;
  wanted.cap = {.max_send_wr = config_.depth,
                .max_recv_wr = shared_ != nullptr ? 0 : config_.depth,
                .max_send_sge = max_sges_,
                .max_recv_sge = shared_ != nullptr ? 0u : 1u,
                .max_inline_data = inline_bytes_};
  if (config_.extended_posting) {
    wanted.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    wanted.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ;
  }
  Pair made(ibv_create_qp_ex(context_.get(), &wanted));
  if (made == nullptr && inline_bytes_ > 0) {
    wanted.cap.max_inline_data = inline_bytes_ = 0;
    made.reset(ibv_create_qp_ex(context_.get(), &wanted));
  }
  if (made == nullptr) fail("A queue pair cannot be created", errno);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = subject().port;
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
  if (const int error = ibv_modify_qp(made.get(), &attributes,
                                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
      error != 0)
    fail("A queue pair cannot be moved to Init", error);
  return made;
}

void Loop::connect(ibv_qp* qp, const ibv_qp* peer, const ibv_gid_entry& from, const ibv_gid_entry& to) {
  ibv_port_attr port{};
  ibv_query_port(context_.get(), subject().port, &port);
  const auto reads = static_cast<std::uint8_t>(std::clamp<int>(attributes_.max_qp_rd_atom, 1, 16));
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = port.active_mtu;
  attributes.dest_qp_num = peer->qp_num;
  attributes.max_dest_rd_atomic = reads;
  attributes.min_rnr_timer = 12;  // 0.64 ms
  attributes.ah_attr.is_global = 1;
  attributes.ah_attr.port_num = subject().port;
  attributes.ah_attr.grh.dgid = to.gid;
  attributes.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(from.gid_index);
  attributes.ah_attr.grh.hop_limit = 64;
  if (const int error = ibv_modify_qp(qp, &attributes,
                                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                          IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
      error != 0)
    fail("A queue pair cannot be moved to Ready to Receive", error);
  attributes = {};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = 14;  // 67 ms
  attributes.retry_cnt = 6;
  attributes.rnr_retry = config_.rnr_retry;
  attributes.max_rd_atomic =
      static_cast<std::uint8_t>(std::clamp<int>(attributes_.max_qp_init_rd_atom, 1, reads));
  if (const int error = ibv_modify_qp(qp, &attributes,
                                      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                          IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
      error != 0)
    fail("A queue pair cannot be moved to Ready to Send", error);
}

bool Loop::to_error(ibv_qp* qp) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  return ibv_modify_qp(qp, &attributes, IBV_QP_STATE) == 0;
}

// --- Windows

ibv_mw* Loop::allocate_window() {
  windows_.emplace_back(ibv_alloc_mw(domain_.get(), IBV_MW_TYPE_2));
  return windows_.back().get();
}

std::uint32_t Loop::bind(ibv_mw* window, std::size_t at, std::size_t bytes, unsigned access) {
  const std::uint32_t rkey = ibv_inc_rkey(window->rkey);
  ibv_send_wr wr = request_of(0xB14D, IBV_WR_BIND_MW);
  wr.bind_mw = {
      .mw = window,
      .rkey = rkey,
      .bind_info = {.mr = region_.get(), .addr = address(at), .length = bytes, .mw_access_flags = access}};
  if (post(left(), wr) != 0 || await(wr.wr_id).status != IBV_WC_SUCCESS) return 0;
  std::erase_if(done_, [](const Done& done) { return done.wr_id == 0xB14D; });
  window->rkey = rkey;
  return rkey;
}

// --- Posting

int Loop::post(ibv_qp* qp, std::span<ibv_send_wr> wrs) {
  if (config_.extended_posting) return post_extended(qp, wrs);
  for (std::size_t i = 0; i < wrs.size(); ++i) wrs[i].next = i + 1 < wrs.size() ? &wrs[i + 1] : nullptr;
  ibv_send_wr* refused = nullptr;
  return ibv_post_send(qp, wrs.data(), &refused);
}

int Loop::post_extended(ibv_qp* qp, std::span<ibv_send_wr> wrs) {
  ibv_qp_ex* const extended = ibv_qp_to_qp_ex(qp);
  if (extended == nullptr) throw LoopError("The queue pair has no extended interface.");
  ibv_wr_start(extended);
  for (const ibv_send_wr& wr : wrs) {
    extended->wr_id = wr.wr_id;
    extended->wr_flags = wr.send_flags & ~unsigned{IBV_SEND_INLINE};
    switch (wr.opcode) {
      case IBV_WR_SEND:
        ibv_wr_send(extended);
        break;
      case IBV_WR_RDMA_WRITE:
        ibv_wr_rdma_write(extended, wr.wr.rdma.rkey, wr.wr.rdma.remote_addr);
        break;
      case IBV_WR_RDMA_READ:
        ibv_wr_rdma_read(extended, wr.wr.rdma.rkey, wr.wr.rdma.remote_addr);
        break;
      default:
        ibv_wr_abort(extended);
        throw LoopError("This operation is not posted by the extended interface.");
    }
    if ((wr.send_flags & IBV_SEND_INLINE) != 0)
      ibv_wr_set_inline_data(extended, reinterpret_cast<void*>(wr.sg_list[0].addr), wr.sg_list[0].length);
    else if (wr.num_sge == 1)
      ibv_wr_set_sge(extended, wr.sg_list[0].lkey, wr.sg_list[0].addr, wr.sg_list[0].length);
    else
      ibv_wr_set_sge_list(extended, static_cast<std::size_t>(wr.num_sge), wr.sg_list);
  }
  return ibv_wr_complete(extended);
}

int Loop::receive(ibv_qp* qp, std::uint64_t wr_id, ibv_sge into) {
  ibv_recv_wr wr{};
  wr.wr_id = wr_id;
  wr.sg_list = &into;
  wr.num_sge = 1;
  ibv_recv_wr* refused = nullptr;
  return shared_ != nullptr ? ibv_post_srq_recv(shared_.get(), &wr, &refused)
                            : ibv_post_recv(qp, &wr, &refused);
}

// --- Completions and events

void Loop::poll() {
  if (extended_queue_ != nullptr) return poll_extended();
  ibv_wc completions[16];
  const int count = ibv_poll_cq(queue_.get(), 16, completions);
  for (const ibv_wc& wc : std::span(completions, static_cast<std::size_t>(std::max(count, 0))))
    done_.push_back({.wr_id = wc.wr_id,
                     .queue_pair = wc.qp_num,
                     .status = wc.status,
                     .byte_len = wc.byte_len,
                     .vendor_error = wc.vendor_err,
                     .invalidated = wc.invalidated_rkey});
}

/// Reads one completion for each start of a poll, because rdma-core 44's rxe skips completions of a batch.
void Loop::poll_extended() {
  ibv_poll_cq_attr attributes{};
  while (ibv_start_poll(extended_queue_, &attributes) == 0) {
    Done& done = done_.emplace_back();
    done = {.wr_id = extended_queue_->wr_id,
            .queue_pair = ibv_wc_read_qp_num(extended_queue_),
            .status = extended_queue_->status};
    if (done.status == IBV_WC_SUCCESS) {
      done.byte_len = ibv_wc_read_byte_len(extended_queue_);
      // The rkey is read without a look at the flags, because rxe has another bit for an invalidation.
      if (ibv_wc_read_opcode(extended_queue_) == IBV_WC_RECV)
        done.invalidated = ibv_wc_read_invalidated_rkey(extended_queue_);
    } else {
      done.vendor_error = ibv_wc_read_vendor_err(extended_queue_);
    }
    ibv_end_poll(extended_queue_);
  }
}

/// Takes asynchronous events, which some providers need in order to flush.
void Loop::take_events() {
  ibv_async_event event{};
  while (ibv_get_async_event(context_.get(), &event) == 0) {
    const bool of_pair = event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED ||
                         event.event_type == IBV_EVENT_QP_FATAL || event.event_type == IBV_EVENT_QP_REQ_ERR ||
                         event.event_type == IBV_EVENT_QP_ACCESS_ERR;
    events_.push_back({event.event_type, of_pair ? event.element.qp->qp_num : 0});
    ibv_ack_async_event(&event);
  }
}

Done Loop::await(std::uint64_t wr_id) {
  const auto end = Clock::now() + kLimit;
  const auto found = [&] {
    return std::find_if(done_.begin(), done_.end(), [&](const Done& done) { return done.wr_id == wr_id; });
  };
  while (found() == done_.end() && Clock::now() < end) poll();
  return found() != done_.end() ? *found() : Done{.wr_id = wr_id, .status = IBV_WC_GENERAL_ERR};
}

std::vector<Done> Loop::await_all(std::uint32_t queue_pair, std::size_t count) {
  const auto end = Clock::now() + kLimit;
  std::vector<Done> found;
  do {
    take_events();
    poll();
    found.clear();
    for (const Done& done : done_)
      if (done.queue_pair == queue_pair) found.push_back(done);
  } while (found.size() < count && Clock::now() < end);
  return found;
}

bool Loop::await_event(ibv_event_type type, std::uint32_t queue_pair) {
  const auto end = Clock::now() + kEventLimit;
  const auto seen = [&] {
    return std::any_of(events_.begin(), events_.end(), [&](const Event& event) {
      return event.type == type && event.queue_pair == queue_pair;
    });
  };
  while (!seen() && Clock::now() < end) {
    poll();
    take_events();
  }
  return seen();
}

}  // namespace sluice::card_check
