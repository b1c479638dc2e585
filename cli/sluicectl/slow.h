// SPDX-License-Identifier: Apache-2.0
//
// 'sluicectl slow': prints one line per slow call. Functions block until the calls are read. Any thread.
#pragma once

#include <string>

#include "cli/sluicectl/client.h"

namespace sluice::ctl {

/// Prints the calls that the reactors still have recorded. With `follow`, also prints new ones until SIGINT.
/// Throws what Client::ask() throws.
void print_slow_calls(const Client& client, bool follow, bool as_json);
/// Returns the calls that the reactors still have recorded, in the order in which they ended.
Json all_slow_calls(const Client& client);
/// Returns the line without a line end.
std::string line_of_slow_call(const Json& call);

}  // namespace sluice::ctl
