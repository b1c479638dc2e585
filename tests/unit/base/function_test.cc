// SPDX-License-Identifier: Apache-2.0
#include "dataplane/base/function.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

namespace sluice {
namespace {

int doubled(int number) {
  return 2 * number;
}

TEST(Function, CallsWhatItOwns) {
  EXPECT_EQ(Function<int(int)>(doubled)(3), 6);
  EXPECT_EQ(Function<int(int)>([](int number) { return number + 1; })(3), 4);
  const Function<std::string(const char*)> converted = [](std::string text) { return text + "!"; };
  EXPECT_EQ(converted("text"), "text!");
}

TEST(Function, IsEmptyWithoutSomethingToCall) {
  EXPECT_FALSE(Function<void()>());
  EXPECT_FALSE(Function<void()>(nullptr));
  EXPECT_FALSE(Function<void()>(std::function<void()>()));
  EXPECT_FALSE(Function<void()>(Function<int()>()));
  int (*const none)(int) = nullptr;
  EXPECT_EQ(Function<int(int)>(none), nullptr);
  EXPECT_TRUE(Function<int(int)>(doubled));
}

TEST(Function, ReturnsNothingOfWhatItCallsWhereNothingIsWanted) {
  int calls = 0;
  const Function<void()> function = [&calls] { return ++calls; };
  function();
  EXPECT_EQ(calls, 1);
}

TEST(Function, CopiesHaveTheirOwnState) {
  Function<int()> function = [count = 0]() mutable { return ++count; };
  const Function<int()> copy = function;
  EXPECT_EQ(function(), 1);
  EXPECT_EQ(function(), 2);
  EXPECT_EQ(copy(), 1);
}

TEST(Function, LetsGoOfWhatItOwnsOnce) {
  const auto held = std::make_shared<int>(7);
  Function<int()> function = [held] { return *held; };
  Function<int()> copy = function;
  EXPECT_EQ(held.use_count(), 3);
  const Function<int()> moved = std::move(function);
  EXPECT_EQ(held.use_count(), 3);
  EXPECT_EQ(function, nullptr);
  copy = moved;
  EXPECT_EQ(held.use_count(), 3);
  copy = nullptr;
  EXPECT_EQ(held.use_count(), 2);
  EXPECT_EQ(moved(), 7);
}

TEST(Function, PassesReferencesAndWhatCannotBeCopied) {
  const Function<void(int&, std::unique_ptr<int>)> function = [](int& sum, std::unique_ptr<int> number) {
    sum += *number;
  };
  int sum = 1;
  function(sum, std::make_unique<int>(2));
  EXPECT_EQ(sum, 3);
}

}  // namespace
}  // namespace sluice
