// SPDX-License-Identifier: Apache-2.0
//
// Commands that need several requests. They block until they have finished, and throw what Client::ask()
// throws.
#pragma once

#include <cstdint>
#include <string>

#include "cli/sluicectl/client.h"

namespace sluice::ctl {

struct TraceOptions {
  std::uint32_t reactor = 0;
  std::uint32_t connection = 0;
  std::size_t calls = 20;
  unsigned seconds = 10;
  bool start = false;  ///< records calls from now on
  bool last = false;   ///< shows recorded calls
  bool stop = false;
};
/// Returns calls of a connection with the time that each call spent in each state. Returns the next calls, or
/// with `last` the recorded ones.
Json trace(const Client& client, const TraceOptions& options);

struct DrainOptions {
  unsigned seconds = 30;
  bool stop = false;
  bool no_wait = false;
};
/// Drains the gateway and waits until no connection is left. Throws if connections are left after `seconds`.
Json drain(const Client& client, const DrainOptions& options);

/// Waits until the data plane has applied the published configuration. Throws if it does not.
void wait_until_in_force(const Client& client);

}  // namespace sluice::ctl
