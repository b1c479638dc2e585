// SPDX-License-Identifier: Apache-2.0
//
// A link on a queue pair that only counts: room in the stage and the send queue, the start of the clocks, and
// internal errors.
#include "dataplane/rpcrdma/link/link.h"

#include <gtest/gtest.h>

#include <array>
#include <utility>
#include <vector>

#include "dataplane/base/cache_line.h"
#include "dataplane/rpcrdma/link/link_context.h"
#include "dataplane/rpcrdma/link/version_rules.h"
#include "tests/unit/base/counted_invariants.h"

namespace sluice::rpcrdma {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

/// Accepts all work requests that fit; they complete when the test adds to `room`.
class CountingQueuePair final : public rdma::QueuePair {
 public:
  explicit CountingQueuePair(std::size_t depth) : room(depth) {}
  rdma::QueuePairNumber number() const noexcept override { return {}; }
  State state() const noexcept override { return state_; }
  std::size_t send_room() const noexcept override { return ++asked, room; }
  void to_error() noexcept override { state_ = State::Error; }
  std::size_t post_send(std::span<const rdma::SendWr> wrs) noexcept override {
    ++bursts;
    sent += wrs.size();
    room -= wrs.size();
    return wrs.size();
  }
  std::size_t post_recv(std::span<const rdma::RecvWr> wrs) noexcept override { return wrs.size(); }
  std::optional<rdma::Rkey> bind_window(rdma::MemoryWindow, std::span<std::byte>, rdma::Lkey,
                                        rdma::AccessFlags) noexcept override {
    return std::nullopt;
  }

  std::size_t room;
  std::size_t sent = 0;
  std::size_t bursts = 0;
  mutable std::size_t asked = 0;

 private:
  State state_ = State::ReadyToSend;
};

class LinkTest : public ::testing::Test, private LinkOwner {
 protected:
  void open(const ConnectionConfig& config = {}) {
    auto made = std::make_unique<CountingQueuePair>(capacity.send_depth);
    qp = made.get();
    link.open(std::move(made), config, PeerAddress::from_ipv4(10, 0, 0, 1));
  }
  void stage(std::size_t work_requests) {
    for (std::size_t i = 0; i < work_requests; ++i)
      ASSERT_TRUE(link.stage().begin(rdma::SendOpcode::Send, i, rdma::kSignaled));
  }
  Counters& counters() { return context.counters.of(0); }

  LinkContext context;
  const ConnectionCapacity capacity{.call_slots = 4, .receive_bytes = 4096};
  std::vector<std::byte> receives = std::vector<std::byte>(capacity.receives() * buffer_stride(4096));
  std::vector<std::byte> control = std::vector<std::byte>(kControlBuffers * kControlBytes);
  Link link{context, *this, 0, capacity, {receives, {}}, {control, {}}};
  CountingQueuePair* qp = nullptr;
  int closed = 0;

