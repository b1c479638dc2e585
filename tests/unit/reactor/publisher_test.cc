// SPDX-License-Identifier: Apache-2.0
#include "dataplane/reactor/publisher.h"

#include "tests/unit/reactor/reactor_lab.h"

namespace sluice::reactor {
namespace {

std::size_t counter(std::span<const segment::CounterInfo> names, std::string_view name) {
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i].name == name) return i;
  ADD_FAILURE() << name;
  return 0;
}

class PublisherTest : public testing::Test {
 protected:
  segment::ReactorArea& area() { return parts_.segment.area(); }
  segment::ReactorInfo info() { return area().info.read().value(); }

  FakeDevice device_;
  Parts parts_{device_};
};

TEST_F(PublisherTest, a_reactor_shows_the_condition_of_its_device) {
  constexpr std::pair<rdma::Condition, segment::DeviceCondition> kConditions[] = {
      {rdma::Condition::PortDown, segment::DeviceCondition::NoLink},
      {rdma::Condition::Gone, segment::DeviceCondition::Gone},
      {rdma::Condition::Broken, segment::DeviceCondition::Broken},
      {rdma::Condition::Up, segment::DeviceCondition::Up}};
  for (const auto& [condition, shown] : kConditions) {
    device_.own_condition = condition;
    parts_.publisher.publish_reactor();
    EXPECT_EQ(info().condition, shown);
  }
}

