// SPDX-License-Identifier: Apache-2.0
//
// A link for tests of link-local addresses.
#pragma once

#include <sched.h>

#include <cstdlib>
#include <string>

namespace sluice {

/// Address on the link of make_link_of_own(), with its zone.
inline constexpr const char* kOnLinkOfOwn = "fe80::1%one";

/// Moves the calling thread, and the threads that it starts later, into a network namespace that has a loopback and the interface
/// "one" with kOnLinkOfOwn. Returns why it could not, for GTEST_SKIP(); empty if it could.
inline std::string make_link_of_own() {
  if (::unshare(CLONE_NEWNET) != 0) return "Only root may have a network namespace.";
  const bool made = std::system(
                        "ip link set lo up && ip link add one type veth peer name two && "
                        "ip link set one up && ip link set two up && "
                        "ip address add fe80::1/64 dev one nodad") == 0;
  return made ? "" : "There is no ip, or the kernel has no veth interfaces.";
}

}  // namespace sluice
