// SPDX-License-Identifier: Apache-2.0
//
// Commands that need several requests. They block until they are done, and throw what Client::ask() throws.
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
  bool start = false;  ///< record calls from now on
  bool last = false;   ///< calls that were recorded
  bool stop = false;
};
/// Calls of a connection with the time that each was in each state:
/// the next ones, or with `last` recorded ones.
Json trace(const Client& client, const TraceOptions& options);

/// With the wish that a change is kept over restarts. A control plane of an older release does not know it.
Json to_be_saved(Json parameters, bool save);

struct DrainOptions {
  unsigned seconds = 30;
  bool stop = false;
  bool no_wait = false;
  bool save = false;  ///< over restarts
};
/// Waits until no connection is left. Throws when some are left after `seconds`.
Json drain(const Client& client, const DrainOptions& options);

/// Waits until the data plane has applied the published configuration. Throws when it does not.
void wait_until_in_force(const Client& client);

}  // namespace sluice::ctl
