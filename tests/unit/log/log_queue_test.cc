// SPDX-License-Identifier: Apache-2.0
//
// The log's queue: a target that blocks does not block the threads that log.
#include "dataplane/log/log_queue.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <thread>

namespace sluice {
namespace {

TEST(Log, a_pipe_that_nobody_reads_keeps_nobody_and_what_is_lost_is_said) {
  std::array<int, 2> pipe;
  ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
  const auto queue = std::make_shared<LogQueue>(pipe[1]);
  for (std::size_t i = 0; i < 3 * kMaxQueuedLines; ++i) queue->add(std::string(1000, 'x'));
  EXPECT_GT(queue->dropped(), kMaxQueuedLines);
  std::atomic<std::size_t> told{0};
  std::thread reader([&] {
    std::string text;
    std::array<char, 65536> room;
    for (ssize_t bytes; (bytes = ::read(pipe[0], room.data(), room.size())) > 0;)
      text.append(room.data(), static_cast<std::size_t>(bytes));
    for (std::size_t at = 0; (at = text.find(" lines of the log are lost", at)) != std::string::npos; ++at) {
      const std::size_t begin = text.rfind('\n', at) + 1;
      told += std::stoul(text.substr(begin, at - begin));
    }
  });
  queue->drain(60'000);
  ::close(pipe[1]);
  reader.join();
  ::close(pipe[0]);
  EXPECT_EQ(told.load(), queue->dropped());
}

}  // namespace
}  // namespace sluice
