// SPDX-License-Identifier: Apache-2.0
//
// 'sluicectl why': combines the information of several methods about one connection. Functions block until it
// is complete. Any thread.
#pragma once

#include <cstdint>

#include "cli/sluicectl/client.h"

namespace sluice::ctl {

struct ConnectionNumber {
  std::uint32_t reactor = 0;
  std::uint32_t connection = 0;
};

/// Returns "reactor", "connection", "peer", "findings" (sentences), "shown" as in connection_show, "ended" as
/// in the journal's event, "events", "slow_calls" and "trace". One of "shown" and "ended" is null; "ended"
/// refers to the last connection of this number. Throws what Client::ask() throws, and if nothing is known.
Json why(const Client& client, const ConnectionNumber& number);
/// Prints the result of why() as text.
void print_why(const Json& known);

}  // namespace sluice::ctl
