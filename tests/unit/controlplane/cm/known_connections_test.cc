// SPDX-License-Identifier: Apache-2.0
#include "controlplane/cm/connections.h"

#include <gtest/gtest.h>

namespace sluice::cm {
namespace {

Known on(std::uint32_t reactor) {
  return {.reactor = reactor, .peer = {}, .own = {}};
}

Known dialed_by(std::uint32_t reactor, std::uint32_t queue_pair) {
  return {.reactor = reactor, .outgoing = true, .peer = {}, .own = {.qpn = queue_pair, .private_data = {}}};
}

TEST(KnownConnections, the_load_of_each_reactor_is_that_of_its_connections) {
  KnownConnections known;
  for (std::uint32_t i = 1; i <= 9; ++i) known.put(Id{i}, on(i % 3));
  EXPECT_EQ(known.load(0), 3u);
  known.put(Id{3}, on(1));  // its number was reused
  EXPECT_EQ(known.load(0), 2u);
  EXPECT_EQ(known.load(1), 4u);
  known.erase(Id{4});
  known.erase(Id{4});
  known.erase(known.find(Id{1}));
  EXPECT_EQ(known.load(1), 2u);
  EXPECT_EQ(known.load(2), 3u);
  EXPECT_FALSE(known.contains(Id{1}));
  EXPECT_TRUE(known.contains(Id{3}));
}

TEST(KnownConnections, an_outgoing_one_is_found_by_its_queue_pair_and_reactor) {
  KnownConnections known;
  known.put(Id{1}, dialed_by(0, 7));
  known.put(Id{2}, dialed_by(1, 7));
  known.put(Id{3}, on(0));
  EXPECT_EQ(known.dialed(0, 7), Id{1});
  EXPECT_EQ(known.dialed(1, 7), Id{2});
  EXPECT_EQ(known.dialed(0, 0), std::nullopt) << "a client's is not dialed";
  known.put(Id{4}, dialed_by(0, 7));  // dialed again before the first one's end was reported
  known.erase(Id{1});
  EXPECT_EQ(known.dialed(0, 7), Id{4});
  known.erase(Id{4});
  EXPECT_EQ(known.dialed(0, 7), std::nullopt);
}

}  // namespace
}  // namespace sluice::cm
