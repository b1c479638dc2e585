// SPDX-License-Identifier: Apache-2.0
#include "dataplane/process/start.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <string>

#include "tests/unit/notify_socket.h"

namespace sluice::process {
namespace {

using ExtendedStart = NotifySocket;

TEST_F(ExtendedStart, the_timeout_is_extended_again_and_again_until_the_start_is_over) {
  {
    const StartExtension extension(std::chrono::milliseconds(1));
    for (int i = 0; i < 3; ++i) EXPECT_EQ(next_message(), "EXTEND_TIMEOUT_USEC=60000000");
  }
  while (has_message()) next_message();
  ::usleep(20'000);
  EXPECT_FALSE(has_message());
}

TEST_F(ExtendedStart, the_end_of_a_start_does_not_wait_for_the_next_extension) {
  // A destructor that waits for the next extension would exceed the timeout of the test program.
  const StartExtension extension(std::chrono::hours(24));
  EXPECT_EQ(next_message(), "EXTEND_TIMEOUT_USEC=60000000");
}

}  // namespace
}  // namespace sluice::process
