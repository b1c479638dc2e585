// SPDX-License-Identifier: Apache-2.0
//
// Permission to request a capture from a data plane when the planes run as different users.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "dataplane/segment/channels.h"

namespace sluice::segment {
namespace {

constexpr uid_t kControlUser = 23451;
constexpr uid_t kStranger = 23453;

/// Sends a request as `user` and returns whether the kernel accepted it.
bool send_as(uid_t user, const std::string& path) {
  const pid_t child = ::fork();
  if (child == 0) {
    bool sent = ::setresgid(user, user, user) == 0 && ::setresuid(user, user, user) == 0;
    try {
      if (sent) send_capture_request(path, {.id = user}, STDIN_FILENO);
    } catch (const SetupError&) {
      sent = false;
    }
    ::_exit(sent ? 0 : 1);
  }
  int status = 1;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(CaptureChannel, takes_requests_and_descriptors_of_the_control_planes_user_and_of_no_stranger) {
  if (::geteuid() != 0) GTEST_SKIP() << "Only root can become other users.";
  const std::string path = "/dev/shm/sluice-channel-test-" + std::to_string(::getpid());
  CaptureInbox inbox(path, kControlUser);
  EXPECT_TRUE(send_as(kStranger, path));
  EXPECT_FALSE(inbox.receive());
  EXPECT_TRUE(send_as(kControlUser, path));
  const auto received = inbox.receive();
  ASSERT_TRUE(received);
  EXPECT_EQ(received->request.id, kControlUser);
  EXPECT_TRUE(received->descriptor);
}

}  // namespace
}  // namespace sluice::segment
