// SPDX-License-Identifier: Apache-2.0
//
// Admission and connection management on a segment. The test plays the reactor and the peers.
#include <thread>

#include "controlplane/cm/connection_state.h"
#include "tests/unit/base/counted_invariants.h"
#include "tests/unit/controlplane/cm/keeper_lab.h"

namespace sluice {
namespace {

TEST_F(Keepers, a_keeper_belongs_to_the_thread_that_polls_it) {
  start("");
  keeper_->poll(lab::kSecondNs);
  std::thread([this] {
    const CountedInvariants counted;
    keeper_->poll(lab::kSecondNs);
    EXPECT_EQ(counted.failed(Invariant::object_owner), 1u);
  }).join();
}

TEST_F(Requests, an_admitted_client_gets_the_credits_of_its_class) {
  start("[[client_class]]\nname = \"few\"\nclients = [\"192.0.2.77/32\"]\nmax_credits = 3\n");
  ask(lab::client(77), lab::kSecondNs);
  const auto command = establish();
  ASSERT_TRUE(command);
  EXPECT_EQ(command->credits, 64u) << "the most that it may be granted later";
  EXPECT_EQ(command->first_grant, 3u);
  EXPECT_EQ(command->client_class, 1u);
  EXPECT_FALSE(rejected());
}

TEST_F(Requests, the_port_of_an_upstream_says_which_services_there_are) {
  start(
      "[[upstream]]\nname = \"a\"\naddress = \"192.0.2.1\"\nprograms = [\"nfs4\"]\n"
      "[[upstream]]\nname = \"b\"\naddress = \"192.0.2.2\"\nprograms = [\"nfs4\"]\nlisten_port = 20050\n");
  ask(lab::client(10), lab::kSecondNs);
  auto command = establish();
  ASSERT_TRUE(command);
  EXPECT_EQ(command->services_at, 0u);
  ask(lab::client(11), lab::kSecondNs, 20050);
  command = establish();
  ASSERT_TRUE(command);
  EXPECT_EQ(command->services_at, 20050u);
  ask(lab::client(12), lab::kSecondNs, 20051);
  EXPECT_FALSE(establish());
  EXPECT_EQ(rejected(), cm::RejectReason::InvalidServiceId);
}

TEST_F(Requests, a_port_that_a_reload_adds_is_listened_to_when_the_data_plane_serves_it) {
  const std::string first =
      "[[upstream]]\nname = \"a\"\naddress = \"192.0.2.1\"\nprograms = [\"nfs4\"]\nlisten_port = 20050\n";
  start(first);
  const std::uint64_t generation = config_.block.generation + 1;
  config_ = lab::configuration(
      first +
      "[[upstream]]\nname = \"b\"\naddress = \"192.0.2.2\"\nprograms = [\"nfs4\"]\nlisten_port = 20051\n");
  config_.block.generation = generation;
  ask(lab::client(10), lab::kSecondNs, 20051);
  EXPECT_FALSE(establish());
  EXPECT_EQ(rejected(), cm::RejectReason::InvalidServiceId);
  layout().generation_applied.store(generation);
  ask(lab::client(11), lab::kSecondNs, 20051);
  const auto command = establish();
  ASSERT_TRUE(command);
  EXPECT_EQ(command->services_at, 20051u);
  ask(lab::client(12), lab::kSecondNs, 20050);
  EXPECT_TRUE(establish()) << "the others are listened to as before";
}

/// A client with nconnect=16 sends all of its requests before it has an answer.
TEST_F(Requests, a_client_opens_sixteen_connections_at_once_with_the_default_configuration) {
  start("");
  for (int i = 0; i < 16; ++i) ask(lab::client(9), lab::kSecondNs);
  std::uint32_t accepted = 0;
  for (segment::Command command; layout().reactors[0].commands.pop(command);)
    accepted += command.type == segment::CommandType::Accept ? 1u : 0u;
  EXPECT_EQ(accepted, 16u);
  EXPECT_FALSE(rejected());
  EXPECT_EQ(keeper_->admission().connections(), 16u);
  ask(lab::client(10), lab::kSecondNs);
  EXPECT_TRUE(establish()) << "another client has a place beside them";
}

TEST_F(Requests, a_reload_gives_a_client_half_open_places_for_all_of_its_connections) {
  start("");
  config_.block.max_connections = 32;
  take_over();
  std::uint64_t now_ns = lab::kSecondNs;
  for (const std::uint32_t per_client : {16u, 24u}) {
    config_.classes[0].max_connections_per_client = per_client;
    ++config_.block.generation;
    for (std::uint32_t i = 0; i < per_client; ++i) ask(lab::client(9), now_ns);
    EXPECT_EQ(keeper_->agent()->refused_resources, 0u);
    EXPECT_EQ(keeper_->admission().connections(), per_client);
    now_ns += 60 * lab::kSecondNs;
    for (int i = 0; i < 10; ++i) keeper_->poll(now_ns);
    EXPECT_EQ(keeper_->agent()->timeouts, per_client == 16 ? 16u : 40u);
  }
}

TEST_F(Requests, limits_are_a_lack_of_resources_and_draining_is_a_refusal) {
  start(
      "[policy]\nmax_connections_per_client = 1\n[admission]\nmax_connections = 2\nmax_requests_per_second = "
      "100\n"
      "max_requests_per_second_per_client = 3\n");
  ask(lab::client(10), lab::kSecondNs);
  EXPECT_TRUE(establish());
  ask(lab::client(10), lab::kSecondNs);  // more than one
  EXPECT_EQ(rejected(), cm::RejectReason::NoResources);
  EXPECT_FALSE(establish());
  ask(lab::client(11), lab::kSecondNs);
  EXPECT_TRUE(establish());
  ask(lab::client(12), lab::kSecondNs);  // more than two in all
  EXPECT_EQ(rejected(), cm::RejectReason::NoResources);
  for (int i = 0; i < 3; ++i) ask(lab::client(12), lab::kSecondNs);  // too fast
  EXPECT_EQ(rejected(), cm::RejectReason::NoResources);
  EXPECT_EQ(keeper_->admission().count(policy::Verdict::TooManyOfClient), 1u);
  EXPECT_EQ(keeper_->admission().count(policy::Verdict::TooManyConnections), 3u);
  EXPECT_EQ(keeper_->admission().count(policy::Verdict::TooFastOfClient), 1u);
  keeper_->set_draining(true);
  ask(lab::client(13), 5 * lab::kSecondNs);
  EXPECT_EQ(rejected(), cm::RejectReason::Consumer);
  EXPECT_FALSE(establish());
}

/// A reactor that dials a server. The server's messages arrive through the punt ring.
class Outgoing : public Keepers {
 protected:
  static constexpr std::uint32_t kConnection = 5;
  static constexpr std::uint32_t kQueuePair = 0x42;
  static constexpr std::uint32_t kServersId = 900;

