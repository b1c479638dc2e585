// SPDX-License-Identifier: Apache-2.0
//
// The ethdev of a softroce port, shared by its lanes (softroce.h). Constructor, destructor and make_device()
// are setup, by one thread, and throw SetupError. A method with a lane argument may be called only by the
// reactor of that lane (hand_over(): of `from`; receive_from_lane(): of `to`); the other methods by any
// thread. Devices share ownership of the port. Buffers passed in are consumed; buffers returned belong to the
// caller.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dataplane/base/cache_line.h"
#include "dataplane/base/owned.h"
#include "pmd/softroce/card_memory.h"
#include "pmd/softroce/driver_traits.h"
#include "pmd/softroce/ethdev_events.h"
#include "pmd/softroce/flow_rules.h"
#include "pmd/softroce/interrupt_guard.h"
#include "pmd/softroce/link_monitor.h"
#include "pmd/softroce/neighbour_cache.h"
#include "pmd/softroce/pieces_in_use.h"
#include "pmd/softroce/pool_sizes.h"
#include "pmd/softroce/port_link.h"
#include "pmd/softroce/softroce.h"

struct rte_eth_dev_info;
struct rte_mbuf;
struct rte_mempool;
struct rte_ring;

namespace sluice::rdma::softroce {

/// The ethdev, shared by its lanes. Rings between lanes have one producer and one consumer each.
class EthernetPort final : public Port {
 public:
  explicit EthernetPort(const PortConfig& config);
  ~EthernetPort() override;

  Owned<SoftRoce> make_device(std::uint32_t lane) override;
  const PortConfig& config() const noexcept override { return config_; }
  LinkAddress link_address() const noexcept override { return link_.facts().mac; }
  const Steering& steering() const noexcept override { return flow_rules_.steering(); }
  const Transmission& transmission() const noexcept override { return transmission_; }
  std::vector<LinkNotice> take_notices() override { return std::exchange(notices_, {}); }

  /// Sets the capture that the lanes call, or null. Pairs with capture(): the object is complete.
  void set_capture(Capture* capture) noexcept override { capture_.store(capture, std::memory_order_release); }
  /// Returns the capture, or null. Pairs with set_capture(): the object is complete.
  Capture* capture() const noexcept { return capture_.load(std::memory_order_acquire); }

  /// Returns the rate of the link when the lanes were created, in bytes per ns.
  double line_rate() const noexcept;
  /// Checks the link, closes an ethdev whose device was removed, and opens it again. The main thread calls it
  /// about ten times per second.
  void handle_events();
  PortLink& link() noexcept { return link_; }
  NeighbourCache& neighbours() noexcept { return neighbours_; }
  int numa_node() const noexcept { return numa_node_; }
  std::uint32_t frame_bytes() const noexcept { return frame_bytes_; }
  /// Returns the shape for which the pools of packet buffers were sized.
  const PortShape& shape() const noexcept { return shape_; }
  /// Returns the ring to the lane that transmits for a lane without a hardware queue, or null if the lane has
  /// one.
  rte_ring* queue_owner(std::uint32_t lane) const noexcept { return to_queue_[lane]; }
  /// Returns how long the ethdev may read payload that is sent in place. Unknown means that payload is
  /// copied.
  PacketMemory packet_memory() const noexcept {
    return transmission_.in_place ? packet_memory_ : PacketMemory::Unknown;
  }
  /// Setup. Makes the memory readable for the ethdev, so that payload may be sent from it in place. Returns
  /// false if the ethdev cannot read it; the caller must then copy payload.
  bool reach(std::span<std::byte> memory);
  /// Returns the pieces that a lane has sent in place. Used only if packet_memory() is UntilFreed.
  PiecesInUse& pieces_in_use(std::uint32_t lane) noexcept { return pieces_in_use_[lane]; }
  /// Makes the ethdev free the sent packets of a lane with a hardware queue.
  void free_sent(std::uint32_t lane) const noexcept;
  /// Setup. Schedules a pool to be freed when the ethdev is closed, because the ethdev may hold its buffers.
  /// May be null.
  void free_later(rte_mempool* pool) { left_pools_.push_back(pool); }
  /// Passes a packet from lane `from` to lane `to`. If the ring is full, frees it and returns false.
  bool hand_over(std::uint32_t from, std::uint32_t to, rte_mbuf* buffer) noexcept;
  // Receive up to `room` packets for a lane, from its hardware queue or from another lane. Return the number
  // of packets.
  std::uint16_t receive_from_queue(std::uint32_t lane, rte_mbuf** buffers, std::uint16_t room) noexcept;
  std::uint16_t receive_from_lane(std::uint32_t from, std::uint32_t to, rte_mbuf** buffers,
                                  std::uint16_t room) noexcept;
  /// Reports whether other lanes transmit through the hardware queue of `lane`.
  bool shares_queue(std::uint32_t lane) const noexcept {
    return lane + shape_.queues < config_.lanes && lane < shape_.queues;
  }
  // Lanes without a hardware queue share the queue of another lane by round robin with one burst per lane.
  // Packets that the queue does not accept are kept.
  /// Transmits packets of `lane` through its hardware queue. Returns the number of accepted packets; the
  /// caller keeps the rest.
  std::uint16_t transmit(std::uint32_t lane, std::span<rte_mbuf*> packets) noexcept;
  /// Transmits packets of the lanes that share the queue of `lane` while `lane` has none. Returns false if
  /// none was accepted.
  bool transmit_for_others(std::uint32_t lane) noexcept;

