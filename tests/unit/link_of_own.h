// SPDX-License-Identifier: Apache-2.0
//
// A network interface for tests of link-local addresses.
#pragma once

#include <sched.h>

#include <cstdlib>
#include <string>

namespace sluice {

/// Address of the interface that make_link_of_own() creates, with its zone.
inline constexpr const char* kOnLinkOfOwn = "fe80::1%one";

/// Moves the calling thread, and the threads that it starts later, into a new network namespace with the
/// loopback interface and an interface "one" with the address kOnLinkOfOwn. Returns the reason of a failure,
/// for GTEST_SKIP(); empty on success.
inline std::string make_link_of_own() {
  if (::unshare(CLONE_NEWNET) != 0) return "Only root may have a network namespace.";
  const bool made = std::system(
                        "ip link set lo up && ip link add one type veth peer name two && "
                        "ip link set one up && ip link set two up && "
                        "ip address add fe80::1/64 dev one nodad") == 0;
  return made ? "" : "There is no ip, or the kernel has no veth interfaces.";
}

}  // namespace sluice
