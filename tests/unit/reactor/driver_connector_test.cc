// SPDX-License-Identifier: Apache-2.0
#include "dataplane/reactor/connectors.h"

#include <unistd.h>

#include <algorithm>

#include "dataplane/rpcrdma/link/config.h"
#include "pmd/loopback/loopback.h"
#include "tests/unit/reactor/reactor_lab.h"

namespace sluice::reactor {
namespace {

using segment::CommandStatus;
using segment::CommandType;
using segment::EventType;

constexpr std::uint16_t kPort = 20049;

class DriverConnectorTest : public testing::Test {
 protected:
  DriverConnectorTest() { parts_.connector->listen(kPort); }
  ~DriverConnectorTest() override { peers_.clear(); }

  /// Connects from a client. Returns the connection's handle.
  rdma::CmId knock(std::span<const std::byte> data = {}) {
    peers_.push_back(client_->create_queue_pair({}));
    const auto id = client_->connection_manager()->connect(*peers_.back(), kPort, data);
    EXPECT_TRUE(id);
    return id.value_or(rdma::CmId{});
  }
  /// Returns the next event of the client's connection management.
  std::optional<rdma::CmEvent> client_event() {
    rdma::CmEvent event;
    if (client_->connection_manager()->poll_events({&event, 1}) == 0) return std::nullopt;
    return event;
  }
  void poll_server() {
    for (int i = 0; i < 20; ++i) {
      parts_.setup.poll();
      parts_.settle();
    }
    parts_.connector->announce();
  }
  segment::Event request() {
    poll_server();
    while (const auto event = parts_.segment.event())
      if (event->type == EventType::ConnectRequest) return *event;
    ADD_FAILURE() << "no request";
    return {};
  }
  static segment::Command answer(CommandType type, const segment::Event& request) {
    return {.type = type,
            .cm_id = request.cm_id,
            .credits = 8,
            .receive_inline_bytes = 4096,
            .send_inline_bytes = 1024};
  }
  /// Checks that the client receives the answer and the octet of its private data.
  void expect_heard(segment::Command answer, rdma::CmEventType as) {
    constexpr std::byte kOctet{0x5a};
    answer.private_data[0] = kOctet;
    answer.private_data_bytes = 1;
    EXPECT_EQ(parts_.status_of(answer), CommandStatus::Done);
    const auto heard = client_event();
    ASSERT_TRUE(heard && heard->type == as);
    EXPECT_EQ(heard->private_data_bytes, 1u);
    EXPECT_EQ(heard->private_data[0], kOctet);
  }
  /// Establishes a connection and returns it.
  rpcrdma::Connection& accepted() {
    knock();
    const segment::Event wanted = request();
    EXPECT_EQ(parts_.status_of(answer(CommandType::Accept, wanted)), CommandStatus::Done);
    const auto heard = client_event();
    EXPECT_TRUE(heard && heard->type == rdma::CmEventType::Established);
    poll_server();
    return *parts_.connections.find(static_cast<rdma::CmId>(wanted.cm_id));
  }

