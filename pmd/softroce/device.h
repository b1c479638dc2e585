// SPDX-License-Identifier: Apache-2.0
//
// One lane of a port: receives packets and dispatches them to queue pairs, runs the queue pairs' transmission
// and timers. Only the owning reactor may call; the constructor, create_queue_pair() and memory registration
// are setup and throw SetupError. The device outlives its queue pairs and owns the memory that it allocates,
// and the port outlives the device.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dataplane/base/fixed_containers.h"
#include "dataplane/base/thread_owner.h"
#include "pmd/softroce/announcer.h"
#include "pmd/softroce/completion_gate.h"
#include "pmd/softroce/datagram_queue.h"
#include "pmd/softroce/early_packets.h"
#include "pmd/softroce/memory.h"
#include "pmd/softroce/neighbours.h"
#include "pmd/softroce/number_permutation.h"
#include "pmd/softroce/queue_pair.h"
#include "pmd/softroce/softroce.h"
#include "pmd/softroce/transmitter.h"

namespace sluice::rdma::softroce {

class EthernetPort;

/// Number of queue pairs that may transmit per poll.
inline constexpr std::size_t kTransmitsPerPoll = 8;
/// Steps of the timer wheel per poll. A step handles a timer that is due or moves a timer within the wheel.
inline constexpr std::uint32_t kTimerSteps = 64;
/// Minimum interval between neighbour requests for the next hops of queue pairs whose peers do not respond.
inline constexpr std::uint64_t kAskAgainNs = 100'000'000;

inline constexpr std::uint32_t kManagementQueuePair = 1;
inline constexpr std::uint32_t kManagementQueueKey = 0x80010000;

class SoftDevice final : public SoftRoce {
 public:
  SoftDevice(EthernetPort& port, std::uint32_t lane);
  ~SoftDevice() override;

  const std::string& name() const noexcept override { return name_; }
  DeviceLimits limits() const noexcept override;
  MemoryRegion allocate_memory(std::size_t bytes) override;
  MemoryRegion register_memory(std::span<std::byte> bytes) override;
  MemoryWindow allocate_window() override { return memory_.allocate_window(); }
  Owned<QueuePair> create_queue_pair(const QueuePairLimits& limits) override;
  ConnectionManager* connection_manager() noexcept override { return nullptr; }
  std::size_t receive_datagrams(std::span<Datagram> datagrams) noexcept override;
  bool send_datagram(const Datagram& datagram) noexcept override;
  std::span<const PeerAddress> addresses() const noexcept override { return addresses_; }
  std::uint16_t max_path_mtu() const noexcept override { return max_path_mtu_; }
  std::uint64_t guid() const noexcept override { return guid_; }
  void pass_on() noexcept override { owner_.pass_on(); }
  std::size_t poll(std::span<WorkCompletion> completions) noexcept override;
  const Statistics& statistics() const noexcept override { return statistics_; }
  std::size_t read_statistics(std::span<std::uint64_t> values) const noexcept override;
  void flush() noexcept override { transmitter_.flush(); }
  /// Checks the link of the port. Only lane 0 does so, for all lanes.
  void handle_events() noexcept override;
  /// Returns the condition of the port, which all its lanes share.
  Condition condition() const noexcept override;

  // Interface for queue pairs.
  MemoryTable& memory() noexcept { return memory_; }
  Transmitter& transmitter() noexcept { return transmitter_; }
  EarlyPackets& early_packets() noexcept { return early_packets_; }
  Statistics& stats() noexcept { return statistics_; }
  const PortConfig& config() const noexcept { return config_; }
  double line_rate() const noexcept { return line_rate_; }  ///< bytes per ns
  /// Returns the maximum number of packets that a queue pair has on the wire.
  std::uint32_t max_inflight_packets() const noexcept {
    return larger_of(config_.max_inflight_packets, CongestionWindow::kMin);
  }
  std::uint64_t now_ns() const noexcept { return now_ns_; }
  std::size_t completion_room() const noexcept { return completions_.capacity() - completions_.size(); }
  void complete(const WorkCompletion& completion) noexcept {
    static_cast<void>(SLUICE_INVARIANT(completions_.push_back(completion), ring_index));
  }
  /// Announces that the next completions return memory that may be read until
  /// Transmitter::lets_go_of(read_until). Zero means that the data was copied.
  void give_back(std::uint64_t read_until) noexcept {
    if (read_until != 0 && !transmitter_.lets_go_of(read_until)) gate_.need(read_until);
  }
  void activate(SoftQueuePair& qp) noexcept;
  /// Schedules a call of qp.on_timer() at its deadline or earlier.
  void watch(SoftQueuePair& qp) noexcept;
  void remove(SoftQueuePair& qp) noexcept;
  /// Resolves the next hop of a queue pair whose peer does not respond, because the peer or the router may
  /// have moved. Sends a neighbour request and returns the known link address, or `link` if none is known.
  LinkAddress next_hop(const PeerAddress& remote, const LinkAddress& link) noexcept;
  Route route_to(const PeerAddress& local, const PeerAddress& remote, const LinkAddress& link,
                 QueuePairNumber qp) const noexcept;

