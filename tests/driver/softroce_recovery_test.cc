// SPDX-License-Identifier: Apache-2.0
//
// The requester half of a softroce queue pair and losses: responses that arrive out of order, which packets
// are retransmitted, and when.
#include "tests/driver/recovery_fixture.h"

namespace sluice::rdma::conformance {
namespace {

using namespace softroce;

// --- RDMA Read responses

class Responses : public Recovery {
 protected:
  static constexpr std::uint32_t kPackets = 20;  // 16 and 4 (kReadRequestPackets)

  void SetUp() override {
    Recovery::SetUp();
    ASSERT_TRUE(own.post(SendOpcode::RdmaRead, 1, {own.sge(0, 3000), own.sge(3000, kPackets * kMtu - 3000)},
                         kAddress, Rkey{5}));
    settle();
    ASSERT_EQ(sent.size(), 2u);
  }
  void respond(std::uint32_t number) {
    const Opcode opcode = number == 0 || number == 16              ? Opcode::ReadResponseFirst
                          : number == 15 || number == kPackets - 1 ? Opcode::ReadResponseLast
                                                                   : Opcode::ReadResponseMiddle;
    peer_sends(opcode, kOwnPsn + number, part(data_, number));
    settle();
  }
  void expect_read(const Sent& frame, std::uint32_t number, std::uint32_t packets) {
    EXPECT_EQ(frame.packet.bth.opcode, Opcode::ReadRequest);
    EXPECT_EQ(frame.packet.bth.psn, (kOwnPsn + number) & kPsnMask);
    EXPECT_EQ(frame.packet.reth.address, kAddress + number * kMtu);
    EXPECT_EQ(frame.packet.reth.length, packets * kMtu);
  }

  static constexpr std::uint64_t kAddress = 0x10000;
  const Bytes data_ = pattern(kPackets * kMtu);
};

TEST_F(Responses, behind_a_missing_one_are_placed_and_it_is_asked_for_at_once) {
  for (std::uint32_t number = 0; number < 5; ++number) respond(number);
  respond(7);
  ASSERT_EQ(sent.size(), 3u);
  expect_read(sent[2], 5, 11);  // to the end of its request
  for (std::uint32_t number = 8; number < kPackets; ++number) respond(number);
  EXPECT_EQ(own.find(1), nullptr);
  EXPECT_EQ(sent.size(), 3u);
  respond(5);
  respond(6);
  ASSERT_TRUE(completed(own, 1));
  EXPECT_TRUE(std::ranges::equal(data_, own.memory.bytes.first(data_.size())));
  EXPECT_EQ(statistics().stale_responses, 0u);
  respond(8);  // of the new answer
  EXPECT_EQ(statistics().stale_responses, 1u);
  EXPECT_EQ(statistics().packets_kept, 13u);
}

TEST_F(Responses, each_gap_is_asked_for_by_itself) {
  for (const std::uint32_t number : {0u, 2u, 3u, 17u}) respond(number);
  ASSERT_EQ(sent.size(), 5u);
  expect_read(sent[2], 1, 15);
  expect_read(sent[3], 4, 12);
  expect_read(sent[4], 16, 4);
  for (const std::uint32_t number : {18u, 19u}) respond(number);
  for (std::uint32_t number = 4; number < 17; ++number) respond(number);
  EXPECT_EQ(own.find(1), nullptr);
  respond(1);
  ASSERT_TRUE(completed(own, 1));
  EXPECT_TRUE(std::ranges::equal(data_, own.memory.bytes.first(data_.size())));
  EXPECT_EQ(sent.size(), 5u);
}

/// A later request's acknowledgement is not forgotten while an earlier Read lacks a response.
TEST_F(Responses, what_was_acknowledged_behind_a_read_completes_with_it) {
  ASSERT_TRUE(own.post(SendOpcode::Send, 2, {own.sge(0, 10)}));
  settle();
  for (std::uint32_t number = 0; number < kPackets; ++number)
    if (number != 3) respond(number);
  peer_acknowledges(kOwnPsn + kPackets);
  settle();
  EXPECT_EQ(own.find(1), nullptr);
  respond(3);
  EXPECT_TRUE(completed(own, 1));
  EXPECT_TRUE(completed(own, 2));
  EXPECT_EQ(count(Opcode::SendOnly), 1u);
}

TEST_F(Responses, that_were_kept_count_after_a_timeout_too) {
  attributes_.ack_timeout = 1;
  connect(own);
  ASSERT_TRUE(own.post(SendOpcode::RdmaRead, 1, {own.sge(0, kPackets * kMtu)}, kAddress, Rkey{5}));
  settle();
  for (std::uint32_t number = 0; number < kPackets; ++number)
    if (number != 3) respond(number);
  pass(RoundTrip::kMinTimeoutNs + 2 * kUs);
  ASSERT_EQ(statistics().timeouts, 1u);
  respond(3);
  EXPECT_NE(own.find(1), nullptr);
}

TEST_F(Responses, that_are_too_short_end_the_connection_also_before_their_turn) {
  peer_sends(Opcode::ReadResponseMiddle, kOwnPsn + 3, pattern(10));
  EXPECT_TRUE(completed(own, 1, WcStatus::RemoteOperationError));
}

// --- Timeouts although nothing was lost

class LateAcknowledgement : public Recovery {
 protected:
  static constexpr std::uint64_t kRoundTripNs = 100 * kUs;
  static constexpr std::uint32_t kPackets = 40;

