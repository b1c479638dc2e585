// SPDX-License-Identifier: Apache-2.0
//
// The responder half of a softroce queue pair and losses: requests that come before their turn, or once more, and what it
// tells of gaps.
#include "tests/driver/recovery_fixture.h"

namespace sluice::rdma::conformance {
namespace {

using namespace softroce;

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
