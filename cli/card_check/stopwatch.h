// SPDX-License-Identifier: Apache-2.0
//
// Times of steps in microseconds, as diagnostics of the running test.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace sluice::card_check {

class Stopwatch {
 public:
  explicit Stopwatch(const char* step) : step_(step) {}
  ~Stopwatch() { record(); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  /// Ends the step, and begins another one.
  void next(const char* step) {
    record();
    step_ = step;
    start_ = Clock::now();
  }

 private:
  using Clock = std::chrono::steady_clock;
  void record() const {
    const auto took = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start_).count();
    testing::Test::RecordProperty(std::string("microseconds_") + step_, std::to_string(took));
  }

  const char* step_;
  Clock::time_point start_ = Clock::now();
};

}  // namespace sluice::card_check
