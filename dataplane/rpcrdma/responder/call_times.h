// SPDX-License-Identifier: Apache-2.0
//
// Counts calls by procedure and status, and measures how long they took with two looks at the clock per turn,
// not per call: replies go to the driver at the end of a turn together.
#pragma once

#include <array>
#include <cstdint>

#include "dataplane/base/clock.h"
#include "dataplane/segment/call_table.h"

namespace sluice::rpcrdma {

class CallTimes {
 public:
  static constexpr std::size_t kPerTurn = 256;

  /// Setup. Without it nothing is counted, and the clock stands still.
  void measure(segment::CallTable& table, Clock clock) noexcept {
    table_ = &table;
    clock_ = clock;
  }
  std::uint64_t now_ns() const noexcept { return clock_ != nullptr ? clock_() : 0; }

  /// Before the work completions of a turn are handled.
  void begin_turn() noexcept {
    if (clock_ != nullptr) turn_ns_ = clock_();
  }
  std::uint64_t turn_ns() const noexcept { return turn_ns_; }

  /// A call that was taken at `begun_ns` has its reply in the stage.
  void replied(std::uint32_t client_class, std::uint16_t procedure, segment::CallStatus status,
               std::uint64_t begun_ns) noexcept {
    if (table_ == nullptr) return;
    segment::ProcedureUse& use = table_->use[client_class][procedure];
    use.count(status);
    if (count_ == kPerTurn) end_turn();
    replied_[count_++] = {&use, begun_ns};
  }
  /// What was staged is with the driver.
  void end_turn() noexcept {
    if (count_ == 0) return;
    const std::uint64_t end_ns = clock_();
    for (std::size_t i = 0; i < count_; ++i) {
      const std::uint64_t begun_ns = replied_[i].begun_ns;
      replied_[i].use->latency.record(end_ns > begun_ns ? end_ns - begun_ns : 0);
    }
    count_ = 0;
  }

 private:
  struct Replied {
    segment::ProcedureUse* use;
    std::uint64_t begun_ns;
  };
  segment::CallTable* table_ = nullptr;
  Clock clock_ = nullptr;
  std::uint64_t turn_ns_ = 0;
  std::array<Replied, kPerTurn> replied_;
  std::size_t count_ = 0;
};

}  // namespace sluice::rpcrdma
