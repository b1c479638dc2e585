// SPDX-License-Identifier: Apache-2.0
//
// The responder half of a softroce queue pair and losses: requests that arrive out of order or repeatedly,
// and the NAKs that report gaps.
#include "pmd/softroce/device.h"
#include "tests/driver/recovery_fixture.h"

namespace sluice::rdma::conformance {
namespace {

using namespace softroce;

// --- RDMA Writes that arrive out of order

class EarlyWrites : public Recovery {
 protected:
  static constexpr std::uint32_t kPackets = 6;

  void SetUp() override {
    Recovery::SetUp();
    const auto range = own.memory.bytes.subspan(kMtu, data_.size());
    const auto rkey =
        own.qp->bind_window(device().allocate_window(), range, own.memory.lkey, kRemoteWrite | kRemoteRead);
    ASSERT_TRUE(rkey);
    reth_ = {reinterpret_cast<std::uintptr_t>(range.data()), static_cast<std::uint32_t>(*rkey),
             static_cast<std::uint32_t>(data_.size())};
  }
  /// Sends packet `number` of the Write, changed by `change`. The packet does not request an acknowledgement.
  void write(std::uint32_t number, const Change& change = {}) {
    const Opcode opcode = number == 0              ? Opcode::WriteFirst
                          : number == kPackets - 1 ? Opcode::WriteLast
                                                   : Opcode::WriteMiddle;
    peer_sends(opcode, kPeerPsn + number, part(data_, number), [&](Packet& packet, Route& route) {
      packet.reth = reth_;
      packet.bth.ack_request = false;
      if (change) change(packet, route);
    });
    settle();
  }
  void write(std::initializer_list<std::uint32_t> numbers) {
    for (const std::uint32_t number : numbers) write(number);
  }
  bool placed(std::uint32_t number) {
    return std::ranges::equal(part(data_, number),
                              own.memory.bytes.subspan(kMtu + number * kMtu, part(data_, number).size()));
  }

