// SPDX-License-Identifier: Apache-2.0
//
// The run of the program: one child process for the facts, and one for each test, one after another.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "cli/card_check/facts.h"
#include "cli/card_check/masking.h"
#include "cli/card_check/report.h"

namespace sluice::card_check {

struct Modes {
  bool statics = true;
  bool loopback = true;
  bool two_gids = false;
};

/// A test and how it is run.
struct Case {
  std::string name;    ///< in the report
  std::string filter;  ///< name in GoogleTest
  bool two_gids = false;
};

/// Returns the tests of the modes, in order. `only` is a part of their names; empty: all.
std::vector<Case> cases_of(const Modes& modes, const std::string& only);

/// The card cannot be tested. what() is a sentence with the remedy.
class NoCard : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Limits {
  std::chrono::seconds run{600};  ///< no test starts after this time
  std::chrono::seconds test{45};  ///< of each test. The tests of the driver wait for a completion for 30 s
};

class Runner {
 public:
  /// Collects the facts. Throws NoCard. If the process that collects them crashes, the only result is that.
  Runner(const Choice& choice, std::vector<Case> cases, const Limits& limits = {});

  const Json& facts() const noexcept { return report_.facts; }
  /// Number of results that run() will have.
  std::size_t tests() const noexcept { return cases_.size() + (broken_ ? 1 : 0); }
  /// Runs all tests, and calls `each` with the number and the result of each. Tests that would start after
  /// the limit fail instead. Returns false if a process cannot be ended, after which no other test is run.
  bool run(const std::function<void(std::size_t, const Result&)>& each);
  const Report& report() const noexcept { return report_; }

 private:
  Result run_case(const Case& one, bool& stuck) const;

  std::vector<Case> cases_;
  const Limits limits_;
  Masking masking_;
  Selection selection_;
  std::optional<Result> broken_;
  Report report_;
};

}  // namespace sluice::card_check
