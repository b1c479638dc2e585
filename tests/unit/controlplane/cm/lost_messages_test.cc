// SPDX-License-Identifier: Apache-2.0
//
// Messages between the planes that are lost, late or duplicated, or that reach another control plane or data
// plane.
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

#include "tests/unit/controlplane/cm/keeper_lab.h"

namespace sluice {
namespace {

TEST_F(Requests, a_request_waits_for_room_in_the_ring) {
  start("");
  fill(area().commands);
  ask(lab::client(10), lab::kSecondNs);
  EXPECT_FALSE(rejected());
  EXPECT_EQ(outbox_->statistics().commands_delayed, 1u);
  EXPECT_EQ(keeper_->connections(), 1u);
  EXPECT_FALSE(establish()) << "takes what filled the ring";
  keeper_->poll(lab::kSecondNs + 1);
  EXPECT_TRUE(establish());
}

TEST_F(Requests, one_whose_peer_gives_up_while_it_waits_is_not_made) {
  start("");
  fill(area().commands);
  ask(lab::client(10), lab::kSecondNs);
  for (std::uint64_t s = 2; s < 60; ++s) keeper_->poll(s * lab::kSecondNs);  // until the agent's own timeout
  EXPECT_EQ(outbox_->waiting(), 0u);
  EXPECT_EQ(keeper_->connections(), 0u);
}

TEST_F(Requests, one_that_is_made_though_nobody_waits_for_it_any_longer_ends) {
  start("");
  ask(lab::client(10), lab::kSecondNs);
  const auto command = establish();
  ASSERT_TRUE(command);
  for (std::uint64_t s = 2; s < 60; ++s) keeper_->poll(s * lab::kSecondNs);
  EXPECT_EQ(keeper_->connections(), 0u);
  tell(made(4, *command, lab::client(10)), 60 * lab::kSecondNs);
  EXPECT_EQ(segment_.course(4).end, segment::End::PeerGone);
  hide(4);
  look_everywhere(61 * lab::kSecondNs);
  EXPECT_EQ(keeper_->connections(), 0u);
}

TEST_F(Requests, datagrams_wait_for_room) {
  start("");
  fill(area().punt_down);
  ask(lab::client(10), lab::kSecondNs);
  const auto command = establish();
  ASSERT_TRUE(command);
  tell(made(4, *command, lab::client(10)), lab::kSecondNs);
  EXPECT_EQ(outbox_->statistics().datagrams_delayed, 1u);
  segment::Punt punt;
  while (area().punt_down.pop(punt)) {
  }
  keeper_->poll(lab::kSecondNs + 1);
  ASSERT_TRUE(area().punt_down.pop(punt));
  const auto [status, message] = cm::decode(std::span(punt.datagram.data).first(cm::kMadBytes));
  EXPECT_TRUE(std::holds_alternative<cm::ConnectReply>(message.body));
}

TEST_F(Requests, the_end_of_a_connection_is_known_to_the_reactor_whatever_is_full) {
  start("");
  const cm::ConnectReply reply = connect(7, lab::client(10), lab::kSecondNs);
  fill_rings();
  say(cm::DisconnectRequest{.local_id = asked_, .remote_id = reply.local_id, .remote_qpn = 0x107},
      lab::client(10), 2 * lab::kSecondNs);
  EXPECT_EQ(segment_.course(7).end, segment::End::PeerGone);
}

TEST_F(Requests, three_hundred_ends_at_once_are_counted_though_most_events_are_lost) {
  start("[policy]\nmax_connections_per_client = 300\n");
  for (std::uint32_t i = 0; i < 300; ++i) segment_.publish(i, lab::client(10), 0, 4);
  take_over();
  ASSERT_EQ(keeper_->connections(), 300u);
  for (std::uint32_t i = 0; i < 300; ++i) hide(i);
  area().events.push({.type = segment::EventType::ConnectionDown, .connection = 5, .peer = lab::client(10)});
  keeper_->poll(2 * lab::kSecondNs);
  look_everywhere(2 * lab::kSecondNs);
  EXPECT_EQ(keeper_->connections(), 0u);
}

TEST_F(Requests, events_of_before_a_takeover_and_events_that_come_twice_count_once) {
  start("");
  segment_.publish(3, lab::client(10), 0, 64);
  const segment::Event down{
      .type = segment::EventType::ConnectionDown, .connection = 3, .peer = lab::client(10)};
  for (int i = 0; i < 3; ++i) area().events.push(down);
  take_over();
  EXPECT_EQ(keeper_->connections(), 1u);
  tell(down, lab::kSecondNs);
  EXPECT_EQ(keeper_->connections(), 1u);
  hide(3);
  tell(down, lab::kSecondNs);
  tell(down, lab::kSecondNs);
  EXPECT_EQ(keeper_->connections(), 0u);
}

TEST_F(Requests, what_a_dead_data_plane_had_is_forgotten) {
  start(
      "[policy]\nmax_connections_per_client = 300\n[admission]\nmax_requests_per_second = 1000000\n"
      "max_requests_per_second_per_client = 1000000\n");
  std::uint64_t now_ns = lab::kSecondNs;
  for (int data_plane = 0; data_plane < 4; ++data_plane) {
    for (std::uint32_t i = 0; i < 300; ++i)
      connect(i, lab::client(static_cast<std::uint8_t>(1 + i % 200)), now_ns += 1'000'000);
    EXPECT_EQ(keeper_->connections(), 300u);
    for (std::uint32_t i = 0; i < 300; ++i) hide(i);
    keeper_->on_data_plane_changed(now_ns);
    EXPECT_EQ(keeper_->connections(), 0u);
    for (int i = 0; i < 100; ++i) {
      keeper_->poll(now_ns += lab::kSecondNs);
      rejected();  // the new data plane sends everything that is queued
    }
    ASSERT_EQ(outbox_->waiting(), 0u);
  }
}

TEST_F(Requests, what_a_dead_data_plane_was_asked_for_is_refused) {
  start("");
  ask(lab::client(10), lab::kSecondNs);
  EXPECT_EQ(keeper_->connections(), 1u);
  keeper_->on_data_plane_changed(2 * lab::kSecondNs);
  EXPECT_EQ(keeper_->connections(), 0u);
  EXPECT_EQ(rejected(), cm::RejectReason::NoResources);
}

TEST_F(Requests, a_command_that_is_carried_out_after_a_takeover_makes_nothing_that_stays) {
  start("");
  ask(lab::client(10), lab::kSecondNs);
  const auto command = establish();
  ASSERT_TRUE(command);
  take_over();
  const segment::Event done = made(4, *command, lab::client(10));
  look_everywhere(2 * lab::kSecondNs);  // reads the table before the event
  EXPECT_EQ(segment_.course(4).end, segment::End::PeerGone);
  tell(done, 2 * lab::kSecondNs);
  hide(4);
  look_everywhere(2 * lab::kSecondNs);
  EXPECT_EQ(keeper_->connections(), 0u);
}

TEST_F(Requests, a_connection_is_taken_over_with_its_end) {
  start("");
  const cm::ConnectReply reply = connect(7, lab::client(10), lab::kSecondNs);
  take_over();
  EXPECT_EQ(keeper_->connections(), 1u);
  say(cm::DisconnectRequest{.local_id = asked_, .remote_id = reply.local_id, .remote_qpn = 0x107},
      lab::client(10), 2 * lab::kSecondNs);
  EXPECT_EQ(segment_.course(7).end, segment::End::PeerGone);
}

TEST_F(Requests, a_drain_is_wanted_of_all_clients_and_of_those_that_come_later_until_it_is_called_off) {
  start("");
  segment_.publish(3, lab::client(10), 0, 64);
  look_everywhere(lab::kSecondNs);
  fill_rings();
  keeper_->set_draining(true);
  segment_.publish(4, lab::client(11), 0, 64);  // was being established
  look_everywhere(lab::kSecondNs);
  EXPECT_TRUE(segment_.course(3).draining);
  EXPECT_TRUE(segment_.course(4).draining);
  take_over(true);
  EXPECT_TRUE(segment_.course(3).draining);
  rejected();  // empties the ring
  ask(lab::client(12), 2 * lab::kSecondNs);
  EXPECT_EQ(rejected(), cm::RejectReason::Consumer) << "the drain goes on under another control plane";
  take_over();
  EXPECT_FALSE(segment_.course(3).draining);
  keeper_->set_draining(true);
  keeper_->set_draining(false);
  EXPECT_FALSE(segment_.course(4).draining);
}

TEST_F(Requests, a_reactor_that_is_behind_gets_its_hint_again) {
  start("");
  segment_.publish(3, lab::client(10), 0, 64);
  look_everywhere(lab::kSecondNs);
  segment::DesiredStateWriter(area().wanted).grant(3, segment_.incarnation(3), {.credits = 2});
  std::uint32_t hint = 0;
  while (area().wanted.hints.pop(hint)) {
  }
  look_everywhere(lab::kSecondNs);
  ASSERT_TRUE(area().wanted.hints.pop(hint));
  EXPECT_EQ(hint, 3u);
  while (area().wanted.hints.pop(hint)) {
  }
  area().use[3].followed_grant = area().wanted.words[3].grant.load();
  look_everywhere(lab::kSecondNs);
  EXPECT_FALSE(area().wanted.hints.pop(hint));
  EXPECT_EQ(keeper_->watch().hints_repeated(), 1u);
}

/// The driver manages connections; the clients are processes.
class Loopback : public Keepers {
 protected:
  void start() {
    config_ =
        config::parse("[device]\ndriver = \"loopback\"\n[policy]\nmax_connections_per_client = 2\n", "test");
    take_over();
  }
  void ask(std::uint32_t cm_id) {
    ASSERT_TRUE(area().events.push(
        {.type = segment::EventType::ConnectRequest, .cm_id = cm_id, .peer = lab::client(10)}));
    keeper_->poll(lab::kSecondNs);
  }
  std::vector<segment::CommandType> commands() {
    std::vector<segment::CommandType> all;
    segment::Command command;
    while (area().commands.pop(command)) all.push_back(command.type);
    return all;
  }
};

TEST_F(Loopback, a_request_that_is_reported_twice_counts_once) {
  start();
  ask(1);
  ask(1);
  EXPECT_EQ(keeper_->connections(), 1u);
  ask(2);
  EXPECT_EQ(keeper_->connections(), 2u);
  ask(3);
  using enum segment::CommandType;
  EXPECT_EQ(commands(), (std::vector{Accept, Accept, Accept, Reject}));
  // The reactor no longer has the second connection.
  area().events.push({.type = segment::EventType::CommandDone,
                      .status = segment::CommandStatus::UnknownConnection,
                      .cm_id = 2,
                      .peer = {}});
  keeper_->poll(lab::kSecondNs);
  EXPECT_EQ(keeper_->connections(), 1u);
}

TEST_F(Loopback, a_client_is_accepted_by_name_and_its_connection_is_the_drivers) {
  start();
  ask(1);
  segment::Command accept;
  ASSERT_TRUE(area().commands.pop(accept));
  EXPECT_EQ(accept.type, segment::CommandType::Accept);
  EXPECT_EQ(accept.attributes.remote, lab::client(10));
  EXPECT_GT(accept.private_data_bytes, 0u);
  show(4, {.state = segment::ConnectionState::Open,
           .cm_id = 1,
           .incarnation = ++area().incarnations,
           .peer = lab::client(10),
           .queue_pair = 7});
  look_everywhere(2 * lab::kSecondNs);
  EXPECT_EQ(segment_.course(4).end, segment::End::No);
  EXPECT_EQ(keeper_->connections(), 1u);
  EXPECT_EQ(keeper_->agent(), nullptr);
}

TEST_F(Loopback, a_connection_that_came_and_went_unseen_holds_no_place) {
  start();
  ask(1);
  area().events.push({.type = segment::EventType::CommandDone,
                      .cm_id = 1,
                      .connection = 4,
                      .incarnation = ++area().incarnations,
                      .peer = {}});
  keeper_->poll(lab::kSecondNs);
  EXPECT_EQ(keeper_->connections(), 0u);
}

}  // namespace
}  // namespace sluice
