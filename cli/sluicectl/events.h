// SPDX-License-Identifier: Apache-2.0
//
// 'sluicectl events': prints the journal of the control plane and optionally follows it. Single-threaded.
#pragma once

#include <cstdint>
#include <string>

#include "cli/sluicectl/client.h"

namespace sluice::ctl {

struct EventOptions {
  std::uint64_t since = 1;
  bool follow = false;
};

/// Prints one line per event, as text or, with `as_json`, as a JSON object. When it follows the journal, it
/// continues with the journal of a restarted control plane, and only a signal or closed standard output ends
/// it.
void print_events(const Client& client, const EventOptions& options, bool as_json);
/// Returns the events that are still in the journal.
Json all_events(const Client& client);
/// Returns the line without a line end. Control characters from a peer are escaped.
std::string line_of_event(const Json& event);

}  // namespace sluice::ctl
