// SPDX-License-Identifier: Apache-2.0
//
// The responder half of a softroce queue pair (InfiniBand 9.7.4, 9.7.5, 9.9.3), tested answer by answer.
#include "tests/driver/raw_peer.h"

namespace sluice::rdma::conformance {
namespace {

using namespace softroce;

class Responder : public RawPeerTest {
 protected:
  void SetUp() override {
    open();
    connect(own);
  }
  void receives(std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) ASSERT_TRUE(own.receive(i, own.sge(i * 4096, 4096)));
  }
  /// The window's address and key; its bytes are pattern(bytes).
  Reth expose(std::size_t bytes, AccessFlags access = kRemoteRead) {
    const Bytes data = pattern(bytes);
    std::copy(data.begin(), data.end(), own.memory.bytes.begin());
    const auto range = own.memory.bytes.first(std::max<std::size_t>(bytes, 1));
    const auto rkey = own.qp->bind_window(device().allocate_window(), range, own.memory.lkey, access);
    EXPECT_TRUE(rkey);
    return {reinterpret_cast<std::uintptr_t>(range.data()), static_cast<std::uint32_t>(*rkey),
            static_cast<std::uint32_t>(bytes)};
  }
  void peer_reads(std::uint32_t psn, const Reth& what) {
    peer_sends(Opcode::ReadRequest, psn, {}, [&](Packet& packet, Route&) { packet.reth = what; });
  }
  void peer_sends_quietly(std::uint32_t psn) {
    peer_sends(Opcode::SendOnly, psn, pattern(8),
               [](Packet& packet, Route&) { packet.bth.ack_request = false; });
  }
  void expect_nak(const Sent& answer, NakCode code, std::uint32_t psn, std::uint32_t msn) {
    EXPECT_EQ(answer.packet.bth.opcode, Opcode::Acknowledge);
    EXPECT_EQ(answer.packet.aeth.syndrome, Syndrome::Nak);
    EXPECT_EQ(answer.packet.aeth.value, static_cast<std::uint8_t>(code));
    EXPECT_EQ(answer.packet.bth.psn, psn);
    EXPECT_EQ(answer.packet.aeth.msn, msn);
  }
};

TEST_F(Responder, a_request_that_asks_is_acknowledged_by_itself_and_another_is_not) {
  receives(4);
  peer_sends(Opcode::SendOnly, kPeerPsn, pattern(8));
  ASSERT_TRUE(until([&] { return !sent.empty(); }));
  settle();
  ASSERT_EQ(sent.size(), 1u);
  const Sent& answer = sent[0];
  EXPECT_EQ(answer.packet.bth.opcode, Opcode::Acknowledge);
  EXPECT_EQ(answer.packet.bth.psn, kPeerPsn);
  EXPECT_EQ(answer.packet.bth.destination_qp, kPeerQp);
  EXPECT_EQ(answer.packet.aeth.syndrome, Syndrome::Ack);
  EXPECT_EQ(answer.packet.aeth.msn, 1u);
  EXPECT_EQ(answer.frame.source, kOwn);
  EXPECT_EQ(answer.frame.destination, kPeer);
  EXPECT_TRUE(std::equal(kPeerLink.begin(), kPeerLink.end(),
                         reinterpret_cast<const std::uint8_t*>(answer.bytes.data())));
  peer_sends_quietly(kPeerPsn + 1);
  EXPECT_TRUE(completed(own, 1));
  settle();
  EXPECT_EQ(sent.size(), 1u);
}

/// InfiniBand 9.9.3: a responder that does not support an operation reports this, instead of leaving its peer
/// to time out.
TEST_F(Responder, atomics_and_reserved_requests_are_invalid_ones) {
  constexpr std::size_t kAtomicHeader = 28;
  for (const int opcode : {0x13, 0x14, 0x15, 0x18, 0x1f}) {
    SetUp();
    receives(1);
    const auto as = [&](Packet& packet, Route&) {
      packet.bth.opcode = static_cast<Opcode>(opcode);
      packet.kind = traits(packet.bth.opcode);
    };
    peer_sends(Opcode::SendOnly, kPeerPsn - 1, pattern(kAtomicHeader), as);  // not the expected PSN
    settle();
    EXPECT_TRUE(sent.empty());
    peer_sends(Opcode::SendOnly, kPeerPsn, pattern(kAtomicHeader), as);
    settle();
    ASSERT_EQ(sent.size(), 1u) << opcode;
    expect_nak(sent[0], NakCode::InvalidRequest, kPeerPsn, 0);
    EXPECT_EQ(statistics().invalid_requests, 1u);
    EXPECT_EQ(own.qp->state(), QueuePair::State::Error);
  }
}

TEST_F(Responder, requests_that_come_together_are_acknowledged_together) {
  receives(3);
  for (std::uint32_t i = 0; i < 3; ++i) peer_sends(Opcode::SendOnly, kPeerPsn + i, pattern(8));
  settle();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].packet.bth.psn, kPeerPsn + 2);
  EXPECT_EQ(sent[0].packet.aeth.msn, 3u);
}

