// SPDX-License-Identifier: Apache-2.0
//
// Network interfaces of the kernel that DPDK's ethdevs stand on, and their MTU. Setup; any thread. System calls.
#pragma once

#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

namespace sluice {

/// Returns the interface that the ethdev sends through: iface= of net_af_packet and net_af_xdp. Empty for others.
inline std::string kernel_interface_of(std::string_view ethdev) {
  if (!ethdev.starts_with("net_af_packet") && !ethdev.starts_with("net_af_xdp")) return {};
  constexpr std::string_view kKey = ",iface=";
  const std::size_t at = ethdev.find(kKey);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = ethdev.substr(at + kKey.size());
  return std::string(rest.substr(0, rest.find(',')));
}

/// Returns nothing if this network namespace has no interface of that name.
inline std::optional<std::uint32_t> mtu_of_interface(const std::string& interface) {
  ifreq request{};
  if (interface.empty() || interface.size() >= sizeof request.ifr_name) return std::nullopt;
  std::memcpy(request.ifr_name, interface.c_str(), interface.size() + 1);
  const int socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const bool found = socket >= 0 && ::ioctl(socket, SIOCGIFMTU, &request) == 0;
  if (socket >= 0) ::close(socket);
  return found ? std::optional<std::uint32_t>(static_cast<std::uint32_t>(request.ifr_mtu)) : std::nullopt;
}

/// Returns a sentence if packets of `wanted` bytes do not fit; empty if they do.
inline std::string lack_of_mtu(const std::string& interface, std::uint32_t mtu, std::uint32_t wanted) {
  if (wanted <= mtu) return {};
  return "mtu in [device] is " + std::to_string(wanted) + ", and the interface '" + interface +
         "' takes packets of " + std::to_string(mtu) +
         " bytes, so that every full one would be lost: ip link set " + interface + " mtu " +
         std::to_string(wanted) + ", or lower mtu.";
}

}  // namespace sluice
