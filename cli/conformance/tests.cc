// SPDX-License-Identifier: Apache-2.0
#include "cli/conformance/tests.h"

#include <algorithm>
#include <string_view>

namespace sluice::conformance {

const char* to_string(Level level) {
  switch (level) {
    case Level::Must:
      return "MUST";
    case Level::Should:
      return "SHOULD";
    case Level::Decision:
      return "decision";
  }
  return "?";
}

std::vector<const Test*> tests_of(std::uint32_t version) {
  std::vector<const Test*> result;
  const auto add = [&](std::span<const Test> tests) {
    for (const Test& test : tests) result.push_back(&test);
  };
  if (version == 1) {
    add(tests_of_messages());
    add(tests_of_errors());
    add(tests_of_credits());
    add(tests_of_read_chunks());
    add(tests_of_write_chunks());
    add(tests_of_long_messages());
  } else {
    add(tests_of_version_2());
    add(tests_of_version_2_chunks());
    add(tests_of_version_2_continuation());
    add(tests_of_version_2_credits());
    add(tests_of_version_2_properties());
  }
  std::stable_sort(result.begin(), result.end(),
                   [](const Test* a, const Test* b) { return rows_of(*a).front() < rows_of(*b).front(); });
  return result;
}

std::vector<std::string> rows_of(const Test& test) {
  constexpr std::size_t kIdLength = 6;  // V1_022
  const std::string_view name = test.name;
  std::vector<std::string> rows;
  for (std::size_t at = 0; at + kIdLength < name.size(); at += kIdLength + 1) {
    const std::string_view id = name.substr(at, kIdLength);
    if (id[0] != 'V' || id[2] != '_' || id.find_first_not_of("0123456789", 3) != std::string_view::npos)
      break;
    rows.push_back(std::string(id.substr(0, 2)) + "-" + std::string(id.substr(3)));
  }
  return rows;
}

}  // namespace sluice::conformance
