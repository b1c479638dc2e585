// SPDX-License-Identifier: Apache-2.0
//
// A session of version 2 on a queue pair that only counts: credits, the order of senders, grants, the
// greeting, properties, and internal errors.
#include "dataplane/rpcrdma/v2/session.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "pmd/loopback/loopback.h"
#include "tests/unit/base/counted_invariants.h"
#include "tests/unit/rpcrdma/link/counting_queue_pair.h"

namespace sluice::rpcrdma::v2 {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr Sender kCall{Sender::Kind::Call, 0};

class SessionTest : public ::testing::Test, private SessionOwner {
 protected:
  void SetUp() override {
    context.transmit.now_ns = kSecond;
    context.assembly.provide(*device, {.accounts = 1, .large_bytes = 4096, .large = 1});
  }
  void open(const ConnectionConfig& config, VersionState version = VersionState::Version2,
            Opening opening = Opening::Complete) {
    auto made = std::make_unique<CountingQueuePair>(capacity.send_depth);
    qp = made.get();
    link.open(std::move(made), config, PeerAddress::from_ipv4(10, 0, 0, 1));
    session.open();
    link.begin(version);
    session.begin(opening);
    link.post_first_receives();
  }
  /// Runs the end of an iteration.
  void end_iteration() {
    session.send_due_grant();
    link.flush();
  }
  /// Returns the index of the control buffer of the last staged Send.
  std::uint16_t last_control() { return WrId::decode(context.transmit.stage.last().wr_id).index; }
  /// Returns whether the session had room for a set of properties, and puts the error for the sender into
  /// `refusal`.
  bool take(const Parameters& parameters) {
    std::array<std::byte, 256> body{};
    xdr::Writer writer(body);
    encode_parameters(writer, parameters);
    return session.take_properties(std::span(body).first(writer.position()), {}, refusal);
  }
  Counters& counters() { return context.counters.of(0); }

  std::shared_ptr<rdma::loopback::Fabric> fabric = rdma::loopback::Fabric::in_process({.links = 1});
  std::unique_ptr<rdma::Device> device = rdma::loopback::make_device(fabric, {.name = "session"});
  LinkContext context;
  const ConnectionCapacity capacity{.call_slots = 4, .requests = 4, .receive_bytes = 4096};
  std::vector<std::byte> receives = std::vector<std::byte>(capacity.receives() * buffer_stride(4096));
  std::vector<std::byte> control = std::vector<std::byte>(kControlBuffers * kControlBytes);
  Link link{context, *this, 0, capacity, {receives, {}}};
  Session session{link, *this, {control, {}}};
  CountingQueuePair* qp = nullptr;
  Refusal refusal;
  bool sink_has_room = true;
  std::vector<bool> sets;  ///< for each set that the owner received: whether it was the first

