// SPDX-License-Identifier: Apache-2.0
//
// The requester half of a softroce queue pair (InfiniBand 9.7.2, 9.7.3, 9.7.5, 9.7.6) against a peer that
// answers late, in part, or not at all.
#include "tests/driver/raw_peer.h"

namespace sluice::rdma::conformance {
namespace {

using namespace softroce;

class Requester : public RawPeerTest {
 protected:
  void SetUp() override {
    open();
    connect(own);
  }
  /// Posts one Send of `bytes` and waits until its last packet has left.
  void send(std::uint64_t wr_id, std::uint32_t bytes, std::uint32_t last_psn) {
    ASSERT_TRUE(own.post(SendOpcode::Send, wr_id, {own.sge(0, bytes)}));
    ASSERT_TRUE(until([&] { return count_psn(last_psn) > 0; }));
  }
  void peer_notifies_congestion() {
    peer_sends(Opcode::CongestionNotification, 0, Bytes(kCnpPayloadBytes), [](Packet& packet, Route&) {
      packet.bth.becn = true;
      packet.bth.ack_request = false;
    });
  }
};

TEST_F(Requester, acknowledgements_are_asked_for_every_sixteen_packets_and_at_the_end) {
  ASSERT_NO_FATAL_FAILURE(send(1, 40 * 1024, kOwnPsn + 39));
  ASSERT_EQ(sent.size(), 40u);
  for (std::uint32_t i = 0; i < 40; ++i) {
    const Bth& bth = sent[i].packet.bth;
    EXPECT_EQ(bth.psn, (kOwnPsn + i) & kPsnMask);
    EXPECT_EQ(bth.ack_request, i == 15 || i == 31 || i == 39) << i;
    EXPECT_EQ(bth.opcode, i == 0 ? Opcode::SendFirst : i == 39 ? Opcode::SendLast : Opcode::SendMiddle);
  }
}

TEST_F(Requester, a_whole_window_leaves_without_an_acknowledgement_and_no_packet_more) {
  constexpr std::uint32_t kWindow = 64;
  ASSERT_NO_FATAL_FAILURE(send(1, 100 * 1024, kOwnPsn + kWindow - 1));
  settle();
  EXPECT_EQ(sent.size(), kWindow);
  EXPECT_TRUE(sent.back().packet.bth.ack_request);  // without it both sides would wait
}

TEST_F(Requester, a_fenced_request_waits_for_earlier_reads_and_another_does_not) {
  for (const bool fenced : {true, false}) {
    connect(own);
    sent.clear();
    ASSERT_TRUE(own.post(SendOpcode::RdmaRead, 1, {own.sge(0, 100)}, 0x1000, Rkey{5}));
    ASSERT_TRUE(
        own.post(SendOpcode::Send, 2, {own.sge(200, 10)}, 0, {}, fenced ? kSignaled | kFence : kSignaled));
    settle();
    EXPECT_EQ(count(Opcode::ReadRequest), 1u);
    EXPECT_EQ(count(Opcode::SendOnly), fenced ? 0u : 1u);
    peer_sends(Opcode::ReadResponseOnly, kOwnPsn, pattern(100));
    EXPECT_TRUE(completed(own, 1));
    EXPECT_TRUE(until([&] { return count(Opcode::SendOnly) >= 1; }));
  }
}

TEST_F(Requester, a_read_says_what_it_wants_and_where_it_lies) {
  ASSERT_TRUE(own.post(SendOpcode::RdmaRead, 1, {own.sge(0, 2000)}, 0x123456789A, Rkey{0xABCDEF01}));
  settle();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].packet.reth.address, 0x123456789Au);
  EXPECT_EQ(sent[0].packet.reth.rkey, 0xABCDEF01u);
  EXPECT_EQ(sent[0].packet.reth.length, 2000u);
  const Bytes data = pattern(2000);
  peer_sends(Opcode::ReadResponseFirst, kOwnPsn, std::span(data).first(1024));
  peer_sends(Opcode::ReadResponseLast, kOwnPsn + 1, std::span(data).subspan(1024));
  ASSERT_TRUE(completed(own, 1));
  EXPECT_TRUE(std::equal(data.begin(), data.end(), own.memory.bytes.begin()));
}