 private:
  void on_link_closed() noexcept override { ++closed; }
  bool no_calls_in_progress() const noexcept override { return true; }
};

// --- Receive buffers

TEST_F(LinkTest, receive_buffers_do_not_overlap_and_begin_in_different_cache_sets) {
  constexpr std::size_t kSets = 64;  // of a level 1 cache whose ways are as large as a page
  open();
  std::vector<bool> set_used(kSets);
  for (std::uint16_t i = 0; i < capacity.receives(); ++i) {
    const std::span<std::byte> buffer = link.receive_buffer(i);
    EXPECT_EQ(buffer.size(), 4096u);
    EXPECT_LE(buffer.data() + buffer.size(), receives.data() + receives.size());
    if (i > 0) {
      EXPECT_GE(buffer.data(), link.receive_buffer(i - 1).data() + 4096);
    }
    const auto set = reinterpret_cast<std::uintptr_t>(buffer.data()) / kCacheLine % kSets;
    EXPECT_FALSE(set_used[set]) << i;
    set_used[set] = true;
  }
}

TEST(BufferStride, is_an_odd_number_of_cache_lines_and_holds_the_buffer) {
  for (const std::size_t bytes : {1u, 64u, 65u, 1024u, 4096u, 8192u, 65536u, 65600u}) {
    const std::size_t stride = buffer_stride(bytes);
    EXPECT_GE(stride, bytes);
    EXPECT_LE(stride, bytes + 2 * kCacheLine);
    EXPECT_EQ(stride % (2 * kCacheLine), kCacheLine) << bytes;
  }
}

// --- Version

TEST_F(LinkTest, the_rules_and_the_shortcut_are_those_of_the_version) {
  open({.credit_grant = 4, .max_version = 2});
  link.begin(VersionState::AwaitingFirstMessage, Opening::Complete);
  EXPECT_EQ(&link.rules(), &kVersion1Rules);
  EXPECT_EQ(link.shortcut(), Shortcut::None);
  link.transition(VersionState::Version2);
  EXPECT_EQ(&link.rules(), &kVersion2Rules);
  EXPECT_EQ(link.shortcut(), Shortcut::None);  // until the intake finds the connection settled

  link.begin(VersionState::AwaitingAnswer, Opening::Complete);
  EXPECT_EQ(&link.rules(), &kVersion2Rules);
  link.transition(VersionState::Version1);
  EXPECT_EQ(&link.rules(), &kVersion1Rules);
  EXPECT_EQ(link.shortcut(), Shortcut::CallsAndReplies);
}

// --- Permission to send in version 2

/// The peer has granted two credits. They suffice for a reply, and for a call that leaves one credit for
/// replies.
TEST_F(LinkTest, V2_058_V2_085_whole_messages_wait_for_the_greeting_and_for_the_end_of_a_continued_one) {
  open({.credit_grant = 4, .max_version = 2});
  link.flow().on_credits({1, 4});
  const auto may_send = [&] { return std::pair(link.may_reply_now(), link.may_call_now()); };
  constexpr std::pair kBoth{true, true};
  constexpr std::pair kNeither{false, false};

  link.begin(VersionState::Version2, Opening::AwaitingProperties);
  EXPECT_EQ(may_send(), kNeither);
  link.transition(Opening::Complete);
  EXPECT_EQ(may_send(), kBoth);
  link.transition(Opening::AwaitingProperties);
  EXPECT_EQ(may_send(), kNeither);
  link.transition(Opening::Complete);

  const std::vector<std::byte> bytes(6000);
  const rdma::Sge payload{const_cast<std::byte*>(bytes.data()), 6000, {}};
  std::uint64_t sent = 0;
  std::uint32_t posted = 0;
  ASSERT_TRUE(link.stage_parts({.sender = {Sender::Kind::Reply, 0},
                                .payload = {&payload, 1},
                                .payload_bytes = 6000,
                                .last_header_bytes = v2::kMinMsgHeaderBytes},
                               sent, posted));
  ASSERT_EQ(posted, 1u);
  link.flow().on_credits({4, 4});
  EXPECT_EQ(may_send(), kNeither);
  link.end_continued_message();
  EXPECT_EQ(may_send(), kBoth);
}

TEST_F(LinkTest, V2_034_V2_139_the_last_credit_is_no_calls) {
  open({.credit_grant = 4, .max_version = 2});
  link.begin(VersionState::Version2, Opening::Complete);
  EXPECT_TRUE(link.may_reply_now());
  EXPECT_FALSE(link.may_call_now());
  link.flow().on_send({});
  EXPECT_FALSE(link.may_reply_now());
}

// --- Room in the stage and in the send queue

TEST_F(LinkTest, what_is_staged_is_handed_over_when_the_stage_has_no_room_for_more) {
  open();
  stage(SendStage::kMaxWrs - 2);
  EXPECT_TRUE(link.has_room(2));
  EXPECT_EQ(qp->bursts, 0u) << "a burst is one call of the driver";
  EXPECT_TRUE(link.has_room(3));
  EXPECT_EQ(qp->sent, SendStage::kMaxWrs - 2);
  EXPECT_TRUE(link.stage().empty());
}

TEST_F(LinkTest, room_in_the_send_queue_is_for_what_is_staged_as_well) {
  open();
  qp->room = 5;
  stage(3);
  EXPECT_TRUE(link.stage_fits(2));
  EXPECT_FALSE(link.stage_fits(3));
  EXPECT_FALSE(link.has_room(3)) << "handing it over makes no room in the send queue";
  EXPECT_TRUE(link.has_room(2));
  EXPECT_FALSE(link.has_room(3));
  qp->room = 3;  // one work request has completed
  EXPECT_TRUE(link.has_room(3));
}

TEST_F(LinkTest, the_driver_is_asked_for_room_only_when_what_was_known_does_not_do) {
  open();
  EXPECT_TRUE(link.has_room(1));
  const std::size_t asked = qp->asked;
  for (std::size_t left = capacity.send_depth; left > 100; left -= 100) {
    stage(100);
    ASSERT_TRUE(link.stage_fits());
    link.flush_stage();
  }
  EXPECT_EQ(qp->asked, asked);
  EXPECT_EQ(qp->sent, 1000u);
  stage(25);
  EXPECT_FALSE(link.stage_fits());
}

/// Binding a window uses entries of the send queue while a Send is staged.
TEST_F(LinkTest, room_that_others_have_taken_is_not_taken_for_free) {
  open();
  EXPECT_TRUE(link.has_room(1));
  stage(1);
  link.forget_send_room();
  link.flush_stage();
  qp->room = 5;
  EXPECT_TRUE(link.has_room(5));
  EXPECT_FALSE(link.has_room(6));
}

TEST_F(LinkTest, who_finds_no_room_is_asked_again_when_a_work_request_completes) {
  open();
  stage(1);
  link.flush();
  link.wait_for_send_room();
  EXPECT_EQ(counters().waits_send_queue, 1u);
  EXPECT_FALSE(link.retry_due());
  link.notify_waiting_senders();
  EXPECT_TRUE(link.retry_due());
}

TEST_F(LinkTest, who_waits_while_nothing_is_out_is_asked_again_in_the_next_turn) {
  open();
  link.wait_for_send_room();
  EXPECT_EQ(counters().waits_send_queue, 1u);
  EXPECT_TRUE(link.retry_due());
  EXPECT_FALSE(context.transmit.iteration_end.empty());
}

TEST_F(LinkTest, the_next_connection_knows_nothing_of_the_room_of_the_last_one) {
  open();
  EXPECT_TRUE(link.has_room(100));
  stage(1);
  link.close(CloseReason::LocalClose);
  EXPECT_EQ(qp->sent, 1u) << "it completes as flushed";
  link.release_queue_pair();
  open();
  qp->room = 10;
  EXPECT_FALSE(link.has_room(11));
  EXPECT_FALSE(link.retry_due());
}

// --- Capacity

TEST(ConnectionCapacity, a_connection_that_serves_no_calls_has_slots_for_the_errors_that_answer_them) {
  for (const std::uint32_t call_slots : {0u, 1u, 2u, 3u}) {
    const ConnectionCapacity capacity{.call_slots = call_slots, .requests = 7};
    EXPECT_EQ(capacity.slots(), call_slots == 3 ? 3u : 2u);
    EXPECT_EQ(capacity.receives(), capacity.slots() + 7 + 2) << "and two beyond both";
  }
}

// --- Clocks

/// The duration of the connection setup does not count as silence, because no message can be sent during it.
TEST_F(LinkTest, silence_counts_from_when_the_connection_is_established) {
  context.transmit.now_ns = 5 * kSecond;
  open({.probe_after_ns = kSecond});
  EXPECT_EQ(link.last_post_ns(), 5 * kSecond);
  context.transmit.now_ns = 100 * kSecond;
  link.established();
  EXPECT_EQ(link.last_post_ns(), 100 * kSecond);
  link.probe_if_silent();
  context.transmit.now_ns += kSecond - 1;
  link.probe_if_silent();
  EXPECT_EQ(counters().probes_sent, 0u);
  context.transmit.now_ns += 1;
  link.probe_if_silent();
  EXPECT_EQ(counters().probes_sent, 1u);
}

TEST_F(LinkTest, a_peer_is_probed_when_it_has_been_silent_and_the_queue_pair_is_up) {
  open({.probe_after_ns = kSecond});
  link.established();
  context.transmit.now_ns = kSecond;
  stage(SendStage::kMaxWrs);
  link.probe_if_silent();
  EXPECT_EQ(counters().probes_sent, 0u) << "a full send queue asks as well";
  link.flush();
  link.note_alive();
  link.probe_if_silent();
  EXPECT_EQ(counters().probes_sent, 0u);
  context.transmit.now_ns *= 2;
  qp->to_error();
  link.probe_if_silent();
  EXPECT_EQ(counters().probes_sent, 0u);
}

// --- Internal errors

TEST_F(LinkTest, an_opening_out_of_order_is_counted_and_ends_the_connection) {
  open({.max_version = 2});
  link.begin(VersionState::Version2, Opening::AwaitingProperties);
  const CountedInvariants invariants;
  link.transition(Opening::Complete);
  EXPECT_TRUE(link.is_open());
  link.transition(Opening::AwaitingCall);
  EXPECT_EQ(invariants.failed(Invariant::connection_state), 1u);
  EXPECT_EQ(link.close_reason(), CloseReason::InternalError);
  EXPECT_EQ(closed, 1);
}

TEST_F(LinkTest, V2_016_a_version_that_changes_is_counted_and_ends_the_connection) {
  open({.max_version = 2});
  link.begin(VersionState::AwaitingFirstMessage, Opening::Complete);
  const CountedInvariants invariants;
  link.transition(VersionState::Version1);
  EXPECT_TRUE(link.is_open());
  link.transition(VersionState::Version2);
  EXPECT_EQ(invariants.failed(Invariant::connection_state), 1u);
  EXPECT_EQ(link.close_reason(), CloseReason::InternalError);
}

/// The reserve is for one message beyond the credits. The Receive for a second one does not exist.
TEST_F(LinkTest, V2_035_a_message_beyond_the_reserve_is_counted_and_ends_the_connection) {
  open({.max_version = 2});
  link.begin(VersionState::Version2, Opening::Complete);
  const CountedInvariants invariants;
  link.count_send({});  // the credit that each end starts with
  link.count_send({});
  EXPECT_EQ(link.flow().balance(), -1);
  EXPECT_TRUE(link.is_open());
  link.count_send({});
  EXPECT_EQ(invariants.failed(Invariant::credit_balance), 1u);
  EXPECT_EQ(link.close_reason(), CloseReason::InternalError);
  EXPECT_EQ(counters().connections_closed, 1u);
  EXPECT_EQ(counters().connection_errors, 1u);
}

}  // namespace
}  // namespace sluice::rpcrdma
