// SPDX-License-Identifier: Apache-2.0
//
// A control plane that starts while the data plane has connections that are being established. The test plays
// the reactor and the clients.
#include <algorithm>
#include <optional>

#include "tests/unit/controlplane/cm/keeper_lab.h"

namespace sluice {
namespace {

constexpr std::uint64_t kNowNs = 2 * lab::kSecondNs;
const PeerAddress kClient = lab::client(10);

/// The control plane dies after it has requested the queue pair, and before the client has received its
/// reply.
class OfOpening : public Requests {
 protected:
  void SetUp() override {
    start("");
    ask(kClient, lab::kSecondNs);
    establish_ = establish().value_or(segment::Command{});
    ASSERT_NE(establish_.cm_id, 0u);
  }
  /// Repeats the request, like a client that has received no reply.
  void ask_again() {
    --asked_;
    ask(kClient, kNowNs);
  }
  std::optional<cm::ConnectReply> reply() {
    segment::Punt punt;
    std::optional<cm::ConnectReply> found;
    while (area().punt_down.pop(punt)) {
      const auto message = cm::decode(std::span(punt.datagram.data).first(cm::kMadBytes)).message;
      if (const auto* body = std::get_if<cm::ConnectReply>(&message.body)) found = *body;
      transaction_ = message.transaction_id;
    }
    return found;
  }
  void expect_reply_and_connect(std::uint32_t number) {
    const auto answer = reply();
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->local_id, establish_.cm_id);
    EXPECT_EQ(answer->remote_id, asked_);
    EXPECT_EQ(answer->qpn, 0x100 + number);
    EXPECT_EQ(answer->starting_psn, establish_.attributes.receive_psn);
    EXPECT_EQ(answer->responder_resources, establish_.attributes.responder_resources);
    EXPECT_EQ(answer->initiator_depth, establish_.attributes.initiator_depth);
    EXPECT_TRUE(std::equal(establish_.private_data, establish_.private_data + establish_.private_data_bytes,
                           answer->private_data.bytes.begin()));
    say(cm::ReadyToUse{.local_id = asked_, .remote_id = answer->local_id}, kClient, kNowNs);
    EXPECT_TRUE(segment_.course(number).established);
    EXPECT_EQ(segment_.course(number).end, segment::End::No);
    EXPECT_EQ(keeper_->connections(), 1u);
  }

  segment::Command establish_;
};

TEST_F(OfOpening, the_reply_is_sent_by_the_successor) {
  made(3, establish_, kClient);
  take_over();
  keeper_->poll(kNowNs);
  expect_reply_and_connect(3);
}

TEST_F(OfOpening, an_answer_that_nobody_has_read_changes_nothing) {
  ASSERT_TRUE(area().events.push(made(3, establish_, kClient)));
  take_over();
  keeper_->poll(kNowNs);
  expect_reply_and_connect(3);
}

TEST_F(OfOpening, a_request_that_comes_again_is_answered_by_the_same_reply) {
  made(3, establish_, kClient);
  take_over();
  keeper_->poll(kNowNs);
  reply();  // lost
  ask_again();
  EXPECT_FALSE(establish()) << "a second connection of the same queue pair";
  expect_reply_and_connect(3);
}

TEST_F(OfOpening, one_whose_client_has_asked_again_meanwhile_ends) {
  take_over();
  ask_again();
  const auto second = establish();
  ASSERT_TRUE(second);
  tell(made(4, establish_, kClient), kNowNs);
  EXPECT_EQ(segment_.course(4).end, segment::End::PeerGone);
  establish_ = *second;
  hide(4);
  tell(made(5, establish_, kClient), kNowNs);
  expect_reply_and_connect(5);
}

TEST_F(OfOpening, one_that_is_to_end_is_not_gone_on_with) {
  const segment::Event event = made(3, establish_, kClient);
  segment::DesiredStateWriter(area().wanted).end(3, event.incarnation, segment::End::PeerGone);
  take_over();
  keeper_->poll(kNowNs);
  EXPECT_FALSE(reply());
}

}  // namespace
}  // namespace sluice
