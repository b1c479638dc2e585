// SPDX-License-Identifier: Apache-2.0
//
// 'sluicectl why': what is known of one connection, put together from several methods. Blocks until it is done; any thread.
#pragma once

#include <cstdint>

#include "cli/sluicectl/client.h"

namespace sluice::ctl {

struct ConnectionNumber {
  std::uint32_t reactor = 0;
  std::uint32_t connection = 0;
};

/// "reactor", "connection", "peer", "findings" (sentences), "shown" as of connection_show, "ended" as of the journal's event,
/// "events", "slow_calls" and "trace". One of "shown" and "ended" is null; what has ended is the last one of this number.
/// Throws what Client::ask() throws, and when nothing is known.
Json why(const Client& client, const ConnectionNumber& number);
/// For people.
void print_why(const Json& known);

}  // namespace sluice::ctl
