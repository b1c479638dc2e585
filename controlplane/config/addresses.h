// SPDX-License-Identifier: Apache-2.0
//
// Addresses in the configuration: their text forms, their kinds, and checks for addresses that a key cannot
// have. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "dataplane/base/net_address.h"
#include "dataplane/segment/config_block.h"

namespace sluice::config {

/// Parses "10.0.0.0/8", "192.0.2.7" or "2001:db8::/32" into `prefix`. Returns false for other text.
bool parse_prefix(const std::string& text, segment::AllowedPrefix& prefix);
/// Returns the text form that parse_prefix() accepts.
std::string to_text(const segment::AllowedPrefix& prefix);
/// Returns true if the text is HOST:PORT. An IPv6 address must be in brackets.
bool is_host_and_port(const std::string& address);
/// Returns the host without brackets. Requires is_host_and_port(address).
std::string host_of(const std::string& address);

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