TEST_F(Responder, reads_are_answered_in_packets_that_say_first_middle_last_or_only) {
  using enum Opcode;
  struct Case {
    std::uint32_t bytes;
    std::vector<Opcode> opcodes;
  };
  const Case cases[] = {{0, {ReadResponseOnly}},
                        {1, {ReadResponseOnly}},
                        {1024, {ReadResponseOnly}},
                        {1025, {ReadResponseFirst, ReadResponseLast}},
                        {3 * 1024, {ReadResponseFirst, ReadResponseMiddle, ReadResponseLast}}};
  std::uint32_t psn = kPeerPsn;
  std::uint32_t msn = 0;
  for (const Case& each : cases) {
    sent.clear();
    peer_reads(psn, expose(each.bytes));
    settle();
    ASSERT_EQ(sent.size(), each.opcodes.size()) << each.bytes;  // no further acknowledgement
    ++msn;
    Bytes data;
    for (std::size_t i = 0; i < sent.size(); ++i, ++psn) {
      const Packet& packet = sent[i].packet;
      EXPECT_EQ(packet.bth.opcode, each.opcodes[i]) << each.bytes;
      EXPECT_EQ(packet.bth.psn, psn);
      if (packet.kind.has_aeth) {
        EXPECT_EQ(packet.aeth.msn, msn);
      }
      data.insert(data.end(), packet.payload.begin(), packet.payload.end());
    }
    EXPECT_EQ(data, pattern(each.bytes));
  }
  EXPECT_EQ(statistics().acks_sent, 0u);
  EXPECT_EQ(statistics().reads_served, std::size(cases));
}

/// A Read of no bytes is not checked (9.7.4.1); a Read of one byte is.
TEST_F(Responder, a_read_of_one_byte_without_right_is_refused_before_it_counts_and_of_none_is_answered) {
  peer_reads(kPeerPsn, {0x1000, 0x5555, 0});
  settle();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].packet.bth.opcode, Opcode::ReadResponseOnly);
  peer_reads(kPeerPsn + 1, {0x1000, 0x5555, 1});
  settle();
  ASSERT_EQ(sent.size(), 2u);
  expect_nak(sent[1], NakCode::RemoteAccess, kPeerPsn + 1, 1);
  EXPECT_EQ(statistics().reads_served, 1u);
  EXPECT_EQ(statistics().access_errors, 1u);
  EXPECT_EQ(own.qp->state(), QueuePair::State::Error);
}

/// Responses are sent in the order of their PSNs, including those to a repeated request (9.7.5.1.4).
TEST_F(Responder, a_read_that_comes_again_is_answered_before_those_behind_it) {
  const Reth window = expose(400);
  const auto part = [&](std::uint32_t number) {
    return Reth{window.address + number * 100, window.rkey, 100};
  };
  peer_reads(kPeerPsn, part(0));
  settle();
  ASSERT_EQ(sent.size(), 1u);
  for (const std::uint32_t number : {1u, 2u, 3u, 0u}) peer_reads(kPeerPsn + number, part(number));
  settle();
  ASSERT_EQ(sent.size(), 5u);
  for (std::uint32_t number = 0; number < 4; ++number) {
    const Packet& packet = sent[1 + number].packet;
    EXPECT_EQ(packet.bth.psn, kPeerPsn + number);
    const Bytes data = pattern(400);
    EXPECT_TRUE(std::ranges::equal(packet.payload, std::span(data).subspan(number * 100, 100)));
  }
  EXPECT_EQ(statistics().duplicate_reads, 1u);
}