  std::shared_ptr<rdma::loopback::Fabric> fabric_ = rdma::loopback::Fabric::in_process({.links = 80});
  std::unique_ptr<rdma::Device> server_ = rdma::loopback::make_device(fabric_, {.name = "server"});
  std::unique_ptr<rdma::Device> client_ = rdma::loopback::make_device(fabric_, {.name = "client"});
  Parts parts_{*server_};
  std::vector<Owned<rdma::QueuePair>> peers_;
};

TEST_F(DriverConnectorTest, a_request_is_announced_once_with_what_the_client_said) {
  const auto data = rpcrdma::encode_private_data({.send_bytes = 8192, .receive_bytes = 2048});
  knock(data);
  const segment::Event wanted = request();
  EXPECT_EQ(wanted.port, kPort);
  EXPECT_EQ(wanted.peer_pid, static_cast<std::uint32_t>(::getpid()));
  ASSERT_EQ(wanted.private_data_bytes, data.size());
  EXPECT_TRUE(std::equal(data.begin(), data.end(), wanted.private_data));
  EXPECT_EQ(parts_.counters.connect_requests, 1u);
  parts_.connector->announce();
  EXPECT_FALSE(parts_.segment.event());
}

TEST_F(DriverConnectorTest, a_successor_of_the_control_plane_gets_the_request_again) {
  knock();
  const segment::Event first = request();
  parts_.connector->forget_announcements();
  EXPECT_EQ(request().cm_id, first.cm_id);
}

TEST_F(DriverConnectorTest, a_request_that_found_the_ring_full_is_announced_when_there_is_room) {
  while (parts_.segment.area().events.push({})) {
  }
  knock();
  poll_server();
  parts_.segment.events();
  EXPECT_EQ(parts_.counters.events_lost, 0u);
  parts_.connector->announce();
  EXPECT_TRUE(parts_.segment.event());
}

TEST_F(DriverConnectorTest, accept_answers_with_private_data_and_both_sides_are_up) {
  knock();
  const segment::Event wanted = request();
  expect_heard(answer(CommandType::Accept, wanted), rdma::CmEventType::Established);
  poll_server();
  const auto up = parts_.segment.event();
  ASSERT_TRUE(up && up->type == EventType::ConnectionUp);
  EXPECT_EQ(up->cm_id, wanted.cm_id);
  const segment::ConnectionInfo entry = parts_.segment.entry(static_cast<std::uint16_t>(up->connection));
  EXPECT_EQ(entry.state, segment::ConnectionState::Open);
  EXPECT_EQ(entry.peer_pid, static_cast<std::uint32_t>(::getpid()));
  EXPECT_EQ(parts_.connections.in_use(), 1u);
}

TEST_F(DriverConnectorTest, private_data_longer_than_a_message_is_cut) {
  knock();
  segment::Command accept = answer(CommandType::Accept, request());
  accept.private_data_bytes = 0xFFFFFFFF;
  EXPECT_EQ(parts_.status_of(accept), CommandStatus::Done);
  const auto heard = client_event();
  ASSERT_TRUE(heard);
  EXPECT_EQ(heard->private_data_bytes, rdma::kMaxPrivateData);
}

TEST_F(DriverConnectorTest, reject_ends_the_request_and_says_why) {
  knock();
  const segment::Event wanted = request();
  expect_heard(answer(CommandType::Reject, wanted), rdma::CmEventType::Rejected);
  EXPECT_EQ(parts_.status_of(answer(CommandType::Reject, wanted)), CommandStatus::UnknownConnection);
  EXPECT_EQ(parts_.status_of(answer(CommandType::Accept, wanted)), CommandStatus::UnknownConnection);
}

TEST_F(DriverConnectorTest, a_client_that_goes_before_it_is_answered_takes_its_request_along) {
  const rdma::CmId id = knock();
  const segment::Event wanted = request();
  client_->connection_manager()->disconnect(id);
  poll_server();
  EXPECT_EQ(parts_.status_of(answer(CommandType::Accept, wanted)), CommandStatus::UnknownConnection);
  EXPECT_EQ(parts_.connections.in_use(), 0u);
}

TEST_F(DriverConnectorTest, a_request_that_the_driver_has_lost_fails_and_its_connection_ends) {
  const rdma::CmId id = knock();
  const segment::Event wanted = request();
  server_->connection_manager()->reject(static_cast<rdma::CmId>(wanted.cm_id), {});
  EXPECT_EQ(parts_.status_of(answer(CommandType::Accept, wanted)), CommandStatus::Failed);
  parts_.settle();
  parts_.setup.report_closed();
  const auto down = parts_.segment.event();
  ASSERT_TRUE(down && down->type == EventType::ConnectionDown);
  EXPECT_EQ(down->cm_id, wanted.cm_id);
  EXPECT_NE(down->incarnation, 0u);
  EXPECT_EQ(parts_.connections.in_use(), 0u);
  client_->connection_manager()->disconnect(id);
}

TEST_F(DriverConnectorTest, a_client_that_has_not_noticed_its_acceptance_is_not_up) {
  knock();
  const segment::Event done = parts_.run(answer(CommandType::Accept, request()));
  EXPECT_NE(done.queue_pair, 0u);
  rpcrdma::Connection& connection =
      parts_.connections.connection(static_cast<std::uint16_t>(done.connection));
  parts_.setup.check_peer_ready(connection);
  EXPECT_FALSE(parts_.connections.record(connection).established);
  EXPECT_TRUE(client_event());
  poll_server();
  EXPECT_TRUE(parts_.connections.record(connection).established);
}

TEST_F(DriverConnectorTest, without_a_free_connection_the_client_is_refused_and_that_is_counted) {
  for (std::uint32_t i = 0; i < kConnections; ++i) accepted();
  parts_.segment.events();
  knock();
  EXPECT_EQ(parts_.status_of(answer(CommandType::Accept, request())), CommandStatus::NoRoom);
  EXPECT_EQ(parts_.counters.connect_requests_refused, 1u);
  const auto heard = client_event();
  EXPECT_TRUE(heard && heard->type == rdma::CmEventType::Rejected);
}

TEST_F(DriverConnectorTest, requests_beyond_the_limit_are_refused_at_once) {
  for (std::size_t i = 0; i < kMaxPendingRequests + 1; ++i) knock();
  poll_server();
  EXPECT_EQ(parts_.counters.connect_requests, kMaxPendingRequests + 1);
  EXPECT_EQ(parts_.counters.connect_requests_refused, 1u);
  EXPECT_EQ(parts_.segment.events().size(), kMaxPendingRequests);
}

TEST_F(DriverConnectorTest, a_client_that_leaves_is_reported_with_the_reason) {
  rpcrdma::Connection& connection = accepted();
  const auto cm_id = static_cast<std::uint32_t>(parts_.connections.record(connection).cm_id);
  parts_.segment.events();
  peers_.clear();
  poll_server();
  parts_.setup.report_closed();
  const auto down = parts_.segment.event();
  ASSERT_TRUE(down && down->type == EventType::ConnectionDown);
  EXPECT_EQ(down->cm_id, cm_id);
  EXPECT_EQ(down->connection, connection.number());
  EXPECT_NE(down->reason, 0u);
  EXPECT_EQ(parts_.connections.in_use(), 0u);
  EXPECT_EQ(parts_.segment.entry(connection.number()).state, segment::ConnectionState::Unused);
}

TEST_F(DriverConnectorTest, a_client_that_disconnects_ends_its_connection_and_is_the_reason) {
  const rdma::CmId id = knock();
  const segment::Event done = parts_.run(answer(CommandType::Accept, request()));
  EXPECT_TRUE(client_event());
  poll_server();
  client_->connection_manager()->disconnect(id);
  parts_.setup.poll();
  const rpcrdma::Connection& connection =
      parts_.connections.connection(static_cast<std::uint16_t>(done.connection));
  EXPECT_FALSE(connection.is_open());
  EXPECT_EQ(connection.close_reason(), rpcrdma::CloseReason::PeerClosed);
}

TEST_F(DriverConnectorTest, a_draining_connection_without_a_call_is_disconnected) {
  rpcrdma::Connection& connection = accepted();
  parts_.setup.close_if_drained(connection);
  EXPECT_TRUE(connection.is_open());
  parts_.connections.record(connection).draining = true;
  parts_.setup.close_if_drained(connection);
  EXPECT_EQ(connection.close_reason(), rpcrdma::CloseReason::LocalClose);
  const auto heard = client_event();
  EXPECT_TRUE(heard && heard->type == rdma::CmEventType::Disconnected);
}

TEST_F(DriverConnectorTest, a_dialed_connection_takes_the_size_that_the_server_receives) {
  Caller caller(parts_);
  client_->connection_manager()->listen(kPort + 1);  // it plays the server
  rdma_server::Server server = kServer;
  server.port = kPort + 1;
  rpcrdma::Connection* const connection = parts_.dialer.dial(server, caller.requester, caller.callee);
  ASSERT_NE(connection, nullptr);
  const auto wanted = client_event();
  ASSERT_TRUE(wanted && wanted->type == rdma::CmEventType::ConnectRequest);
  peers_.push_back(client_->create_queue_pair({}));
  const auto data = rpcrdma::encode_private_data({.receive_bytes = 2048});
  ASSERT_TRUE(client_->connection_manager()->accept(wanted->id, *peers_.back(), data));
  poll_server();
  EXPECT_EQ(connection->config().send_inline_bytes, 2048u);
  EXPECT_EQ(parts_.segment.entry(connection->number()).outgoing, 1u);
  parts_.dialer.hang_up(*connection, rpcrdma::CloseReason::LocalClose);
  EXPECT_EQ(connection->close_reason(), rpcrdma::CloseReason::LocalClose);
  parts_.settle();
}

}  // namespace
}  // namespace sluice::reactor
