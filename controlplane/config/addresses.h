// SPDX-License-Identifier: Apache-2.0
//
// Kinds of IP addresses, and checks for addresses that a key of the configuration cannot have. Pure
// functions; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "dataplane/base/net_address.h"

namespace sluice::config {

bool is_unspecified(const PeerAddress& address);
bool is_loopback(const PeerAddress& address);
bool is_multicast(const PeerAddress& address);
bool is_broadcast(const PeerAddress& address);
/// Returns a description of an address that no host can have, as a part of a sentence: "a multicast group".
/// Returns an empty string for all other addresses.
std::string unusable_as_host(const PeerAddress& address);

/// Interface whose zone an address needs.
enum class Zone : std::uint8_t {
  OfKernel,  ///< the kernel connects or listens on one of several links
  OfDevice,  ///< softroce and the loopback have a single link
};
/// Returns the defect of the zone of an address in text form, or of its absence, as the end of a sentence:
/// "fe80::1, which ...". Returns an empty string if there is no defect, and for text that is no address.
std::string zone_defect(const std::string& text, Zone zone);

}  // namespace sluice::config
