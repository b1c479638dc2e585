// SPDX-License-Identifier: Apache-2.0
//
// The tests, each named after the requirement rows that it covers (tests/conformance/requirements). Their
// tables are constant; any thread.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/conformance/nfs.h"

namespace sluice::conformance {

enum class Level : std::uint8_t {
  Must,
  Should,    ///< also a MUST of one document that is a MAY of another
  Decision,  ///< left open by the documents and decided for Sluice
};
const char* to_string(Level level);

enum class Needs : std::uint8_t { Nothing, Root, File };

struct Test {
  const char* name;  ///< ids of rows, then the behaviour of the server, with underscores
  Level level;
  Needs needs;
  const char* asks;  ///< requirement of the documents, with its source
  void (*run)(Trial& trial);
  bool destructive = false;  ///< a server may be unusable afterwards; runs last, and only on request
};

/// Returns the tests for the version of RPC-over-RDMA, in the order of the rows; destructive ones are last.
std::vector<const Test*> tests_of(std::uint32_t version);
/// Returns the rows of a test: "V1-022" and so on.
std::vector<std::string> rows_of(const Test& test);

// Tables of tests.
std::span<const Test> tests_of_messages();
std::span<const Test> tests_of_errors();
std::span<const Test> tests_of_credits();
std::span<const Test> tests_of_read_chunks();
std::span<const Test> tests_of_write_chunks();
std::span<const Test> tests_of_long_calls();
std::span<const Test> tests_of_reply_chunks();
std::span<const Test> tests_of_version_2();
std::span<const Test> tests_of_version_2_chunks();
std::span<const Test> tests_of_version_2_continuation();
std::span<const Test> tests_of_version_2_credits();
std::span<const Test> tests_of_version_2_properties();

}  // namespace sluice::conformance
