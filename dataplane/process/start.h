// SPDX-License-Identifier: Apache-2.0
//
// What a data plane starts with: the segment, which it then owns, and the configuration that a living control plane has
// published for it. What a dead one has left is not taken: the next one may have read another file, and most keys come into
// force only here. The main thread.
#pragma once

#include <chrono>
#include <string>

#include "dataplane/base/owned.h"
#include "dataplane/base/stop_signal.h"
#include "dataplane/segment/ownership.h"
#include "dataplane/segment/segment.h"

namespace sluice::process {

struct Start {
  Start() = default;
  Start(Start&&) = default;
  Start& operator=(Start&&) = delete;  // would give the segment up before who owns it

  Owned<segment::Segment> segment;
  Owned<segment::DataPlaneOwnership> ownership;
  Owned<segment::ConfigBlock> config;
};

/// Waits for the control plane's part of the segment, takes the data plane's own, asks for a configuration (DataPart::start_asked) and waits for
/// it. Throws SetupError: no control plane answers in time, `stop` has been requested, another data plane has the segment.
Start wait_for_start(const std::string& segment_name, std::chrono::milliseconds limit,
                     const StopSignal& stop);

}  // namespace sluice::process
