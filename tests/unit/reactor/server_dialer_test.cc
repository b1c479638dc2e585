// SPDX-License-Identifier: Apache-2.0
#include "dataplane/reactor/connection_setup.h"

#include "dataplane/rpcrdma/link/config.h"
#include "tests/unit/reactor/reactor_lab.h"

namespace sluice::reactor {
namespace {

using segment::CommandStatus;
using segment::CommandType;
using segment::EventType;

class ServerDialerTest : public testing::Test {
 protected:
  ServerDialerTest() {
    device_.own_addresses = {PeerAddress::from_ipv4(10, 0, 0, 1)};
    EXPECT_NE(dialed_, nullptr);
  }
  ~ServerDialerTest() override {
    dialed_->close(rpcrdma::CloseReason::LocalClose);
    parts_.settle();
  }
  segment::Command answer(CommandType type) const {
    return {.type = type,
            .cm_id = 31,
            .connection = dialed_->number(),
            .queue_pair = 100,
            .send_inline_bytes = 2048};
  }

  FakeDevice device_;
  Parts parts_{device_};
  Caller caller_{parts_};
  rpcrdma::Connection* const dialed_ = parts_.dialer.dial(kServer, caller_.requester, caller_.callee);
};

TEST_F(ServerDialerTest, the_control_plane_is_asked_once_with_all_it_needs) {
  parts_.connector->announce();
  const auto wanted = parts_.segment.event();
  ASSERT_TRUE(wanted && wanted->type == EventType::ConnectWanted);
  EXPECT_EQ(wanted->connection, dialed_->number());
  EXPECT_EQ(wanted->queue_pair, 100u);
  EXPECT_EQ(wanted->port, 20049u);
  EXPECT_EQ(wanted->peer, PeerAddress::from_ipv4(10, 0, 0, 9));
  EXPECT_EQ(wanted->local, PeerAddress::from_ipv4(10, 0, 0, 1));
  EXPECT_EQ(wanted->path_mtu, 2048u);
  const auto data = rpcrdma::decode_private_data({wanted->private_data, wanted->private_data_bytes});
  ASSERT_TRUE(data);
  EXPECT_EQ(data->receive_bytes, 4096u);
  parts_.connector->announce();
  EXPECT_FALSE(parts_.segment.event());
  EXPECT_EQ(parts_.segment.entry(dialed_->number()).outgoing, 1u);
}

TEST_F(ServerDialerTest, a_full_ring_is_tried_again) {
  while (parts_.segment.area().events.push({})) {
  }
  parts_.connector->announce();
  parts_.segment.events();
  parts_.connector->announce();
  EXPECT_TRUE(parts_.segment.event());
}

TEST_F(ServerDialerTest, a_successor_of_the_control_plane_is_asked_again_until_it_is_up) {
  parts_.connector->announce();
  parts_.segment.events();
  parts_.connector->forget_announcements();
  parts_.connector->announce();
  EXPECT_TRUE(parts_.segment.event());
  EXPECT_EQ(parts_.status_of(answer(CommandType::Connect)), CommandStatus::Done);
  parts_.connector->forget_announcements();
  parts_.connector->announce();
  EXPECT_FALSE(parts_.segment.event());
}

TEST_F(ServerDialerTest, connect_brings_the_connection_up) {
  segment::Command connect = answer(CommandType::Connect);
  connect.attributes.remote_qp = rdma::QueuePairNumber{0x456};
  connect.cm_state[1] = std::byte{3};
  const segment::Event done = parts_.run(connect);
  EXPECT_EQ(done.status, CommandStatus::Done);
  EXPECT_EQ(done.queue_pair, 100u);
  EXPECT_EQ(device_.queue_pairs[0]->connected->remote_qp, rdma::QueuePairNumber{0x456});
  EXPECT_EQ(dialed_->config().send_inline_bytes, 2048u);
  const segment::ConnectionInfo entry = parts_.segment.entry(dialed_->number());
  EXPECT_EQ(entry.state, segment::ConnectionState::Open);
  EXPECT_EQ(entry.cm_id, 31u);
  EXPECT_EQ(entry.cm_state[1], std::byte{3});
}

TEST_F(ServerDialerTest, answers_to_another_queue_pair_or_to_one_that_is_up_are_refused) {
  segment::Command late = answer(CommandType::Connect);
  late.queue_pair = 99;
  EXPECT_EQ(parts_.status_of(late), CommandStatus::UnknownConnection);
  late = answer(CommandType::ConnectFailed);
  late.connection = 4000;
  EXPECT_EQ(parts_.status_of(late), CommandStatus::UnknownConnection);
  EXPECT_EQ(parts_.status_of(answer(CommandType::Connect)), CommandStatus::Done);
  EXPECT_EQ(parts_.status_of(answer(CommandType::Connect)), CommandStatus::UnknownConnection);
  EXPECT_EQ(parts_.status_of(answer(CommandType::ConnectFailed)), CommandStatus::UnknownConnection);
}

TEST_F(ServerDialerTest, a_client_of_ours_is_no_dialed_connection) {
  const rpcrdma::Connection& client = parts_.establish(8);
  segment::Command connect = answer(CommandType::Connect);
  connect.connection = client.number();
  connect.queue_pair = 101;
  EXPECT_EQ(parts_.status_of(connect), CommandStatus::UnknownConnection);
}

TEST_F(ServerDialerTest, attributes_that_cannot_be_end_the_connection) {
  device_.connects = false;
  EXPECT_EQ(parts_.status_of(answer(CommandType::Connect)), CommandStatus::Failed);
  EXPECT_EQ(dialed_->close_reason(), rpcrdma::CloseReason::LocalClose);
}

TEST_F(ServerDialerTest, a_failure_ends_the_connection_and_is_reported_as_outgoing) {
  EXPECT_EQ(parts_.status_of(answer(CommandType::ConnectFailed)), CommandStatus::Done);
  EXPECT_EQ(dialed_->close_reason(), rpcrdma::CloseReason::PeerClosed);
  parts_.settle();
  parts_.setup.report_closed();
  const auto down = parts_.segment.event();
  ASSERT_TRUE(down && down->type == EventType::ConnectionDown);
  EXPECT_EQ(down->outgoing, 1u);
  EXPECT_EQ(down->queue_pair, 100u);
}

TEST_F(ServerDialerTest, a_connection_that_ended_before_it_was_announced_is_not_asked_for) {
  parts_.dialer.hang_up(*dialed_, rpcrdma::CloseReason::Silent);
  parts_.settle();
  parts_.setup.report_closed();
  parts_.segment.events();
  parts_.connector->announce();
  EXPECT_FALSE(parts_.segment.event());
}

TEST_F(ServerDialerTest, without_room_nothing_is_dialed) {
  device_.has_queue_pairs = false;
  Caller second(parts_);
  EXPECT_EQ(parts_.dialer.dial(kServer, second.requester, second.callee), nullptr);
  device_.has_queue_pairs = true;
  device_.has_one_ready = false;
  EXPECT_EQ(parts_.dialer.dial(kServer, second.requester, second.callee), nullptr);
  device_.has_one_ready = true;
  for (std::uint32_t i = 1; i < kConnections; ++i) parts_.establish(i);
  EXPECT_EQ(parts_.dialer.dial(kServer, second.requester, second.callee), nullptr);
}

}  // namespace
}  // namespace sluice::reactor
