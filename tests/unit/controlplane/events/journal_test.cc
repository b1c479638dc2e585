// SPDX-License-Identifier: Apache-2.0
//
// The journal of events: reading, counters, and rate limits that keep a flood of one kind from displacing
// other events.
#include "controlplane/events/journal.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "controlplane/events/kinds.h"

namespace sluice::events {
namespace {

constexpr std::uint64_t kSecondNs = 1'000'000'000;
std::uint64_t now_ns = kSecondNs;

class Journals : public testing::Test {
 protected:
  void refuse(const std::string& peer = "192.0.2.7") {
    journal_.add(ConnectionRefused{.peer = peer, .reason = "too_fast"});
  }
  static std::string peer(std::uint32_t number) { return "2001:db8::" + std::to_string(number); }
  /// Refuses `count` connections at a rate below the limit.
  void refuse_slowly(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      now_ns += kSecondNs;
      refuse();
    }
  }

  std::vector<Event> logged_;
  Journal journal_{[this](const Event& event) { logged_.push_back(event); }, [] { return now_ns; }};
};

TEST_F(Journals, readers_get_what_comes_after_a_sequence_number_in_order) {
  journal_.add(DrainBegun{.connections = 3});
  refuse();
  journal_.add(DrainEnded{});
  const Journal::Part all = journal_.read(1, 16);
  ASSERT_EQ(all.events.size(), 3u);
  EXPECT_STREQ(all.events[0].kind->name, "drain_begun");
  EXPECT_STREQ(all.events[1].kind->name, "connection_refused");
  EXPECT_STREQ(all.events[2].kind->name, "drain_ended");
  EXPECT_EQ(all.next, 4u);
  EXPECT_EQ(journal_.read(2, 1).next, 3u);
  EXPECT_EQ(journal_.read(2, 1).events[0].sequence, 2u);
  EXPECT_TRUE(journal_.read(all.next, 16).events.empty());
  EXPECT_EQ(journal_.read(1000, 16).next, 4u);  // the number is from another journal
  EXPECT_EQ(logged_.size(), 3u);
}

TEST_F(Journals, what_is_overwritten_is_missed_by_who_asks_for_it_and_counted_unless_somebody_has_read_it) {
  refuse_slowly(kEventsKept);
  journal_.read(1, 100);
  refuse_slowly(150);
  EXPECT_EQ(journal_.statistics().unread.load(), 50u);
  const Journal::Part part = journal_.read(1, kEventsKept);
  EXPECT_EQ(part.missed, 150u);
  EXPECT_EQ(part.events.front().sequence, 151u);
  EXPECT_EQ(part.events.size(), kEventsKept);
}

TEST_F(Journals, a_flood_of_one_kind_is_counted_and_the_next_of_it_says_how_many_were_not_recorded) {
  for (std::uint32_t i = 0; i < kBurst + 1000; ++i) refuse(peer(i));
  EXPECT_EQ(logged_.size(), kBurst);
  EXPECT_EQ(journal_.statistics().suppressed.load(), 1000u);
  journal_.add(MountDenied{.peer = "192.0.2.8", .path = "/a"});  // another kind is not limited
  EXPECT_EQ(logged_.size(), kBurst + 1);
  now_ns += kSecondNs / kPerSecond;
  refuse(peer(5000));
  EXPECT_EQ(logged_.back().suppressed, 1000u);
}

TEST_F(Journals, one_peer_leaves_room_for_the_others) {
  for (std::uint32_t i = 0; i < 10 * kBurst; ++i) refuse();
  EXPECT_EQ(logged_.size(), kBurstOfPeer);
  refuse(peer(1));
  ASSERT_EQ(logged_.size(), kBurstOfPeer + 1);
  EXPECT_EQ(std::get<std::string>(logged_.back().fields[0].value), peer(1));
  // The peer has a separate limit for another kind.
  journal_.add(MountDenied{.peer = "192.0.2.7", .path = "/a"});
  EXPECT_EQ(logged_.size(), kBurstOfPeer + 2);
  now_ns += kSecondNs / kPerSecondOfPeer;
  refuse();
  refuse();
  EXPECT_EQ(logged_.size(), kBurstOfPeer + 3);
}

TEST_F(Journals, peers_that_come_once_are_forgotten) {
  for (std::uint32_t i = 0; i < 10 * kPeersKnown; ++i) {
    now_ns += kSecondNs / kPerSecond;
    refuse(peer(i));
  }
  EXPECT_EQ(logged_.size(), 10 * kPeersKnown);  // no event has displaced another
  EXPECT_LE(journal_.peers_known(), kPeersKnown);
}

TEST_F(Journals, during_a_flood_of_one_peer_our_own_ring_gets_nothing) {
  for (std::uint32_t i = 0; i < 1000; ++i) {
    now_ns += kSecondNs / 100;
    refuse();
    journal_.poll();
  }
  for (const Event& event : logged_) EXPECT_STREQ(event.kind->name, "connection_refused");
}

TEST_F(Journals, of_a_flood_that_is_over_an_event_tells) {
  for (std::uint32_t i = 0; i < kBurst + 5; ++i) refuse(peer(i));
  journal_.poll();
  EXPECT_EQ(logged_.size(), kBurst);
  now_ns += 60 * kSecondNs;
  journal_.poll();
  journal_.poll();
  ASSERT_EQ(logged_.size(), kBurst + 1);
  EXPECT_STREQ(logged_.back().kind->name, "events_suppressed");
  EXPECT_EQ(std::get<std::string>(logged_.back().fields[0].value), "connection_refused");
  EXPECT_EQ(std::get<std::uint64_t>(logged_.back().fields[1].value), 5u);
}

TEST_F(Journals, what_peers_do_overwrites_nothing_of_ours) {
  journal_.add(DataPlaneLost{.reason = "ended"});
  refuse_slowly(2 * kEventsKept);
  EXPECT_STREQ(journal_.read(1, 1).events[0].kind->name, "data_plane_lost");
}

TEST_F(Journals, a_text_of_any_length_is_bounded) {
  refuse(std::string(1u << 20, 'x'));
  EXPECT_EQ(std::get<std::string>(journal_.read(1, 1).events[0].fields[0].value).size(), kMaxTextBytes);
}

TEST_F(Journals, a_reader_finds_whether_there_is_an_event_for_it) {
  EXPECT_FALSE(journal_.has(1));
  refuse();
  EXPECT_TRUE(journal_.has(1));
  EXPECT_FALSE(journal_.has(2));
}

TEST(Kinds, names_are_one_word_and_each_has_its_own) {
  std::set<std::string> names;
  std::apply([&](const auto&... kinds) { (names.insert(kinds.kKind.name), ...); }, AllKinds{});
  EXPECT_EQ(names.size(), std::tuple_size_v<AllKinds>);
  for (const std::string& name : names)
    EXPECT_EQ(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_"), std::string::npos) << name;
}

}  // namespace
}  // namespace sluice::events
