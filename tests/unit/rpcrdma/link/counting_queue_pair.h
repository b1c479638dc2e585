// SPDX-License-Identifier: Apache-2.0
//
// Queue pair for tests of a link without a driver.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "pmd/queue_pair.h"

namespace sluice::rpcrdma {

/// Accepts all work requests that fit; they complete when the test adds to `room`.
class CountingQueuePair final : public rdma::QueuePair {
 public:
  explicit CountingQueuePair(std::size_t depth) : room(depth) {}
  rdma::QueuePairNumber number() const noexcept override { return {}; }
  State state() const noexcept override { return state_; }
  std::size_t send_room() const noexcept override { return ++asked, room; }
  void to_error() noexcept override { state_ = State::Error; }
  std::size_t post_send(std::span<const rdma::SendWr> wrs) noexcept override {
    ++bursts;
    sent += wrs.size();
    room -= wrs.size();
    return wrs.size();
  }
  std::size_t post_recv(std::span<const rdma::RecvWr> wrs) noexcept override { return wrs.size(); }
  std::optional<rdma::Rkey> bind_window(rdma::MemoryWindow, std::span<std::byte>, rdma::Lkey,
                                        rdma::AccessFlags) noexcept override {
    return std::nullopt;
  }

  std::size_t room;
  std::size_t sent = 0;
  std::size_t bursts = 0;
  mutable std::size_t asked = 0;

 private:
  State state_ = State::ReadyToSend;
};

}  // namespace sluice::rpcrdma