  /// `zone` is the interface with which a host name was resolved to the server's address.
  void want(std::uint32_t zone = 0) {
    segment::Event event{.type = segment::EventType::ConnectWanted,
                         .connection = kConnection,
                         .incarnation = ++area().incarnations,
                         .queue_pair = kQueuePair,
                         .port = 20049,
                         .peer = lab::client(99),
                         .local = kServer,
                         .path_mtu = 4096};
    event.private_data_bytes = 4;
    event.peer.zone = zone;
    shown_ = {.state = segment::ConnectionState::Opening,
              .incarnation = event.incarnation,
              .peer = lab::client(99),
              .outgoing = 1,
              .queue_pair = kQueuePair};
    show(kConnection, shown_);
    tell(event);
  }
  /// Ends the connection, as the reactor does.
  void go_down() {
    hide(kConnection);
    tell({.type = segment::EventType::ConnectionDown, .connection = kConnection, .peer = lab::client(99)});
  }
  void tell(const segment::Event& event) {
    ASSERT_TRUE(layout().reactors[0].events.push(event));
    keeper_->poll(now_ns_ += 1000);
  }
  template <typename Body>
  void answer(const Body& body) {
    segment::Punt punt;
    punt.datagram.local = kServer;
    punt.datagram.remote = lab::client(99);
    punt.datagram.bytes = cm::kMadBytes;
    const auto mad = cm::encode({transaction_, body});
    std::copy(mad.begin(), mad.end(), punt.datagram.data.begin());
    ASSERT_TRUE(layout().reactors[0].punt_up.push(punt));
    keeper_->poll(now_ns_ += 1000);
  }
  /// Returns the last message of this type that was sent.
  template <typename Body>
  std::optional<Body> sent() {
    segment::Punt punt;
    std::optional<Body> found;
    while (layout().reactors[0].punt_down.pop(punt)) {
      EXPECT_EQ(punt.datagram.remote, lab::client(99));
      const auto [status, message] = cm::decode(std::span(punt.datagram.data).first(cm::kMadBytes));
      if (status != cm::Decode::Ok || !std::holds_alternative<Body>(message.body)) continue;
      transaction_ = message.transaction_id;
      found = std::get<Body>(message.body);
    }
    return found;
  }
  std::optional<segment::Command> command(segment::CommandType type) {
    segment::Command command;
    std::optional<segment::Command> found;
    while (layout().reactors[0].commands.pop(command))
      if (command.type == type) found = command;
    return found;
  }
  cm::ConnectReply reply_to(const cm::ConnectRequest& request) {
    return {.local_id = kServersId,
            .remote_id = request.local_id,
            .qpn = 0x77,
            .starting_psn = 0x1234,
            .responder_resources = 4,
            .initiator_depth = 8};
  }
  /// Reports for the reactor that the queue pair is connected.
  void confirm(const segment::Command& connect) {
    shown_.state = segment::ConnectionState::Open;
    shown_.cm_id = connect.cm_id;
    show(kConnection, shown_);
    tell({.type = segment::EventType::CommandDone,
          .id = connect.id,
          .status = segment::CommandStatus::Done,
          .cm_id = connect.cm_id,
          .connection = kConnection,
          .incarnation = shown_.incarnation,
          .queue_pair = kQueuePair,
          .peer = {}});
  }
  /// Establishes the connection up to the connected queue pair.
  segment::Command establish() {
    want();
    const auto request = sent<cm::ConnectRequest>();
    EXPECT_TRUE(request);
    answer(reply_to(request.value_or(cm::ConnectRequest{})));
    const auto connect = command(segment::CommandType::Connect);
    EXPECT_TRUE(connect);
    confirm(*connect);
    return connect.value_or(segment::Command{});
  }

