// SPDX-License-Identifier: Apache-2.0
//
// Work of requests that takes several iterations of the control loop. Each iteration does as much of it as
// one Pace allows, round robin over the jobs. Single-threaded.
#pragma once

#include <cstddef>
#include <deque>
#include <utility>

#include "controlplane/admin/answer.h"
#include "controlplane/admin/pace.h"
#include "dataplane/base/function.h"

namespace sluice::admin {

/// Maximum number of jobs of all connections. A connection has at most one job, because its next request
/// waits for the answer to the previous one.
inline constexpr std::size_t kMaxPacedJobs = 16;

inline constexpr const char* kTooManyJobs = "The control plane is overloaded. Try again later.";

class PacedWork {
 public:
  /// Continues a job until it is complete or `pace` is spent. Returns true if the job is complete. Throws
  /// nothing.
  using Step = Function<bool(Pace& pace)>;

  /// Adds a job that makes `answer`, unless `answer` is no longer awaited. Returns false if there are
  /// kMaxPacedJobs jobs whose answers are awaited.
  [[nodiscard]] bool add(const Answer& answer, Step step) {
    if (!answer.awaited()) return true;
    if (jobs_.size() == kMaxPacedJobs)
      std::erase_if(jobs_, [](const Job& job) { return !job.answer.awaited(); });
    if (jobs_.size() == kMaxPacedJobs) return false;
    jobs_.push_back({answer, std::move(step)});
    return true;
  }
  /// Returns true if run() has work, so that the loop does not block.
  bool pending() const { return !jobs_.empty(); }
  /// Does the work of one iteration. Drops jobs whose clients have disconnected.
  void run() {
    pace_.begin_iteration();
    while (!jobs_.empty() && !pace_.spent()) {
      Job job = std::move(jobs_.front());
      jobs_.pop_front();
      if (job.answer.awaited() && !job.step(pace_)) jobs_.push_back(std::move(job));
    }
  }
  /// Returns the work of the last iteration.
  const Pace& pace() const { return pace_; }

 private:
  struct Job {
    Answer answer;
    Step step;
  };

  std::deque<Job> jobs_;
  Pace pace_;
};

}  // namespace sluice::admin
