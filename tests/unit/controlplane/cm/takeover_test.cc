// SPDX-License-Identifier: Apache-2.0
//
// A control plane that starts beside a data plane that has connections, and a data plane that starts anew
// beside a control plane. The test plays the reactor and the clients.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "controlplane/cm/connection_keeper.h"
#include "tests/unit/controlplane/lab.h"

namespace sluice {
namespace {

const PeerAddress kServer = PeerAddress::from_ipv4(192, 0, 2, 1);

class Takeover : public ::testing::Test {
 protected:
  void SetUp() override {
    config_ = lab::configuration(
        "[policy]\nmax_connections_per_client = 300\n[admission]\nmax_requests_per_second = 1000000\n"
        "max_requests_per_second_per_client = 1000000\n");
    start();
  }
  /// A control plane; the one before, if any, was killed.
  void start() {
    keeper_.reset();
    credits_ = std::make_unique<policy::CreditKeeper>(layout(), config_.credit_settings());
    keeper_ = std::make_unique<cm::ConnectionKeeper>(layout(), config_, *credits_);
    keeper_->rebuild();
  }
  segment::Layout& layout() { return segment_.layout(); }
  segment::ReactorArea& area() { return layout().reactors[0]; }
  void poll() { keeper_->poll(now_ns_ += 1'000'000); }

  template <typename Body>
  void send(const PeerAddress& from, std::uint64_t transaction, const Body& body) {
    segment::Punt punt;
    punt.datagram.local = kServer;
    punt.datagram.remote = from;
    punt.datagram.bytes = cm::kMadBytes;
    const auto mad = cm::encode({transaction, body});
    std::copy(mad.begin(), mad.end(), punt.datagram.data.begin());
    ASSERT_TRUE(area().punt_up.push(punt));
  }
  void ask(std::uint32_t number) {
    cm::ConnectRequest request{.local_id = number,
                               .service_id = cm::service_id(20049),
                               .qpn = 0x1000 + number,
                               .initiator_depth = 4,
                               .starting_psn = 7,
                               .path_mtu = 5};
    request.private_data.set(cm::encode_ip_addressing({1, client(number), kServer}));
    send(client(number), number, request);
    poll();
  }
  static PeerAddress client(std::uint32_t number) {
    return lab::client(static_cast<std::uint8_t>(1 + number % 200));
  }
  /// The newest message of a kind to the clients.
  template <typename Body>
  std::optional<Body> sent() {
    segment::Punt punt;
    std::optional<Body> found;
    while (area().punt_down.pop(punt)) {
      const auto message = cm::decode(std::span(punt.datagram.data).first(cm::kMadBytes)).message;
      if (const auto* body = std::get_if<Body>(&message.body)) found = *body;
    }
    return found;
  }
  std::optional<segment::Command> command(segment::CommandType type) {
    segment::Command command;
    std::optional<segment::Command> found;
    while (area().commands.pop(command))
      if (command.type == type) found = command;
    return found;
  }
  /// The reactor makes the queue pair, and says so.
  void make(const segment::Command& establish, std::uint32_t place) {
    segment::ConnectionInfo info;
    info.state = segment::ConnectionState::Opening;
    info.cm_id = establish.cm_id;
    info.queue_pair = 0x100 + place;
    info.peer = establish.attributes.remote;
    info.cm_state = establish.cm_state;
    area().connections[place].write(info);
    ASSERT_TRUE(area().events.push({.type = segment::EventType::CommandDone,
                                    .id = establish.id,
                                    .status = segment::CommandStatus::Done,
                                    .cm_id = establish.cm_id,
                                    .connection = place,
                                    .queue_pair = info.queue_pair,
                                    .peer = {}}));
  }
  void open(std::uint32_t place) {
    auto info = area().connections[place].read();
    ASSERT_TRUE(info);
    info->state = segment::ConnectionState::Open;
    area().connections[place].write(*info);
  }
  /// False when the client was refused.
  bool connect(std::uint32_t number, std::uint32_t place) {
    ask(number);
    const auto establish = command(segment::CommandType::Establish);
    if (!establish) return false;
    make(*establish, place);
    poll();
    const auto reply = sent<cm::ConnectReply>();
    if (!reply) return false;
    send(client(number), number, cm::ReadyToUse{.local_id = number, .remote_id = reply->local_id});
    poll();
    open(place);
    return command(segment::CommandType::Established).has_value();
  }

