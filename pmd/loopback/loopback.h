// SPDX-License-Identifier: Apache-2.0
//
// The loopback driver: an RNIC in software between two queue pairs, in one process or in two on one machine.
// RDMA Reads and Writes really move memory, and steering tag, bounds, access rights and queue pair are
// enforced as hardware does. For tests, for measuring our own cost, and for showing the product where there
// is no RDMA.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "pmd/device.h"
#include "pmd/loopback/fabric.h"

namespace sluice::rdma::loopback {

/// Bytes that one queue pair copies for RDMA Reads and Writes in one poll: a long transfer takes turns with
/// others.
inline constexpr std::uint32_t kCopyBytesPerPoll = 256 * 1024;
/// Sends that one queue pair receives in one poll.
inline constexpr std::uint32_t kReceivesPerPoll = 32;

struct DeviceConfig {
  std::string name = "loopback0";
  std::uint32_t max_queue_pairs = 128;
  std::uint32_t polls_per_rnr_round =
      64;  ///< polls that find a message and no Receive, until it counts as a retry

  // What tests ask a device to do wrong.
  std::uint32_t delay_invalidation_polls = 0;  ///< a LocalInvalidate takes this many polls longer
  bool refuse_invalidation = false;            ///< a LocalInvalidate ends as BindError
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

/// Setup. Across processes, allocate_memory() of a device that connects comes from its arena, and windows can
/// be bound to nothing else.
std::unique_ptr<Loopback> make_device(std::shared_ptr<Fabric> fabric, const DeviceConfig& config = {});

}  // namespace sluice::rdma::loopback
