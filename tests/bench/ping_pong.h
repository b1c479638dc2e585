// SPDX-License-Identifier: Apache-2.0
//
// A driver alone: Sends of the sizes of a NULL call and its reply, each answered on arrival. One object is
// one end, polled by one thread. `Device` is the abstract driver class, so that its calls have the same cost
// as below RPC-over-RDMA.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <stdexcept>

#include "cli/bench/client.h"
#include "pmd/device.h"

namespace sluice::bench {

// Sizes of an RPC NULL call and its reply with AUTH_NONE (RFC 5531), after a version 1 header without chunks
// (RFC 8166).
inline constexpr std::uint32_t kNullCallBytes = 28 + 40;
inline constexpr std::uint32_t kNullReplyBytes = 28 + 24;

class PingPong {
 public:
  static constexpr std::uint32_t kBuffers = 256;
  static constexpr std::uint32_t kBufferBytes = 128;

  /// Location of an iteration's completions and work requests.
  enum class Arrays : std::uint8_t {
    Kept,   ///< in the object
    Fresh,  ///< on the stack, where each iteration clears them
  };

  PingPong(rdma::Device& device, rdma::ConnectionManager& manager, Arrays arrays = Arrays::Kept)
      : device_(device),
        manager_(manager),
        arrays_(arrays),
        memory_(device.allocate_memory(kBuffers * kBufferBytes)),
        qp_(device.create_queue_pair({.send_depth = 512, .recv_depth = 512})) {
    for (std::uint32_t i = 0; i < kBuffers; ++i) repost(i);
  }

  /// Answers until `stop`; sets `listening` once a client can connect.
  void answer(std::atomic<bool>& listening, const std::atomic<bool>& stop) {
    manager_.listen(kPort);
    listening = true;
    rdma::CmEvent event;
    for (std::uint64_t turn = 0; !stop.load(std::memory_order_relaxed); ++turn) {
      this->turn(kNullReplyBytes);
      if (turn % kTurnsPerCm == 0 && manager_.poll_events({&event, 1}) == 1 &&
          event.type == rdma::CmEventType::ConnectRequest)
        manager_.accept(event.id, *qp_, {});
    }
  }

  void connect() {
    manager_.connect(*qp_, kPort, {});
    const std::uint64_t begun_ns = now_ns();
    rdma::CmEvent event;
    while (manager_.poll_events({&event, 1}) == 0 || event.type != rdma::CmEventType::Established) {
      turn(0);
      if (now_ns() - begun_ns > 10'000'000'000) throw std::runtime_error("The other end does not answer.");
    }
  }

  /// Returns round trips per second with `depth` of them outstanding.
  double calls_per_second(std::uint32_t depth, double seconds) {
    for (std::uint32_t i = 0; i < depth; ++i) {
      const rdma::Sge sge = buffer(i, kNullCallBytes);
      const rdma::SendWr wr{.wr_id = 0, .sges = {&sge, 1}};
      qp_->post_send({&wr, 1});
    }
    const std::uint64_t begin = now_ns();
    std::uint64_t done = 0;
    std::uint64_t now = begin;
    for (std::uint64_t turn = 0; static_cast<double>(now - begin) < seconds * 1e9; ++turn) {
      done += this->turn(kNullCallBytes);
      if (turn % 64 == 0) now = now_ns();
    }
    return static_cast<double>(done) * 1e9 / static_cast<double>(now - begin);
  }

 private:
  static constexpr std::uint16_t kPort = 1;
  static constexpr std::uint64_t kTurnsPerCm = 1024;
  static constexpr std::size_t kBurst = 64;  ///< completions per iteration

  rdma::Sge buffer(std::uint64_t i, std::uint32_t bytes) {
    return {memory_.bytes.data() + i * kBufferBytes, bytes, memory_.lkey};
  }
  void repost(std::uint64_t i) {
    const rdma::RecvWr wr{i, buffer(i, kBufferBytes)};
    qp_->post_recv({&wr, 1});
  }
  struct Burst {
    std::array<rdma::WorkCompletion, kBurst> completions;
    std::array<rdma::Sge, kBurst> sges;
    std::array<rdma::SendWr, kBurst> wrs;
  };

  /// Handles all available completions, and sends `answer_bytes` for each message received.
  std::size_t turn(std::uint32_t answer_bytes) {
    if (arrays_ == Arrays::Kept) return turn(burst_, answer_bytes);
    Burst burst;
    return turn(burst, answer_bytes);
  }
  std::size_t turn(Burst& burst, std::uint32_t answer_bytes) {
    std::size_t sends = 0;
    const std::size_t count = device_.poll(burst.completions);
    for (const auto& wc : std::span(burst.completions).first(count)) {
      if (wc.status != rdma::WcStatus::Success) throw std::runtime_error("The connection was lost.");
      if (wc.opcode != rdma::WcOpcode::Receive) continue;
      repost(wc.wr_id);
      burst.sges[sends] = buffer(wc.wr_id, answer_bytes);
      burst.wrs[sends] = {.wr_id = 0, .sges = {&burst.sges[sends], 1}};
      ++sends;
    }
    if (sends > 0) qp_->post_send({burst.wrs.data(), sends});
    return sends;
  }

  rdma::Device& device_;
  rdma::ConnectionManager& manager_;
  const Arrays arrays_;
  rdma::MemoryRegion memory_;
  Owned<rdma::QueuePair> qp_;
  Burst burst_;
};

}  // namespace sluice::bench