  segment::ConnectionInfo shown_;
  std::uint64_t transaction_ = 0;
  std::uint64_t now_ns_ = lab::kSecondNs;
};

TEST_F(Outgoing, a_connection_is_asked_for_made_and_confirmed) {
  start("");
  want();
  const auto request = sent<cm::ConnectRequest>();
  ASSERT_TRUE(request);
  EXPECT_EQ(request->qpn, kQueuePair);
  EXPECT_EQ(request->service_id, cm::service_id(20049));
  EXPECT_FALSE(command(segment::CommandType::Connect));
  answer(reply_to(*request));
  const auto connect = command(segment::CommandType::Connect);
  ASSERT_TRUE(connect);
  EXPECT_EQ(connect->connection, kConnection);
  EXPECT_EQ(connect->queue_pair, kQueuePair);
  EXPECT_EQ(static_cast<std::uint32_t>(connect->attributes.remote_qp), 0x77u);
  EXPECT_EQ(connect->attributes.send_psn, 0x1234u);
  EXPECT_EQ(connect->attributes.receive_psn, request->starting_psn);
  EXPECT_EQ(connect->attributes.path_mtu, 4096);
  EXPECT_EQ(connect->attributes.responder_resources, 8);  // RDMA Reads of the server
  EXPECT_EQ(connect->attributes.initiator_depth, 4);
  EXPECT_EQ(connect->send_inline_bytes, 1024u);  // the default: it announced no larger size
  EXPECT_FALSE(sent<cm::ReadyToUse>());
  confirm(*connect);
  EXPECT_TRUE(sent<cm::ReadyToUse>());
  EXPECT_EQ(keeper_->connections(), 0u);  // not counted because it is not a client
}

/// The messages of the server have no zone, because the device has one link.
TEST_F(Outgoing, the_interface_of_a_servers_address_is_no_part_of_it) {
  start("");
  want(7);
  const auto request = sent<cm::ConnectRequest>();
  ASSERT_TRUE(request);
  answer(reply_to(*request));
  const auto connect = command(segment::CommandType::Connect);
  ASSERT_TRUE(connect);
  EXPECT_EQ(connect->attributes.remote, lab::client(99));
}

TEST_F(Outgoing, a_refusal_reaches_the_reactor) {
  start("");
  want();
  const auto request = sent<cm::ConnectRequest>();
  ASSERT_TRUE(request);
  answer(cm::ConnectReject{.remote_id = request->local_id, .reason = cm::RejectReason::NoResources});
  const auto failed = command(segment::CommandType::ConnectFailed);
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->connection, kConnection);
  EXPECT_EQ(failed->queue_pair, kQueuePair);
}

TEST_F(Outgoing, a_refused_path_mtu_is_an_event_that_names_both_values) {
  start("");
  want();
  const auto request = sent<cm::ConnectRequest>();
  ASSERT_TRUE(request);
  cm::ConnectReject reject{.remote_id = request->local_id, .reason = cm::RejectReason::InvalidPathMtu};
  reject.set_path_mtu(cm::path_mtu_code(256));
  answer(reject);
  EXPECT_TRUE(command(segment::CommandType::ConnectFailed));
  const auto events = journal_.read(1, 256).events;
  ASSERT_FALSE(events.empty());
  EXPECT_STREQ(events.back().kind->name, "server_refused");
  EXPECT_EQ(std::get<std::string>(events.back().fields[1].value), "invalid_path_mtu");
  EXPECT_EQ(std::get<std::string>(events.back().fields[2].value),
            "path MTU: " + std::to_string(cm::path_mtu_bytes(request->path_mtu)) +
                " bytes requested, 256 bytes accepted");
}

TEST_F(Outgoing, a_server_that_never_answers_is_a_failure_in_the_end) {
  start("");
  want();
  std::optional<segment::Command> failed;
  int requests = 0;
  for (int i = 0; i < 3000 && !failed; ++i) {
    keeper_->poll(now_ns_ += lab::kSecondNs / 10);
    requests += sent<cm::ConnectRequest>() ? 1 : 0;
    failed = command(segment::CommandType::ConnectFailed);
  }
  ASSERT_TRUE(failed);
  EXPECT_GT(requests, 3);
}

TEST_F(Outgoing, the_ends_of_a_connection_are_told_to_the_other_side) {
  start("");
  segment::Command connect = establish();
  go_down();
  EXPECT_TRUE(sent<cm::DisconnectRequest>());
  connect = establish();
  answer(cm::DisconnectRequest{.local_id = kServersId, .remote_id = connect.cm_id, .remote_qpn = kQueuePair});
  EXPECT_EQ(segment_.course(kConnection).end, segment::End::PeerGone);
}

TEST_F(Outgoing, one_that_the_reactor_gives_up_on_its_way_is_withdrawn) {
  start("");
  want();
  const auto request = sent<cm::ConnectRequest>();
  ASSERT_TRUE(request);
  go_down();
  sent<cm::ConnectRequest>();
  answer(reply_to(*request));
  EXPECT_FALSE(command(segment::CommandType::Connect));
}

TEST_F(Outgoing, one_that_is_gone_before_its_request_is_read_is_withdrawn) {
  start("");
  const std::uint32_t incarnation = ++area().incarnations;
  tell({.type = segment::EventType::ConnectWanted,
        .connection = kConnection,
        .incarnation = incarnation,
        .queue_pair = kQueuePair,
        .port = 20049,
        .peer = lab::client(99),
        .local = kServer,
        .path_mtu = 4096});
  const auto request = sent<cm::ConnectRequest>();
  ASSERT_TRUE(request);
  answer(reply_to(*request));
  EXPECT_FALSE(command(segment::CommandType::Connect));
}

}  // namespace
}  // namespace sluice