/// The peer has received the data, or it would not have revoked the access, so the request is a delayed
/// duplicate.
TEST_F(Responder, a_read_that_comes_again_before_its_memory_is_invalidated_is_not_answered_and_no_error) {
  const Reth window = expose(400);
  receives(1);
  peer_reads(kPeerPsn, window);
  settle();
  ASSERT_EQ(sent.size(), 1u);
  peer_reads(kPeerPsn, window);
  peer_sends(Opcode::SendOnlyWithInvalidate, kPeerPsn + 1, pattern(8),
             [&](Packet& packet, Route&) { packet.invalidate_rkey = window.rkey; });
  settle();
  EXPECT_EQ(statistics().duplicate_reads, 1u);
  EXPECT_EQ(statistics().access_errors, 0u);
  EXPECT_EQ(statistics().receives, 1u);
  EXPECT_EQ(own.qp->state(), QueuePair::State::ReadyToSend);
  // A new request is refused.
  peer_reads(kPeerPsn + 2, window);
  settle();
  EXPECT_EQ(statistics().access_errors, 1u);
  EXPECT_EQ(own.qp->state(), QueuePair::State::Error);
}

constexpr LinkAddress kElsewhere{2, 0, 0, 0, 0, 10};

bool goes_to(const Sent& frame, const LinkAddress& link) {
  return std::equal(link.begin(), link.end(), frame.bytes.begin(),
                    [](std::uint8_t one, std::byte other) { return std::byte{one} == other; });
}

class LinkAddresses : public Responder {
 protected:
  /// True if a request from link address `from` is answered to `to`.
  bool answered_to(const LinkAddress& from, std::uint32_t psn, const LinkAddress& to) {
    sent.clear();
    peer_sends(Opcode::SendOnly, psn, pattern(8), [&](Packet&, Route& route) { route.source_mac = from; });
    EXPECT_TRUE(until([&] { return !sent.empty(); }));
    return !sent.empty() && goes_to(sent[0], to);
  }
};

TEST_F(LinkAddresses, a_peer_is_followed_after_two_packets_in_a_row) {
  receives(8);
  EXPECT_TRUE(answered_to(kElsewhere, kPeerPsn, kPeerLink));
  EXPECT_TRUE(answered_to(kElsewhere, kPeerPsn + 1, kElsewhere));
  EXPECT_TRUE(answered_to(kPeerLink, kPeerPsn + 2, kElsewhere));
  EXPECT_TRUE(answered_to(kElsewhere, kPeerPsn + 3, kElsewhere));
  EXPECT_TRUE(answered_to(kPeerLink, kPeerPsn + 4, kElsewhere)) << "not the second in a row";
  EXPECT_TRUE(answered_to(kPeerLink, kPeerPsn + 5, kPeerLink));
}

TEST_F(LinkAddresses, a_peer_that_gets_no_answer_is_followed_when_it_sends_its_last_request_again) {
  receives(2);
  EXPECT_TRUE(answered_to(kPeerLink, kPeerPsn, kPeerLink));
  EXPECT_TRUE(answered_to(kPeerLink, kPeerPsn + 1, kPeerLink));
  EXPECT_TRUE(answered_to(kElsewhere, kPeerPsn + 1, kPeerLink));
  EXPECT_TRUE(answered_to(kElsewhere, kPeerPsn, kPeerLink)) << "an earlier one does not count";
  EXPECT_TRUE(answered_to(kElsewhere, kPeerPsn + 1, kElsewhere));
}

