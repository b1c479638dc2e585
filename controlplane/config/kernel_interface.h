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

namespace sluice::config {

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

}  // namespace sluice::config
