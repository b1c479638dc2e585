// SPDX-License-Identifier: Apache-2.0
//
// Text forms of addresses in the configuration. Pure functions; any thread.
#pragma once

#include <string>

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

}  // namespace sluice::config
