// SPDX-License-Identifier: Apache-2.0
//
// Kinds of IP addresses, and which of them a key of the configuration cannot have. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "dataplane/base/net_address.h"

namespace sluice::config {

bool is_unspecified(const PeerAddress& address);
bool is_loopback(const PeerAddress& address);
bool is_multicast(const PeerAddress& address);
bool is_broadcast(const PeerAddress& address);
/// Returns what the address is if no host can have it, for a sentence: "a multicast group". Empty for all others.
std::string unusable_as_host(const PeerAddress& address);

/// Whether an address needs the zone of this host's interface.
enum class Zone : std::uint8_t {
  OfKernel,  ///< the kernel connects or listens, on one of several links
  OfDevice,  ///< softroce and the loopback have one link
};
/// Returns what is wrong with the zone of an address in text form, or with its absence, as a sentence's end: "fe80::1, which
/// ...". Empty if nothing is, and for text that is no address.
std::string zone_defect(const std::string& text, Zone zone);

}  // namespace sluice::config
