// SPDX-License-Identifier: Apache-2.0
//
// The child process of a test. It sends a line of JSON for each failure, each skip and each diagnostic on
// kMessageDescriptor, and a last line when the test has ended.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/card_check/facts.h"
#include "cli/card_check/process.h"
#include "cli/card_check/report.h"

namespace sluice::card_check {

/// Names of the tests that are linked into the program, in order, without the cases of GoogleTest itself.
std::vector<std::string> linked_tests();

/// Task of a child process: one test, or the facts if `test` is empty.
struct Task {
  std::string test;
  Choice choice;                            ///< its GID is that of the left queue pair
  std::optional<std::uint32_t> peer_gid{};  ///< of the right queue pair
};

/// Runs a child of this program, and waits for its end.
Ended run_child(const Task& task, std::chrono::milliseconds limit);
/// Carries out the task if this process is a child, and returns its exit status.
std::optional<int> run_as_child(int argc, char** argv);

/// Interprets the messages of the child of a test. A child that has sent no last line has failed.
Result result_of(const std::string& name, const Ended& ended);

}  // namespace sluice::card_check
