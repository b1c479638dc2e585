// SPDX-License-Identifier: Apache-2.0
//
// A cable between two ethdevs made of rings. It drops, duplicates, reorders, delays and corrupts frames by a
// seed. Without faults it only delays them by the length of the wire.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>

#include "tests/driver/delay_line.h"

struct rte_mbuf;
struct rte_mempool;
struct rte_ring;

namespace sluice::rdma::conformance {

struct WireFaults {
  std::uint32_t per_mille = 0;  ///< probability of each kind of fault
  std::uint32_t seed = 1;
  std::uint32_t marks_per_mille = 0;  ///< frames that get a congestion mark
  std::uint32_t drops_per_mille = 0;  ///< additional frames that are lost
};

/// Propagation delay of each frame, independent of its size.
struct WireLength {
  std::uint64_t one_way_ns = 0;
  std::uint64_t (*clock_ns)() noexcept = nullptr;  ///< required unless one_way_ns is zero
};

class FaultyWire {
 public:
  explicit FaultyWire(const WireFaults& faults, const WireLength& length = {});
  ~FaultyWire();
  FaultyWire(const FaultyWire&) = delete;
  FaultyWire& operator=(const FaultyWire&) = delete;

  std::uint16_t left() const noexcept { return ports_[0]; }
  std::uint16_t right() const noexcept { return ports_[1]; }
  /// Moves frames in both directions.
  void carry();
  /// Arrival time of the next frame in flight.
  std::optional<std::uint64_t> next_arrival_ns();
  /// Puts a frame on the wire that neither ethdev has sent.
  void inject(bool to_right, std::span<const std::byte> frame);
  /// Called with every frame that arrives.
  std::function<void(bool to_right, std::span<const std::byte> frame)> watch;
  /// May change a frame that arrives. The frame is lost if this returns false.
  std::function<bool(bool to_right, std::span<std::byte> frame)> edit;
  /// The frame is lost if this returns true.
  std::function<bool(bool to_right, std::span<const std::byte> frame)> lose;

  struct Counts {
    std::uint64_t carried = 0, dropped = 0, marked = 0, duplicated = 0, reordered = 0, delayed = 0,
                  corrupted = 0;
  };
  const Counts& counts() const noexcept { return counts_; }

 private:
  struct Late {
    rte_mbuf* frame;
    int turns;
  };
  struct Direction {
    rte_ring* from = nullptr;
    rte_ring* to = nullptr;
    std::deque<Late> late;
    DelayLine<rte_mbuf*> underway;
  };
  void carry(Direction& direction);
  void deliver(Direction& direction, rte_mbuf* frame);
  void arrive(Direction& direction, rte_mbuf* frame);
  void drop(rte_mbuf* frame);
  void mark(rte_mbuf* frame);
  bool happens() { return faults_.per_mille > 0 && random_() % 1000 < faults_.per_mille; }

  WireFaults faults_;
  WireLength length_;
  std::mt19937 random_;
  Counts counts_;
  rte_mempool* pool_;
  Direction directions_[2];
  std::uint16_t ports_[2];
};

/// Starts DPDK once for this process, without hugepages or PCI devices.
void start_dpdk();

}  // namespace sluice::rdma::conformance