  /// Measures the round trip, then lets a Write time out although all of its packets have arrived.
  void SetUp() override {
    Recovery::SetUp();
    attributes_.ack_timeout = 10;
    connect(own);
    ASSERT_TRUE(own.post(SendOpcode::Send, 1, {own.sge(0, 8)}));
    settle();
    pass(kRoundTripNs);
    peer_acknowledges(kOwnPsn);
    ASSERT_TRUE(completed(own, 1));
    ASSERT_TRUE(own.post(SendOpcode::RdmaWrite, 2, {own.sge(0, kPackets * kMtu)}, 0x1000, Rkey{5}));
    settle();
    for (int i = 0; i < 4; ++i) pass(kRoundTripNs);
    ASSERT_EQ(statistics().timeouts, 1u);
  }
  /// Returns how many packets are sent without a further acknowledgement.
  std::size_t window_after(std::uint64_t late_ns) {
    pass(late_ns);
    peer_acknowledges(kOwnPsn + kPackets);
    EXPECT_TRUE(completed(own, 2));
    sent.clear();
    EXPECT_TRUE(own.post(SendOpcode::RdmaWrite, 3, {own.sge(0, kWide * kMtu)}, 0x1000, Rkey{5}));
    settle();
    return sent.size();
  }

  static constexpr std::uint32_t kWide = 60;
};

TEST_F(LateAcknowledgement, undoes_the_timeout_if_it_is_earlier_than_an_answer_can_be) {
  EXPECT_EQ(window_after(0), kWide);
  EXPECT_EQ(statistics().spurious_timeouts, 1u);
}

TEST_F(LateAcknowledgement, that_may_answer_what_was_sent_again_undoes_nothing) {
  EXPECT_LT(window_after(kRoundTripNs), kWide);
  EXPECT_EQ(statistics().spurious_timeouts, 0u);
}

// --- Retransmitted requests

class SentAgain : public Recovery {
 protected:
  static constexpr std::uint32_t kFirst = 60;   ///< packets of the first Write
  static constexpr std::uint32_t kSecond = 30;  ///< packets of the second Write; the window has become
                                                ///< smaller