/// RNR NAK: the receiver has accepted everything before it (9.7.5).
TEST_F(Requester, receiver_not_ready_acknowledges_what_came_before) {
  for (std::uint32_t i = 0; i < 3; ++i) ASSERT_NO_FATAL_FAILURE(send(i, 10, kOwnPsn + i));
  peer_sends(Opcode::Acknowledge, kOwnPsn + 2, {}, [](Packet& packet, Route&) {
    packet.aeth = {Syndrome::RnrNak, 1, 2};  // 10 us
  });
  EXPECT_TRUE(completed(own, 0));
  EXPECT_TRUE(completed(own, 1));
  EXPECT_TRUE(until([&] { return count_psn(kOwnPsn + 2) >= 2; }));
  EXPECT_EQ(own.find(2), nullptr);
  EXPECT_EQ(count_psn(kOwnPsn), 1u);
  EXPECT_EQ(count_psn(kOwnPsn + 1), 1u);
  EXPECT_EQ(statistics().rnr_naks_received, 1u);
  peer_acknowledges(kOwnPsn + 2);
  EXPECT_TRUE(completed(own, 2));
}

/// An acknowledgement covers everything before it: read responses that have not arrived are lost (9.7.5).
TEST_F(Requester, a_read_that_was_passed_over_is_asked_for_again_at_once) {
  ASSERT_TRUE(own.post(SendOpcode::RdmaRead, 1, {own.sge(0, 100)}, 0x1000, Rkey{5}));
  ASSERT_TRUE(own.post(SendOpcode::Send, 2, {own.sge(200, 10)}));
  settle();
  ASSERT_EQ(sent.size(), 2u);
  peer_acknowledges(kOwnPsn + 1);
  ASSERT_TRUE(until([&] { return count(Opcode::ReadRequest) == 2; }));
  EXPECT_EQ(sent[2].packet.bth.psn, kOwnPsn);
  EXPECT_EQ(statistics().timeouts, 0u);
  EXPECT_EQ(own.find(2), nullptr);  // completions come in the order of posting
  peer_acknowledges(kOwnPsn + 1);
  settle();
  EXPECT_EQ(count(Opcode::ReadRequest), 2u);  // the same gap
  EXPECT_EQ(statistics().go_backs, 0u);
  peer_sends(Opcode::ReadResponseOnly, kOwnPsn, pattern(100));
  peer_acknowledges(kOwnPsn + 1);
  EXPECT_TRUE(completed(own, 1));
  EXPECT_TRUE(completed(own, 2));
}

/// RFC 6298: without a measured round trip the first retry would be after half an hour.
TEST_F(Requester, the_timeout_follows_the_round_trips_that_were_measured) {
  attributes_.ack_timeout = 31;
  connect(own);
  std::uint32_t psn = kOwnPsn;
  for (std::uint64_t i = 0; i < 10; ++i, ++psn) {
    ASSERT_NO_FATAL_FAILURE(send(i, 10, psn));
    peer_acknowledges(psn);
    ASSERT_TRUE(completed(own, i));
  }
  const Statistics before = statistics();  // a pause of the machine is a timeout too
  ASSERT_NO_FATAL_FAILURE(send(10, 10, psn));
  EXPECT_TRUE(until([&] { return statistics().timeouts > before.timeouts && count_psn(psn) >= 3; }));
  EXPECT_EQ(statistics().probes, before.probes + 1);
}

TEST_F(Requester, a_sender_told_of_congestion_waits_between_packets_which_is_no_timeout) {
  // Rates recover with time, which passes by polling alone, independent of the load of the machine.
  static std::uint64_t now_ns = 1'000'000;
  open([](softroce::PortConfig& config) { config.clock_ns = []() noexcept { return now_ns += 100; }; });
  connect(own);
  ASSERT_NO_FATAL_FAILURE(send(1, 10, kOwnPsn));
  peer_acknowledges(kOwnPsn);
  peer_notifies_congestion();
  ASSERT_TRUE(completed(own, 1));
  settle();
  EXPECT_EQ(statistics().cnps_received, 1u);
  EXPECT_EQ(statistics().rate_cuts, 1u);
  sent.clear();
  ASSERT_TRUE(own.post(SendOpcode::Send, 2, {own.sge(0, 10 * 1024)}));
  EXPECT_EQ(statistics().packets_sent, 2u);  // the next one waits for the pacing interval
  ASSERT_TRUE(until([&] { return sent.size() >= 10; }));
  settle();
  EXPECT_EQ(sent.size(), 10u);
  EXPECT_EQ(statistics().timeouts, 0u);
  EXPECT_EQ(statistics().packets_sent_again, 0u);
  peer_acknowledges(kOwnPsn + 10);
  EXPECT_TRUE(completed(own, 2));
}