 private:
  /// Packets of a lane without a hardware queue that the lane with the queue has dequeued but not
  /// transmitted.
  struct alignas(kCacheLine) InHand {
    std::uint32_t count = 0;
    std::array<rte_mbuf*, kTransmitBurst> buffers{};
  };
  /// Round-robin state of a hardware queue.
  struct alignas(kCacheLine) QueueTurn {
    std::uint32_t at = 0;                 ///< 0 is the lane that has the queue, n the n-th of the others
    std::uint32_t left = kTransmitBurst;  ///< packets left in the current burst
  };
  struct Turn {
    std::uint16_t own = 0;  ///< packets accepted
    bool others = false;    ///< packets of other lanes were accepted
  };

  /// Identity of the ethdev in DPDK, used to open it again.
  struct EthdevDevice {
    std::string bus;
    std::string name;
    std::string driver;
    std::string arguments;
  };

  void configure();
  rte_eth_dev_info ethdev_info() const;
  void make_pool(std::uint32_t queue);
  void start_ethdev(const rte_eth_dev_info& info);
  void stop_ethdev() noexcept;
  MacAddress address_of_ethdev() const noexcept;
  bool wants_in_place(const rte_eth_dev_info& info) const noexcept;
  int set_up_transmit_queue(std::uint16_t queue, std::uint16_t descriptors,
                            const rte_eth_dev_info& info) const;
  void look_for_obstacles(const rte_eth_dev_info& info);
  void cannot_reach();
  // Functions of the main thread while the lanes poll.
  void notice(LinkNotice::Level level, std::string text);
  void watch_interface(const std::string& interface);
  std::uint16_t bounded_mtu(const InterfaceState& interface);
  bool link_is_up() const noexcept;
  void observe();
  void follow_interface(const InterfaceNews& news);
  void leave(const std::string& what);
  void publish_changes();
  void close_ethdev();
  void remove_ethdev() noexcept;
  void reopen();
  void open_again();
  // Functions of the lanes.
  std::uint16_t burst(std::uint32_t lane, std::span<rte_mbuf*> packets) const noexcept;
  Turn take_turns(std::uint32_t lane, std::span<rte_mbuf*> own) noexcept;
  std::span<rte_mbuf*> in_hand(std::uint32_t lane) noexcept;
  bool drop_from_hand(std::uint32_t lane, std::uint16_t sent) noexcept;

  PortConfig config_;
  NeighbourCache neighbours_;
  std::atomic<Capture*> capture_{nullptr};
  PortLink link_;
  int numa_node_ = 0;
  std::uint32_t frame_bytes_ = 0;
  PortShape shape_;
  FlowRules flow_rules_;
  EthdevEvents events_;
  EthdevDevice device_;
  bool on_card_ = false;
  // Members of the main thread.
  Owned<LinkMonitor> watch_;  ///< null if the ethdev is not based on a kernel interface
  std::uint32_t interface_mtu_ = 0;
  LinkFacts published_;
  std::vector<LinkNotice> notices_;
  std::string last_problem_;  ///< problem of the last attempt to open the ethdev again, already reported
  std::chrono::steady_clock::time_point next_attempt_;
  std::chrono::steady_clock::time_point next_inspection_;
  PacketMemory packet_memory_ = PacketMemory::Unknown;
  Transmission transmission_;
  CardMemory card_memory_;
  std::array<PiecesInUse, kMaxLanes> pieces_in_use_;
  std::vector<rte_mempool*> left_pools_;
  Owned<InterruptGuard> guard_;  ///< null if the driver's interrupts are harmless
  std::array<rte_mempool*, kMaxLanes> pools_{};
  std::array<std::array<rte_ring*, kMaxLanes>, kMaxLanes> to_lane_{};  ///< [from][to]
  std::array<rte_ring*, kMaxLanes> to_queue_{};  ///< by lane; null if the lane has a queue
  std::array<InHand, kMaxLanes> in_hand_{};      ///< by lane
  std::array<QueueTurn, kMaxLanes> turns_{};     ///< by queue
};

}  // namespace sluice::rdma::softroce
