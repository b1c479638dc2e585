// SPDX-License-Identifier: Apache-2.0
#include "dataplane/reactor/connection_setup.h"

#include "tests/unit/base/counted_invariants.h"
#include "tests/unit/reactor/reactor_lab.h"

namespace sluice::reactor {
namespace {

using segment::CommandStatus;
using segment::CommandType;
using segment::EventType;

class ConnectionSetupTest : public testing::Test {
 protected:
  FakeDevice device_;
  Parts parts_{device_};
};

TEST_F(ConnectionSetupTest, accept_connects_a_queue_pair_with_its_receives_posted) {
  segment::Command command{
      .type = CommandType::Accept, .cm_id = 5, .credits = 8, .receive_inline_bytes = 4096};
  command.attributes.remote_qp = rdma::QueuePairNumber{0x123};
  command.cm_state[7] = std::byte{9};
  const segment::Event done = parts_.run(command);
  EXPECT_EQ(done.status, CommandStatus::Done);
  ASSERT_EQ(device_.queue_pairs.size(), 1u);
  EXPECT_EQ(done.queue_pair, 100u);
  EXPECT_EQ(device_.queue_pairs[0]->connected->remote_qp, rdma::QueuePairNumber{0x123});
  EXPECT_GE(device_.queue_pairs[0]->receives(), 8u);
  const segment::ConnectionInfo entry = parts_.segment.entry(static_cast<std::uint16_t>(done.connection));
  EXPECT_EQ(entry.state, segment::ConnectionState::Opening);
  EXPECT_EQ(entry.cm_state[7], std::byte{9});
  EXPECT_EQ(parts_.counters.connect_requests, 1u);
}

TEST_F(ConnectionSetupTest, accept_without_a_queue_pair_finds_no_room) {
  device_.has_queue_pairs = false;
  EXPECT_EQ(parts_.status_of({.type = CommandType::Accept, .cm_id = 5}), CommandStatus::NoRoom);
  EXPECT_EQ(parts_.counters.connect_requests_refused, 1u);
  EXPECT_EQ(parts_.connections.in_use(), 0u);
}

TEST_F(ConnectionSetupTest, accept_without_a_free_connection_finds_no_room) {
  for (std::uint32_t i = 0; i < kConnections; ++i) parts_.establish(i + 1);
  EXPECT_EQ(parts_.status_of({.type = CommandType::Accept, .cm_id = 50}), CommandStatus::NoRoom);
  EXPECT_EQ(parts_.counters.connect_requests_refused, 1u);
}

TEST_F(ConnectionSetupTest, accept_with_attributes_that_cannot_be_fails_and_is_reported_down) {
  device_.connects = false;
  EXPECT_EQ(parts_.status_of({.type = CommandType::Accept, .cm_id = 5, .credits = 8}), CommandStatus::Failed);
  parts_.settle();
  parts_.setup.report_closed();
  const auto down = parts_.segment.event();
  ASSERT_TRUE(down && down->type == EventType::ConnectionDown);
  EXPECT_EQ(down->cm_id, 5u);
  EXPECT_EQ(parts_.connections.in_use(), 0u);
}

TEST_F(ConnectionSetupTest, a_packet_of_the_peer_makes_a_connection_established_once) {
  rpcrdma::Connection& connection = parts_.establish(6);
  parts_.setup.check_peer_ready(connection);
  EXPECT_FALSE(parts_.segment.event());
  device_.queue_pairs[0]->heard = true;
  parts_.setup.check_peer_ready(connection);
  const auto up = parts_.segment.event();
  ASSERT_TRUE(up && up->type == EventType::ConnectionUp);
  EXPECT_EQ(up->cm_id, 6u);
  EXPECT_TRUE(parts_.connections.record(connection).established);
  parts_.setup.check_peer_ready(connection);
  EXPECT_FALSE(parts_.segment.event());
}

TEST_F(ConnectionSetupTest, a_connection_down_without_room_in_the_ring_is_counted) {
  rpcrdma::Connection& connection = parts_.establish(6);
  while (parts_.segment.area().events.push({})) {
  }
  connection.close(rpcrdma::CloseReason::PeerClosed);
  parts_.settle();
  parts_.setup.report_closed();
  EXPECT_EQ(parts_.counters.events_lost, 1u);
}

TEST_F(ConnectionSetupTest, no_two_connections_have_the_same_incarnation_also_under_another_data_plane) {
  parts_.segment.area().incarnations = 0xFFFFFFFE;
  const std::uint32_t first = parts_.incarnation(parts_.establish(6));
  const std::uint32_t second = parts_.incarnation(parts_.establish(7));
  EXPECT_EQ(first, 0xFFFFFFFFu);
  EXPECT_EQ(second, 1u) << "zero is none";
  EXPECT_EQ(parts_.segment.area().incarnations, second) << "where the next data plane goes on";
}

TEST_F(ConnectionSetupTest, the_table_shows_the_end_before_the_hint_comes) {
  rpcrdma::Connection& connection = parts_.establish(6);
  const std::uint32_t incarnation = parts_.incarnation(connection);
  EXPECT_EQ(parts_.segment.entry(connection.number()).incarnation, incarnation);
  connection.close(rpcrdma::CloseReason::PeerClosed);
  parts_.settle();
  parts_.setup.report_closed();
  const auto down = parts_.segment.event();
  ASSERT_TRUE(down);
  EXPECT_EQ(down->incarnation, incarnation);
  EXPECT_EQ(parts_.segment.entry(connection.number()).state, segment::ConnectionState::Unused);
}

TEST_F(ConnectionSetupTest, ids_find_open_connections_only) {
  rpcrdma::Connection& connection = parts_.establish(6);
  EXPECT_EQ(parts_.connections.find(rdma::CmId{6}), &connection);
  const std::uint32_t incarnation = parts_.incarnation(connection);
  EXPECT_EQ(parts_.connections.find(connection.number(), incarnation), &connection);
  EXPECT_EQ(parts_.connections.find(connection.number(), incarnation + 1), nullptr);
  connection.close(rpcrdma::CloseReason::LocalClose);
  EXPECT_EQ(parts_.connections.find(rdma::CmId{6}), nullptr);
  EXPECT_EQ(parts_.connections.find(connection.number(), incarnation), nullptr);
}

TEST(ConnectionTable, a_connection_that_is_removed_twice_is_a_failed_invariant) {
  FakeDevice device;
  rpcrdma::Engine engine(device, lab_engine());
  std::atomic<std::uint32_t> incarnations{0};
  ConnectionTable table(engine, incarnations);
  table.add();
  const CountedInvariants counted;
  table.remove(engine.connection(0));
  EXPECT_EQ(counted.failed(Invariant::reactor_state), 0u);
  table.remove(engine.connection(0));
  EXPECT_EQ(counted.failed(Invariant::reactor_state), 1u);
}

}  // namespace
}  // namespace sluice::reactor