TEST_F(PublisherTest, a_reactor_shows_where_it_runs_and_its_state) {
  EXPECT_EQ(info().state, segment::ReactorState::Starting);
  EXPECT_EQ(info().cpu, 3u);
  EXPECT_EQ(info().numa_node, 1u);
  EXPECT_NE(info().started_ns, 0u);
  EXPECT_EQ(info().path_mtu, 2048u);
  EXPECT_EQ(info().guid, 0x0200'00FF'FE00'0001u);
  parts_.establish(1);
  parts_.publisher.publish_reactor();
  EXPECT_EQ(info().state, segment::ReactorState::Running);
  EXPECT_EQ(info().connections, 1u);
  parts_.publisher.publish_stopped();
  EXPECT_EQ(info().state, segment::ReactorState::Stopped);
  EXPECT_EQ(info().connections, 0u);
}

TEST_F(PublisherTest, what_a_predecessor_left_is_cleared_and_unused_entries_are_not_touched) {
  MemorySegment segment;
  segment::ConnectionInfo left;
  left.state = segment::ConnectionState::Open;
  segment.area().connections[2].write(left);
  segment.area().use[2].open.store(segment::ConnectionUse::kOfClient);
  Publisher publisher(parts_.config, parts_.engine, parts_.connections, parts_.counters, segment.area());
  EXPECT_EQ(segment.entry(2).state, segment::ConnectionState::Unused);
  EXPECT_EQ(segment.area().use[2].open.load(), 0u);
  EXPECT_EQ(segment.area().connections[3].sequence(), 0u);
}

TEST_F(PublisherTest, counters_of_reactor_and_device_stand_at_their_places) {
  parts_.counters.polls_busy = 11;
  parts_.counters.punts_lost = 12;
  device_.statistics = {21, 22};
  parts_.publisher.publish_reactor();
  EXPECT_EQ(area().counters[counter(segment::kReactorCounters, "polls_busy")].load(), 11u);
  EXPECT_EQ(area().counters[counter(segment::kReactorCounters, "punts_lost")].load(), 12u);
  EXPECT_EQ(area().device_statistics[0].load(), 21u);
  EXPECT_EQ(area().device_statistics[1].load(), 22u);
}

TEST_F(PublisherTest, pools_show_what_is_held) {
  rpcrdma::SharedMemory& replies = parts_.engine.reply_memory();
  rpcrdma::SharedMemory::Account account;
  std::byte* const buffer = replies.acquire(account, replies.most_bytes());
  ASSERT_NE(buffer, nullptr);
  EXPECT_EQ(replies.held_bytes(account), replies.most_bytes());
  parts_.publisher.publish_reactor();
  constexpr std::size_t kLargeReplies = 3;
  EXPECT_EQ(area().pools[kLargeReplies].buffers.load(), parts_.engine.config().reply_buffers);
  EXPECT_EQ(area().pools[kLargeReplies].held.load(), 1u);
  EXPECT_EQ(area().pools[kLargeReplies].waiting.load(), 0u);
  for (const std::size_t other : {std::size_t{1}, std::size_t{5}})
    EXPECT_EQ(area().pools[other].held.load(), 0u);
  replies.release(buffer);
}

TEST_F(PublisherTest, transport_counters_are_of_their_class) {
  rpcrdma::Connection& connection = parts_.establish(1);
  connection.set_client_class(1);
  ++connection.counters().bad_version;
  parts_.publisher.publish_reactor();
  const std::size_t opened = counter(segment::kTransportCounters, "connections_opened");
  const std::size_t bad = counter(segment::kTransportCounters, "bad_version");
  EXPECT_EQ(area().transport_counters[0][opened].load(), 1u);
  EXPECT_EQ(area().transport_counters[0][bad].load(), 0u);
  EXPECT_EQ(area().transport_counters[1][bad].load(), 1u);
}

TEST_F(PublisherTest, the_counters_are_published_once_more_when_the_loop_ends) {
  parts_.counters.polls_idle = 7;
  parts_.publisher.publish_stopped();
  EXPECT_EQ(area().counters[counter(segment::kReactorCounters, "polls_idle")].load(), 7u);
}

TEST_F(PublisherTest, an_entry_follows_its_connection_from_opening_to_its_end) {
  rpcrdma::Connection& connection = parts_.establish(9);
  const segment::ConnectionInfo opening = parts_.segment.entry(connection.number());
  EXPECT_EQ(opening.state, segment::ConnectionState::Opening);
  EXPECT_EQ(opening.cm_id, 9u);
  EXPECT_EQ(opening.peer, PeerAddress::from_ipv4(10, 0, 0, 7));
  EXPECT_EQ(opening.receive_inline_bytes, 4096u);
  EXPECT_EQ(opening.send_inline_bytes, 1024u);
  EXPECT_EQ(opening.queue_pair, 100u);
  EXPECT_EQ(opening.outgoing, 0u);
  EXPECT_NE(opening.since_ns, 0u);
  parts_.setup.mark_established(connection);
  EXPECT_EQ(parts_.segment.entry(connection.number()).state, segment::ConnectionState::Open);
  connection.close(rpcrdma::CloseReason::LocalClose);
  parts_.publisher.publish_connection(connection);
  EXPECT_EQ(parts_.segment.entry(connection.number()).state, segment::ConnectionState::Closing);
  EXPECT_EQ(area().use[connection.number()].open.load(), 0u);
  parts_.settle();
  parts_.setup.report_closed();
  EXPECT_EQ(parts_.segment.entry(connection.number()).state, segment::ConnectionState::Unused);
}

TEST_F(PublisherTest, use_shows_grant_direction_and_class) {
  rpcrdma::Connection& connection = parts_.establish(1);
  connection.set_client_class(3);
  parts_.publisher.publish_use(connection);
  const segment::ConnectionUse& use = area().use[connection.number()];
  EXPECT_EQ(use.open.load(), segment::ConnectionUse::kOfClient);
  EXPECT_EQ(use.client_class.load(), 3u);
  EXPECT_EQ(use.granted.load(), 8u);
  EXPECT_EQ(use.calls.load(), 0u);
  parts_.connections.record(connection).outgoing = true;
  parts_.publisher.publish_use(connection);
  EXPECT_EQ(use.open.load(), segment::ConnectionUse::kToServer);
}

TEST_F(PublisherTest, a_peak_is_shown_until_the_control_plane_has_read_it) {
  rpcrdma::Connection& connection = parts_.establish(1);
  std::atomic<std::uint32_t>& peak = area().use[connection.number()].peak_busy;
  peak = 9;  // from an earlier publication
  for (int i = 0; i < 3; ++i) parts_.publisher.publish_use(connection);
  EXPECT_EQ(peak.load(), 9u);
  area().peaks_read = 1;
  parts_.publisher.publish_use(connection);
  EXPECT_EQ(peak.load(), 0u) << "nothing was busy since";
  peak = 5;
  parts_.publisher.publish_use(connection);
  EXPECT_EQ(peak.load(), 5u) << "it starts anew once for each reading";
  connection.close(rpcrdma::CloseReason::LocalClose);
  parts_.settle();
  parts_.setup.report_closed();
  EXPECT_EQ(peak.load(), 0u) << "the next connection in this place has its own";
}

TEST_F(PublisherTest, what_pollers_hold_for_a_client_counts_as_its_own) {
  struct Holder final : service::Poller {
    bool poll(std::uint64_t) noexcept override { return false; }
    std::uint64_t held_bytes(std::uint16_t client) const noexcept override { return 1000u + client; }
  } holder;
  rpcrdma::Connection& connection = parts_.establish(1);
  parts_.publisher.add_poller(holder);
  parts_.publisher.publish_use(connection);
  EXPECT_EQ(area().use[connection.number()].held_bytes.load(), 1000u + connection.number());
}

TEST_F(PublisherTest, an_entry_is_published_again_only_when_the_negotiation_has_moved) {
  rpcrdma::Connection& connection = parts_.establish(1);
  const auto sequence = [&] { return area().connections[connection.number()].sequence(); };
  const std::uint32_t before = sequence();
  parts_.publisher.publish_negotiation(connection);
  EXPECT_EQ(sequence(), before);
  parts_.connections.record(connection).published_version = 1;
  parts_.publisher.publish_negotiation(connection);
  EXPECT_NE(sequence(), before);
  const std::uint32_t after = sequence();
  parts_.publisher.publish_negotiation(connection);
  EXPECT_EQ(sequence(), after);
}

}  // namespace
}  // namespace sluice::reactor
