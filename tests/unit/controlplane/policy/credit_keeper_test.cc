// SPDX-License-Identifier: Apache-2.0
//
// Admission and credits on the rings of a segment, with the test in the part of the data plane and its
// clients.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "controlplane/cm/connection_keeper.h"
#include "controlplane/config/describe.h"
#include "controlplane/policy/credit_keeper.h"

namespace sluice {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;
const PeerAddress kServer = PeerAddress::from_ipv4(192, 0, 2, 1);

PeerAddress client(std::uint8_t last) {
  return PeerAddress::from_ipv4(192, 0, 2, last);
}

config::Config configuration(const std::string& more = "") {
  return config::parse(
      "[transport]\ncredits = 64\nmax_connections = 300\n[device]\ndriver = \"softroce\"\nethdev = \"x\"\n"
      "addresses = [\"192.0.2.1/24\"]\n" +
          more,
      "test");
}

class Keepers : public ::testing::Test {
 protected:
  Keepers() { segment::Segment::remove(name_); }
  ~Keepers() override { segment::Segment::remove(name_); }

  void start(const std::string& more) {
    config_ = configuration(more);
    segment_ = segment::Segment::open_or_create(name_);
    credits_ = std::make_unique<policy::CreditKeeper>(layout(), config_);
    keeper_ = std::make_unique<cm::ConnectionKeeper>(layout(), config_, *credits_);
    keeper_->rebuild();
  }
  segment::Layout& layout() { return segment_->layout(); }

  /// The data plane shows a connection.
  void show(std::uint32_t number, const PeerAddress& peer, std::uint32_t client_class, std::uint32_t granted,
            segment::ConnectionState state = segment::ConnectionState::Open) {
    segment::ConnectionUse& use = layout().reactors[0].use[number];
    use.open = state == segment::ConnectionState::Unused ? 0 : 1;
    use.granted = granted;
    segment::ConnectionInfo info;
    info.state = state;
    info.cm_id = 1000 + number;
    info.client_class = client_class;
    info.peer = peer;
    layout().reactors[0].connections[number].write(info);
  }
  /// It works off its commands: what was set, by connection.
  std::map<std::uint32_t, segment::Command> take_commands() {
    std::map<std::uint32_t, segment::Command> last;
    segment::Command command;
    while (layout().reactors[0].commands.pop(command)) {
      EXPECT_EQ(command.type, segment::CommandType::SetCredits);
      EXPECT_EQ(command.cm_id, 1000 + command.connection);
      layout().reactors[0].use[command.connection].granted = command.first_grant;
      last[command.connection] = command;
    }
    return last;
  }

