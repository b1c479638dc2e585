// SPDX-License-Identifier: Apache-2.0
//
// Packet capture of a port to a pcapng file. Lanes copy packets into rings; the thread that created the
// capture writes them. A lane never waits: packets that find its ring full are dropped and counted.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <string>

#include "dataplane/base/setup_error.h"
#include "pmd/softroce/softroce.h"

struct rte_mbuf;
struct rte_mempool;
struct rte_pcapng;
struct rte_ring;

namespace sluice::rdma::softroce {

/// Ring size per lane, in packets.
inline constexpr unsigned kCaptureDepth = 1024;

class Capture {
 public:
  enum class Way : std::uint8_t { In, Out };

  /// Not on a lane's thread. Throws SetupError. At most `snap_bytes` of each packet are kept.
  Capture(const PortConfig& port, const std::string& path, std::uint32_t snap_bytes);
  /// The same thread, after no lane uses it any more (Port::set_capture()).
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  /// Called by the reactor of `lane` only; message path.
  void add(std::uint32_t lane, std::span<rte_mbuf* const> packets, Way way) noexcept;

  /// The creating thread: writes the queued packets; returns how many.
  std::uint64_t write();
  std::uint64_t dropped() const noexcept;

 private:
  struct alignas(64) Lane {
    rte_ring* ring = nullptr;
    std::atomic<std::uint64_t> dropped{0};
  };
  const std::uint16_t ethdev_;
  const std::uint32_t snap_bytes_;
  rte_mempool* pool_ = nullptr;
  rte_pcapng* file_ = nullptr;
  std::array<Lane, kMaxLanes> lanes_;
};

}  // namespace sluice::rdma::softroce
