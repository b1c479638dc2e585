// SPDX-License-Identifier: Apache-2.0
//
// How a softroce queue pair finds out about losses and repairs them, packet by packet: requests and responses
// that come before their turn, single packets sent again, probes.
#include "pmd/softroce/queue_pair.h"
#include "tests/driver/raw_peer.h"

namespace sluice::rdma::conformance {
namespace {

using namespace softroce;

constexpr std::uint32_t kMtu = 1024;

/// Time passes only when a test says so.
class Recovery : public RawPeerTest {
 protected:
  void SetUp() override {
    open([](PortConfig& config) { config.clock_ns = []() noexcept { return now_ns_; }; });
    connect(own);
  }
  void pass(std::uint64_t ns) {
    now_ns_ += ns;
    settle();
  }
  static constexpr std::uint64_t kUs = 1000;
  static inline std::uint64_t now_ns_ = 5'000'000'000;

  static std::span<const std::byte> part(const Bytes& data, std::uint32_t number) {
    return std::span(data).subspan(number * kMtu,
                                   std::min<std::size_t>(kMtu, data.size() - std::size_t{number} * kMtu));
  }
  const Packet& last() { return sent.back().packet; }
  void expect_acknowledgement(Syndrome syndrome, std::uint32_t psn) {
    settle();
    ASSERT_FALSE(sent.empty());
    EXPECT_EQ(last().bth.opcode, Opcode::Acknowledge);
    EXPECT_EQ(last().aeth.syndrome, syndrome);
    EXPECT_EQ(last().bth.psn, psn & kPsnMask);
  }
};

// --- RDMA Writes that come before their turn

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
  /// Packet `number` of the Write, changed at will. No acknowledgement is asked for.
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
  expect_acknowledgement(Syndrome::Ack, kPeerPsn + 5);  // although nobody asked
  EXPECT_EQ(last().aeth.msn, 1u);
  EXPECT_TRUE(placed(1));
  // The next message begins as if nothing had happened.
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

/// What is sent again by a peer that goes back is a duplicate from then on.
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
  peer_sends(Opcode::WriteMiddle, kPeerPsn + 6, pattern(kMtu));
  settle();
  EXPECT_EQ(statistics().packets_kept, 0u);
  EXPECT_EQ(own.qp->state(), QueuePair::State::ReadyToSend);
  write({1, 2, 3, 4, 5});
  for (std::uint32_t number = 0; number < kPackets; ++number) EXPECT_TRUE(placed(number)) << number;
}

/// It could write where an earlier message has still to write.
TEST_F(EarlyWrites, of_the_next_message_wait_for_their_turn) {
  write({0, 2, 3, 4, 5});
  const Bytes payload = pattern(100, 9);
  const auto next = [&] {
    peer_sends(Opcode::WriteOnly, kPeerPsn + kPackets, payload, [&](Packet& packet, Route&) {
      packet.reth = {reth_.address + kMtu, reth_.rkey, 100};
    });
    settle();
  };
  next();
  write(1);
  EXPECT_TRUE(placed(1));
  expect_acknowledgement(Syndrome::Nak, kPeerPsn + kPackets);  // it was seen
  next();
  EXPECT_TRUE(std::ranges::equal(payload, own.memory.bytes.subspan(2 * kMtu, 100)));
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
  write(2);  // it went back; packet 1 was lost again
  ASSERT_EQ(sent.size(), 2u);
  expect_acknowledgement(Syndrome::Nak, kPeerPsn + 1);
  write({3, 4});  // behind it
  EXPECT_EQ(sent.size(), 2u);
  write(4);  // a probe
  EXPECT_EQ(sent.size(), 3u);
  EXPECT_EQ(statistics().sequence_errors, 1u);
}

TEST_F(Recovery, a_gap_that_stays_is_told_again_while_packets_come) {
  std::uint32_t psn = kPeerPsn;
  const auto later = [&] {
    peer_sends(Opcode::SendOnly, ++psn, pattern(8));
    settle();
    return sent.size();
  };
  EXPECT_EQ(later(), 1u);
  pass(kNakAgainNs - 1);
  EXPECT_EQ(later(), 1u);
  pass(1);
  EXPECT_EQ(sent.size(), 1u);
  EXPECT_EQ(later(), 2u);
  EXPECT_EQ(later(), 2u);
  expect_acknowledgement(Syndrome::Nak, kPeerPsn);
  EXPECT_EQ(statistics().sequence_errors, 1u);
}

TEST_F(Recovery, a_wait_for_a_receive_is_no_gap) {
  peer_sends(Opcode::SendOnly, kPeerPsn, pattern(8));
  settle();
  for (int i = 0; i < 3; ++i) peer_sends(Opcode::SendOnly, kPeerPsn + 1, pattern(8));
  settle();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(last().aeth.syndrome, Syndrome::RnrNak);
}

// --- RDMA Read requests that come again

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
  for (std::uint32_t i = 0; i < 17; ++i) read(i);  // it had timed out, and then saw the answers
  settle();
  EXPECT_EQ(own.qp->state(), QueuePair::State::ReadyToSend);
  EXPECT_EQ(count(Opcode::ReadResponseOnly), 33u);
  EXPECT_EQ(statistics().invalid_requests, 0u);
}

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

