// SPDX-License-Identifier: Apache-2.0
//
// Two queue pairs of the port under test that are connected to each other, by libibverbs without the driver
// of Sluice. For the tests of this folder, on one thread. The destructor adds failed completions and
// asynchronous events to the diagnostics of the running test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "cli/card_check/handles.h"

namespace sluice::card_check {

/// A step that every test needs has failed. what() is a sentence.
class LoopError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct LoopConfig {
  bool extended_posting = false;
  bool extended_polling = false;
  bool shared_receives = false;
  bool windows = false;  ///< windows can be bound to the memory
  std::uint32_t depth = 64;
  std::uint32_t inline_bytes = 0;  ///< none if the provider refuses them
  std::uint8_t rnr_retry = 7;      ///< 7: without a limit
};

/// A completion of either interface.
struct Done {
  std::uint64_t wr_id = 0;
  std::uint32_t queue_pair = 0;  ///< QPN
  ibv_wc_status status = IBV_WC_SUCCESS;
  std::uint32_t byte_len = 0;
  std::uint32_t vendor_error = 0;
  std::uint32_t invalidated = 0;  ///< rkey
};

/// Opens the device under test. Throws LoopError.
Context open_subject();
ibv_device_attr attributes_of(ibv_context* context);
/// Returns the GID of this index, or the first usable one. Throws LoopError.
ibv_gid_entry gid_at(ibv_context* context, std::optional<std::uint32_t> index);

/// Returns a signaled work request for these pieces, which have to remain until it is posted.
ibv_send_wr request_of(std::uint64_t wr_id, ibv_wr_opcode opcode, std::span<ibv_sge> pieces = {});
/// Returns an RDMA Read into these pieces.
ibv_send_wr read_of(std::uint64_t wr_id, std::span<ibv_sge> into, std::uint64_t address, std::uint32_t rkey);

class Loop {
 public:
  /// Creates and connects the queue pairs. Throws LoopError.
  explicit Loop(const LoopConfig& config);
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  ibv_context* context() const noexcept { return context_.get(); }
  ibv_qp* left() const noexcept { return left_.get(); }
  ibv_qp* right() const noexcept { return right_.get(); }
  std::span<std::byte> memory() noexcept { return memory_; }
  std::uint64_t address(std::size_t at) const noexcept {
    return reinterpret_cast<std::uintptr_t>(memory_.data() + at);
  }
  ibv_sge sge(std::size_t at, std::uint32_t bytes) const noexcept {
    return {.addr = address(at), .length = bytes, .lkey = region_->lkey};
  }
  /// Posts a signaled Send of the first `bytes` of the memory at the left end. Returns zero or an errno.
  int send(std::uint64_t wr_id, std::uint32_t bytes) {
    ibv_sge piece = sge(0, bytes);
    return post(left(), request_of(wr_id, IBV_WR_SEND, {&piece, 1}));
  }
  /// The rkey of the whole memory, for accesses without a window.
  std::uint32_t rkey() const noexcept { return region_->rkey; }
  std::uint32_t max_read_sges() const noexcept { return static_cast<std::uint32_t>(attributes_.max_sge_rd); }
  std::uint32_t max_sges() const noexcept { return max_sges_; }
  /// Returns zero if the provider has no inline data.
  std::uint32_t inline_bytes() const noexcept { return inline_bytes_; }

  /// Allocates a window, which the destructor deallocates. Returns null if the provider refuses.
  ibv_mw* allocate_window();
  /// Binds a window to a part of the memory, at the left queue pair. Returns its rkey, or zero on an error.
  std::uint32_t bind(ibv_mw* window, std::size_t at, std::size_t bytes, unsigned access);

  /// Posts the work requests as one batch. Returns zero or an error number.
  int post(ibv_qp* qp, std::span<ibv_send_wr> wrs);
  int post(ibv_qp* qp, ibv_send_wr wr) { return post(qp, {&wr, 1}); }
  /// Posts a Receive, shared if the queue pairs share theirs.
  int receive(ibv_qp* qp, std::uint64_t wr_id, ibv_sge into);
  bool to_error(ibv_qp* qp);
  void destroy_right() { right_.reset(); }

  /// Polls until a completion with this wr_id was found, or for five seconds. The status is
  /// IBV_WC_GENERAL_ERR if none was found.
  Done await(std::uint64_t wr_id);
  /// Polls until `count` completions of the queue pair were found, or for five seconds. Returns them in
  /// order.
  std::vector<Done> await_all(std::uint32_t queue_pair, std::size_t count);
  /// Waits for an asynchronous event of the queue pair. Returns false after one second.
  bool await_event(ibv_event_type type, std::uint32_t queue_pair);

 private:
  struct Event {
    ibv_event_type type = IBV_EVENT_DEVICE_FATAL;
    std::uint32_t queue_pair = 0;  ///< zero if the event is not of one
  };
  Pair make_pair();
  void connect(ibv_qp* qp, const ibv_qp* peer, const ibv_gid_entry& from, const ibv_gid_entry& to);
  int post_extended(ibv_qp* qp, std::span<ibv_send_wr> wrs);
  void poll();
  void poll_extended();
  void take_events();

  const LoopConfig config_;
  std::uint32_t inline_bytes_ = 0;
  Context context_;
  ibv_device_attr attributes_{};
  std::uint32_t max_sges_ = 1;
  std::vector<std::byte> memory_;
  Domain domain_;
  Region region_;
  Queue queue_;
  ibv_cq_ex* extended_queue_ = nullptr;  ///< the same queue, or null
  SharedQueue shared_;
  Pair left_;
  Pair right_;
  /// Destroyed before the queue pairs. A bound window has a reference to its queue pair in Linux's rxe, for
  /// which ibv_destroy_qp() waits (drivers/infiniband/sw/rxe/rxe_mw.c, rxe_do_bind_mw).
  std::vector<Window> windows_;
  std::vector<Done> done_;
  std::vector<Event> events_;
};

}  // namespace sluice::card_check
