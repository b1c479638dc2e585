// SPDX-License-Identifier: Apache-2.0
//
// The softroce driver: RoCEv2 (InfiniBand Architecture Specification volume 1, chapter 9 and annex A17) in
// user space on any DPDK ethdev. A Port is one ethdev; it has one Device for each reactor ("lane").
//
// A queue pair belongs to the lane whose number is in the low bits of its QPN. A packet received by another
// lane is handed over through a ring. Queue pair 1 (management) belongs to lane 0.
//
// A Port is used at setup only, except for take_notices() and set_capture(). Each Device belongs to its
// reactor and shares ownership of the port. Setup throws SetupError.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pmd/device.h"
#include "pmd/softroce/port_config.h"
#include "pmd/softroce/statistics.h"

namespace sluice::rdma::softroce {

class SoftRoce : public Device {
 public:
  virtual const Statistics& statistics() const noexcept = 0;
  /// Transmits staged packets, as poll() does.
  virtual void flush() noexcept = 0;
};

/// Packet capture (capture.h).
class Capture;

/// Whether payload is sent in place, without a copy.
struct Transmission {
  bool in_place = false;
  std::string obstacle;  ///< reason why payload is copied; empty if it is not, or if copying is configured
};

/// A sentence about the port's link, for the log.
struct LinkNotice {
  enum class Level : std::uint8_t { Info, Warning };
  Level level = Level::Info;
  std::string text;
};

/// Setup. Returns the first Ethernet device that EAL has found, or nullopt.
std::optional<std::uint16_t> first_ethdev() noexcept;

class Port {
 public:
  /// Setup, after EAL was initialised and the ethdev probed. Configures and starts the ethdev. Throws
  /// SetupError.
  static Owned<Port> open(const PortConfig& config);
  virtual ~Port() = default;
  /// Creates the device of a lane. Call once for each lane before any lane is polled. The port outlives its
  /// devices.
  virtual Owned<SoftRoce> make_device(std::uint32_t lane) = 0;
  virtual const PortConfig& config() const noexcept = 0;
  virtual LinkAddress link_address() const noexcept = 0;
  virtual const Steering& steering() const noexcept = 0;
  /// Returns the transmission of the lanes with a hardware queue. Their devices may later find that payload
  /// must be copied.
  virtual const Transmission& transmission() const noexcept = 0;
  /// Returns the notices to log since the last call. Only for the thread that calls handle_events() of the
  /// devices.
  virtual std::vector<LinkNotice> take_notices() = 0;
  /// Passes the frames of every lane to `capture`, which outlives the lanes' last poll. Null ends that. Any
  /// thread.
  virtual void set_capture(Capture* capture) noexcept = 0;
};

}  // namespace sluice::rdma::softroce
