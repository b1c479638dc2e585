// SPDX-License-Identifier: Apache-2.0
#include "dataplane/base/signals.h"

#include <gtest/gtest.h>

#include <csignal>
#include <thread>

namespace sluice {
namespace {

constexpr std::chrono::hours kForEver{24 * 20};  // a wait this long hangs the test

TEST(StopSignal, nobody_waits_once_it_was_requested) {
  StopSignal stop;
  EXPECT_FALSE(stop.requested());
  stop.wait(std::chrono::milliseconds(0));
  EXPECT_FALSE(stop.requested());
  stop.request();
  EXPECT_TRUE(stop.requested());
  for (int i = 0; i < 3; ++i) stop.wait(kForEver);
}

TEST(StopSignal, all_that_wait_are_woken) {
  StopSignal stop;
  std::thread first([&] { stop.wait(kForEver); });
  std::thread second([&] { stop.wait(kForEver); });
  stop.request();
  first.join();
  second.join();
}

TEST(StopSignal, a_hang_up_is_taken_once_and_requests_no_end) {
  StopSignal stop;
  EXPECT_FALSE(stop.take_hang_up());
  stop.hang_up();
  EXPECT_FALSE(stop.requested());
  EXPECT_TRUE(stop.take_hang_up());
  EXPECT_FALSE(stop.take_hang_up());
}

TEST(StopSignal, a_signal_handler_may_request_it) {
  static StopSignal* stop_of_handler = nullptr;
  StopSignal stop;
  stop_of_handler = &stop;
  const auto before = std::signal(SIGUSR1, [](int) { stop_of_handler->request(); });
  errno = EDOM;
  std::raise(SIGUSR1);
  EXPECT_EQ(errno, EDOM);
  stop.wait(kForEver);
  std::signal(SIGUSR1, before);
}

}  // namespace
}  // namespace sluice