// --- Requests sent again

class SentAgain : public Recovery {
 protected:
  static constexpr std::uint32_t kFirst = 60;   ///< packets of the first Write
  static constexpr std::uint32_t kSecond = 30;  ///< and of the second: the window has become smaller

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
  /// The peer shows that it keeps what it gets: it has more than was sent since its NAK.
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

/// NAKs of one round trip come from one loss, and so do the losses of what was under way then.
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

/// What is executed here and has no packets is not among it, wherever in the queue sending stops.
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
  poll();  // sends all that comes before what was executed here
  peer_acknowledges(kOwnPsn + kBefore - 1);
  EXPECT_TRUE(completed(own, 2));
  settle();
  ASSERT_EQ(own.qp->state(), QueuePair::State::ReadyToSend);
  EXPECT_EQ(sent.size(), kPacketsPerTransmit + kBehind);
  peer_acknowledges(kOwnPsn + kBefore + kBehind - 1);
  EXPECT_TRUE(completed(own, 3));
}

/// An acknowledgement that comes late is no sign that the peer keeps what follows a gap.
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
  static constexpr std::uint64_t kProbeNs = 60 * kUs;  ///< after it: more than two round trips

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

/// RFC 6298, section 3: the acknowledgement may answer either of the two.
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
  EXPECT_EQ(statistics().timeouts, 1u);  // it has doubled
  pass(RoundTrip::kMinTimeoutNs);
  EXPECT_EQ(statistics().timeouts, 2u);
  EXPECT_EQ(statistics().probes, 1u);
}

/// What was sent twice measures no round trip, but that it arrives says that the wire carries again. Else a wire
/// that loses many packets, of which each acknowledges something old, is used at the pace of the longest wait.
TEST_F(Probe, waits_are_shortened_by_progress_that_measures_nothing) {
  constexpr std::uint32_t kPackets = 12;
  ASSERT_TRUE(own.post(SendOpcode::Send, 1, {own.sge(0, kPackets * kMtu)}));
  pass(kProbeNs);
  std::uint64_t wait = RoundTrip::kMinTimeoutNs;
  for (std::uint64_t timeouts = 1; timeouts <= 5; ++timeouts, wait *= 2) {
    pass(wait + 10 * kUs);
    ASSERT_EQ(statistics().timeouts, timeouts);
  }
  peer_acknowledges(psn_);  // what a timeout has sent: the wait stays
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

/// Nothing behind it on the wire would ask for its acknowledgement.
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
