// SPDX-License-Identifier: Apache-2.0
//
// Counts calls by procedure and status and measures their latency. The clock is read twice per loop iteration
// instead of twice per call, because all replies of an iteration go to the driver together. The reactor's
// time is attributed to procedures by sampling: in one of kTurnsPerSample iterations the clock is read after
// each completion, and the result is extrapolated.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>

#include "dataplane/base/clock.h"
#include "dataplane/base/invariant.h"
#include "dataplane/segment/calls.h"

namespace sluice::rpcrdma {

class CallTimes {
 public:
  static constexpr std::size_t kRunsPerTurn = 256;
  /// Sampling interval in loop iterations. A prime, so that periodic load is sampled evenly.
  static constexpr std::uint32_t kTurnsPerSample = 61;

  /// Enables counting at setup. Without it nothing is counted, and now_ns() returns zero.
  void measure(segment::CallTable& table, Clock clock) noexcept {
    table_ = &table;
    clock_ = clock;
  }
  std::uint64_t now_ns() const noexcept { return clock_ != nullptr ? clock_() : 0; }

  /// Called before the work completions of an iteration are handled.
  void begin_turn(std::uint64_t now_ns) noexcept {
    turn_ns_ = now_ns;
    if (--turns_to_sample_ > 0 || table_ == nullptr) return;
    turns_to_sample_ = kTurnsPerSample;
    sampled_ = true;
    sampled_ns_ = now_ns;
  }
  std::uint64_t turn_ns() const noexcept { return turn_ns_; }

  // --- The reactor's time
  /// Returns true if this iteration is a sample.
  bool sampled() const noexcept { return sampled_; }
  /// Called when a call has made progress. The time until end_sample() is attributed to it.
  void touch(std::uint32_t client_class, std::uint16_t procedure) noexcept {
    if (sampled_) [[unlikely]]
      touched_ = &table_->use[client_class][procedure];
  }
  /// Called in a sample after each work completion.
  void end_sample() noexcept {
    static_cast<void>(SLUICE_INVARIANT(sampled_ && table_ != nullptr, timer_state));
    const std::uint64_t now_ns = clock_();
    segment::ProcedureUse& use = touched_ != nullptr ? *touched_ : table_->use[0][segment::kOtherProcedure];
    use.add_time((now_ns - sampled_ns_) * kTurnsPerSample);
    sampled_ns_ = now_ns;
    if (touched_ != nullptr) last_touched_ = std::exchange(touched_, nullptr);
  }

  // --- Calls
  /// Records a reply that has been staged, to a call received at `begun_ns`.
  void replied(std::uint32_t client_class, std::uint16_t procedure, segment::CallStatus status,
               std::uint64_t begun_ns) noexcept {
    if (table_ == nullptr) return;
    const Kind kind(client_class, procedure, status);
    Run* run = &runs_[last_run_];
    SLUICE_INVARIANT_DEBUG(last_run_ < kRunsPerTurn && client_class < table_->use.size(), table_index);
    if (run->kind != kind || run->begun_ns != begun_ns) [[unlikely]]
      run = &begin_run(kind, begun_ns);
    ++run->calls;
  }
  /// Called when the staged requests have been handed to the driver.
  void end_turn(std::uint64_t now_ns) noexcept {
    if (sampled_) [[unlikely]]
      share_rest(now_ns);
    record(now_ns);
  }

 private:
  /// Attributes shared by the calls of a run, in one word.
  class Kind {
   public:
    Kind() = default;
    Kind(std::uint32_t client_class, std::uint16_t procedure, segment::CallStatus status) noexcept
        : word_(client_class << 24 | std::uint32_t{procedure} << 8 | static_cast<std::uint32_t>(status)) {}
    bool operator==(const Kind&) const = default;
    segment::ProcedureUse& use(segment::CallTable& table) const noexcept {
      return table.use[word_ >> 24][word_ >> 8 & 0xffff];
    }
    segment::CallStatus status() const noexcept { return static_cast<segment::CallStatus>(word_ & 0xff); }

   private:
    std::uint32_t word_ = 0;
  };
  /// Consecutive replies to calls of one kind that were received in one iteration. Most iterations have few
  /// runs.
  struct Run {
    std::uint64_t begun_ns = 0;
    Kind kind;
    std::uint32_t calls = 0;
  };

  [[gnu::noinline]] Run& begin_run(Kind kind, std::uint64_t begun_ns) noexcept {
    if (runs_[last_run_].calls > 0 && ++last_run_ == kRunsPerTurn) {
      --last_run_;
      record(clock_());
    }
    runs_[last_run_] = {begun_ns, kind, 0};
    return runs_[last_run_];
  }
  void record(std::uint64_t end_ns) noexcept {
    if (runs_[0].calls == 0) return;
    for (const Run& run : runs()) {
      segment::ProcedureUse& use = run.kind.use(*table_);
      use.count(run.kind.status(), run.calls);
      use.latency.record(end_ns > run.begun_ns ? end_ns - run.begun_ns : 0, run.calls);
    }
    last_run_ = 0;
    runs_[0].calls = 0;
  }
  /// Returns the runs; the last one may be empty.
  std::span<const Run> runs() const noexcept { return std::span(runs_).first(last_run_ + 1); }
  /// Attributes the remaining time of the iteration in equal parts to its replies. Without replies it is
  /// attributed to the call that was touched last.
  void share_rest(std::uint64_t now_ns) noexcept {
    const std::uint64_t rest_ns = (now_ns - sampled_ns_) * kTurnsPerSample;
    sampled_ = false;
    touched_ = nullptr;
    segment::ProcedureUse* const last = std::exchange(last_touched_, nullptr);
    std::uint64_t calls = 0;
    for (const Run& run : runs()) calls += run.calls;
    if (calls == 0)
      return (last != nullptr ? *last : table_->use[0][segment::kOtherProcedure]).add_time(rest_ns);
    for (const Run& run : runs()) run.kind.use(*table_).add_time(rest_ns / calls * run.calls);
  }

  // Members that every call uses share a cache line with the first runs.
  segment::CallTable* table_ = nullptr;
  std::uint64_t turn_ns_ = 0;
  std::uint32_t last_run_ = 0;
  bool sampled_ = false;
  std::array<Run, kRunsPerTurn> runs_{};

  Clock clock_ = nullptr;
  std::uint64_t sampled_ns_ = 0;  ///< end of the time of the sample that has been attributed
  std::uint32_t turns_to_sample_ = kTurnsPerSample;
  segment::ProcedureUse* touched_ = nullptr;       ///< touched by the current completion of a sample
  segment::ProcedureUse* last_touched_ = nullptr;  ///< touched by an earlier completion of the sample
};

}  // namespace sluice::rpcrdma
