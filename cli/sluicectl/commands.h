// SPDX-License-Identifier: Apache-2.0
//
// Commands that take more than one question, or time.
#pragma once

#include <cstdint>
#include <string>

#include "cli/sluicectl/client.h"

namespace sluice::ctl {

struct CaptureOptions {
  std::string file;
  unsigned seconds = 10;
  std::uint64_t packets = 0;
  std::uint32_t snap = 9216;
};
/// Starts a capture, waits for its end, and returns what came of it.
json capture(const Client& client, const CaptureOptions& options);

struct TraceOptions {
  std::uint32_t reactor = 0;
  std::uint32_t connection = 0;
  std::size_t calls = 20;
  unsigned seconds = 10;
  bool start = false;  ///< note calls from now on
  bool last = false;   ///< the last ones that were noted
  bool stop = false;
};
/// The next calls of a connection, with the time that each spent in each state; or the last ones since it is
/// being noted.
json trace(const Client& client, const TraceOptions& options);

struct DrainOptions {
  unsigned seconds = 30;
  bool stop = false;
  bool no_wait = false;
};
/// Waits until no connection is left. Throws when that takes longer.
json drain(const Client& client, const DrainOptions& options);

/// Waits until the data plane works with what was changed.
void wait_until_in_force(const Client& client);

/// A live view until interrupted, or for so many turns; `interval` in seconds.
void top(const Client& client, double interval, unsigned turns);

}  // namespace sluice::ctl