/// The case of a frame whose source address was damaged, and which was then duplicated.
TEST_F(LinkAddresses, a_peer_that_was_lost_is_found_when_it_sends_any_request_again) {
  receives(4);
  for (std::uint32_t packet = 0; packet < 3; ++packet)
    EXPECT_TRUE(answered_to(kPeerLink, kPeerPsn + packet, kPeerLink));
  EXPECT_TRUE(answered_to(kElsewhere, kPeerPsn + 2, kPeerLink));
  EXPECT_TRUE(answered_to(kElsewhere, kPeerPsn + 2, kElsewhere));
  EXPECT_TRUE(answered_to({2, 0, 0, 0, 0, 11}, kPeerPsn, kElsewhere)) << "it was never there";
  EXPECT_TRUE(answered_to(kPeerLink, kPeerPsn, kPeerLink));
}

TEST_F(LinkAddresses, a_read_that_comes_again_counts) {
  const Reth reth = expose(2000);
  for (const LinkAddress& to : {kPeerLink, kElsewhere}) {
    sent.clear();
    peer_sends(Opcode::ReadRequest, kPeerPsn, {}, [&](Packet& packet, Route& route) {
      packet.reth = reth;
      route.source_mac = kElsewhere;
    });
    ASSERT_TRUE(until([&] { return sent.size() == 2; }));
    EXPECT_TRUE(goes_to(sent[0], to));
  }
}

TEST_F(LinkAddresses, what_has_no_number_of_the_sequence_does_not_count) {
  receives(2);
  const auto moved = [](Packet&, Route& route) { route.source_mac = kElsewhere; };
  for (const std::uint32_t psn : {kPeerPsn, kOwnPsn}) {
    peer_sends(Opcode::CongestionNotification, psn, pattern(16), moved);
    peer_sends(Opcode::Acknowledge, psn, {}, moved);  // nothing is outstanding
  }
  settle();
  EXPECT_EQ(statistics().cnps_received, 2u);
  EXPECT_EQ(statistics().stale_responses, 2u);
  for (int i = 0; i < 2; ++i) peer_sends(Opcode::SendOnly, kPeerPsn + 1, pattern(8), moved);  // after a gap
  ASSERT_TRUE(until([&] { return !sent.empty(); }));
  EXPECT_TRUE(goes_to(sent[0], kPeerLink));
  EXPECT_TRUE(answered_to(kElsewhere, kPeerPsn, kPeerLink));
}

// --- Classes of traffic

class Classes : public Responder {
 protected:
  static constexpr std::uint8_t kClass = 26 << 2;     // the class for RoCE in the guides for mlx5
  static constexpr std::uint8_t kCnpClass = 48 << 2;  // the class for congestion notifications
  void SetUp() override { with(kVlan); }
  void with(std::uint16_t vlan) {
    open([&](PortConfig& config) {
      config.vlan = vlan;
      config.traffic_class = 8 << 2;  // of datagrams
      config.cnp_traffic_class = kCnpClass;
    });
    attributes_.traffic_class = kClass | kEcnCongested;  // the ECN bits must not be sent
    attributes_.service_level = 3;
    connect(own);
  }
  void tagged(Opcode opcode, std::uint32_t psn, std::span<const std::byte> payload, std::uint16_t vlan,
              std::uint8_t priority, std::uint8_t ecn = kEcnCapable) {
    peer_sends(opcode, psn, payload, [&](Packet&, Route& route) {
      route.vlan = vlan;
      route.priority = priority;
      route.traffic_class = ecn;
    });
    settle();
  }
  void expect(const Sent& each, std::uint8_t traffic_class, std::uint8_t ecn, std::uint8_t priority) {
    EXPECT_EQ(each.frame.traffic_class, traffic_class | ecn);
    EXPECT_EQ(each.frame.priority, priority);
  }
  static constexpr std::uint16_t kVlan = 7;
};

TEST_F(Classes, data_and_acknowledgements_have_that_of_their_connection_and_notifications_their_own) {
  receives(2);
  ASSERT_TRUE(own.post(SendOpcode::Send, 1, {own.sge(0, 8)}));
  tagged(Opcode::SendOnly, kPeerPsn, pattern(8), kVlan, 5, kEcnCongested);
  tagged(Opcode::SendOnly, kPeerPsn + 2, pattern(8), kVlan, 5);  // after a gap
  int data = 0;
  int acknowledgements = 0;
  int notifications = 0;
  for (const Sent& each : sent) {
    EXPECT_EQ(each.frame.vlan, kVlan);
    if (each.packet.bth.opcode == Opcode::CongestionNotification) {
      ++notifications;
      expect(each, kCnpClass, 0, 6);
      continue;
    }
    ++(each.packet.bth.opcode == Opcode::Acknowledge ? acknowledgements : data);
    expect(each, kClass, kEcnCapable, 3);
  }
  EXPECT_EQ(data, 1);
  EXPECT_GE(acknowledgements, 2);  // the NAK of a gap is repeated after a round trip
  EXPECT_EQ(notifications, 1);
}

