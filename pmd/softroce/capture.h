// SPDX-License-Identifier: Apache-2.0
//
// Copies of a port's packets, on their way from the lanes to a pcapng file. A lane never waits: what there is
// no room for is counted.
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

/// Packets of one lane that wait to be written.
inline constexpr unsigned kCaptureDepth = 1024;

class Capture {
 public:
  enum class Way : std::uint8_t { In, Out };

  /// Any thread but a lane's; SetupError with a sentence. `snap_bytes` of each packet are kept.
  Capture(const PortConfig& port, const std::string& path, std::uint32_t snap_bytes);
  /// The lanes do not know it any more.
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  /// Lane `lane` only, message path.
  void add(std::uint32_t lane, std::span<rte_mbuf* const> packets, Way way) noexcept;

  /// The thread that made it: writes what has come, and returns how many packets.
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