  /// Posts a Write, all of which is sent.
  void write(std::uint64_t wr_id, std::uint32_t packets) {
    sent.clear();
    ASSERT_TRUE(own.post(SendOpcode::RdmaWrite, wr_id, {own.sge(0, packets * kMtu)}, 0x1000, Rkey{5}));
    settle();
    ASSERT_EQ(sent.size(), packets);
    sent.clear();
  }
  void peer_misses(std::uint32_t number) {
    peer_sends(Opcode::Acknowledge, kOwnPsn + number, {}, [](Packet& packet, Route&) {
      packet.aeth = {Syndrome::Nak, static_cast<std::uint8_t>(NakCode::SequenceError), 0};
    });
    settle();
  }
  /// Lets the peer show that it keeps packets after a gap: it acknowledges more than was sent since its NAK.
  void learn() {
    ASSERT_NO_FATAL_FAILURE(write(1, kFirst));
    peer_misses(10);
    EXPECT_LT(sent.size(), kFirst - 10);
    peer_acknowledges(kOwnPsn + kFirst - 1);
    ASSERT_TRUE(completed(own, 1));
  }
};

TEST_F(SentAgain, is_everything_from_the_missing_packet_on) {
  ASSERT_NO_FATAL_FAILURE(write(1, kFirst));
  peer_misses(10);
  ASSERT_GT(sent.size(), 10u);
  for (std::uint32_t i = 0; i < sent.size(); ++i)
    EXPECT_EQ(sent[i].packet.bth.psn, (kOwnPsn + 10 + i) & kPsnMask);
  EXPECT_EQ(statistics().go_backs, 1u);
  EXPECT_EQ(statistics().repairs, 0u);
}

TEST_F(SentAgain, is_only_the_missing_packet_for_a_peer_that_keeps_the_others) {
  ASSERT_NO_FATAL_FAILURE(learn());
  ASSERT_NO_FATAL_FAILURE(write(2, kSecond));
  peer_misses(kFirst + 10);
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(last().bth.psn, (kOwnPsn + kFirst + 10) & kPsnMask);
  EXPECT_TRUE(last().bth.ack_request);
  EXPECT_TRUE(std::ranges::equal(last().payload, own.memory.bytes.subspan(10 * kMtu, kMtu)));
  peer_misses(kFirst + 20);
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(last().bth.psn, (kOwnPsn + kFirst + 20) & kPsnMask);
  peer_acknowledges(kOwnPsn + kFirst + kSecond - 1);
  EXPECT_TRUE(completed(own, 2));
  EXPECT_EQ(statistics().repairs, 2u);
  EXPECT_EQ(statistics().go_backs, 1u);
}

TEST_F(SentAgain, are_the_others_too_if_the_peer_has_only_got_the_missing_one) {
  ASSERT_NO_FATAL_FAILURE(learn());
  ASSERT_NO_FATAL_FAILURE(write(2, kSecond));
  peer_misses(kFirst + 10);
  ASSERT_EQ(sent.size(), 1u);
  peer_acknowledges(kOwnPsn + kFirst + 10);
  settle();
  ASSERT_GT(sent.size(), 10u);
  for (std::uint32_t i = 0; i < sent.size(); ++i)
    EXPECT_EQ(sent[i].packet.bth.psn, (kOwnPsn + kFirst + 10 + i) & kPsnMask);
}

/// NAKs within one round trip are counted as one loss, and so are losses of packets in flight at that time.
TEST_F(SentAgain, losses_of_one_window_narrow_it_once) {
  ASSERT_NO_FATAL_FAILURE(learn());  // 64 packets became 32
  ASSERT_NO_FATAL_FAILURE(write(2, kSecond));
  for (const std::uint32_t number : {5u, 10u, 15u, 20u, 25u}) peer_misses(kFirst + number);
  peer_acknowledges(kOwnPsn + kFirst + kSecond - 1);
  ASSERT_TRUE(completed(own, 2));
  sent.clear();
  ASSERT_TRUE(own.post(SendOpcode::RdmaWrite, 3, {own.sge(0, kFirst * kMtu)}, 0x1000, Rkey{5}));
  settle();
  EXPECT_GE(sent.size(), 16u);
}

/// Work requests that are executed locally have no packets and are not retransmitted, wherever in the queue
/// sending stops.
TEST_F(SentAgain, leaves_out_what_was_executed_here) {
  constexpr std::uint32_t kMissing = 8, kBefore = kMissing + kPacketsPerTransmit, kBehind = 20;
  const auto rkey = own.qp->bind_window(device().allocate_window(), own.memory.bytes.first(64),
                                        own.memory.lkey, kRemoteRead);
  ASSERT_TRUE(rkey);
  ASSERT_TRUE(own.post(SendOpcode::RdmaWrite, 1, {own.sge(0, kBefore * kMtu)}, 0x1000, Rkey{5}));
  ASSERT_TRUE(own.post(SendOpcode::LocalInvalidate, 2, {}, 0, *rkey));
  ASSERT_TRUE(own.post(SendOpcode::RdmaWrite, 3, {own.sge(0, kBehind * kMtu)}, 0x1000, Rkey{5}));
  settle();
  ASSERT_EQ(sent.size(), kBefore + kBehind);
  sent.clear();
  peer_sends(Opcode::Acknowledge, kOwnPsn + kMissing, {}, [](Packet& packet, Route&) {
    packet.aeth = {Syndrome::Nak, static_cast<std::uint8_t>(NakCode::SequenceError), 0};
  });
  poll();  // sends everything before the local work request
  peer_acknowledges(kOwnPsn + kBefore - 1);
  EXPECT_TRUE(completed(own, 2));
  settle();
  ASSERT_EQ(own.qp->state(), QueuePair::State::ReadyToSend);
  EXPECT_EQ(sent.size(), kPacketsPerTransmit + kBehind);
  peer_acknowledges(kOwnPsn + kBefore + kBehind - 1);
  EXPECT_TRUE(completed(own, 3));
}

/// A late acknowledgement does not show that the peer keeps packets after a gap.
TEST_F(SentAgain, an_acknowledgement_without_a_nak_teaches_nothing) {
  attributes_.ack_timeout = 1;
  connect(own);
  ASSERT_NO_FATAL_FAILURE(write(1, kFirst));
  pass(RoundTrip::kMinTimeoutNs + 2 * kUs);
  ASSERT_EQ(statistics().timeouts, 1u);
  peer_acknowledges(kOwnPsn + kFirst - 1);
  ASSERT_TRUE(completed(own, 1));
  ASSERT_NO_FATAL_FAILURE(write(2, kSecond));
  peer_misses(kFirst + 10);
  EXPECT_EQ(statistics().repairs, 0u);
  EXPECT_GT(sent.size(), 1u);
}

// --- Timers

class Probe : public Recovery {
 protected:
  static constexpr std::uint64_t kRoundTripNs = 20 * kUs;
  static constexpr std::uint64_t kProbeNs = 60 * kUs;  ///< after the Send: more than two round trips

