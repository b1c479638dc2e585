// SPDX-License-Identifier: Apache-2.0
//
// A device with one queue pair that records the bytes of each Send. The test is the peer: it delivers
// messages to posted Receives and decides when Sends complete.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "pmd/device.h"

namespace sluice::rpcrdma::test {

using Bytes = std::vector<std::byte>;

class RecordingDevice final : public rdma::Device {
 public:
  const std::string& name() const noexcept override { return name_; }
  rdma::DeviceLimits limits() const noexcept override {
    return {.max_queue_pairs = 1, .max_send_sge = 16, .max_message_bytes = 1u << 30, .max_send_bytes = 65536};
  }
  rdma::MemoryRegion allocate_memory(std::size_t bytes) override {
    memory_.push_back(std::make_unique<std::byte[]>(bytes));
    return {{memory_.back().get(), bytes}, rdma::Lkey{1}};
  }
  rdma::MemoryRegion register_memory(std::span<std::byte> bytes) override { return {bytes, rdma::Lkey{1}}; }
  rdma::MemoryWindow allocate_window() override { return {}; }
  Owned<rdma::QueuePair> create_queue_pair(const rdma::QueuePairLimits& limits) override {
    return make_owned<RecordingQueuePair>(*this, limits.send_depth);
  }
  rdma::ConnectionManager* connection_manager() noexcept override { return nullptr; }
  std::size_t poll(std::span<rdma::WorkCompletion> completions) noexcept override {
    std::size_t count = 0;
    for (; count < completions.size() && !completions_.empty(); ++count) {
      completions[count] = completions_.front();
      completions_.pop_front();
    }
    return count;
  }

  /// Returns the number of posted Receives.
  std::size_t receives() const { return receives_.size(); }
  /// Delivers a message to the first posted Receive.
  void deliver(std::span<const std::byte> message) {
    const rdma::RecvWr receive = receives_.front();
    receives_.pop_front();
    std::copy(message.begin(), message.end(), receive.sge.address);
    completions_.push_back({.wr_id = receive.wr_id,
                            .byte_len = static_cast<std::uint32_t>(message.size()),
                            .opcode = rdma::WcOpcode::Receive});
  }
  /// Completes all Sends, in order.
  void complete_sends() {
    while (!posted_.empty()) complete_send(rdma::WcStatus::Success);
  }
  /// Returns the Sends since the last call of this function.
  std::vector<Bytes> take_sent() { return std::exchange(sent_, {}); }
  /// Returns the number of unsignaled Sends.
  std::uint64_t silent_sends() const { return silent_sends_; }

 private:
  class RecordingQueuePair final : public rdma::QueuePair {
   public:
    RecordingQueuePair(RecordingDevice& device, std::size_t depth) : device_(device), depth_(depth) {}
    rdma::QueuePairNumber number() const noexcept override { return {}; }
    State state() const noexcept override { return state_; }
    std::size_t send_room() const noexcept override { return depth_ - device_.posted_.size(); }
    std::size_t post_send(std::span<const rdma::SendWr> wrs) noexcept override {
      for (const rdma::SendWr& wr : wrs) device_.post(wr);
      if (state_ == State::Error) device_.flush();
      return wrs.size();
    }
    std::size_t post_recv(std::span<const rdma::RecvWr> wrs) noexcept override {
      if (state_ == State::Error) return 0;
      device_.receives_.insert(device_.receives_.end(), wrs.begin(), wrs.end());
      return wrs.size();
    }
    std::optional<rdma::Rkey> bind_window(rdma::MemoryWindow, std::span<std::byte>, rdma::Lkey,
                                          rdma::AccessFlags) noexcept override {
      return std::nullopt;
    }
    void to_error() noexcept override {
      state_ = State::Error;
      device_.flush();
    }

   private:
    RecordingDevice& device_;
    const std::size_t depth_;
    State state_ = State::ReadyToSend;
  };

  void post(const rdma::SendWr& wr) {
    Bytes bytes;
    for (const rdma::Sge& piece : wr.sges)
      bytes.insert(bytes.end(), piece.address, piece.address + piece.length);
    sent_.push_back(std::move(bytes));
    posted_.push_back(wr);
    if ((wr.flags & rdma::kSignaled) == 0) ++silent_sends_;
  }
  void complete_send(rdma::WcStatus status) {
    const rdma::SendWr wr = posted_.front();
    posted_.pop_front();
    if (status == rdma::WcStatus::Success && (wr.flags & rdma::kSignaled) == 0) return;
    completions_.push_back(
        {.wr_id = wr.wr_id, .status = status, .opcode = rdma::completion_opcode(wr.opcode)});
  }
  void flush() {
    while (!posted_.empty()) complete_send(rdma::WcStatus::WrFlushError);
    for (; !receives_.empty(); receives_.pop_front())
      completions_.push_back({.wr_id = receives_.front().wr_id,
                              .status = rdma::WcStatus::WrFlushError,
                              .opcode = rdma::WcOpcode::Receive});
  }

  const std::string name_ = "recording";
  std::vector<std::unique_ptr<std::byte[]>> memory_;
  std::deque<rdma::RecvWr> receives_;
  std::deque<rdma::SendWr> posted_;
  std::deque<rdma::WorkCompletion> completions_;
  std::vector<Bytes> sent_;
  std::uint64_t silent_sends_ = 0;
};

}  // namespace sluice::rpcrdma::test
