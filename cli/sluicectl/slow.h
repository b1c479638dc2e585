// SPDX-License-Identifier: Apache-2.0
//
// 'sluicectl slow': calls that took long, a line for each. Blocks until it is done; any thread.
#pragma once

#include <string>

#include "cli/sluicectl/client.h"

namespace sluice::ctl {

/// Those that the reactors still have, or with `follow` also those to come, until SIGINT. Throws what Client::ask()
/// throws.
void print_slow_calls(const Client& client, bool follow, bool as_json);
/// Those that the reactors still have, in the order in which they ended.
Json all_slow_calls(const Client& client);
/// Without its end.
std::string line_of_slow_call(const Json& call);

}  // namespace sluice::ctl
