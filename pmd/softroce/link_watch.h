// SPDX-License-Identifier: Apache-2.0
//
// Watches one network interface of the kernel through rtnetlink (RFC 3549; rtnetlink(7), "Link messages"): carrier, MTU, MAC
// address, deletion, and creation under the same name. One thread. Makes system calls, none of which waits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "dataplane/base/file_descriptor.h"
#include "pmd/softroce/frame.h"

namespace sluice::rdma::softroce {

struct InterfaceState {
  std::uint32_t index = 0;  ///< 0: there is no such interface
  bool running = false;     ///< it is set up and has a carrier
  std::uint32_t mtu = 0;
  MacAddress mac{};
};

/// Changes since the last poll().
struct InterfaceNews {
  InterfaceState now;        ///< of the interface that has the name now
  std::uint32_t losses = 0;  ///< times that it stopped running
  bool deleted = false;      ///< the interface of the last poll() was deleted
};

class LinkWatch {
 public:
  /// Setup. The interface need not exist. Throws SetupError if the kernel gives no netlink socket.
  explicit LinkWatch(std::string interface);

  const std::string& interface() const noexcept { return interface_; }
  const InterfaceState& state() const noexcept { return state_; }
  /// Reads what the kernel has reported. An interface that is renamed stays the same.
  InterfaceNews poll() noexcept;

 private:
  /// Returns false if no message is left. Sets `lost` if the kernel dropped some.
  bool read_reports(InterfaceNews& news, bool& lost) noexcept;
  void apply(std::span<const std::byte> messages, InterfaceNews& news) noexcept;
  void apply_one(std::uint16_t type, std::span<const std::byte> body, InterfaceNews& news) noexcept;
  /// Queries the interface with this index, or with the name if `index` is zero.
  InterfaceState query(std::uint32_t index) noexcept;

  const std::string interface_;
  FileDescriptor reports_;    ///< of the group of links
  FileDescriptor questions_;  ///< answers do not mix with reports
  InterfaceState state_;
};

}  // namespace sluice::rdma::softroce
