// SPDX-License-Identifier: Apache-2.0
//
// Runs tests and reports their results. Used at setup and on the thread of the link.
#pragma once

#include <iosfwd>

#include "cli/conformance/tests.h"

namespace sluice::conformance {

enum class Outcome : std::uint8_t {
  Passed,
  Failed,
  Unmet,  ///< not a MUST, or the connection ended after an error; a failure if strict
  Skipped,
};

struct Result {
  const Test* test = nullptr;
  Outcome outcome = Outcome::Passed;
  std::string detail;                ///< a sentence; empty if passed
  std::vector<std::string> history;  ///< messages that were sent and received
};

inline constexpr std::uint32_t kXidsOfATest = 1u << 16;

/// Runs a test and restores the file afterwards. A LinkError is not caught and ends the run, because a server
/// that cannot be reached cannot be judged.
Result run_test(const Test& test, Link& link, const Target& target, const Limits& limits, bool strict,
                std::uint32_t first_xid);

/// Prints the result as a line of TAP with this test number, which counts from 1. Adds the message history
/// unless the test has passed.
void print_tap(std::ostream& out, std::size_t number, const Result& result);
/// Prints all results of a run as one JSON object.
void print_json(std::ostream& out, std::span<const Result> results);
/// Prints the rows and tests of a version with their requirements.
void print_list(std::ostream& out, std::span<const Test* const> tests);
/// Returns the number of rows that the tests cover.
std::size_t count_rows(std::span<const Test* const> tests);

}  // namespace sluice::conformance
