// SPDX-License-Identifier: Apache-2.0
//
// Selection of the clients that have their own series in the metrics.
#include "controlplane/policy/client_monitor.h"

#include <gtest/gtest.h>

#include <optional>

#include "tests/unit/controlplane/lab.h"

namespace sluice::policy {
namespace {

using lab::peer;

std::optional<segment::ServedCalls> shown(const segment::ClientTable& table, const PeerAddress& peer) {
  for (const segment::ShownClient& client : table.clients)
    if (client.in_use != 0 && client.peer == peer) return client.served;
  return std::nullopt;
}

TEST(ServedClients, the_busiest_have_places_and_the_others_count_together) {
  ServedClients book;
  for (std::uint32_t i = 0; i < segment::kClientsShown + 4; ++i) book.add(peer(i), {100 + i, 7});
  book.end_interval();
  for (std::uint32_t i = 0; i < 4; ++i) EXPECT_FALSE(shown(book.table(), peer(i)));
  for (std::uint32_t i = 4; i < segment::kClientsShown + 4; ++i)
    EXPECT_EQ(shown(book.table(), peer(i)).value().calls, 0u) << "from now on";
  const std::uint64_t others = book.table().others.calls;
  book.add(peer(10), {5, 50, 500, 5000});
  book.add(peer(10), {0, 0, 1, 2});
  book.add(peer(0), {3, 30});
  EXPECT_EQ(shown(book.table(), peer(10)).value().calls, 5u);
  EXPECT_EQ(shown(book.table(), peer(10)).value().time_ns, 50u);
  EXPECT_EQ(shown(book.table(), peer(10)).value().received_bytes, 501u);
  EXPECT_EQ(shown(book.table(), peer(10)).value().sent_bytes, 5002u);
  EXPECT_EQ(book.table().others.calls, others + 3);
}

TEST(ServedClients, one_that_is_much_busier_takes_the_place_of_the_least_busy) {
  ServedClients book;
  for (std::uint32_t i = 0; i < segment::kClientsShown; ++i) book.add(peer(i), {100 + i, 0});
  book.end_interval();
  for (std::uint32_t i = 0; i < segment::kClientsShown; ++i) book.add(peer(i), {100 + i, 0});
  book.add(peer(100), {150, 0});
  book.end_interval();
  EXPECT_FALSE(shown(book.table(), peer(100))) << "not much busier";
  book.add(peer(100), {1000, 0});
  book.end_interval();
  EXPECT_TRUE(shown(book.table(), peer(100)));
  EXPECT_FALSE(shown(book.table(), peer(0)));
}

TEST(ServedClients, a_client_that_rests_keeps_its_place_and_count_until_another_needs_it) {
  ServedClients book;
  book.add(peer(1), {100, 0});
  book.end_interval();
  book.add(peer(1), {100, 0});
  for (int i = 0; i < 50; ++i) book.end_interval();
  EXPECT_EQ(shown(book.table(), peer(1)).value().calls, 100u);
}

TEST(ServedClients, of_a_hundred_thousand_that_come_once_nothing_is_left_but_their_sum) {
  ServedClients book;
  for (std::uint32_t i = 0; i < 100'000; ++i) {
    book.add(peer(i), {1, 1});
    EXPECT_LE(book.candidates(), kMaxCandidates);
    if (i % 5000 == 0) book.end_interval();
  }
  for (int i = 0; i < 3; ++i) book.end_interval();
  EXPECT_EQ(book.candidates(), 0u);
  std::uint64_t calls = book.table().others.calls;
  for (const segment::ShownClient& client : book.table().clients) calls += client.served.calls;
  EXPECT_EQ(calls, 100'000u);
}

class ClientWatches : public testing::Test {
 protected:
  void serve(std::uint32_t number, std::uint64_t calls, std::uint64_t ns) {
    segment::ConnectionUse& use = segment_.layout().reactors[0].use[number];
    use.served = calls;
    use.served_ns = ns;
    use.received_bytes = 100 * calls;
    use.sent_bytes = 10 * calls;
  }
  void look() { watch_->poll(now_ns_ += lab::kSecondNs); }
  segment::ClientTable table() { return segment_.layout().clients.read().value(); }
  std::uint64_t calls() {
    std::uint64_t sum = table().others.calls;
    for (const segment::ShownClient& client : table().clients) sum += client.served.calls;
    return sum;
  }

  lab::TestSegment segment_{"clients"};
  std::optional<ClientMonitor> watch_;
  std::uint64_t now_ns_ = lab::kSecondNs;
};

TEST_F(ClientWatches, connections_of_one_client_count_together_and_only_what_is_new) {
  segment_.publish(1, lab::client(7), 0, 1);
  segment_.publish(2, lab::client(7), 0, 1);
  serve(1, 1000, 1000);
  watch_.emplace(segment_.layout(), 1, 8);
  look();
  EXPECT_EQ(calls(), 0u) << "those were served before";
  serve(1, 1010, 2000);
  serve(2, 5, 500);
  look();
  EXPECT_EQ(calls(), 15u);
  EXPECT_EQ(table().others.time_ns, 1500u);
  EXPECT_EQ(table().others.received_bytes, 1500u);
  EXPECT_EQ(table().others.sent_bytes, 150u);
  for (int i = 0; i < 10; ++i) look();
  serve(1, 1011, 2100);
  look();
  EXPECT_EQ(shown(table(), lab::client(7)).value().calls, 1u);
  EXPECT_EQ(shown(table(), lab::client(7)).value().time_ns, 100u);
  EXPECT_EQ(shown(table(), lab::client(7)).value().received_bytes, 100u);
  EXPECT_EQ(shown(table(), lab::client(7)).value().sent_bytes, 10u);
}

TEST_F(ClientWatches, another_connection_in_the_same_place_begins_with_nothing) {
  watch_.emplace(segment_.layout(), 1, 8);
  segment_.publish(1, lab::client(7), 0, 1);
  serve(1, 10, 0);
  look();
  segment_.publish(1, lab::client(7), 0, 1, segment::ConnectionState::Unused);
  look();
  segment_.publish(1, lab::client(8), 0, 1);
  serve(1, 12, 0);
  look();
  EXPECT_EQ(calls(), 22u);
}

TEST_F(ClientWatches, connections_to_servers_are_of_no_client) {
  watch_.emplace(segment_.layout(), 1, 8);
  segment_.publish(1, lab::client(7), 0, 1);
  segment_.layout().reactors[0].use[1].open = segment::ConnectionUse::kToServer;
  serve(1, 10, 0);
  look();
  EXPECT_EQ(calls(), 0u);
}

}  // namespace
}  // namespace sluice::policy
