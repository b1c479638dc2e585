// SPDX-License-Identifier: Apache-2.0
#include "dataplane/segment/heartbeat.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/unit/notify_socket.h"

namespace sluice::notify {
namespace {

using Notified = NotifySocket;

TEST_F(Notified, the_start_and_the_end_are_told) {
  ready();
  EXPECT_EQ(message(), "READY=1");
  stopping();
  EXPECT_EQ(message(), "STOPPING=1");
}

TEST_F(Notified, life_is_told_now_and_then_and_not_each_time) {
  alive();
  EXPECT_EQ(message(), "WATCHDOG=1");
  // A call takes far less than the interval of half a second in most cases, even on a slow machine.
  int again = 0;
  for (int call = 0; call < 100; ++call) {
    alive();
    again += message() == "WATCHDOG=1" ? 1 : 0;
  }
  EXPECT_LT(again, 50);
  ::usleep(510'000);
  alive();
  EXPECT_EQ(message(), "WATCHDOG=1");
}

}  // namespace
}  // namespace sluice::notify
