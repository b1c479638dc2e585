// SPDX-License-Identifier: Apache-2.0
//
// The loopback driver: a software RNIC that connects two queue pairs, in one process or in two processes of a
// machine. RDMA Reads and Writes move memory; steering tag, bounds, access rights and queue pair are enforced
// as by hardware. For tests, for measuring the transport's own cost, and for trying Sluice without RDMA.
//
// make_device() is setup; then only the owning reactor may call. See pmd/device.h for errors and ownership.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "pmd/device.h"
#include "pmd/loopback/fabric.h"

namespace sluice::rdma::loopback {

/// Number of bytes that one queue pair copies for RDMA Reads and Writes per poll, so that a long transfer
/// does not starve other queue pairs.
inline constexpr std::uint32_t kCopyBytesPerPoll = 256 * 1024;
/// Number of Sends that one queue pair receives per poll.
inline constexpr std::uint32_t kReceivesPerPoll = 32;

struct DeviceConfig {
  std::string name = "loopback0";
  std::uint32_t max_queue_pairs = 128;
  /// Number of polls with a message and no posted Receive that count as one RNR retry.
  std::uint32_t polls_per_rnr_round = 64;

  // Fault injection for tests.
  std::uint32_t delay_invalidation_polls = 0;  ///< additional polls until LocalInvalidate completes
  bool refuse_invalidation = false;            ///< LocalInvalidate fails with BindError
};

struct Statistics {
  std::uint64_t sends = 0;
  std::uint64_t receives = 0;
  std::uint64_t reads = 0;
  std::uint64_t read_bytes = 0;
  std::uint64_t writes = 0;
  std::uint64_t write_bytes = 0;
  std::uint64_t binds = 0;
  std::uint64_t invalidations = 0;
  std::uint64_t rnr_rounds = 0;
  std::uint64_t access_errors = 0;
  std::uint64_t corrupt_records = 0;
  std::uint64_t flushed = 0;
};

class Loopback : public Device {
 public:
  virtual const Statistics& statistics() const noexcept = 0;
  virtual DeviceConfig& config() noexcept = 0;
};

/// Setup. Throws SetupError. Across processes, a connecting device allocates memory from its arena and can
/// bind windows only there.
std::unique_ptr<Loopback> make_device(std::shared_ptr<Fabric> fabric, const DeviceConfig& config = {});

}  // namespace sluice::rdma::loopback