  const std::string name_ = "sluice-keeper-test-" + std::to_string(::getpid());
  config::Config config_;
  std::unique_ptr<segment::Segment> segment_;
  std::unique_ptr<policy::CreditKeeper> credits_;
  std::unique_ptr<cm::ConnectionKeeper> keeper_;
};

TEST_F(Keepers, grants_go_to_living_connections_and_follow_their_use) {
  start("[policy]\nslots = 100\nidle_s = 5\n");
  for (std::uint32_t i = 0; i < 10; ++i) show(i, client(10), 0, 64);
  credits_->poll(kSecond);
  auto set = take_commands();
  ASSERT_EQ(set.size(), 10u);
  for (const auto& [number, command] : set) EXPECT_EQ(command.first_grant, 10u);
  EXPECT_EQ(credits_->start_of(0, client(9)).credits, 10u) << "a newcomer gets what the others have";
  // One works, nine do not: they are idle in the end, and it has the most there is.
  for (std::uint64_t now = 2; now < 20; ++now) {
    layout().reactors[0].use[4].calls = now;
    layout().reactors[0].use[4].peak_busy = layout().reactors[0].use[4].granted.load();
    credits_->poll(now * kSecond);
    take_commands();
  }
  EXPECT_EQ(layout().reactors[0].use[4].granted, 64u);
  EXPECT_EQ(layout().reactors[0].use[5].granted, 1u);
  // It ends, and another takes its place: judged anew.
  show(4, client(10), 0, 64, segment::ConnectionState::Unused);
  credits_->poll(21 * kSecond);
  EXPECT_EQ(credits_->policy(0).connections(), 9u);
  EXPECT_GT(credits_->statistics().changes, 10u);
}

TEST_F(Keepers, a_full_ring_delays_grants_and_loses_none) {
  start("[policy]\nslots = 300\n");
  for (std::uint32_t i = 0; i < 300; ++i) show(i, client(static_cast<std::uint8_t>(1 + i / 2)), 0, 64);
  credits_->poll(kSecond);
  std::map<std::uint32_t, segment::Command> all;
  for (int turn = 0; turn < 5; ++turn) {
    all.merge(take_commands());
    credits_->poll(kSecond + 1);
  }
  EXPECT_EQ(all.size(), 300u);
  for (const auto& [number, command] : all) EXPECT_EQ(command.first_grant, 1u);
}

TEST_F(Keepers, a_control_plane_that_takes_over_goes_on_with_what_is_granted) {
  start("[policy]\nslots = 20\n");
  for (std::uint32_t i = 0; i < 4; ++i) show(i, client(10), 0, 5);
  credits_->poll(kSecond);
  EXPECT_TRUE(take_commands().empty());
  EXPECT_EQ(credits_->policy(0).granted(3), 5u);
}

TEST_F(Keepers, a_reload_moves_connections_to_their_new_class) {
  start("");
  show(0, client(10), 0, 64);
  show(1, client(77), 0, 64);
  credits_->poll(kSecond);
  EXPECT_TRUE(take_commands().empty());
  config_ = config::live_part(
      config_,
      configuration("[[client_class]]\nname = \"few\"\nclients = [\"192.0.2.77/32\"]\nmax_credits = 3\n"));
  credits_->reconfigure();
  credits_->poll(kSecond + 1);
  const auto set = take_commands();
  ASSERT_EQ(set.size(), 1u);
  EXPECT_EQ(set.at(1).first_grant, 3u);
  EXPECT_EQ(set.at(1).client_class, 1u);
  EXPECT_EQ(credits_->start_of(0, client(77)).credits, 3u);
  EXPECT_EQ(credits_->start_of(0, client(78)).credits, 64u);
}

/// Connection requests as they come off the network.
class Requests : public Keepers {
 protected:
  void ask(const PeerAddress& from, std::uint64_t now_ns) {
    cm::ConnectRequest request{.local_id = ++asked_,
                               .service_id = cm::service_id(20049),
                               .qpn = 0x100 + asked_,
                               .initiator_depth = 4,
                               .starting_psn = 7,
                               .path_mtu = 5};
    request.private_data.set(cm::encode_ip_addressing({1, from, kServer}));
    segment::Punt punt;
    punt.datagram.local = kServer;
    punt.datagram.remote = from;
    punt.datagram.bytes = cm::kMadBytes;
    const auto mad = cm::encode({asked_, request});
    std::copy(mad.begin(), mad.end(), punt.datagram.data.begin());
    ASSERT_TRUE(layout().reactors[0].punt_up.push(punt));
    keeper_->poll(now_ns);
  }
  /// Why the newest request was rejected; nothing when it was not.
  std::optional<cm::RejectReason> rejected() {
    segment::Punt punt;
    std::optional<cm::RejectReason> reason;
    while (layout().reactors[0].punt_down.pop(punt)) {
      const auto [status, message] = cm::decode(std::span(punt.datagram.data).first(cm::kMadBytes));
      if (status == cm::Decode::Ok && std::holds_alternative<cm::ConnectReject>(message.body))
        reason = std::get<cm::ConnectReject>(message.body).reason;
    }
    return reason;
  }
  std::optional<segment::Command> establish() {
    segment::Command command;
    std::optional<segment::Command> found;
    while (layout().reactors[0].commands.pop(command))
      if (command.type == segment::CommandType::Establish) found = command;
    return found;
  }
  std::uint32_t asked_ = 0;
};

TEST_F(Requests, an_admitted_client_gets_the_credits_of_its_class) {
  start("[[client_class]]\nname = \"few\"\nclients = [\"192.0.2.77/32\"]\nmax_credits = 3\n");
  ask(client(77), kSecond);
  const auto command = establish();
  ASSERT_TRUE(command);
  EXPECT_EQ(command->credits, 64u) << "room for all it may ever have";
  EXPECT_EQ(command->first_grant, 3u);
  EXPECT_EQ(command->client_class, 1u);
  EXPECT_FALSE(rejected());
}

TEST_F(Requests, limits_are_a_lack_of_resources_and_draining_is_a_refusal) {
  start(
      "[policy]\nmax_connections_per_client = 1\n[admission]\nmax_connections = 2\nmax_requests_per_second = "
      "100\n"
      "max_requests_per_second_per_client = 3\n");
  ask(client(10), kSecond);
  EXPECT_TRUE(establish());
  ask(client(10), kSecond);  // more than one
  EXPECT_EQ(rejected(), cm::RejectReason::NoResources);
  EXPECT_FALSE(establish());
  ask(client(11), kSecond);
  EXPECT_TRUE(establish());
  ask(client(12), kSecond);  // more than two in all
  EXPECT_EQ(rejected(), cm::RejectReason::NoResources);
  for (int i = 0; i < 3; ++i) ask(client(12), kSecond);  // too fast
  EXPECT_EQ(rejected(), cm::RejectReason::NoResources);
  EXPECT_EQ(keeper_->admission().count(policy::Verdict::TooManyOfClient), 1u);
  EXPECT_EQ(keeper_->admission().count(policy::Verdict::TooManyConnections), 3u);
  EXPECT_EQ(keeper_->admission().count(policy::Verdict::TooFastOfClient), 1u);
  keeper_->set_draining(true);
  ask(client(13), 5 * kSecond);
  EXPECT_EQ(rejected(), cm::RejectReason::Consumer);
  EXPECT_FALSE(establish());
}

/// A reactor that dials a server, and the server, whose messages come through the punt ring.
class Outgoing : public Keepers {
 protected:
  static constexpr std::uint32_t kConnection = 5;
  static constexpr std::uint32_t kQueuePair = 0x42;
  static constexpr std::uint32_t kServersId = 900;