/// Any host with the addresses and queue pair numbers can forge these packets.
TEST_F(Requester, notifications_of_congestion_that_no_packet_can_have_met_slow_nobody_down) {
  for (int i = 0; i < 100; ++i) peer_notifies_congestion();
  settle();
  EXPECT_EQ(statistics().cnps_received, 100u);
  EXPECT_EQ(statistics().rate_cuts, 0u);
  ASSERT_TRUE(own.post(SendOpcode::Send, 1, {own.sge(0, 10 * 1024)}));
  EXPECT_EQ(statistics().packets_sent, 10u);  // without pacing
}

/// A NAK ends the connection, or causes a retransmission, only if its PSN is that of an outstanding packet.
TEST_F(Requester, naks_of_packets_that_are_not_outstanding_change_nothing) {
  ASSERT_NO_FATAL_FAILURE(send(1, 10, kOwnPsn));
  peer_acknowledges(kOwnPsn);
  ASSERT_TRUE(completed(own, 1));
  ASSERT_TRUE(own.post(SendOpcode::Send, 2, {own.sge(0, 3 * 1024)}));
  settle();
  const std::uint64_t packets = statistics().packets_sent;
  std::uint64_t forged = 0;
  for (const std::uint32_t psn : {kOwnPsn - 1, kOwnPsn, kOwnPsn + 4, kOwnPsn + 0x7FFFFF})
    for (const Syndrome syndrome : {Syndrome::Nak, Syndrome::RnrNak})
      for (std::uint8_t value = 0; value < 4; ++value, ++forged)
        peer_sends(Opcode::Acknowledge, psn & kPsnMask, {}, [&](Packet& packet, Route&) {
          packet.aeth = {syndrome, value, 0};
        });
  settle();
  EXPECT_EQ(statistics().stale_responses, forged);
  EXPECT_EQ(statistics().packets_sent, packets);
  EXPECT_EQ(own.qp->state(), QueuePair::State::ReadyToSend);
  peer_acknowledges(kOwnPsn + 3);
  EXPECT_TRUE(completed(own, 2));
}

TEST_F(Requester, what_was_done_is_counted) {
  ASSERT_TRUE(own.post(SendOpcode::Send, 1, {own.sge(0, 10)}));
  ASSERT_TRUE(own.post(SendOpcode::RdmaWrite, 2, {own.sge(0, 3000)}, 0x1000, Rkey{5}));
  ASSERT_TRUE(own.post(SendOpcode::RdmaRead, 3, {own.sge(0, 100)}, 0x1000, Rkey{5}));
  ASSERT_TRUE(own.post(SendOpcode::Send, 4, {own.sge(0, 20)}));
  settle();
  std::uint64_t bytes = 0;
  for (const Sent& each : sent) bytes += each.bytes.size();
  EXPECT_EQ(statistics().packets_sent, 6u);
  EXPECT_EQ(statistics().bytes_sent, bytes);
  const Bytes response = frame(own, Opcode::ReadResponseOnly, kOwnPsn + 4, pattern(100));
  inject(response);
  const Bytes acknowledgement = frame(own, Opcode::Acknowledge, kOwnPsn + 5);
  inject(acknowledgement);
  ASSERT_TRUE(completed(own, 4));
  EXPECT_EQ(statistics().sends, 2u);
  EXPECT_EQ(statistics().writes, 1u);
  EXPECT_EQ(statistics().reads, 1u);
  EXPECT_EQ(statistics().packets_received, 2u);
  EXPECT_EQ(statistics().bytes_received, response.size() + acknowledgement.size());
}

TEST_F(Requester, all_the_pieces_that_were_agreed_make_one_message) {
  const std::uint32_t most = device().limits().max_send_sge;
  QueuePairLimits limits;
  limits.max_send_sge = most;
  connect(own, kPeerQp, limits);
  const Bytes data = pattern(most * 20);
  std::vector<Sge> pieces;
  Bytes expected;
  for (std::uint32_t i = 0; i < most; ++i) {
    std::copy_n(data.begin() + i * 20, 20, own.memory.bytes.begin() + i * 100);
    pieces.push_back(own.sge(i * 100, 20));
  }
  ASSERT_TRUE(own.post(SendOpcode::Send, 1, pieces));
  settle();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_TRUE(std::ranges::equal(sent[0].packet.payload, data));
  peer_acknowledges(kOwnPsn);
  EXPECT_TRUE(completed(own, 1));
  pieces.push_back(own.sge(0, 1));
  ASSERT_TRUE(own.post(SendOpcode::Send, 2, pieces));
  EXPECT_TRUE(completed(own, 2, WcStatus::LocalLengthError));
}

