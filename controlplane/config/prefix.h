// SPDX-License-Identifier: Apache-2.0
//
// Text forms of addresses in the configuration. Pure; any thread.
#pragma once

#include <string>

#include "dataplane/segment/config_block.h"

namespace sluice::config {

/// Parses "10.0.0.0/8", "192.0.2.7" or "2001:db8::/32" into `prefix`. Returns false for other text.
bool parse_prefix(const std::string& text, segment::AllowedPrefix& prefix);
/// Returns the text that parse_prefix() takes.
std::string to_text(const segment::AllowedPrefix& prefix);
/// Returns whether the text is HOST:PORT, with a host of IPv6 in brackets.
bool is_host_and_port(const std::string& address);
/// Returns the host of a text for which is_host_and_port() returns true, without brackets.
std::string host_of(const std::string& address);

}  // namespace sluice::config
