// SPDX-License-Identifier: Apache-2.0
//
// Linked into every test program of the mutated tree. Appends a line for each test to the file that
// SLUICE_MUTATION_REACHED names: 'SUITE.TEST passed|failed|skipped MICROSECONDS MUTANT...', where MUTANT are
// the places that the test reached.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "mutant.h"

namespace sluice::mutation {
namespace {

class Listener : public testing::EmptyTestEventListener {
 public:
  explicit Listener(const char* path) : path_(path) {}

 private:
  void OnTestStart(const testing::TestInfo&) override { begun_ = std::chrono::steady_clock::now(); }

  // Places reached between tests belong to the set-up of a suite and count for its first test.
  void OnTestEnd(const testing::TestInfo& test) override {
    const auto spent =
        std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begun_);
    std::FILE* file = std::fopen(path_, "a");
    if (file == nullptr) return;
    const char* outcome = test.result()->Failed()    ? "failed"
                          : test.result()->Skipped() ? "skipped"
                                                     : "passed";
    std::fprintf(file, "%s.%s %s %lld", test.test_suite_name(), test.name(), outcome,
                 static_cast<long long>(spent.count()));
    for (int id = 0; reached != nullptr && id < kMaxMutants; ++id)
      if (reached[id] != 0) std::fprintf(file, " %d", id);
    std::fputc('\n', file);
    std::fclose(file);
    if (reached != nullptr) std::memset(reached, 0, kMaxMutants);
  }

  const char* path_;
  std::chrono::steady_clock::time_point begun_;
};

[[maybe_unused]] const bool listening = [] {
  const char* path = std::getenv("SLUICE_MUTATION_REACHED");
  if (path != nullptr) testing::UnitTest::GetInstance()->listeners().Append(new Listener(path));
  return true;
}();

}  // namespace
}  // namespace sluice::mutation