/// No request follows the first one on the wire, so only its own acknowledgement reports the bad one.
TEST_F(Requester, a_request_before_one_that_cannot_be_sent_asks_for_its_acknowledgement) {
  const Sge good = own.sge(0, 10);
  const Sge outside{own.memory.bytes.data() + kEndpointBytes - 10, 64, own.memory.lkey};
  const std::vector<Sge> mixed{good, outside};
  const std::vector<Sge> many(QueuePairLimits{}.max_send_sge + 1, good);
  for (const std::span<const Sge> bad : {std::span(&outside, 1), std::span(mixed), std::span(many)}) {
    connect(own);
    sent.clear();
    const SendWr wrs[] = {{.wr_id = 1, .sges = {&good, 1}, .flags = kSignaled}, {.wr_id = 2, .sges = bad}};
    ASSERT_EQ(own.qp->post_send(wrs), 2u);
    settle();
    ASSERT_EQ(sent.size(), 1u);
    EXPECT_TRUE(sent[0].packet.bth.ack_request) << bad.size();
    peer_acknowledges(kOwnPsn);
    EXPECT_TRUE(completed(own, 1));
    EXPECT_TRUE(completed(
        own, 2, bad.size() == many.size() ? WcStatus::LocalLengthError : WcStatus::LocalProtectionError));
  }
}

/// The sizes of a queue pair are chosen by its owner, who may send only messages without data.
TEST_F(Requester, a_queue_pair_without_pieces_sends_none) {
  QueuePairLimits limits;
  limits.max_send_sge = 0;
  connect(own, kPeerQp, limits);
  ASSERT_TRUE(own.post(SendOpcode::Send, 1, {}));
  settle();
  peer_acknowledges(kOwnPsn);
  EXPECT_TRUE(completed(own, 1));
  ASSERT_TRUE(own.post(SendOpcode::Send, 2, {own.sge(0, 10)}));
  EXPECT_TRUE(completed(own, 2, WcStatus::LocalLengthError));
  EXPECT_EQ(sent.size(), 1u);
}

TEST_F(Requester, a_solicited_request_asks_for_an_event_with_its_last_packet_only) {
  for (const std::uint32_t bytes : {10u, 3000u})
    for (const bool solicited : {true, false}) {
      connect(own);
      sent.clear();
      ASSERT_TRUE(
          own.post(SendOpcode::Send, 1, {own.sge(0, bytes)}, 0, {}, solicited ? rdma::kSolicited : 0));
      settle();
      ASSERT_EQ(sent.size(), bytes / 1024 + 1);
      for (const Sent& each : sent) EXPECT_EQ(each.packet.bth.solicited, solicited && &each == &sent.back());
    }
}

TEST_F(Requester, flushed_work_is_counted) {
  for (std::uint64_t i = 0; i < 3; ++i) ASSERT_TRUE(own.post(SendOpcode::Send, i, {own.sge(0, 10)}));
  for (std::uint64_t i = 10; i < 12; ++i) ASSERT_TRUE(own.receive(i, own.sge(0, 64)));
  own.qp->to_error();
  EXPECT_TRUE(own.post(SendOpcode::Send, 3, {own.sge(0, 10)}));
  EXPECT_TRUE(own.receive(12, own.sge(0, 64)));
  settle();
  EXPECT_EQ(own.completions.size(), 7u);
  EXPECT_EQ(statistics().flushed, 7u);
}

/// A queue pair in State::Error accepts work requests while there is room for their completions, and loses
/// none.
TEST_F(Requester, a_queue_pair_in_error_takes_what_there_is_room_for_on_either_queue) {
  constexpr std::size_t kMany = 5000;
  own.qp->to_error();
  const Sge sge = own.sge(0, 10);
  std::vector<SendWr> sends(kMany);
  std::vector<RecvWr> receives(kMany);
  for (std::uint64_t i = 0; i < kMany; ++i)
    sends[i] = {.wr_id = i, .sges = {&sge, 1}}, receives[i] = {i, sge};
  for (const bool sends_first : {true, false}) {
    own.completions.clear();
    const std::size_t taken = sends_first ? own.qp->post_send(sends) : own.qp->post_recv(receives);
    EXPECT_GT(taken, 0u);
    EXPECT_LT(taken, kMany);
    EXPECT_EQ(sends_first ? own.qp->post_recv(receives) : own.qp->post_send(sends),
              0u);  // the queue was full
    ASSERT_TRUE(until([&] { return own.completions.size() >= taken; }));
    settle();
    ASSERT_EQ(own.completions.size(), taken);
    for (std::size_t i = 0; i < taken; ++i) {
      EXPECT_EQ(own.completions[i].wr_id, i);
      EXPECT_EQ(own.completions[i].status, WcStatus::WrFlushError);
    }
  }
}

}  // namespace
}  // namespace sluice::rdma::conformance
