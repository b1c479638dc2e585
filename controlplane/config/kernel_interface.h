// SPDX-License-Identifier: Apache-2.0
//
// Reads the MTU and the addresses of the kernel's network interfaces. Used at setup; any thread. Makes system
// calls.
#pragma once

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

#include "dataplane/base/net_address.h"

namespace sluice::config {

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

/// Returns true if an interface of this network namespace has the address.
inline bool is_address_of_interface(const PeerAddress& address) {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return false;
  bool found = false;
  for (const ifaddrs* each = all; each != nullptr && !found; each = each->ifa_next) {
    const int family = each->ifa_addr != nullptr ? each->ifa_addr->sa_family : AF_UNSPEC;
    const auto* const its = reinterpret_cast<const std::byte*>(each->ifa_addr);
    PeerAddress known = PeerAddress::from_ipv4(0, 0, 0, 0);
    if (family == AF_INET)
      std::memcpy(&known.bytes[12], its + offsetof(sockaddr_in, sin_addr), sizeof(in_addr));
    else if (family == AF_INET6)
      std::memcpy(known.bytes.data(), its + offsetof(sockaddr_in6, sin6_addr), sizeof(in6_addr));
    else
      continue;
    if (family == AF_INET6)
      std::memcpy(&known.zone, its + offsetof(sockaddr_in6, sin6_scope_id), sizeof known.zone);
    found = known == address;
  }
  ::freeifaddrs(all);
  return found;
}

}  // namespace sluice::config
