// SPDX-License-Identifier: Apache-2.0
//
// Kinds of IP addresses, and which of them a key of the configuration cannot have. Pure; any thread.
#pragma once

#include <string>

#include "dataplane/base/net_address.h"

namespace sluice::config {

bool is_unspecified(const PeerAddress& address);
bool is_loopback(const PeerAddress& address);
bool is_multicast(const PeerAddress& address);
bool is_broadcast(const PeerAddress& address);
/// fe80::/10: valid on one link only, which a zone names.
bool is_link_local(const PeerAddress& address);
/// Returns what the address is if no host can have it, for a sentence: "a multicast group". Empty for all others.
std::string unusable_as_host(const PeerAddress& address);

}  // namespace sluice::config