  void want() {
    segment::Event event{.type = segment::EventType::ConnectWanted,
                         .connection = kConnection,
                         .queue_pair = kQueuePair,
                         .port = 20049,
                         .peer = client(99),
                         .local = kServer,
                         .path_mtu = 4096};
    event.private_data_bytes = 4;
    tell(event);
  }
  void tell(const segment::Event& event) {
    ASSERT_TRUE(layout().reactors[0].events.push(event));
    keeper_->poll(now_ns_ += 1000);
  }
  template <typename Body>
  void answer(const Body& body) {
    segment::Punt punt;
    punt.datagram.local = kServer;
    punt.datagram.remote = client(99);
    punt.datagram.bytes = cm::kMadBytes;
    const auto mad = cm::encode({transaction_, body});
    std::copy(mad.begin(), mad.end(), punt.datagram.data.begin());
    ASSERT_TRUE(layout().reactors[0].punt_up.push(punt));
    keeper_->poll(now_ns_ += 1000);
  }
  /// The newest message of this kind that was sent.
  template <typename Body>
  std::optional<Body> sent() {
    segment::Punt punt;
    std::optional<Body> found;
    while (layout().reactors[0].punt_down.pop(punt)) {
      EXPECT_EQ(punt.datagram.remote, client(99));
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
  /// The reactor has connected the queue pair.
  void confirm(const segment::Command& connect) {
    tell({.type = segment::EventType::CommandDone,
          .id = connect.id,
          .status = segment::CommandStatus::Done,
          .cm_id = connect.cm_id,
          .connection = kConnection,
          .queue_pair = kQueuePair,
          .peer = {}});
  }
  /// Until the queue pair is connected.
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

  std::uint64_t transaction_ = 0;
  std::uint64_t now_ns_ = kSecond;
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
  EXPECT_EQ(connect->attributes.responder_resources, 8);  // what the server reads at us
  EXPECT_EQ(connect->attributes.initiator_depth, 4);
  EXPECT_EQ(connect->send_inline_bytes, 1024u);  // it has not said more
  EXPECT_FALSE(sent<cm::ReadyToUse>());
  confirm(*connect);
  EXPECT_TRUE(sent<cm::ReadyToUse>());
  EXPECT_EQ(keeper_->connections(), 0u);  // it is no client
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

TEST_F(Outgoing, a_server_that_never_answers_is_a_failure_in_the_end) {
  start("");
  want();
  std::optional<segment::Command> failed;
  int requests = 0;
  for (int i = 0; i < 3000 && !failed; ++i) {
    keeper_->poll(now_ns_ += kSecond / 10);
    requests += sent<cm::ConnectRequest>() ? 1 : 0;
    failed = command(segment::CommandType::ConnectFailed);
  }
  ASSERT_TRUE(failed);
  EXPECT_GT(requests, 3);
}

TEST_F(Outgoing, the_ends_of_a_connection_are_told_to_the_other_side) {
  start("");
  segment::Command connect = establish();
  tell({.type = segment::EventType::ConnectionDown,
        .cm_id = connect.cm_id,
        .connection = kConnection,
        .queue_pair = kQueuePair,
        .outgoing = 1,
        .peer = client(99)});
  EXPECT_TRUE(sent<cm::DisconnectRequest>());
  connect = establish();
  answer(cm::DisconnectRequest{.local_id = kServersId, .remote_id = connect.cm_id, .remote_qpn = kQueuePair});
  const auto ended = command(segment::CommandType::Ended);
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->cm_id, connect.cm_id);
}

TEST_F(Outgoing, one_that_the_reactor_gives_up_on_its_way_is_withdrawn) {
  start("");
  want();
  const auto request = sent<cm::ConnectRequest>();
  ASSERT_TRUE(request);
  tell({.type = segment::EventType::ConnectionDown,
        .connection = kConnection,
        .queue_pair = kQueuePair,
        .outgoing = 1,
        .peer = client(99)});
  sent<cm::ConnectRequest>();
  answer(reply_to(*request));
  EXPECT_FALSE(command(segment::CommandType::Connect));
}

}  // namespace
}  // namespace sluice
