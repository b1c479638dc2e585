// SPDX-License-Identifier: Apache-2.0
//
// 'sluicectl events': prints the journal of the control plane, and what is added to it. One thread.
#pragma once

#include <cstdint>
#include <string>

#include "cli/sluicectl/client.h"

namespace sluice::ctl {

struct EventOptions {
  std::uint64_t since = 1;
  bool follow = false;
};

/// A line for each event: text, or with `as_json` one JSON object. Returns unless it follows; then only a signal, or standard output
/// that is closed, ends it. Goes on with the journal of a control plane that has been started anew.
void print_events(const Client& client, const EventOptions& options, bool as_json);
/// Those that the journal still has.
Json all_events(const Client& client);
/// Without its end, and without control characters, whatever a peer has sent.
std::string line_of_event(const Json& event);

}  // namespace sluice::ctl