  const Bytes data_ = pattern((kPackets - 1) * kMtu + 100);
  Reth reth_;
};

TEST_F(EarlyWrites, are_placed_and_executed_when_the_missing_one_comes) {
  write({0, 2, 3, 4, 5});
  ASSERT_EQ(sent.size(), 1u);
  expect_acknowledgement(Syndrome::Nak, kPeerPsn + 1);
  for (const std::uint32_t number : {0u, 2u, 3u, 4u, 5u}) EXPECT_TRUE(placed(number)) << number;
  EXPECT_FALSE(placed(1));
  EXPECT_EQ(statistics().packets_kept, 4u);
  EXPECT_EQ(last().aeth.msn, 0u);
  write(1);
  ASSERT_EQ(sent.size(), 2u);
  expect_acknowledgement(Syndrome::Ack, kPeerPsn + 5);  // although it was not requested
  EXPECT_EQ(last().aeth.msn, 1u);
  EXPECT_TRUE(placed(1));
  // The next message is accepted as usual.
  ASSERT_TRUE(own.receive(7, own.sge(0, 64)));
  peer_sends(Opcode::SendOnly, kPeerPsn + kPackets, pattern(8));
  EXPECT_TRUE(completed(own, 7));
}

TEST_F(EarlyWrites, a_second_gap_is_told_when_the_first_is_filled) {
  write({0, 2, 4, 5});
  ASSERT_EQ(sent.size(), 1u);
  write(1);
  ASSERT_EQ(sent.size(), 2u);
  expect_acknowledgement(Syndrome::Nak, kPeerPsn + 3);
  write(3);
  ASSERT_EQ(sent.size(), 3u);
  expect_acknowledgement(Syndrome::Ack, kPeerPsn + 5);
  for (std::uint32_t number = 0; number < kPackets; ++number) EXPECT_TRUE(placed(number)) << number;
  EXPECT_EQ(statistics().sequence_errors, 2u);
}

/// Packets that a peer retransmits from an earlier point are duplicates once the gap is closed.
TEST_F(EarlyWrites, a_peer_that_sends_all_again_is_told_how_far_it_was) {
  write({0, 2, 3, 4, 5, 1});
  std::memset(own.memory.bytes.data(), 0, kMtu * (kPackets + 1));
  write({2, 3, 4, 5});
  expect_acknowledgement(Syndrome::Ack, kPeerPsn + 5);
  EXPECT_FALSE(placed(2));
  EXPECT_EQ(statistics().duplicates, 4u);
  EXPECT_EQ(last().aeth.msn, 1u);
}

TEST_F(EarlyWrites, that_contradict_their_message_are_not_kept) {
  write(0);
  write(2, [](Packet& packet, Route&) { packet.bth.opcode = Opcode::WriteLast; });
  write(5, [](Packet& packet, Route&) { packet.bth.opcode = Opcode::WriteMiddle; });
  write(3, [](Packet& packet, Route&) { packet.bth.opcode = Opcode::SendMiddle; });
  peer_sends(Opcode::WriteMiddle, kPeerPsn + 4, pattern(kMtu - 4));
  peer_sends(Opcode::WriteLast, kPeerPsn + 5, pattern(99));
  peer_sends(Opcode::WriteMiddle, kPeerPsn + 6, pattern(kMtu - 4));
  settle();
  EXPECT_EQ(statistics().packets_kept, 0u);
  EXPECT_EQ(statistics().early_dropped, 6u);
  EXPECT_EQ(own.qp->state(), QueuePair::State::ReadyToSend);
  write({1, 2, 3, 4, 5});
  for (std::uint32_t number = 0; number < kPackets; ++number) EXPECT_TRUE(placed(number)) << number;
}

/// The early packet could write memory that an earlier message has still to write.
TEST_F(EarlyWrites, of_the_next_message_wait_for_their_turn) {
  write({0, 2, 3, 4, 5});
  const Bytes payload = pattern(100, 9);
  peer_sends(Opcode::WriteOnly, kPeerPsn + kPackets, payload, [&](Packet& packet, Route&) {
    packet.reth = {reth_.address + kMtu, reth_.rkey, 100};
  });
  settle();
  EXPECT_FALSE(std::ranges::equal(payload, own.memory.bytes.subspan(2 * kMtu, 100)));
  write(1);
  expect_acknowledgement(Syndrome::Ack, kPeerPsn + kPackets);
  EXPECT_EQ(last().aeth.msn, 2u);
  EXPECT_TRUE(std::ranges::equal(payload, own.memory.bytes.subspan(2 * kMtu, 100)));
}

TEST_F(EarlyWrites, of_the_next_message_are_refused_in_their_turn) {
  write({0, 2, 3, 4, 5});
  peer_sends(Opcode::WriteMiddle, kPeerPsn + kPackets, pattern(kMtu));
  settle();
  EXPECT_EQ(own.qp->state(), QueuePair::State::ReadyToSend);
  write(1);
  expect_acknowledgement(Syndrome::Nak, kPeerPsn + kPackets);
  EXPECT_EQ(static_cast<NakCode>(last().aeth.value), NakCode::InvalidRequest);
  EXPECT_EQ(own.qp->state(), QueuePair::State::Error);
}

TEST_F(EarlyWrites, are_not_kept_once_their_window_is_gone) {
  write({0, 2});
  ASSERT_EQ(statistics().packets_kept, 1u);
  ASSERT_TRUE(own.post(SendOpcode::LocalInvalidate, 9, {}, 0, Rkey{reth_.rkey}));
  ASSERT_TRUE(completed(own, 9));
  write({3, 4});
  EXPECT_EQ(statistics().packets_kept, 1u);
  EXPECT_FALSE(placed(3));
}

// --- NAKs that are lost, or answered by packets that are lost

TEST_F(EarlyWrites, a_gap_is_told_again_when_the_peer_has_gone_back_and_the_packet_is_lost_again) {
  write({0, 2, 3, 4});
  ASSERT_EQ(sent.size(), 1u);
  write(2);  // the peer retransmits; packet 1 was lost again
  EXPECT_EQ(statistics().packets_kept, 3u);
  ASSERT_EQ(sent.size(), 2u);
  expect_acknowledgement(Syndrome::Nak, kPeerPsn + 1);
  write({3, 4});  // packets after the gap
  EXPECT_EQ(sent.size(), 2u);
  write(4);  // a probe
  EXPECT_EQ(sent.size(), 3u);
  EXPECT_EQ(statistics().sequence_errors, 1u);
}

// --- Requests of every kind that arrive out of order

class EarlyRequests : public EarlyWrites {
 protected:
  /// Has the peer acknowledge a Send after `ns`.
  void measure_round_trip(std::uint64_t ns) {
    ASSERT_TRUE(own.post(SendOpcode::Send, 90, {own.sge(0, 8)}));
    settle();
    pass(ns);
    peer_acknowledges(kOwnPsn);
    ASSERT_TRUE(completed(own, 90));
    sent.clear();
  }
  void SetUp() override {
    EarlyWrites::SetUp();
    for (std::uint64_t i = 0; i < kReceives; ++i) ASSERT_TRUE(own.receive(i, own.sge(0, 64)));
  }
  void send(std::uint32_t number) {
    peer_sends(Opcode::SendOnly, kPeerPsn + number, pattern(8, number),
               [](Packet& packet, Route&) { packet.bth.ack_request = false; });
    settle();
  }
  void send(std::initializer_list<std::uint32_t> numbers) {
    for (const std::uint32_t number : numbers) send(number);
  }
  std::uint64_t received() { return statistics().receives; }