  lab::TestSegment segment_{"takeover"};
  config::Config config_;
  std::unique_ptr<policy::CreditKeeper> credits_;
  std::unique_ptr<cm::ConnectionKeeper> keeper_;
  std::uint64_t now_ns_ = lab::kSecondNs;
};

TEST_F(Takeover, a_data_plane_that_starts_anew_leaves_nothing_behind) {
  std::uint32_t number = 0;
  for (int generation = 1; generation <= 4; ++generation) {
    for (std::uint32_t place = 0; place < 300; ++place)
      ASSERT_TRUE(connect(++number, place)) << "generation " << generation << ", place " << place;
    // The data plane loses all, and comes back empty. Its clients do not say anything.
    for (std::uint32_t place = 0; place < 300; ++place) area().connections[place].write({});
    keeper_->rebuild();
    EXPECT_TRUE(sent<cm::DisconnectRequest>()) << "a client that is still there is told";
    for (int i = 0; i < 100; ++i) keeper_->poll(now_ns_ += lab::kSecondNs), sent<cm::ConnectReply>();
  }
}

TEST_F(Takeover, connections_that_are_there_are_not_forgotten) {
  ASSERT_TRUE(connect(1, 0));
  keeper_->rebuild();
  poll();
  EXPECT_FALSE(sent<cm::DisconnectRequest>());
  EXPECT_FALSE(command(segment::CommandType::Ended));
  send(client(1), 77, cm::DisconnectRequest{.local_id = 1, .remote_id = area().connections[0].read()->cm_id});
  poll();
  EXPECT_TRUE(command(segment::CommandType::Ended));
}

/// The control plane dies after the queue pair was made, and before the client had its reply.
class OfOpening : public Takeover {
 protected:
  void begin() {
    ask(5);
    establish_ = command(segment::CommandType::Establish).value_or(segment::Command{});
    ASSERT_NE(establish_.cm_id, 0u);
  }
  void expect_reply_and_connect(std::uint32_t place) {
    const auto reply = sent<cm::ConnectReply>();
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->local_id, establish_.cm_id);
    EXPECT_EQ(reply->remote_id, 5u);
    EXPECT_EQ(reply->qpn, 0x100 + place);
    EXPECT_EQ(reply->starting_psn, establish_.attributes.receive_psn);
    EXPECT_EQ(reply->responder_resources, establish_.attributes.responder_resources);
    EXPECT_EQ(reply->initiator_depth, establish_.attributes.initiator_depth);
    EXPECT_TRUE(std::equal(establish_.private_data, establish_.private_data + establish_.private_data_bytes,
                           reply->private_data.bytes.begin()));
    send(client(5), 5, cm::ReadyToUse{.local_id = 5, .remote_id = reply->local_id});
    poll();
    const auto established = command(segment::CommandType::Established);
    ASSERT_TRUE(established);
    EXPECT_EQ(established->cm_id, establish_.cm_id);
    EXPECT_EQ(keeper_->connections(), 1u);
  }

  segment::Command establish_;
};

TEST_F(OfOpening, the_reply_is_sent_by_the_successor) {
  begin();
  make(establish_, 3);
  start();
  poll();
  expect_reply_and_connect(3);
}

TEST_F(OfOpening, a_request_that_comes_again_is_answered_by_the_same_reply) {
  begin();
  make(establish_, 3);
  start();
  poll();
  sent<cm::ConnectReply>();  // lost
  ask(5);
  EXPECT_FALSE(command(segment::CommandType::Establish)) << "a second connection of the same queue pair";
  expect_reply_and_connect(3);
}

TEST_F(OfOpening, a_command_that_was_still_in_the_ring_is_taken_over_when_it_is_done) {
  begin();
  start();
  poll();
  make(establish_, 4);
  poll();
  poll();  // timers come before events
  expect_reply_and_connect(4);
}

TEST_F(OfOpening, one_whose_client_has_asked_again_meanwhile_ends) {
  begin();
  start();
  ask(5);
  const auto second = command(segment::CommandType::Establish);
  ASSERT_TRUE(second);
  make(establish_, 4);
  poll();
  const auto ended = command(segment::CommandType::Ended);
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->cm_id, establish_.cm_id);
  establish_ = *second;
  make(*second, 5);
  poll();
  expect_reply_and_connect(5);
}

}  // namespace
}  // namespace sluice
