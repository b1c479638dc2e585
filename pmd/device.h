// SPDX-License-Identifier: Apache-2.0
//
// The seam between Sluice and an RDMA driver: Verbs semantics and names, polled only.
//
// Threads: a Device, its queue pairs and its connection events belong to one reactor; only that thread may
// call them. Registration and creation are setup (they may allocate, block and throw SetupError); everything
// marked noexcept is message path and does none of that.
//
// Ordering (InfiniBand Architecture Specification volume 1, 9.7 and 10.8.3.3, reliable connection):
// - work requests of one queue pair start in the order posted; a Send posted after RDMA Writes is received
//   only after their data is placed;
// - completions of the send queue and of the receive queue each come in posting order;
// - an RDMA Read may complete after later Sends and Writes have started, unless those carry kFence;
// - the first work completion with an error moves the queue pair to State::Error, and everything else that is
//   outstanding on either queue completes with WcStatus::WrFlushError.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "dataplane/base/net_address.h"
#include "dataplane/base/setup_error.h"
#include "pmd/connection_manager.h"
#include "pmd/datagram.h"
#include "pmd/memory.h"
#include "pmd/queue_pair.h"
#include "pmd/work_request.h"

namespace sluice::rdma {

struct DeviceLimits {
  std::uint32_t max_queue_pairs = 0;
  std::uint32_t max_send_sge = 0;
  std::uint32_t max_windows = 0;
  std::uint32_t max_message_bytes = 0;  ///< of one RDMA Read or Write
  std::uint32_t max_send_bytes = 0;     ///< of one Send
  bool immediate_data = false;
  bool remote_invalidation = false;  ///< SendWithInvalidate, and Receives of it
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const std::string& name() const noexcept = 0;
  virtual DeviceLimits limits() const noexcept = 0;

  /// Memory suited to the device (page aligned, zeroed), registered for local use. Lives as long as the
  /// device.
  virtual MemoryRegion allocate_memory(std::size_t bytes) = 0;
  /// Registers memory of the caller's for local use; it has to outlive the device.
  virtual MemoryRegion register_memory(std::span<std::byte> bytes) = 0;
  virtual MemoryWindow allocate_window() = 0;

  virtual std::unique_ptr<QueuePair> create_queue_pair(const QueuePairLimits& limits) = 0;
  /// Nothing when the driver leaves connection management to the control plane.
  virtual ConnectionManager* connection_manager() noexcept = 0;

  /// Drivers without a connection manager: management datagrams, in and out. A datagram that cannot be sent
  /// now is lost, as on the wire.
  virtual std::size_t receive_datagrams(std::span<Datagram> datagrams) noexcept {
    static_cast<void>(datagrams);
    return 0;
  }
  virtual bool send_datagram(const Datagram& datagram) noexcept {
    static_cast<void>(datagram);
    return false;
  }
  /// Addresses of the device's own, the first being the default; empty with a connection manager.
  virtual std::span<const PeerAddress> addresses() const noexcept { return {}; }
  /// Largest path MTU that its link carries.
  virtual std::uint16_t max_path_mtu() const noexcept { return 4096; }

  /// The driver's own counters, in the order of its statistics table; how many were written.
  virtual std::size_t read_statistics(std::span<std::uint64_t> values) const noexcept {
    static_cast<void>(values);
    return 0;
  }

  /// Advances all queue pairs of the device by a bounded amount and returns their work completions.
  virtual std::size_t poll(std::span<WorkCompletion> completions) noexcept = 0;

  /// Not message path: gives the processor away for at most `limit_ns`, when the polls since the last wait
  /// have found nothing. May return at once.
  virtual void wait(std::uint64_t limit_ns) noexcept;
  /// Whether wait() ends when there is something for poll().
  virtual bool wakes() const noexcept { return false; }
};

}  // namespace sluice::rdma