 private:
  /// A datagram that waits for the link address of its next hop.
  struct Unresolved {
    bool waiting = false;
    Datagram datagram;
  };

  std::size_t index_of(std::uint32_t number) const noexcept { return number >> kLaneBits & index_mask_; }
  std::uint32_t free_number() noexcept;
  void receive() noexcept;
  void capture(Capture& capture, std::span<struct rte_mbuf* const> arrived) noexcept;
  /// Returns the queue pair with this number, or null if this lane has none.
  SoftQueuePair* find(std::uint32_t number) const noexcept;
  bool on_expected(std::span<const std::byte> bytes) noexcept;
  /// Handles a received frame. Returns true if the buffer was handed over to another lane.
  bool on_frame(std::span<const std::byte> bytes, struct rte_mbuf* buffer) noexcept;
  bool hand_over(std::uint32_t lane, struct rte_mbuf* buffer) noexcept;
  void on_roce(const Frame& frame, std::span<const std::byte> bytes) noexcept;
  void on_datagram(const Frame& frame, const LinkAddress& from, const Packet& packet) noexcept;
  void on_other(const Frame& frame, std::span<const std::byte> bytes) noexcept;
  void send_to(const Datagram& datagram, const LinkAddress& link) noexcept;
  void send_resolved() noexcept;
  bool refuses_ports() const noexcept;
  bool ask_for(const PeerAddress& remote) noexcept;
  void on_link_change() noexcept;
  void send_from(const MacAddress& mac) noexcept;
  void announce() noexcept;
  void transmit_active() noexcept;
  void run_timers() noexcept;
  std::size_t completions_let_go() noexcept;

  EthernetPort& port_;
  const PortConfig& config_;
  const std::uint32_t lane_;
  const std::string name_;
  MacAddress mac_;
  const std::uint64_t guid_;  ///< derived from the first MAC address; identifies the adapter and never
                              ///< changes
  std::uint16_t max_path_mtu_;
  const double line_rate_;
  std::vector<PeerAddress> addresses_;
  Statistics statistics_;
  MemoryTable memory_;
  Neighbours neighbours_;  ///< reads mac_ and now_ns_
  Transmitter transmitter_;
  EarlyPackets early_packets_;
  std::uint64_t (*const clock_ns_)() noexcept;
  std::uint64_t now_ns_;
  Packet expected_;  ///< packet in on_expected(), whose members need not be set anew for each frame

  /// Queue pairs, indexed by the low bits of the QPN above the lane bits. The size is a power of two, at
  /// least twice the number of queue pairs.
  std::vector<SoftQueuePair*> queue_pairs_;
  const std::size_t index_mask_;
  NumberPermutation numbers_;
  std::uint32_t queue_pair_count_ = 0;
  FixedRing<SoftQueuePair*> active_;  ///< queue pairs with packets to transmit, each of them once
  TimerWheel<SoftQueuePair> timers_;

  /// Work completions for the next poll(), with room for at least twice all outstanding work requests.
  FixedRing<WorkCompletion, RingStorage<WorkCompletion>> completions_;
  std::size_t depth_ = 0;
  CompletionGate gate_;  ///< gate of completions_

  DatagramQueue datagrams_;  ///< received
  Unresolved unresolved_;
  Announcer announcer_;
  std::uint32_t announced_ = 0;  ///< value of LinkFacts::announcements that was handled last
  std::uint64_t asked_ns_ = 0;   ///< time of the last request of next_hop()
  std::uint32_t datagram_psn_ = 0;
  ThreadOwner owner_;  ///< thread that polls
};

}  // namespace sluice::rdma::softroce
