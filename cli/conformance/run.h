// SPDX-License-Identifier: Apache-2.0
//
// Runs tests and reports them. Setup and the thread of the link.
#pragma once

#include <iosfwd>

#include "cli/conformance/tests.h"

namespace sluice::conformance {

enum class Outcome : std::uint8_t {
  Passed,
  Failed,
  Unmet,  ///< of a test that is no MUST, or by the end of a connection behind an error; unless all are strict
  Skipped,
};

struct Result {
  const Test* test = nullptr;
  Outcome outcome = Outcome::Passed;
  std::string detail;                ///< a sentence, unless passed
  std::vector<std::string> history;  ///< what was sent and seen
};

inline constexpr std::uint32_t kXidsOfATest = 1u << 16;

/// The file is as it was afterwards. A LinkError ends the run and is not caught: nothing can be said of a server that cannot be reached.
Result run_test(const Test& test, Link& link, const Target& target, const Limits& limits, bool strict,
                std::uint32_t first_xid);

/// A line of TAP, for the number counted from 1; with what was sent and seen unless it passed.
void print_tap(std::ostream& out, std::size_t number, const Result& result);
/// All of a run as one JSON object.
void print_json(std::ostream& out, std::span<const Result> results);
/// Rows and tests of a version, with what each asks.
void print_list(std::ostream& out, std::span<const Test* const> tests);
/// How many rows they show.
std::size_t count_rows(std::span<const Test* const> tests);

}  // namespace sluice::conformance