  void SetUp() override {
    Recovery::SetUp();
    attributes_.ack_timeout = 14;
    connect(own);
    for (std::uint64_t i = 0; i < 20; ++i, ++psn_) {
      ASSERT_TRUE(own.post(SendOpcode::Send, 100 + i, {own.sge(0, 10)}));
      pass(kRoundTripNs);
      peer_acknowledges(psn_);
      ASSERT_TRUE(completed(own, 100 + i));
    }
    sent.clear();
    ASSERT_EQ(statistics().probes, 0u);
  }
  std::uint32_t psn_ = kOwnPsn;
};

TEST_F(Probe, asks_with_the_last_packet_once_before_the_timeout_goes_back) {
  ASSERT_TRUE(own.post(SendOpcode::Send, 1, {own.sge(0, 5 * kMtu)}));
  pass(2 * kRoundTripNs);
  EXPECT_EQ(sent.size(), 5u);
  pass(kProbeNs - 2 * kRoundTripNs);
  ASSERT_EQ(sent.size(), 6u);
  EXPECT_EQ(last().bth.opcode, Opcode::SendLast);
  EXPECT_EQ(last().bth.psn, psn_add(psn_, 4));
  EXPECT_TRUE(last().bth.ack_request);
  pass(RoundTrip::kMinTimeoutNs - kProbeNs - 10 * kUs);
  EXPECT_EQ(sent.size(), 6u);
  EXPECT_EQ(statistics().timeouts, 0u);
  pass(40 * kUs);
  EXPECT_EQ(statistics().timeouts, 1u);
  EXPECT_EQ(statistics().probes, 1u);
  ASSERT_GT(sent.size(), 6u);
  EXPECT_EQ(sent[6].packet.bth.psn, psn_ & kPsnMask);
}

TEST_F(Probe, that_is_answered_ends_the_wait) {
  ASSERT_TRUE(own.post(SendOpcode::Send, 1, {own.sge(0, 10)}));
  pass(kProbeNs);
  ASSERT_EQ(statistics().probes, 1u);
  peer_acknowledges(psn_);
  EXPECT_TRUE(completed(own, 1));
  pass(1'000'000 * kUs);
  EXPECT_EQ(sent.size(), 2u);
  EXPECT_EQ(statistics().timeouts, 0u);
}

/// RFC 6298, section 3: the acknowledgement may answer either of the two packets.
TEST_F(Probe, is_not_taken_for_a_round_trip) {
  for (std::uint64_t probes = 1; probes <= 4; ++probes) {
    ASSERT_TRUE(own.post(SendOpcode::Send, probes, {own.sge(0, 10)}));
    pass(kProbeNs);
    ASSERT_EQ(statistics().probes, probes);
    pass(100 * kUs);
    peer_acknowledges(psn_++);
    ASSERT_TRUE(completed(own, probes));
  }
}

TEST_F(Probe, asks_for_the_responses_that_a_read_lacks) {
  ASSERT_TRUE(own.post(SendOpcode::RdmaRead, 1, {own.sge(0, 4 * kMtu)}, 0x1000, Rkey{5}));
  settle();
  peer_sends(Opcode::ReadResponseFirst, psn_, pattern(kMtu));
  settle();
  ASSERT_EQ(sent.size(), 1u);
  pass(kProbeNs);
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(last().bth.opcode, Opcode::ReadRequest);
  EXPECT_EQ(last().bth.psn, psn_add(psn_, 1));
  EXPECT_EQ(last().reth.address, 0x1000u + kMtu);
  EXPECT_EQ(last().reth.length, 3 * kMtu);
  EXPECT_EQ(statistics().timeouts, 0u);
}

TEST_F(Probe, is_not_sent_again_until_a_round_trip_was_measured_after_a_timeout) {
  ASSERT_TRUE(own.post(SendOpcode::Send, 1, {own.sge(0, 10)}));
  pass(kProbeNs);
  pass(RoundTrip::kMinTimeoutNs);
  ASSERT_EQ(statistics().timeouts, 1u);
  pass(RoundTrip::kMinTimeoutNs + 10 * kUs);
  EXPECT_EQ(statistics().timeouts, 1u);  // the timeout has doubled
  pass(RoundTrip::kMinTimeoutNs);
  EXPECT_EQ(statistics().timeouts, 2u);
  EXPECT_EQ(statistics().probes, 1u);
}

/// A retransmitted packet measures no round trip, but its acknowledgement shows that the wire works again.
/// Otherwise a wire that loses many packets, where each acknowledgement covers an old packet, would be used
/// at the pace of the longest timeout.
TEST_F(Probe, waits_are_shortened_by_progress_that_measures_nothing) {
  constexpr std::uint32_t kPackets = 12;
  ASSERT_TRUE(own.post(SendOpcode::Send, 1, {own.sge(0, kPackets * kMtu)}));
  pass(kProbeNs);
  std::uint64_t wait = RoundTrip::kMinTimeoutNs;
  for (std::uint64_t timeouts = 1; timeouts <= 5; ++timeouts, wait *= 2) {
    pass(wait + 10 * kUs);
    ASSERT_EQ(statistics().timeouts, timeouts);
  }
  peer_acknowledges(psn_);  // sent after a timeout: the timeout stays
  settle();
  pass(wait / 2 + 10 * kUs);
  EXPECT_EQ(statistics().timeouts, 5u);
  for (std::uint32_t packet = 1; packet < 7; ++packet) {
    peer_acknowledges(psn_add(psn_, packet));
    settle();
  }
  pass(kProbeNs);
  EXPECT_EQ(statistics().probes, 2u);
  pass(RoundTrip::kMinTimeoutNs);
  EXPECT_EQ(statistics().timeouts, 6u);
}

/// No later packet would request the acknowledgement of the Send.
TEST_F(Recovery, a_send_before_a_local_invalidate_asks_for_its_acknowledgement) {
  const auto rkey = own.qp->bind_window(device().allocate_window(), own.memory.bytes.first(64),
                                        own.memory.lkey, kRemoteRead);
  ASSERT_TRUE(rkey);
  const Sge sge = own.sge(0, 10);
  const SendWr wrs[] = {{.wr_id = 1, .sges = {&sge, 1}},
                        {.wr_id = 2, .sges = {&sge, 1}},
                        {.wr_id = 3, .rkey = *rkey, .opcode = SendOpcode::LocalInvalidate}};
  ASSERT_EQ(own.qp->post_send(wrs), 3u);
  settle();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_FALSE(sent[0].packet.bth.ack_request);
  EXPECT_TRUE(sent[1].packet.bth.ack_request);
}

}  // namespace
}  // namespace sluice::rdma::conformance
