// SPDX-License-Identifier: Apache-2.0
#include "controlplane/cm/outbox.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/controlplane/lab.h"

namespace sluice::cm {
namespace {

using enum segment::CommandType;

class OutboxTest : public testing::Test {
 protected:
  segment::ReactorArea& area(std::uint32_t reactor = 0) { return segment_.layout().reactors[reactor]; }
  /// Takes all commands of the ring as the reactor does, and returns their cm_ids.
  std::vector<std::uint32_t> take() {
    std::vector<std::uint32_t> ids;
    segment::Command command;
    while (area().commands.pop(command)) ids.push_back(command.cm_id);
    return ids;
  }

  lab::TestSegment segment_{"outbox"};
  Outbox outbox_{segment_.layout()};
};

TEST_F(OutboxTest, what_finds_room_goes_at_once) {
  outbox_.send(0, {.type = Accept, .cm_id = 5});
  EXPECT_EQ(take(), std::vector<std::uint32_t>{5});
  EXPECT_EQ(outbox_.waiting(), 0u);
  EXPECT_EQ(outbox_.statistics().commands_delayed, 0u);
}

TEST_F(OutboxTest, what_makes_connections_leaves_room_for_what_refuses_them) {
  for (std::uint32_t i = 0; i < 2 * area().commands.capacity(); ++i)
    outbox_.send(0, {.type = Accept, .cm_id = i});
  EXPECT_EQ(area().commands.size(), kMakingSlots);
  outbox_.send(0, {.type = Reject, .cm_id = 9999});
  EXPECT_EQ(area().commands.size(), kMakingSlots + 1);
}

TEST_F(OutboxTest, nothing_is_lost_and_the_order_is_kept) {
  constexpr std::uint32_t kCount = 1000;
  for (std::uint32_t i = 0; i < kCount; ++i) outbox_.send(0, {.type = Accept, .cm_id = i});
  std::vector<std::uint32_t> all;
  while (all.size() < kCount) {
    const auto some = take();
    ASSERT_FALSE(some.empty());
    all.insert(all.end(), some.begin(), some.end());
    outbox_.flush();
  }
  for (std::uint32_t i = 0; i < kCount; ++i) EXPECT_EQ(all[i], i);
  EXPECT_EQ(outbox_.statistics().commands_delayed, kCount - kMakingSlots);
  EXPECT_FALSE(outbox_.flush());
}

TEST_F(OutboxTest, refusals_go_before_what_waited_longer) {
  for (std::uint32_t i = 0; i < kMakingSlots + 1; ++i) outbox_.send(0, {.type = Accept, .cm_id = 1});
  while (area().commands.push({})) {
  }
  outbox_.send(0, {.type = ConnectFailed, .cm_id = 2});
  take();
  EXPECT_TRUE(outbox_.flush());
  EXPECT_EQ(take(), (std::vector<std::uint32_t>{2, 1}));
}

TEST_F(OutboxTest, a_full_ring_of_one_reactor_holds_up_no_other) {
  while (area(0).commands.push({})) {
  }
  while (area(0).properties_down.push({})) {
  }
  outbox_.send(0, {.type = Reject});
  outbox_.send(0, segment::PropertyPart{});
  outbox_.send(1, {.type = Reject});
  outbox_.send(1, segment::PropertyPart{});
  EXPECT_EQ(area(1).commands.size(), 1u);
  EXPECT_EQ(area(1).properties_down.size(), 1u);
  EXPECT_EQ(outbox_.waiting(), 2u);
}

TEST_F(OutboxTest, what_has_not_gone_yet_can_be_taken_back) {
  while (area().commands.push({})) {
  }
  outbox_.send(0, {.type = Accept, .cm_id = 5});
  outbox_.send(0, {.type = Accept, .cm_id = 6});
  EXPECT_TRUE(outbox_.withdraw(0, 5));
  EXPECT_FALSE(outbox_.withdraw(0, 5));
  take();
  outbox_.flush();
  EXPECT_EQ(take(), std::vector<std::uint32_t>{6});
  EXPECT_FALSE(outbox_.withdraw(0, 6));
}

TEST_F(OutboxTest, datagrams_wait_up_to_a_limit) {
  for (std::size_t i = 0; i < area().punt_down.capacity() + kMaxWaitingDatagrams + 3; ++i)
    outbox_.send(0, segment::Punt{});
  EXPECT_EQ(outbox_.waiting(), kMaxWaitingDatagrams);
  EXPECT_EQ(outbox_.statistics().datagrams_lost, 3u);
  EXPECT_EQ(outbox_.statistics().datagrams_delayed, kMaxWaitingDatagrams);
}

TEST_F(OutboxTest, another_data_plane_gets_nothing_of_what_waited) {
  while (area().commands.push({})) {
  }
  outbox_.send(0, {.type = Accept, .cm_id = 5});
  outbox_.forget();
  take();
  EXPECT_FALSE(outbox_.flush());
  EXPECT_TRUE(take().empty());
}

}  // namespace
}  // namespace sluice::cm