 private:
  void on_link_closed() noexcept override { session.on_closed(); }
  bool no_calls_in_progress() const noexcept override { return true; }
  bool on_properties(std::span<const std::byte>, bool first) noexcept override {
    sets.push_back(first);
    return sink_has_room;
  }
};

// --- The version

TEST_F(SessionTest, the_largest_send_and_the_receives_are_those_of_the_version) {
  open({.send_inline_bytes = 2048, .credit_grant = 4, .active = true, .max_version = 2},
       VersionState::AwaitingAnswer);
  EXPECT_EQ(link.send_bytes(), kDefaultSendBytes);
  EXPECT_EQ(link.receives_after(0), 5u) << "the window, and the reserve";
  link.set_send_inline_bytes(3072);
  EXPECT_EQ(link.send_bytes(), kDefaultSendBytes) << "a threshold of version 1";
  session.apply({.send_bytes = 16384});
  EXPECT_EQ(link.send_bytes(), 16384u);

  link.transition(VersionState::Version1);
  session.on_version();
  EXPECT_EQ(link.send_bytes(), 3072u);
  link.set_send_inline_bytes(1024);
  EXPECT_EQ(link.send_bytes(), 1024u);
  session.set_window(2);
  link.repost_spares();
  EXPECT_EQ(link.receives_after(0), 6u) << "the window of version 1 limits no Receives";
}

// --- Order of senders

/// The peer has granted two credits. They suffice for a reply, and for a call that leaves one credit for
/// replies.
TEST_F(SessionTest, V2_058_V2_085_whole_messages_wait_for_the_greeting_and_for_the_end_of_a_continued_one) {
  open({.credit_grant = 4, .max_version = 2}, VersionState::Version2, Opening::AwaitingProperties);
  session.flow().on_credits({1, 4});
  const auto may_send = [&] { return std::pair(session.may_reply_now(), session.may_call_now()); };
  constexpr std::pair kBoth{true, true};
  constexpr std::pair kNeither{false, false};

  EXPECT_EQ(may_send(), kNeither);
  session.transition(Opening::Complete);
  EXPECT_EQ(may_send(), kBoth);
  session.transition(Opening::AwaitingProperties);
  EXPECT_EQ(may_send(), kNeither);
  session.transition(Opening::Complete);

  const std::vector<std::byte> bytes(6000);
  const rdma::Sge payload{const_cast<std::byte*>(bytes.data()), 6000, {}};
  std::uint64_t sent = 0;
  std::uint32_t posted = 0;
  ASSERT_TRUE(session.stage_parts({.sender = {Sender::Kind::Reply, 0},
                                   .payload = {&payload, 1},
                                   .payload_bytes = 6000,
                                   .last_header_bytes = kMinMsgHeaderBytes},
                                  sent, posted));
  ASSERT_EQ(posted, 1u);
  session.flow().on_credits({4, 4});
  EXPECT_EQ(may_send(), kNeither);
  session.end_continued_message();
  EXPECT_EQ(may_send(), kBoth);
}

TEST_F(SessionTest, V2_034_V2_139_the_last_credit_is_no_calls) {
  open({.credit_grant = 4, .max_version = 2}, VersionState::Version2, Opening::Complete);
  EXPECT_TRUE(session.may_reply_now());
  EXPECT_FALSE(session.may_call_now());
  session.flow().on_send({});
  EXPECT_FALSE(session.may_reply_now());
}

TEST_F(SessionTest, V2_006_a_call_that_is_the_greeting_is_followed_by_properties) {
  open({.credits_requested = 4, .active = true, .max_version = 2}, VersionState::AwaitingAnswer,
       Opening::AwaitingCall);
  session.greet();
  EXPECT_EQ(counters().properties_sent, 0u);
  EXPECT_FALSE(session.may_send_now({Sender::Kind::Reply, 0}));
  EXPECT_TRUE(session.may_send_now(kCall));
  session.count_send(session.offer());
  session.on_call_staged();
  EXPECT_EQ(session.opening(), Opening::AwaitingProperties);
  session.greet();
  EXPECT_EQ(counters().properties_sent, 0u) << "no credit is left";
  session.flow().on_credits({2, 4});
  EXPECT_FALSE(session.may_send_now(kCall));
  session.greet();
  EXPECT_EQ(counters().properties_sent, 1u);
  EXPECT_TRUE(session.may_send_now(kCall));
}

TEST_F(SessionTest, who_may_not_send_is_retried_after_a_notice) {
  open({.credit_grant = 4, .max_version = 2});
  session.count_send({});
  EXPECT_FALSE(session.may_send_now({Sender::Kind::Reply, 0}));
  EXPECT_EQ(counters().waits_credit, 1u);
  EXPECT_FALSE(link.retry_due());
  link.notify_waiting_senders();
  EXPECT_TRUE(link.retry_due());
}

// --- Grants

TEST_F(SessionTest, V2_042_a_grant_waits_for_one_iteration_because_a_message_may_carry_it) {
  open({.credit_grant = 4, .max_version = 2});
  session.flow().on_credits({1, 4});
  end_iteration();
  EXPECT_EQ(counters().grants_sent, 0u);
  EXPECT_FALSE(context.transmit.iteration_end.empty()) << "the link is processed in the next iteration too";
  end_iteration();
  EXPECT_EQ(counters().grants_sent, 1u);
  EXPECT_EQ(qp->sent, 1u);
  EXPECT_TRUE(context.transmit.iteration_end.empty());
}

TEST_F(SessionTest, V2_036_a_peer_without_credits_gets_a_grant_in_this_iteration) {
  open({.credit_grant = 4, .max_version = 2});
  session.flow().on_credits({1, 4});
  static_cast<void>(session.flow().on_receive());
  end_iteration();
  EXPECT_EQ(counters().grants_sent, 1u);
}

TEST_F(SessionTest, an_idle_connection_sends_one_grant_for_each_interval) {
  open({.credit_grant = 4, .max_version = 2, .version2 = {.keep_alive_ns = kSecond}});
  session.flow().on_credits({4, 4});
  context.transmit.now_ns += kSecond;
  session.tick();
  EXPECT_EQ(counters().grants_sent, 0u);
  context.transmit.now_ns += 1;
  session.tick();
  session.tick();  // the first grant is staged, but not posted
  EXPECT_EQ(counters().grants_sent, 1u);
  link.flush();
  context.transmit.now_ns += kSecond;
  session.tick();
  EXPECT_EQ(counters().grants_sent, 1u);
  context.transmit.now_ns += 1;
  session.tick();
  EXPECT_EQ(counters().grants_sent, 2u);
}

// --- Properties

TEST_F(SessionTest, V2_058_V2_059_the_first_set_of_properties_counts_once_the_owner_has_taken_it) {
  open({.credit_grant = 4, .max_version = 2});
  sink_has_room = false;
  EXPECT_FALSE(take({.receive_buffer_bytes = 8192}));
  EXPECT_FALSE(session.heard_properties());
  EXPECT_EQ(link.send_bytes(), kDefaultSendBytes);
  sink_has_room = true;
  EXPECT_TRUE(take({.receive_buffer_bytes = 8192}));
  EXPECT_TRUE(session.heard_properties());
  EXPECT_EQ(session.peer_parameters().receive_buffer_bytes, 8192u);
  EXPECT_EQ(link.send_bytes(), 8192u);
  EXPECT_TRUE(take({.receive_buffer_bytes = 16384}));
  EXPECT_EQ(link.send_bytes(), 8192u);
  EXPECT_EQ(counters().late_properties, 1u);
  EXPECT_EQ(sets, (std::vector{true, true}));
}

TEST_F(SessionTest, properties_that_cannot_be_decoded_are_refused) {
  open({.credit_grant = 4, .max_version = 2});
  const std::array<std::byte, 3> body{};
  EXPECT_TRUE(session.take_properties(body, {}, refusal));
  EXPECT_TRUE(refusal.has_value());
  EXPECT_EQ(counters().bad_properties, 1u);
  EXPECT_TRUE(sets.empty());
}

TEST_F(SessionTest, V2_064_host_authentication_holds_its_memory_until_its_sends_are_complete) {
  open({.credit_grant = 4, .max_version = 2});
  session.flow().on_credits({4, 4});
  const std::vector<std::byte> octets(16);
  ASSERT_TRUE(session.send_host_authentication(octets));
  EXPECT_FALSE(session.send_host_authentication(octets)) << "the previous one is being sent";
  EXPECT_GT(session.shared_bytes(), 0u);
  EXPECT_FALSE(session.drained());
  const Sender sender = session.on_control_sent(last_control());
  EXPECT_EQ(sender.kind, Sender::Kind::Properties);
  EXPECT_EQ(session.shared_bytes(), 0u);
  EXPECT_TRUE(session.drained());
}

TEST_F(SessionTest, host_authentication_that_is_posted_keeps_its_memory_when_the_link_is_closed) {
  open({.credit_grant = 4, .max_version = 2});
  session.flow().on_credits({4, 4});
  ASSERT_TRUE(session.send_host_authentication({}));
  const std::uint16_t buffer = last_control();
  link.close(CloseReason::LocalClose);
  EXPECT_GT(session.shared_bytes(), 0u);
  session.on_control_sent(buffer);
  EXPECT_EQ(session.shared_bytes(), 0u);
}

// --- Internal errors

TEST_F(SessionTest, an_opening_out_of_order_is_counted_and_ends_the_connection) {
  open({.max_version = 2}, VersionState::Version2, Opening::AwaitingProperties);
  const CountedInvariants invariants;
  session.transition(Opening::Complete);
  EXPECT_TRUE(link.is_open());
  session.transition(Opening::AwaitingCall);
  EXPECT_EQ(invariants.failed(Invariant::connection_state), 1u);
  EXPECT_EQ(link.close_reason(), CloseReason::InternalError);
}

/// The reserve is for one message beyond the credits. The Receive for a second one does not exist.
TEST_F(SessionTest, V2_035_a_message_beyond_the_reserve_is_counted_and_ends_the_connection) {
  open({.max_version = 2}, VersionState::Version2, Opening::Complete);
  const CountedInvariants invariants;
  session.count_send({});  // the credit that each end starts with
  session.count_send({});
  EXPECT_EQ(session.flow().balance(), -1);
  EXPECT_TRUE(link.is_open());
  session.count_send({});
  EXPECT_EQ(invariants.failed(Invariant::credit_balance), 1u);
  EXPECT_EQ(link.close_reason(), CloseReason::InternalError);
  EXPECT_EQ(counters().connections_closed, 1u);
  EXPECT_EQ(counters().connection_errors, 1u);
}

TEST_F(SessionTest, a_part_of_properties_that_completes_twice_is_counted_and_ends_the_connection) {
  open({.credit_grant = 4, .max_version = 2, .version2 = {.keep_alive_ns = 1}});
  session.flow().on_credits({4, 4});
  ASSERT_TRUE(session.send_host_authentication({}));
  const std::uint16_t buffer = last_control();
  context.transmit.now_ns += kSecond;
  session.tick();  // a grant holds a second control buffer
  session.on_control_sent(buffer);
  const CountedInvariants invariants;
  session.on_control_sent(buffer);
  EXPECT_EQ(invariants.failed(Invariant::pool_balance), 1u);
  EXPECT_EQ(link.close_reason(), CloseReason::InternalError);
}

TEST_F(SessionTest, a_session_that_still_holds_buffers_when_it_is_opened_is_counted) {
  open({.credit_grant = 4, .max_version = 2});
  session.flow().on_credits({4, 4});
  ASSERT_TRUE(session.send_host_authentication({}));
  const CountedInvariants invariants;
  session.open();
  EXPECT_EQ(invariants.failed(Invariant::pool_balance), 2u) << "the control buffer, and the memory";
}

// --- States

TEST(OpeningStates, a_greeting_by_a_call_may_become_one_by_properties_and_never_the_reverse) {
  EXPECT_TRUE(may_follow(Opening::AwaitingCall, Opening::AwaitingProperties));
  EXPECT_FALSE(may_follow(Opening::AwaitingProperties, Opening::AwaitingCall));
  EXPECT_FALSE(may_follow(Opening::Complete, Opening::AwaitingCall));
}

}  // namespace
}  // namespace sluice::rpcrdma::v2