/// IEEE 802.1Q: a tag without an identifier carries a priority and no VLAN.
TEST_F(Classes, priority_tagged_frames_are_taken_where_untagged_ones_are) {
  for (const std::uint16_t vlan : {kNoVlan, std::uint16_t{0}}) {
    with(vlan);
    receives(2);
    tagged(Opcode::SendOnly, kPeerPsn, pattern(8), 0, 5);
    tagged(Opcode::SendOnly, kPeerPsn + 1, pattern(8), kNoVlan, 0);
    EXPECT_TRUE(completed(own, 0));
    EXPECT_TRUE(completed(own, 1));
    ASSERT_EQ(sent.size(), 2u);
    EXPECT_EQ(sent[0].bytes[12] == std::byte{0x81}, vlan == 0);  // our priority requires a tag
    EXPECT_EQ(sent[0].frame.priority, vlan == 0 ? 3 : 0);
    tagged(Opcode::SendOnly, kPeerPsn + 2, pattern(8), kVlan, 5);
    EXPECT_EQ(statistics().frames_foreign, 1u);
  }
  with(kVlan);
  receives(1);
  tagged(Opcode::SendOnly, kPeerPsn, pattern(8), 0, 5);
  EXPECT_EQ(statistics().frames_foreign, 1u);
  tagged(Opcode::SendOnly, kPeerPsn, pattern(8), kVlan, 0);
  EXPECT_TRUE(completed(own, 0));
}

TEST_F(Responder, packets_for_other_ethernet_addresses_reach_no_queue_pair) {
  receives(1);
  constexpr LinkAddress kOthers[] = {kElsewhere, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, {1, 0, 0x5e, 0, 0, 1}};
  for (const LinkAddress& link : kOthers)
    peer_sends(Opcode::SendOnly, kPeerPsn, pattern(8),
               [&](Packet&, Route& route) { route.destination_mac = link; });
  settle();
  EXPECT_EQ(statistics().frames_misaddressed, 3u);
  EXPECT_EQ(statistics().packets_received, 0u);
  EXPECT_TRUE(sent.empty());
  EXPECT_EQ(own.find(0), nullptr);
  peer_sends(Opcode::SendOnly, kPeerPsn, pattern(8));
  EXPECT_TRUE(until([&] { return completed(own, 0); }));
}

TEST_F(Responder, a_send_without_a_receive_is_told_when_to_come_again_and_then_taken) {
  peer_sends(Opcode::SendOnly, kPeerPsn, pattern(8));
  settle();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].packet.aeth.syndrome, Syndrome::RnrNak);
  EXPECT_EQ(sent[0].packet.bth.psn, kPeerPsn);
  EXPECT_EQ(rnr_timer_ns(sent[0].packet.aeth.value), 640'000u);
  receives(1);
  peer_sends(Opcode::SendOnly, kPeerPsn, pattern(8));
  settle();
  EXPECT_TRUE(completed(own, 0));
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[1].packet.aeth.syndrome, Syndrome::Ack);
}

TEST_F(Responder, a_queue_pair_that_is_destroyed_gives_its_windows_back) {
  const MemoryWindow window = device().allocate_window();
  const auto bind = [&](Endpoint& endpoint) {
    return endpoint.qp->bind_window(window, endpoint.memory.bytes.first(64), endpoint.memory.lkey,
                                    kRemoteRead);
  };
  connect(other, kPeerQp + 1);
  ASSERT_TRUE(bind(own));
  EXPECT_FALSE(bind(other));
  own.qp.reset();
  EXPECT_TRUE(bind(other));
}

}  // namespace
}  // namespace sluice::rdma::conformance
