// SPDX-License-Identifier: Apache-2.0
//
// Monitors one network interface of the kernel through rtnetlink (RFC 3549; rtnetlink(7), "Link messages"):
// carrier, MTU, MAC address, deletion, and creation under the same name. One thread. Makes non-blocking
// system calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "dataplane/base/file_descriptor.h"
#include "pmd/softroce/frame.h"

namespace sluice::rdma::softroce {

struct InterfaceState {
  std::uint32_t index = 0;  ///< zero if the interface does not exist
  bool running = false;     ///< the interface is up and has a carrier
  std::uint32_t mtu = 0;
  MacAddress mac{};
};

/// Changes since the last poll().
struct InterfaceNews {
  InterfaceState now;        ///< state of the interface that currently has the name
  std::uint32_t losses = 0;  ///< number of times that it stopped running
  bool deleted = false;      ///< the interface of the last poll() was deleted
};

class LinkMonitor {
 public:
  /// Setup. The interface need not exist. Throws SetupError if the kernel provides no netlink socket.
  explicit LinkMonitor(std::string interface);

  const std::string& interface() const noexcept { return interface_; }
  const InterfaceState& state() const noexcept { return state_; }
  /// Reads the reports of the kernel. A renamed interface counts as the same interface.
  InterfaceNews poll() noexcept;

 private:
  /// Reads one batch of reports. Returns false if no message is left. Sets `lost` if the kernel dropped some.
  bool read_reports(InterfaceNews& news, bool& lost) noexcept;
  void apply(std::span<const std::byte> messages, InterfaceNews& news) noexcept;
  void apply_one(std::uint16_t type, std::span<const std::byte> body, InterfaceNews& news) noexcept;
  /// Queries the interface with this index, or with the name if `index` is zero.
  InterfaceState query(std::uint32_t index) noexcept;

  const std::string interface_;
  FileDescriptor reports_;    ///< socket subscribed to the link group
  FileDescriptor questions_;  ///< socket for queries, so that responses do not mix with reports
  InterfaceState state_;
};

}  // namespace sluice::rdma::softroce
