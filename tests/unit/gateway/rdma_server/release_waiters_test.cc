// SPDX-License-Identifier: Apache-2.0
#include "dataplane/gateway/rdma_server/server_user.h"

#include <gtest/gtest.h>

#include <vector>

namespace sluice::rdma_server {
namespace {

struct User {
  void resume();
  QueueLink<User> link;
  struct Room* room = nullptr;
  int attempts = 0;
  bool waits_on = false;
};

constexpr std::uint32_t kUsers = 3 * kResumedInATurn;

struct Room {
  Room() : users(kUsers) {
    for (User& user : users) {
      user.room = this;
      waiters.push_back(user);
    }
  }
  int attempts() const {
    int sum = 0;
    for (const User& user : users) sum += user.attempts;
    return sum;
  }

  std::vector<User> users;
  ReleaseWaiters<User, &User::link> waiters;
};

void User::resume() {
  ++attempts;
  if (waits_on) room->waiters.push_back(*this);
}

TEST(ReleaseWaiters, all_that_wait_try_again_a_few_in_a_turn) {
  Room room;
  EXPECT_FALSE(room.waiters.resume_some()) << "nothing was released";
  room.waiters.on_release();
  for (std::uint32_t turn = 1; turn <= 3; ++turn) {
    EXPECT_TRUE(room.waiters.resume_some());
    EXPECT_EQ(room.attempts(), static_cast<int>(turn * kResumedInATurn));
    EXPECT_EQ(room.users[turn * kResumedInATurn - 1].attempts, 1) << "in the order in which they came";
  }
  EXPECT_FALSE(room.waiters.resume_some());
  room.waiters.on_release();
  EXPECT_FALSE(room.waiters.resume_some()) << "nobody waits any more";
}

TEST(ReleaseWaiters, who_has_to_wait_on_tries_once_for_each_release) {
  Room room;
  for (User& user : room.users) user.waits_on = true;
  for (int release = 1; release <= 2; ++release) {
    room.waiters.on_release();
    while (room.waiters.resume_some()) {
    }
    for (const User& user : room.users) EXPECT_EQ(user.attempts, release);
  }
}

TEST(ReleaseWaiters, a_release_while_some_are_still_to_try_is_for_all) {
  Room room;
  for (User& user : room.users) user.waits_on = true;
  room.waiters.on_release();
  room.waiters.resume_some();
  room.waiters.on_release();
  while (room.waiters.resume_some()) {
  }
  EXPECT_EQ(room.users.front().attempts, 2);
  EXPECT_EQ(room.users.back().attempts, 1);
  room.waiters.push_back(room.users.back());
  EXPECT_EQ(room.attempts(), static_cast<int>(kUsers + kResumedInATurn)) << "it waits already";
}

}  // namespace
}  // namespace sluice::rdma_server
