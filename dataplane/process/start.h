// SPDX-License-Identifier: Apache-2.0
//
// Start of a data plane: the segment, which it then owns, and a configuration that a running control plane
// has published for this start. A configuration that a former control plane left behind is not used, because
// the next control plane may have read another file, and most keys take effect only at the start. Used by the
// main thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "dataplane/base/owned.h"
#include "dataplane/base/signals.h"
#include "dataplane/segment/ownership.h"
#include "dataplane/segment/segment.h"

namespace sluice::process {

struct Start {
  Start() = default;
  Start(Start&&) = default;
  Start& operator=(Start&&) = delete;  // would release the segment before its ownership

  Owned<segment::Segment> segment;
  Owned<segment::DataPlaneOwnership> ownership;
  Owned<segment::ConfigBlock> config;
};

/// Waits for the control plane's part of the segment, takes the data plane's part, requests a configuration
/// (DataPart::start_asked) and waits for it. Throws SetupError if no control plane answers in time, `stop`
/// has been requested, or another data plane owns the segment.
Start wait_for_start(const std::string& segment_name, std::chrono::milliseconds limit,
                     const StopSignal& stop);

/// Interval between two extensions, and the time that each of them allows.
inline constexpr std::chrono::seconds kExtensionInterval{10};
inline constexpr std::chrono::seconds kExtension{60};
/// Maximum duration of a start. A longer start counts as hung and is no longer extended.
inline constexpr std::chrono::hours kLongestStart{1};

/// Extends systemd's start timeout periodically during its lifetime, in a separate thread, because
/// registering a few hundred GiB with a device takes minutes in system calls that return late. No effect
/// outside a systemd unit. The main thread creates and destroys it before the reactors run.
class StartExtension {
 public:
  explicit StartExtension(std::chrono::milliseconds interval = kExtensionInterval);
  ~StartExtension();
  StartExtension(const StartExtension&) = delete;
  StartExtension& operator=(const StartExtension&) = delete;

 private:
  void run(std::chrono::milliseconds interval);

  std::mutex mutex_;
  std::condition_variable changed_;
  bool started_ = false;  ///< start is complete; guarded by mutex_
  std::thread thread_;
};

}  // namespace sluice::process
