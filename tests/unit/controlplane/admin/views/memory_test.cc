// SPDX-License-Identifier: Apache-2.0
//
// The view of memory, on a segment that the test fills.
#include "controlplane/admin/views/status.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/unit/controlplane/lab.h"

namespace sluice::admin {
namespace {

class Memory : public ::testing::Test {
 protected:
  Json shown() { return memory(segment.layout(), config.block); }

  lab::TestSegment segment{"memory"};
  config::Config config = lab::configuration("");
};

TEST_F(Memory, pools_show_what_is_held_and_who_waits) {
  segment::PoolUse& large_replies = segment.layout().reactors[0].pools[3];
  large_replies.buffers = 16;
  large_replies.held = 5;
  large_replies.waiting = 2;
  const Json pool = shown()["shared"].at(3);
  EXPECT_EQ(pool["pool"], "replies");
  EXPECT_EQ(pool["size"], "large");
  EXPECT_EQ(pool["buffers"], 16);
  EXPECT_EQ(pool["held"], 5);
  EXPECT_EQ(pool["waiting"], 2);
}

TEST_F(Memory, each_upstream_shows_what_its_clients_share) {
  config.block.upstream_count = 2;
  std::strcpy(config.block.upstreams[1].name, "second");
  segment.layout().reactors[0].upstreams[1].pools[2].publish(128, 64, 3);
  const Json upstreams = shown()["upstreams"];
  ASSERT_EQ(upstreams.size(), 2 * segment::kUpstreamPools.size());
  const Json& pool = upstreams.at(5);
  EXPECT_EQ(pool["upstream"], "second");
  EXPECT_EQ(pool["pool"], "long replies");
  EXPECT_EQ(pool["size"], 128);
  EXPECT_EQ(pool["held"], 64);
  EXPECT_EQ(pool["waiting"], 3);
}

TEST_F(Memory, the_biggest_holders_come_first_and_are_few) {
  for (std::uint16_t number = 0; number < 8; ++number) {
    segment.publish(number, lab::client(static_cast<std::uint8_t>(10 + number)), 0, 7);
    segment.layout().reactors[0].use[number].held_bytes = 1000u * (number % 7);
  }
  segment.layout().reactors[0].use[6].open = 0;  // this connection has ended
  const Json holders = shown()["biggest_holders"];
  ASSERT_EQ(holders.size(), 5u);
  EXPECT_EQ(holders[0]["connection"], 5);
  EXPECT_EQ(holders[0]["held_bytes"], 5000);
  EXPECT_EQ(holders[0]["peer"], "192.0.2.15");
  EXPECT_EQ(holders[4]["held_bytes"], 1000);
}

}  // namespace
}  // namespace sluice::admin
