// SPDX-License-Identifier: Apache-2.0
//
// Addresses of the port that the kernel also has, in the network namespace of this process. Setup and the
// main thread; makes system calls.
#pragma once

#include <ifaddrs.h>
#include <netinet/in.h>

#include <cstring>
#include <span>

#include "pmd/softroce/frame.h"
#include "pmd/softroce/port_config.h"

namespace sluice::rdma::softroce {

/// Returns whether a network interface of the kernel has one of the addresses. Returns true if the kernel
/// cannot be queried.
inline bool kernel_has_any(std::span<const InterfaceAddress> addresses) noexcept {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return true;
  bool found = false;
  for (const ifaddrs* each = list; each != nullptr && !found; each = each->ifa_next) {
    PeerAddress kernels;
    if (each->ifa_addr == nullptr) continue;
    if (each->ifa_addr->sa_family == AF_INET) {
      kernels = PeerAddress::from_ipv4(0, 0, 0, 0);
      std::memcpy(kernels.bytes.data() + 12, &reinterpret_cast<const sockaddr_in*>(each->ifa_addr)->sin_addr,
                  4);
    } else if (each->ifa_addr->sa_family == AF_INET6) {
      std::memcpy(kernels.bytes.data(), &reinterpret_cast<const sockaddr_in6*>(each->ifa_addr)->sin6_addr,
                  16);
    } else {
      continue;
    }
    for (const InterfaceAddress& own : addresses) found |= same(own.address, kernels);
  }
  ::freeifaddrs(list);
  return found;
}

}  // namespace sluice::rdma::softroce
