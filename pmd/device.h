// SPDX-License-Identifier: Apache-2.0
//
// The interface between Sluice and an RDMA driver: Verbs semantics and names, polled only.
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
  std::uint32_t max_read_sge = 1;  ///< per RDMA Read; at most max_send_sge
  std::uint32_t max_windows = 0;
  /// Regions that can be registered for calls at a time. Zero unless the device has no memory windows and its
  /// configuration allows regions.
  std::uint32_t max_call_regions = 0;
  std::uint32_t max_message_bytes = 0;  ///< per RDMA Read or Write
  std::uint32_t max_send_bytes = 0;     ///< per Send
  bool immediate_data = false;
  bool remote_invalidation = false;  ///< can send and receive SendWithInvalidate
};

/// State of the link and of the device.
enum class Condition : std::uint8_t {
  Up,
  PortDown,
  Gone,    ///< removed; opened again when it returns
  Broken,  ///< closed because of an error, and being opened again
};

/// Result of Device::take_notice().
enum Notice : std::uint8_t { kNoNotice = 0, kInformation, kWarning };

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
  /// Setup. Adds a protection domain for the queue pairs of one peer that register regions, and registers all
  /// memory in it for local use. Returns the first domain on a device with memory windows.
  virtual ProtectionDomain allocate_domain() { return {}; }

  /// Setup. Announces that `count` queue pairs with these limits will be requested. A device that is slow to
  /// create a queue pair creates some in advance, in parallel to the reactor.
  virtual void prepare_queue_pairs(const QueuePairLimits& limits, std::uint32_t count) {
    static_cast<void>(limits), static_cast<void>(count);
  }
  /// Reports whether create_queue_pair() with the prepared limits completes without blocking. If not, a later
  /// poll() requests the creation.
  virtual bool has_queue_pair() const noexcept { return true; }
  virtual Owned<QueuePair> create_queue_pair(const QueuePairLimits& limits) = 0;
  /// Returns null if the control plane does connection management.
  virtual ConnectionManager* connection_manager() noexcept = 0;

  // Drivers without a connection manager receive and send management datagrams here. A datagram that cannot
  // be sent now is dropped, as on the wire.
  virtual std::size_t receive_datagrams(std::span<Datagram> datagrams) noexcept {
    static_cast<void>(datagrams);
    return 0;
  }
  virtual bool send_datagram(const Datagram& datagram) noexcept {
    static_cast<void>(datagram);
    return false;
  }
  /// Returns the device's addresses, the default one first. Empty for a driver with a connection manager.
  virtual std::span<const PeerAddress> addresses() const noexcept { return {}; }
  /// Returns the largest path MTU of the link, in bytes.
  virtual std::uint16_t max_path_mtu() const noexcept { return 4096; }
  /// Returns the GUID of the port, by which peers distinguish channel adapters. Zero if the driver's
  /// connection manager has it.
  virtual std::uint64_t guid() const noexcept { return 0; }

  /// Copies the driver's counters, in the order of its statistics table. Returns the number of counters
  /// written.
  virtual std::size_t read_statistics(std::span<std::uint64_t> values) const noexcept {
    static_cast<void>(values);
    return 0;
  }

  // The following functions may be called by any thread, one at a time.
  /// Checks for events of the device and of its peers' processes that polling does not find. Called about ten
  /// times per second; may make system calls. The next poll(), or the next poll of the connection manager,
  /// acts on the result.
  virtual void handle_events() noexcept {}
  virtual Condition condition() const noexcept { return Condition::Up; }
  /// Takes the next sentence for the log, without a full stop. Returns kNoNotice if there is none. May
  /// allocate.
  virtual Notice take_notice(std::string&) { return kNoNotice; }

  /// Lets another thread become the owner of the device, with the next poll(). Requires that no thread calls.
  virtual void pass_on() noexcept {}
  /// Makes bounded progress on all queue pairs and returns the number of work completions written.
  virtual std::size_t poll(std::span<WorkCompletion> completions) noexcept = 0;
  /// Reports whether the last poll() did work that has no completion yet, such as a part of a long transfer.
  bool moved() const noexcept { return moved_; }

  /// Sleeps for at most `limit_ns`; may return early. Not message path. Call only if the polls since the last
  /// wait() found nothing.
  virtual void wait(std::uint64_t limit_ns) noexcept;
  /// Reports whether wait() returns as soon as poll() has work.
  virtual bool wakes() const noexcept { return false; }

 protected:
  bool moved_ = false;  ///< set by the driver in each poll()
};

}  // namespace sluice::rdma
