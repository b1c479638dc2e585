// SPDX-License-Identifier: Apache-2.0
//
// Limit of the work that requests may cause in one iteration of the control loop, and work that takes
// several iterations. Each iteration does as much of it as one Pace allows, round robin over the jobs.
// Reads no clock. Single-threaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <utility>

#include "controlplane/admin/json_rpc.h"
#include "dataplane/base/function.h"

namespace sluice::admin {

/// Connections examined in one iteration. Examining a connection that a filter excludes takes less than 1 us.
inline constexpr std::uint32_t kLookedPerIteration = 4096;
/// Connections described in JSON in one iteration. A description takes about 20 us.
inline constexpr std::uint32_t kDescribedPerIteration = 128;

/// Maximum rows of one page of a listing.
inline constexpr std::uint32_t kMaxPageRows = kDescribedPerIteration;

/// Maximum rows of an answer that lists all connections. Longer listings are read in pages.
inline constexpr std::size_t kMaxListedAtOnce = 16'384;

/// Work of one iteration, counted in connections. Methods whose work grows with the number of connections
/// charge it.
class Pace {
 public:
  void begin_iteration() { looked_ = described_ = 0; }
  /// Returns true if the remaining work has to wait for the next iteration.
  bool spent() const { return looked_ >= kLookedPerIteration || described_ >= kDescribedPerIteration; }
  void count_row() { ++looked_; }
  void describe() { ++described_; }

  std::uint32_t looked() const { return looked_; }
  std::uint32_t described() const { return described_; }

 private:
  std::uint32_t looked_ = 0;
  std::uint32_t described_ = 0;
};

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

  std::list<Job> jobs_;
  Pace pace_;
};

}  // namespace sluice::admin
