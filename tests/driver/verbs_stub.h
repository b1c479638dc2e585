// SPDX-License-Identifier: Apache-2.0
//
// An RDMA device that is not there: the functions of libibverbs that the verbs driver calls, and a provider behind
// them. Work requests complete at once, or when the test says so. One device, one thread.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <deque>
#include <vector>

namespace sluice::rdma::conformance {

class VerbsStub {
 public:
  static VerbsStub& get();

  struct Posted {
    std::uint64_t wr_id = 0;
    std::uint32_t queue_pair = 0;
    ibv_wr_opcode opcode = IBV_WR_SEND;
    bool signaled = false;
    std::uint32_t bytes = 0;
  };

  /// Nobody acknowledges what is posted from now on.
  void lose_peer() noexcept { peer_gone_ = true; }
  /// The device has retried as often as it was told to: the oldest work request fails and the others are flushed.
  void give_up();
  const std::vector<Posted>& posted() const noexcept { return posted_; }
  std::uint32_t queue_pairs() const noexcept { return queue_pairs_; }
  /// What the last queue pair that was connected was told of its retries.
  const ibv_qp_attr& attributes() const noexcept { return attributes_; }

  // For the functions.
  int post(ibv_qp* qp, ibv_send_wr* first);
  int poll(int count, ibv_wc* into);
  ibv_qp* make(const ibv_qp_init_attr& wanted);
  void destroy(ibv_qp* qp);
  void post(ibv_qp* qp, ibv_recv_wr* first);
  /// A queue pair in Error gets its Receives back. There is one with Receives at a time.
  void modify(const ibv_qp_attr& attributes, int mask);

 private:
  void complete(const Posted& posted, ibv_wc_status status);

  std::vector<Posted> posted_;
  std::deque<Posted> outstanding_;
  std::deque<Posted> receives_;
  std::deque<ibv_wc> completions_;
  ibv_qp_attr attributes_{};
  std::uint32_t queue_pairs_ = 0;
  std::uint32_t next_number_ = 0x100;
  bool peer_gone_ = false;
};

}  // namespace sluice::rdma::conformance
