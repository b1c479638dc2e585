// SPDX-License-Identifier: Apache-2.0
#include "dataplane/process/start.h"

#include <systemd/sd-daemon.h>

#include <string>
#include <utility>

#include "dataplane/base/setup_error.h"
#include "dataplane/segment/checked.h"
#include "dataplane/segment/segment.h"

namespace sluice::process {
namespace {

constexpr std::chrono::milliseconds kRetryInterval{20};

/// Timeout for all steps of the start together.
class Patience {
 public:
  Patience(std::chrono::milliseconds limit, const StopSignal& stop) : left_(limit), stop_(stop) {}

  /// Waits for the retry interval. Throws SetupError with `problem` and the action to take if the time is
  /// used up or a stop has been requested.
  void wait(const std::string& problem) {
    if (left_.count() <= 0 || stop_.requested())
      throw SetupError(problem + " Start it with: sluice-controlplane --config FILE.");
    stop_.wait(kRetryInterval);
    left_ -= kRetryInterval;
  }

 private:
  std::chrono::milliseconds left_;
  const StopSignal& stop_;
};

Owned<segment::Segment> attach(const std::string& name, Patience& patience) {
  for (;;) {
    std::string problem;
    try {
      return segment::Segment::attach(name);
    } catch (const SetupError& error) {
      problem = error.what();
    }
    patience.wait(problem);
  }
}

Owned<segment::ConfigBlock> ask(segment::Segment& segment, Patience& patience) {
  segment::Layout& layout = segment.layout();
  const std::uint64_t asked = segment::monotonic_ns();
  layout.start_asked.store(asked, std::memory_order_release);
  for (;;) {
    if (layout.start_answered.load(std::memory_order_acquire) == asked) {
      auto config = layout.config.read_copy();
      if (config) return config;
    }
    patience.wait("No control plane has published a configuration in segment '" + segment.name() +
                  "' for this data plane.");
  }
}

}  // namespace

Start wait_for_start(const std::string& segment_name, std::chrono::milliseconds limit,
                     const StopSignal& stop) {
  Patience patience(limit, stop);
  Start start;
  start.segment = attach(segment_name, patience);
  start.ownership.reset(new segment::DataPlaneOwnership(*start.segment));
  start.config = ask(*start.segment, patience);
  if (const std::string defect = segment::defect_of(*start.config); !defect.empty())
    throw SetupError("The configuration in segment '" + segment_name + "' cannot be used (" + defect +
                     "). It was not written by a control plane of this release.");
  return start;
}

// --- Extension of the start timeout

StartExtension::StartExtension(std::chrono::milliseconds interval)
    : thread_([this, interval] { run(interval); }) {}

StartExtension::~StartExtension() {
  {
    const std::lock_guard lock(mutex_);
    started_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void StartExtension::run(std::chrono::milliseconds interval) {
  const std::string extension =
      "EXTEND_TIMEOUT_USEC=" + std::to_string(std::chrono::microseconds(kExtension).count());
  const auto end = std::chrono::steady_clock::now() + kLongestStart;
  std::unique_lock lock(mutex_);
  while (!started_ && std::chrono::steady_clock::now() < end) {
    ::sd_notify(0, extension.c_str());
    changed_.wait_for(lock, interval, [this] { return started_; });
  }
}

}  // namespace sluice::process
