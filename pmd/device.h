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
#include <span>
#include <string>

#include "dataplane/base/net_address.h"
#include "dataplane/base/owned.h"
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
  std::uint32_t max_message_bytes = 0;  ///< per RDMA Read or Write
  std::uint32_t max_send_bytes = 0;     ///< per Send
  bool immediate_data = false;
  bool remote_invalidation = false;  ///< can send and receive SendWithInvalidate
};

/// Of the link, or of the device itself.
enum class Condition : std::uint8_t { Up, PortDown, Gone };

class Device {
 public:
  virtual ~Device() = default;
  virtual const std::string& name() const noexcept = 0;
  virtual DeviceLimits limits() const noexcept = 0;

  /// Allocates page-aligned, zeroed memory and registers it for local use. Owned by the device.
  virtual MemoryRegion allocate_memory(std::size_t bytes) = 0;
  /// Registers the caller's memory for local use; it must outlive the device.
  virtual MemoryRegion register_memory(std::span<std::byte> bytes) = 0;
  virtual MemoryWindow allocate_window() = 0;

  /// Setup. So many queue pairs with these limits will be asked for: a device that needs long to make one makes some ahead,
  /// beside the reactor.
  virtual void prepare_queue_pairs(const QueuePairLimits& limits, std::uint32_t count) {
    static_cast<void>(limits), static_cast<void>(count);
  }
  /// Whether create_queue_pair() with the prepared limits returns or throws at once. If not, a later poll() has one made.
  virtual bool has_queue_pair() const noexcept { return true; }
  virtual Owned<QueuePair> create_queue_pair(const QueuePairLimits& limits) = 0;
  /// Null when connection management is done by the control plane.
  virtual ConnectionManager* connection_manager() noexcept = 0;

  // Drivers without a connection manager: receive and send management datagrams. One that cannot be sent now
  // is dropped, as on the wire.
  virtual std::size_t receive_datagrams(std::span<Datagram> datagrams) noexcept {
    static_cast<void>(datagrams);
    return 0;
  }
  virtual bool send_datagram(const Datagram& datagram) noexcept {
    static_cast<void>(datagram);
    return false;
  }
  /// The device's addresses, the default one first; empty with a connection manager.
  virtual std::span<const PeerAddress> addresses() const noexcept { return {}; }
  /// Largest path MTU of the link, in bytes.
  virtual std::uint16_t max_path_mtu() const noexcept { return 4096; }
  /// The GUID of the port, by which peers tell channel adapters apart; 0: the driver's connection manager has it.
  virtual std::uint64_t guid() const noexcept { return 0; }

  /// Copies the driver's counters, in the order of its statistics table. Returns how many were written.
  virtual std::size_t read_statistics(std::span<std::uint64_t> values) const noexcept {
    static_cast<void>(values);
    return 0;
  }

  // Any thread, one at a time.
  /// Called about ten times in a second: what has happened to the device, or to the processes of its peers, beside what
  /// polling finds. May call the kernel. The next poll(), or the connection manager's, acts on it.
  virtual void look() noexcept {}
  virtual Condition condition() const noexcept { return Condition::Up; }

  /// Makes bounded progress on all queue pairs and returns the number of work completions written.
  virtual std::size_t poll(std::span<WorkCompletion> completions) noexcept = 0;
  /// Whether the last poll() did work of which no completion has come yet, such as a part of a long transfer.
  bool moved() const noexcept { return moved_; }

  /// Not message path: sleeps for at most `limit_ns`. Call only if the polls since the last wait() found
  /// nothing. May return early.
  virtual void wait(std::uint64_t limit_ns) noexcept;
  /// Whether wait() returns as soon as poll() has work.
  virtual bool wakes() const noexcept { return false; }

 protected:
  bool moved_ = false;  ///< a driver sets it in each poll()
};

}  // namespace sluice::rdma
