// SPDX-License-Identifier: Apache-2.0
//
// Example of a driver, which deploy/docs/internals/seam.md describes: two devices of one process that copy
// from each other's memory. It has the least that pmd/device.h requires: no immediate data, no connection
// manager, no statistics and no events. One thread polls both devices.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "dataplane/base/fixed_containers.h"
#include "pmd/common/region_table.h"
#include "pmd/common/steering_tags.h"
#include "pmd/device.h"

namespace sluice::examples {

inline constexpr std::uint32_t kMaxQueuePairs = 256;
inline constexpr std::uint32_t kMaxSge = 16;
inline constexpr std::uint32_t kMaxSendBytes = 64u << 10;
inline constexpr std::uint32_t kMaxWindows = 4096;
/// Bytes of RDMA Reads and Writes that one queue pair copies per poll.
inline constexpr std::uint32_t kCopyBytesPerPoll = 256u << 10;
/// Work requests that one queue pair performs or flushes per poll.
inline constexpr std::uint32_t kRequestsPerPoll = 64;
/// Polls without a posted Receive at the peer that count as one RNR retry.
inline constexpr std::uint32_t kPollsPerRnrRetry = 64;
inline constexpr std::uint32_t kQueuedDatagrams = 16;

class CopyDevice;

class CopyQueuePair final : public rdma::QueuePair {
 public:
  CopyQueuePair(CopyDevice& device, rdma::QueuePairNumber number, const rdma::QueuePairLimits& limits);
  ~CopyQueuePair() override;

  rdma::QueuePairNumber number() const noexcept override { return number_; }
  State state() const noexcept override { return state_; }
  std::size_t post_send(std::span<const rdma::SendWr> wrs) noexcept override;
  std::size_t post_recv(std::span<const rdma::RecvWr> wrs) noexcept override;
  std::size_t send_room() const noexcept override { return sends_.capacity() - sends_.size(); }
  std::optional<rdma::Rkey> bind_window(rdma::MemoryWindow window, std::span<std::byte> bytes,
                                        rdma::Lkey lkey, rdma::AccessFlags access) noexcept override;
  void to_error() noexcept override { state_ = State::Error; }
  bool connect(const rdma::RcAttributes& attributes) noexcept override;
  bool heard_from_peer() const noexcept override { return heard_; }

  /// Performs work requests and returns the number of completions written. Sets `moved` if a transfer has
  /// advanced without a completion.
  std::size_t poll(std::span<rdma::WorkCompletion> completions, bool& moved) noexcept;

 private:
  /// A posted work request with a copy of its gather list.
  struct Posted {
    rdma::SendWr wr;
    std::array<rdma::Sge, kMaxSge> pieces{};
    std::uint32_t piece_count = 0;
    std::uint32_t bytes = 0;
    std::uint32_t copied = 0;  ///< RdmaRead, RdmaWrite
    std::span<const rdma::Sge> sges() const noexcept { return {pieces.data(), piece_count}; }
  };
  enum class Progress : std::uint8_t {
    Done,      ///< complete, with success
    Advanced,  ///< the limit of this poll has been reached
    Waits,     ///< for the peer
    Failed,    ///< complete, with the error in `failure`
  };

  Progress perform(Posted& posted, std::uint32_t& budget, rdma::WcStatus& failure) noexcept;
  Progress send(Posted& posted, CopyQueuePair& peer, rdma::WcStatus& failure) noexcept;
  Progress transfer(Posted& posted, CopyQueuePair& peer, std::uint32_t& budget,
                    rdma::WcStatus& failure) noexcept;
  Progress wait_for_receive(rdma::WcStatus& failure) noexcept;
  rdma::WcStatus receive(const Posted& posted) noexcept;
  std::size_t flush(std::span<rdma::WorkCompletion> completions) noexcept;

  CopyDevice& device_;
  const rdma::QueuePairNumber number_;
  const std::uint8_t rnr_retry_;
  State state_ = State::Init;
  bool heard_ = false;
  rdma::QueuePairNumber peer_{};
  std::uint32_t rnr_polls_ = 0;  ///< polls for which the oldest Send has waited for a Receive
  FixedRing<Posted> sends_;
  FixedRing<rdma::RecvWr> receives_;
  FixedRing<rdma::WorkCompletion> received_;  ///< completed Receives that poll() has not reported
};

class CopyDevice final : public rdma::Device {
 public:
  /// Creates a device whose address and GUID are made of `host`. pair() must be called before it is used.
  CopyDevice(std::string name, std::uint8_t host);
  /// Connects two devices, each of which must outlive the queue pairs of the other.
  static void pair(CopyDevice& left, CopyDevice& right) noexcept {
    left.peer_ = &right;
    right.peer_ = &left;
  }

  const std::string& name() const noexcept override { return name_; }
  rdma::DeviceLimits limits() const noexcept override;
  rdma::MemoryRegion allocate_memory(std::size_t bytes) override { return regions_.allocate(bytes); }
  rdma::MemoryRegion register_memory(std::span<std::byte> bytes) override { return regions_.add(bytes); }
  rdma::MemoryWindow allocate_window() override;
  Owned<rdma::QueuePair> create_queue_pair(const rdma::QueuePairLimits& limits) override;
  rdma::ConnectionManager* connection_manager() noexcept override { return nullptr; }
  std::size_t receive_datagrams(std::span<rdma::Datagram> datagrams) noexcept override {
    return datagrams_.pop_front(datagrams);
  }
  bool send_datagram(const rdma::Datagram& datagram) noexcept override;
  std::span<const PeerAddress> addresses() const noexcept override { return {&address_, 1}; }
  std::uint64_t guid() const noexcept override { return eui64_of({0, 0, 0, 0, 0, address_.bytes.back()}); }
  std::size_t poll(std::span<rdma::WorkCompletion> completions) noexcept override;

 private:
  friend class CopyQueuePair;
  /// A window that `owner` has bound, or key zero.
  struct Window {
    std::span<std::byte> bytes;
    rdma::Rkey rkey{};
    rdma::AccessFlags access = 0;
    rdma::QueuePairNumber owner{};
  };

  CopyQueuePair* find(rdma::QueuePairNumber number) const noexcept;
  /// Returns the window of a key if `owner` has bound it, otherwise null.
  Window* bound(rdma::Rkey rkey, rdma::QueuePairNumber owner) noexcept;
  void forget(CopyQueuePair& queue_pair) noexcept;

  const std::string name_;
  const PeerAddress address_;
  CopyDevice* peer_ = nullptr;
  rdma::SteeringTags tags_;
  rdma::RegionTable regions_{name_, tags_};
  std::vector<Window> windows_;
  FixedArray<CopyQueuePair*> queue_pairs_{kMaxQueuePairs};  ///< null: unused
  std::uint32_t created_ = 0;                               ///< queue pairs since the device was created
  std::uint32_t next_polled_ = 0;                           ///< index at which the next poll() begins
  FixedRing<rdma::Datagram> datagrams_{kQueuedDatagrams};
};

}  // namespace sluice::examples
