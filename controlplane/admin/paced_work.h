// SPDX-License-Identifier: Apache-2.0
//
// Work of requests that takes several iterations of the control loop. Each iteration does as much of it as one Pace allows, in
// round robin. One thread.
#pragma once

#include <cstddef>
#include <deque>
#include <utility>

#include "controlplane/admin/pace.h"
#include "dataplane/base/function.h"

namespace sluice::admin {

/// Jobs at a time. Beyond them a request fails, so that clients that leave before their answer do not pile up jobs.
inline constexpr std::size_t kMaxPacedJobs = 16;

inline constexpr const char* kTooManyJobs =
    "The control plane has too much to do at the moment: try again later.";

class PacedWork {
 public:
  /// Continues a job until it is complete or `pace` is spent. Returns true if the job is complete. Throws nothing.
  using Step = Function<bool(Pace& pace)>;

  /// Returns false if there are kMaxPacedJobs already.
  [[nodiscard]] bool add(Step step) {
    if (jobs_.size() == kMaxPacedJobs) return false;
    jobs_.push_back(std::move(step));
    return true;
  }
  /// Returns true if run() has something to do, so that the loop does not wait.
  bool pending() const { return !jobs_.empty(); }
  /// Does the work of one iteration.
  void run() {
    pace_.begin_iteration();
    while (!jobs_.empty() && !pace_.spent()) {
      Step step = std::move(jobs_.front());
      jobs_.pop_front();
      if (!step(pace_)) jobs_.push_back(std::move(step));
    }
  }
  /// Work of the last iteration.
  const Pace& pace() const { return pace_; }

 private:
  std::deque<Step> jobs_;
  Pace pace_;
};

}  // namespace sluice::admin
