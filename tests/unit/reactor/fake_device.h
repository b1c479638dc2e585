// SPDX-License-Identifier: Apache-2.0
//
// A device without a network. Connection management is in the control plane, and the test controls queue
// pairs and datagrams.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pmd/device.h"

namespace sluice::reactor {

class FakeDevice;

/// Accepts every work request, and flushes all of them in State::Error.
class FakeQueuePair final : public rdma::QueuePair {
 public:
  FakeQueuePair(FakeDevice& device, std::uint32_t number) : device_(device), number_(number) {}
  ~FakeQueuePair() override;

  rdma::QueuePairNumber number() const noexcept override { return rdma::QueuePairNumber{number_}; }
  State state() const noexcept override { return state_; }
  std::size_t post_send(std::span<const rdma::SendWr> wrs) noexcept override;
  std::size_t post_recv(std::span<const rdma::RecvWr> wrs) noexcept override;
  std::size_t send_room() const noexcept override { return 1024; }
  std::optional<rdma::Rkey> bind_window(rdma::MemoryWindow, std::span<std::byte>, rdma::Lkey,
                                        rdma::AccessFlags) noexcept override {
    return std::nullopt;
  }
  void to_error() noexcept override;
  bool connect(const rdma::RcAttributes& attributes) noexcept override;
  void finish_connect() noexcept { state_ = State::ReadyToSend; }
  bool heard_from_peer() const noexcept override { return heard; }

  bool heard = false;
  std::size_t receives() const { return posted_.size(); }
  std::optional<rdma::RcAttributes> connected;

 private:
  FakeDevice& device_;
  const std::uint32_t number_;
  State state_ = State::Init;
  std::vector<std::uint64_t> posted_;  ///< Receives
};

class FakeDevice final : public rdma::Device {
 public:
  const std::string& name() const noexcept override { return name_; }
  rdma::DeviceLimits limits() const noexcept override {
    return {.max_queue_pairs = 64,
            .max_send_sge = 16,
            .max_read_sge = 16,
            .max_windows = 0,
            .max_message_bytes = 1u << 30,
            .max_send_bytes = 65536};
  }
  rdma::MemoryRegion allocate_memory(std::size_t bytes) override;
  rdma::MemoryRegion register_memory(std::span<std::byte> bytes) override { return {bytes, rdma::Lkey{1}}; }
  rdma::MemoryWindow allocate_window() override { return {}; }
  bool has_queue_pair() const noexcept override { return has_one_ready; }
  Owned<rdma::QueuePair> create_queue_pair(const rdma::QueuePairLimits&) override;
  rdma::ConnectionManager* connection_manager() noexcept override { return nullptr; }
  std::size_t receive_datagrams(std::span<rdma::Datagram> datagrams) noexcept override;
  bool send_datagram(const rdma::Datagram& datagram) noexcept override;
  std::span<const PeerAddress> addresses() const noexcept override { return own_addresses; }
  std::uint16_t max_path_mtu() const noexcept override { return 2048; }
  rdma::Condition condition() const noexcept override { return own_condition; }
  std::uint64_t guid() const noexcept override { return eui64_of({0, 0, 0, 0, 0, 1}); }
  std::size_t read_statistics(std::span<std::uint64_t> values) const noexcept override;
  std::size_t poll(std::span<rdma::WorkCompletion> completions) noexcept override;
  void wait(std::uint64_t limit_ns) noexcept override {
    waits.push_back(limit_ns);
    if (on_wait) on_wait();
  }
  bool wakes() const noexcept override { return can_wake; }

  // Members that tests set and read.
  bool has_queue_pairs = true;
  bool has_one_ready = true;    ///< has_queue_pair()
  bool connects_later = false;  ///< a queue pair remains in Init until the test calls finish_connect()
  bool connects = true;         ///< whether its queue pairs can be connected
  bool can_wake = false;
  rdma::Condition own_condition = rdma::Condition::Up;
  std::vector<std::uint64_t> waits;  ///< limits in nanoseconds
  std::function<void()> on_wait;
  std::function<void(bool& moved)> on_poll;
  std::vector<std::uint64_t> statistics;
  std::vector<PeerAddress> own_addresses;
  std::deque<rdma::Datagram> received;
  std::vector<rdma::Datagram> sent;
  std::vector<FakeQueuePair*> queue_pairs;  ///< in order of creation
  std::deque<rdma::WorkCompletion> completions;

 private:
  const std::string name_ = "fake0";
  std::uint32_t next_number_ = 100;
  std::vector<std::unique_ptr<std::byte[]>> memory_;
};

}  // namespace sluice::reactor