  static constexpr std::uint64_t kReceives = 24;
};

/// Linux's rxe retransmits only the first packet after a NAK.
TEST_F(EarlyRequests, of_a_peer_that_sends_only_the_missing_one_again_are_executed) {
  send({1, 2, 3});
  expect_acknowledgement(Syndrome::Nak, kPeerPsn);
  EXPECT_EQ(received(), 0u);
  EXPECT_EQ(statistics().packets_kept, 3u);
  send(0);
  expect_acknowledgement(Syndrome::Ack, kPeerPsn + 3);
  EXPECT_EQ(last().aeth.msn, 4u);
  for (std::uint64_t i = 0; i < 4; ++i) EXPECT_TRUE(completed(own, i)) << i;
  EXPECT_EQ(own.find(4), nullptr);
}

TEST_F(EarlyRequests, are_executed_in_their_order_whatever_they_are) {
  const auto reads = [&](std::uint32_t number) {
    peer_sends(Opcode::ReadRequest, kPeerPsn + number, {}, [&](Packet& packet, Route&) {
      packet.reth = {reth_.address, reth_.rkey, 2 * kMtu};
    });
  };
  const Bytes payload = pattern(100, 9);
  peer_sends(Opcode::SendOnlyWithImmediate, kPeerPsn + 4, pattern(8),
             [](Packet& packet, Route&) { packet.immediate = 77; });
  reads(2);  // of two packets
  peer_sends(Opcode::WriteOnly, kPeerPsn + 1, payload, [&](Packet& packet, Route&) {
    packet.reth = {reth_.address, reth_.rkey, 100};
  });
  settle();
  ASSERT_EQ(sent.size(), 1u);
  send(0);
  EXPECT_EQ(count(Opcode::ReadResponseFirst), 1u);
  EXPECT_EQ(count(Opcode::ReadResponseLast), 1u);
  EXPECT_TRUE(std::ranges::equal(payload, own.memory.bytes.subspan(kMtu, 100)));
  EXPECT_TRUE(std::ranges::equal(payload, std::span(sent[1].packet.payload).first(100)));
  ASSERT_TRUE(completed(own, 1));
  EXPECT_EQ(own.find(1)->immediate, 77u);
  expect_acknowledgement(Syndrome::Ack, kPeerPsn + 4);
}

TEST_F(EarlyRequests, are_kept_once) {
  send({1, 1, 2, 1, 0});
  EXPECT_EQ(received(), 3u);
  EXPECT_EQ(statistics().packets_kept, 2u);
  EXPECT_EQ(statistics().early_dropped, 0u);
}

TEST_F(EarlyRequests, beyond_the_share_of_their_queue_pair_are_dropped_and_asked_for_at_once) {
  for (std::uint32_t i = 1; i <= kEarlyPacketsPerQueuePair + 2; ++i) send(i);
  EXPECT_EQ(statistics().early_dropped, 2u);
  ASSERT_EQ(sent.size(), 1u);
  send(0);
  EXPECT_EQ(received(), kEarlyPacketsPerQueuePair + 1u);
  expect_acknowledgement(Syndrome::Nak, kPeerPsn + kEarlyPacketsPerQueuePair + 1);
}

TEST_F(EarlyRequests, whose_receives_are_missing_are_told_to_wait) {
  for (std::uint32_t i = 0; i < kReceives; ++i) send(i);
  send({kReceives + 1, kReceives + 2});
  ASSERT_TRUE(own.receive(100, own.sge(0, 64)));
  send(kReceives);
  EXPECT_EQ(last().aeth.syndrome, Syndrome::RnrNak);
  EXPECT_EQ(last().bth.psn, kPeerPsn + kReceives + 1);
  ASSERT_TRUE(own.receive(101, own.sge(0, 64)));
  ASSERT_TRUE(own.receive(102, own.sge(0, 64)));
  send(kReceives + 1);
  EXPECT_TRUE(completed(own, 102));
  expect_acknowledgement(Syndrome::Ack, kPeerPsn + kReceives + 2);
}

TEST_F(EarlyRequests, behind_the_end_of_a_queue_pair_are_forgotten) {
  send({1, 2});
  auto& kept = static_cast<SoftDevice&>(device()).early_packets();
  EXPECT_EQ(kept.room(), kEarlyPackets - 2u);
  own.qp->to_error();
  EXPECT_EQ(kept.room(), kEarlyPackets);
  send(0);
  EXPECT_EQ(received(), 0u);
}

// --- NAKs of a gap

/// A gap is reported by one NAK, however many packets arrive after it (9.7.5).
TEST_F(EarlyRequests, each_gap_has_one_nak) {
  for (std::uint32_t gap = 0; gap < 3; ++gap) {
    sent.clear();
    send({3 * gap + 1, 3 * gap + 2});
    ASSERT_EQ(sent.size(), 1u) << gap;
    expect_acknowledgement(Syndrome::Nak, kPeerPsn + 3 * gap);
    EXPECT_EQ(last().aeth.msn, 3 * gap);
    send(3 * gap);
  }
  EXPECT_EQ(statistics().sequence_errors, 3u);
  EXPECT_EQ(received(), 9u);
}

TEST_F(EarlyRequests, the_nak_of_a_gap_is_repeated_after_a_round_trip_and_then_more_rarely) {
  send(1);
  ASSERT_EQ(sent.size(), 1u);
  send(2);
  std::uint64_t interval = kUnmeasuredRoundTripNs;
  for (std::size_t told = 1; told <= 4; ++told, interval *= 2) {
    pass(interval - 2 * kTickNs);
    EXPECT_EQ(sent.size(), told);
    pass(4 * kTickNs);
    ASSERT_EQ(sent.size(), told + 1);
    expect_acknowledgement(Syndrome::Nak, kPeerPsn);
  }
  EXPECT_EQ(statistics().sequence_errors, 1u);
}

TEST_F(EarlyRequests, the_nak_is_repeated_after_the_round_trip_that_was_measured) {
  constexpr std::uint64_t kRoundTripNs = 200 * kUs;
  measure_round_trip(kRoundTripNs);
  send(1);
  pass(3 * kRoundTripNs - 10 * kTickNs);  // the RTT plus four times its variation of RTT / 2
  EXPECT_EQ(sent.size(), 1u);
  pass(20 * kTickNs);
  EXPECT_EQ(sent.size(), 2u);
}

/// The packet after the gap may have been forged, in which case the peer has nothing to retransmit.
TEST_F(EarlyRequests, the_naks_of_a_gap_that_never_closes_are_limited) {
  send(1);
  for (int second = 0; second < 60; ++second) {
    for (int turn = 0; turn < 64; ++turn) pass(1'000'000'000 / 64);
  }
  EXPECT_EQ(sent.size(), kMaxNaksWithoutProgress);
  send(2);
  EXPECT_EQ(sent.size(), kMaxNaksWithoutProgress + 1u);  // the next gap
  send(0);
  EXPECT_EQ(received(), 1u) << "what was kept at first is given back";
}

/// Linux's rxe ignores further NAKs of a gap until its retransmission timer expires (rxe_comp.c,
/// started_retry), and starts that timer again at each response that it receives.
TEST_F(EarlyRequests, the_naks_of_a_gap_end_early_enough_for_the_timer_of_the_peer) {
  constexpr std::uint64_t kRoundTripNs = 50'000 * kUs;
  measure_round_trip(kRoundTripNs);
  send(1);
  for (int step = 0; step < 50; ++step) pass(20'000 * kUs);
  const std::size_t within_a_second = sent.size();
  EXPECT_GE(within_a_second, 4u) << "each NAK may be lost";
  for (int step = 0; step < 500; ++step) pass(20'000 * kUs);
  EXPECT_EQ(sent.size(), within_a_second);
}

TEST_F(EarlyRequests, that_were_not_kept_are_asked_for_although_the_peer_is_silent) {
  send(kMaxKeptPackets + 5);
  ASSERT_EQ(sent.size(), 1u);
  send(0);
  EXPECT_EQ(sent.size(), 1u) << "the peer may be sending the rest";
  pass(kUnmeasuredRoundTripNs + 2 * kTickNs);
  ASSERT_EQ(sent.size(), 2u);
  expect_acknowledgement(Syndrome::Nak, kPeerPsn + 1);
  send({1, 2});
  pass(kUnmeasuredRoundTripNs + 2 * kTickNs);
  expect_acknowledgement(Syndrome::Nak, kPeerPsn + 3);
}

TEST_F(EarlyRequests, farther_ahead_than_a_peer_can_be_say_only_that_one_is_missing) {
  send(kMaxGapPackets + 1);
  ASSERT_EQ(sent.size(), 1u);
  send(0);
  pass(10 * kUnmeasuredRoundTripNs);
  EXPECT_EQ(sent.size(), 1u);
}

TEST_F(Recovery, a_wait_for_a_receive_is_no_gap) {
  peer_sends(Opcode::SendOnly, kPeerPsn, pattern(8));
  settle();
  for (int i = 0; i < 3; ++i) peer_sends(Opcode::SendOnly, kPeerPsn + 1, pattern(8));
  settle();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(last().aeth.syndrome, Syndrome::RnrNak);
  pass(10 * kUnmeasuredRoundTripNs);
  EXPECT_EQ(sent.size(), 1u) << "the peer has a timer for it";
}

// --- Repeated RDMA Read requests

TEST_F(EarlyWrites, reads_asked_for_again_are_not_among_those_that_may_be_outstanding) {
  attributes_.responder_resources = 16;
  const auto read = [&](std::uint32_t number) {
    peer_sends(Opcode::ReadRequest, kPeerPsn + number, {}, [&](Packet& packet, Route&) {
      packet.reth = {reth_.address, reth_.rkey, 64};
    });
  };
  for (std::uint32_t i = 0; i < 16; ++i) read(i);
  settle();
  ASSERT_EQ(sent.size(), 16u);
  for (std::uint32_t i = 0; i < 17; ++i) read(i);  // the peer had timed out before the answers arrived
  settle();
  EXPECT_EQ(own.qp->state(), QueuePair::State::ReadyToSend);
  EXPECT_EQ(count(Opcode::ReadResponseOnly), 33u);
  EXPECT_EQ(statistics().invalid_requests, 0u);
}

// --- Responses and the rate

TEST_F(EarlyWrites, read_responses_are_cut_by_congestion_notifications) {
  const auto read = [&](std::uint32_t psn, std::uint32_t bytes) {
    peer_sends(Opcode::ReadRequest, psn, {}, [&](Packet& packet, Route&) {
      packet.reth = reth_;
      packet.reth.length = bytes;
    });
    settle();
  };
  read(kPeerPsn, 4);
  ASSERT_EQ(sent.size(), 1u);
  peer_sends(Opcode::CongestionNotification, 0, Bytes(kCnpPayloadBytes), [](Packet& packet, Route&) {
    packet.bth.becn = true;
    packet.bth.ack_request = false;
  });
  settle();
  ASSERT_EQ(statistics().rate_cuts, 1u);
  sent.clear();
  read(kPeerPsn + 1, reth_.length);
  EXPECT_EQ(sent.size(), 1u);
  for (std::uint32_t packets = 2; packets <= kPackets; ++packets) {
    pass(kMtu / 6 + 1024);  // at half of 12.5 bytes a nanosecond, and a tick
    EXPECT_EQ(sent.size(), packets);
  }
  EXPECT_EQ(last().bth.opcode, Opcode::ReadResponseLast);
}

}  // namespace
}  // namespace sluice::rdma::conformance
