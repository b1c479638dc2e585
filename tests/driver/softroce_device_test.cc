// SPDX-License-Identifier: Apache-2.0
//
// A softroce lane as a whole: queue pair numbers, polls and timers, frames of every kind, datagrams and
// counters.
#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include <algorithm>
#include <set>

#include "pmd/softroce/byte_order.h"
#include "pmd/softroce/number_permutation.h"
#include "tests/driver/raw_peer.h"

namespace sluice::rdma::conformance {
namespace {

using namespace softroce;

class SoftDeviceTest : public RawPeerTest {};

/// 40 bytes of IPv6, 8 of UDP, 32 of the largest transport headers and 4 of the invariant CRC.
TEST_F(SoftDeviceTest, the_path_mtu_is_the_largest_whose_packets_the_link_carries) {
  constexpr std::uint16_t kHeaders = 84;
  struct Case {
    int link_mtu;
    std::uint16_t path_mtu;
  };
  const Case cases[] = {{4096 + kHeaders, 4096},
                        {4096 + kHeaders - 1, 2048},
                        {2048 + kHeaders, 2048},
                        {2048 + kHeaders - 1, 1024},
                        {256 + kHeaders, 256},
                        {256 + kHeaders - 1, 256},
                        {100, 256}};  // the smallest of the protocol
  for (const Case& each : cases) {
    open([&](PortConfig& config) { config.link_mtu = static_cast<std::uint16_t>(each.link_mtu); });
    EXPECT_EQ(device().max_path_mtu(), each.path_mtu) << each.link_mtu;
  }
}

/// A packet for a destroyed queue pair does not reach another one, and known numbers do not predict the next
/// number.
TEST_F(SoftDeviceTest, queue_pair_numbers_are_unpredictable_and_come_again_as_late_as_they_can) {
  constexpr int kMade = 4000;
  open([](PortConfig& config) { config.max_queue_pairs = 4; });
  std::vector<std::uint32_t> numbers;
  for (int i = 0; i < kMade; ++i)
    numbers.push_back(static_cast<std::uint32_t>(device().create_queue_pair({})->number()));
  EXPECT_EQ(std::set<std::uint32_t>(numbers.begin(), numbers.end()).size(), numbers.size());
  for (const std::uint32_t number : numbers) {
    EXPECT_GT(number, 1u);  // 0 and 1 are for management
    EXPECT_LE(number, 0xFFFFFFu);
    EXPECT_EQ(number % kMaxLanes, 0u);  // of the lane
  }
  std::set<std::uint32_t> steps;
  for (int i = 1; i < kMade; ++i) steps.insert((numbers[i] - numbers[i - 1]) & 0xFFFFFF);
  EXPECT_GT(steps.size(), kMade * 9u / 10);
  for (unsigned bit = kLaneBits; bit < 24; ++bit) {
    const auto set = std::count_if(numbers.begin(), numbers.end(),
                                   [&](std::uint32_t number) { return number >> bit & 1; });
    EXPECT_NEAR(static_cast<double>(set), kMade / 2, kMade / 8) << bit;
  }
}

TEST(NumberPermutation, no_number_comes_twice_and_another_key_has_another_order) {
  constexpr std::uint32_t kNumbers = 20'000;
  HashKey key{};
  NumberPermutation some(key);
  key[0] = std::byte{1};
  const NumberPermutation another(key);
  std::vector<bool> seen(NumberPermutation::kMask + std::size_t{1});
  std::uint32_t same = 0;
  for (std::uint32_t i = 0; i < kNumbers; ++i) {
    const std::uint32_t number = some.next();
    ASSERT_LE(number, NumberPermutation::kMask);
    ASSERT_FALSE(seen[number]) << i;
    seen[number] = true;
    same += number == another.at(i);
  }
  EXPECT_LT(same, 10u);
}

TEST_F(SoftDeviceTest, numbers_of_queue_pairs_that_live_are_left_out) {
  open([](PortConfig& config) { config.max_queue_pairs = 3; });
  auto first = device().create_queue_pair({});
  auto second = device().create_queue_pair({});
  std::set<QueuePairNumber> seen{first->number(), second->number()};
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(seen.insert(device().create_queue_pair({})->number()).second);
  auto third = device().create_queue_pair({});
  EXPECT_THROW(device().create_queue_pair({}), SetupError);
}

TEST_F(SoftDeviceTest, a_queue_pair_that_asks_often_takes_no_turn_of_another) {
  open([](PortConfig& config) { config.max_queue_pairs = 2; });
  connect(own);
  connect(other, kPeerQp + 1);
  for (Endpoint* endpoint : {&own, &other})
    for (std::uint64_t i = 0; i < 8; ++i) ASSERT_TRUE(endpoint->receive(i, endpoint->sge(i * 64, 64)));
  const Bytes hello = pattern(8);
  inject(frame(other, Opcode::SendOnly, kPeerPsn, hello));
  for (std::uint32_t i = 0; i < 8; ++i) inject(frame(own, Opcode::SendOnly, kPeerPsn + i, hello));
  const auto acknowledged = [&](std::uint32_t peer_qp) {
    return std::any_of(sent.begin(), sent.end(), [&](const Sent& each) {
      return each.packet.bth.opcode == Opcode::Acknowledge && each.packet.bth.destination_qp == peer_qp;
    });
  };
  EXPECT_TRUE(until([&] { return acknowledged(kPeerQp) && acknowledged(kPeerQp + 1); }));
}

TEST_F(SoftDeviceTest, a_queue_pair_whose_timer_starts_often_takes_no_deadline_of_another) {
  open([](PortConfig& config) { config.max_queue_pairs = 2; });
  attributes_.ack_timeout = 8;  // 1 ms
  attributes_.retry_count = 7;
  connect(other, kPeerQp + 1);
  connect(own);
  ASSERT_TRUE(other.post(SendOpcode::Send, 1, {other.sge(0, 8)}));
  for (std::uint64_t i = 0; i < 8; ++i) ASSERT_TRUE(own.post(SendOpcode::Send, i, {own.sge(0, 8)}));
  for (std::uint32_t i = 0; i < 7; ++i) peer_acknowledges(kOwnPsn + i);
  EXPECT_TRUE(until([&] {
    return std::count_if(sent.begin(), sent.end(), [](const Sent& each) {
             return each.packet.bth.destination_qp == kPeerQp + 1 && each.packet.bth.psn == kOwnPsn;
           }) >= 2;
  }));
}

TEST_F(SoftDeviceTest, statistics_are_read_in_the_order_of_their_table_as_far_as_there_is_room) {
  open();
  connect(own);
  ASSERT_TRUE(own.receive(1, own.sge(0, 64)));
  peer_sends(Opcode::SendOnly, kPeerPsn, pattern(8));
  settle();
  std::vector<std::uint64_t> values(std::size(kStatistics) + 2, 77);
  EXPECT_EQ(device().read_statistics(values), std::size(kStatistics));
  const auto value_of = [&](std::string_view name) {
    for (std::size_t i = 0; i < std::size(kStatistics); ++i)
      if (kStatistics[i].name == name) return values[i];
    return ~std::uint64_t{0};
  };
  EXPECT_EQ(value_of("packets_received"), 1u);
  EXPECT_EQ(value_of("receives"), 1u);
  EXPECT_EQ(value_of("acks_sent"), 1u);
  EXPECT_EQ(value_of("flushed"), 0u);
  EXPECT_EQ(values[std::size(kStatistics)], 77u);
  std::vector<std::uint64_t> few(3, 77);
  EXPECT_EQ(device().read_statistics(std::span(few).first(2)), 2u);
  EXPECT_EQ(few, (std::vector<std::uint64_t>{values[0], values[1], 77}));
}

// --- Frames

TEST_F(SoftDeviceTest, a_frame_in_several_buffers_is_one_frame) {
  open();
  connect(own);
  ASSERT_TRUE(own.receive(1, own.sge(0, 2048)));
  const Bytes data = pattern(1000);
  const Bytes whole = frame(own, Opcode::SendOnly, kPeerPsn, data);
  rte_mbuf* head = wire_->buffer(std::span(whole).first(100));
  ASSERT_EQ(rte_pktmbuf_chain(head, wire_->buffer(std::span(whole).subspan(100))), 0);
  wire_->inject(head);
  ASSERT_TRUE(completed(own, 1));
  EXPECT_TRUE(std::equal(data.begin(), data.end(), own.memory.bytes.begin()));
  EXPECT_EQ(statistics().frames_malformed, 0u);
}

TEST_F(SoftDeviceTest, a_frame_that_no_buffer_holds_is_dropped_and_counted) {
  open();
  connect(own);
  const Bytes whole = frame(own, Opcode::SendOnly, kPeerPsn, pattern(1000));
  rte_mbuf* head = wire_->buffer(whole);
  rte_pktmbuf_append(head, rte_pktmbuf_tailroom(head));
  rte_pktmbuf_adj(head, static_cast<std::uint16_t>(head->data_len - 100));  // at the very end of its buffer
  ASSERT_EQ(rte_pktmbuf_chain(head, wire_->buffer(std::span(whole).subspan(100))), 0);
  wire_->inject(head);
  settle();
  EXPECT_EQ(statistics().frames_malformed, 1u);
  EXPECT_EQ(statistics().packets_received, 0u);
  EXPECT_TRUE(sent.empty());
}

TEST_F(SoftDeviceTest, a_packet_of_an_unknown_kind_is_malformed_and_no_packet) {
  open();
  connect(own);
  peer_sends(Opcode::SendOnly, kPeerPsn, {}, [](Packet& packet, Route&) {
    packet.bth.opcode = static_cast<Opcode>(0x24);  // opcode of an unreliable connection
  });
  peer_sends(Opcode::SendOnly, kPeerPsn, {}, [](Packet& packet, Route&) { packet.bth.version = 1; });
  settle();
  EXPECT_EQ(statistics().frames_malformed, 2u);
  EXPECT_EQ(statistics().packets_received, 0u);
  EXPECT_EQ(own.qp->state(), QueuePair::State::ReadyToSend);
}

/// Builds an echo request in VLAN 7 whose IP packet has `bytes`.
Bytes ping_of(std::size_t bytes) {
  Bytes frame(18 + bytes);
  const auto put = [&](std::size_t at, std::initializer_list<int> octets) {
    for (const int octet : octets) frame[at++] = static_cast<std::byte>(octet);
  };
  put(0, {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9, 0x81, 0, 0, 7, 8, 0});
  put(18, {0x45, 0, static_cast<int>(bytes >> 8), static_cast<int>(bytes & 0xFF), 0, 0, 0x40, 0, 64, 1});
  put(30, {192, 0, 2, 1, 192, 0, 2, 2});
  put(38, {8, 0, 0, 0, 0, 1, 0, 2});
  store_be16(frame.data() + 28, internet_checksum(std::span(frame).subspan(18, 20)));
  store_be16(frame.data() + 40, internet_checksum(std::span(frame).subspan(38)));
  return frame;
}

TEST_F(SoftDeviceTest, an_echo_request_that_fills_the_link_is_answered_and_one_byte_more_is_not) {
  for (const std::uint16_t mtu : std::initializer_list<std::uint16_t>{1500, 4200}) {
    SCOPED_TRACE(mtu);
    open([&](PortConfig& config) {
      config.vlan = 7;
      config.link_mtu = mtu;
    });
    sent.clear();
    inject(ping_of(mtu));
    settle();
    ASSERT_EQ(sent.size(), 1u);
    EXPECT_EQ(sent[0].bytes.size(), std::size_t{mtu} + 18);
    EXPECT_EQ(statistics().echo_replies, 1u);
    inject(ping_of(mtu + std::size_t{1}));
    settle();
    EXPECT_EQ(sent.size(), 1u);
    EXPECT_EQ(statistics().frames_ignored, 1u);
  }
}

// --- Management datagrams

TEST_F(SoftDeviceTest, addresses_are_announced_at_start) {
  open([](PortConfig& config) { config.announce = true; });
  settle();
  ASSERT_EQ(sent.size(), 2u);  // an ARP request, and the announcement
  for (const Sent& each : sent) EXPECT_EQ(each.frame.kind, FrameKind::Arp);
  EXPECT_EQ(std::memcmp(sent[1].bytes.data() + 28, kOwn.bytes.data() + 12, 4), 0);  // sender
  EXPECT_EQ(std::memcmp(sent[1].bytes.data() + 38, kOwn.bytes.data() + 12, 4), 0);  // target
}

TEST_F(SoftDeviceTest, a_link_that_comes_up_again_is_counted_and_the_addresses_are_announced_anew) {
  open([](PortConfig& config) { config.announce = true; });
  device().handle_events();
  settle();
  EXPECT_EQ(device().condition(), Condition::Up);
  EXPECT_EQ(statistics().port_down, 0u);
  sent.clear();
  ASSERT_EQ(rte_eth_dev_set_link_down(port_->config().ethdev), 0);
  device().handle_events();
  device().handle_events();
  settle();
  EXPECT_EQ(device().condition(), Condition::PortDown);
  EXPECT_EQ(statistics().port_down, 1u);
  EXPECT_EQ(statistics().port_up, 0u);
  EXPECT_TRUE(sent.empty());
  ASSERT_EQ(rte_eth_dev_set_link_up(port_->config().ethdev), 0);
  device().handle_events();
  settle();
  EXPECT_EQ(device().condition(), Condition::Up);
  EXPECT_EQ(statistics().port_up, 1u);
  ASSERT_EQ(sent.size(), 2u);  // an ARP request, and the announcement
  for (const Sent& each : sent) EXPECT_EQ(each.frame.kind, FrameKind::Arp);
  // The link goes down and up between two polls.
  for (const auto& flap : {rte_eth_dev_set_link_down, rte_eth_dev_set_link_up}) {
    ASSERT_EQ(flap(port_->config().ethdev), 0);
    device().handle_events();
  }
  settle();
  EXPECT_EQ(statistics().port_down, 2u);
  EXPECT_EQ(statistics().port_up, 2u);
}

/// Builds an ARP reply of kPeer at `link`.
Bytes arp_reply(const LinkAddress& link, const LinkAddress& to, const PeerAddress& from,
                const PeerAddress& own) {
  Bytes frame(42);
  const auto put = [&](std::size_t at, const auto& octets, std::size_t skip = 0) {
    for (std::size_t i = skip; i < octets.size(); ++i) frame[at++] = static_cast<std::byte>(octets[i]);
  };
  put(0, to);
  put(6, link);
  put(12, std::array{0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 2});
  put(22, link);
  put(28, from.bytes, 12);
  put(32, to);
  put(38, own.bytes, 12);
  return frame;
}

/// The answer to a READ of 1 MiB is 256 packets with the largest path MTU, and a lane has several
/// connections.
TEST_F(SoftDeviceTest, a_lane_that_waits_for_its_processor_is_kept_the_packets_of_two_mebibytes) {
  constexpr std::uint32_t kPackets = 2 * (1u << 20) / 4096;
  open([](PortConfig& config) { config.lanes = 2; });
  connect(own, kPeerQp, {}, 1);
  for (std::uint32_t i = 0; i < kPackets; ++i) {
    peer_sends(Opcode::SendOnly, kPeerPsn + i);
    WorkCompletion none[1];
    device(0).poll(none);
  }
  EXPECT_EQ(statistics(0).handed_over, kPackets);
  EXPECT_EQ(statistics(0).hand_over_drops, 0u);
}

/// Acknowledgements cannot reveal the peer's address, because the peer receives nothing that it could
/// acknowledge.
TEST_F(SoftDeviceTest, a_queue_pair_without_answers_asks_for_its_peer_and_follows_it_also_from_another_lane) {
  constexpr LinkAddress kElsewhere{2, 0, 0, 0, 0, 0x33};
  for (const std::size_t lane : {0u, 1u}) {
    open([](PortConfig& config) { config.lanes = 2; });
    attributes_.ack_timeout = 8;  // 1 ms
    attributes_.retry_count = 7;
    connect(own, kPeerQp, {}, lane);
    ASSERT_TRUE(own.post(SendOpcode::Send, 1, {own.sge(0, 8)}));
    const auto asked = [&] {
      return std::any_of(sent.begin(), sent.end(),
                         [](const Sent& each) { return each.frame.kind == FrameKind::Arp; });
    };
    ASSERT_TRUE(until(asked));
    EXPECT_EQ(statistics(lane).hops_changed, 0u);
    inject(arp_reply(kElsewhere, port_->link_address(), kPeer, kOwn));
    ASSERT_TRUE(until(
        [&] { return std::memcmp(sent.back().bytes.data(), kElsewhere.data(), kElsewhere.size()) == 0; }));
    EXPECT_EQ(statistics(lane).hops_changed, 1u);
    peer_acknowledges(kOwnPsn);
    EXPECT_TRUE(completed(own, 1));
    attributes_ = {};
  }
}

TEST_F(SoftDeviceTest, a_peer_that_does_not_answer_is_also_tried_where_it_was_before) {
  constexpr LinkAddress kNobody{2, 0, 0, 0, 0, 0x44};
  open();
  attributes_.ack_timeout = 8;  // 1 ms
  connect(own, kPeerQp);
  const auto sent_to = [&](const LinkAddress& link) {
    return until([&] {
      return std::any_of(sent.begin(), sent.end(), [&](const Sent& each) {
        return each.frame.kind == FrameKind::Roce &&
               std::memcmp(each.bytes.data(), link.data(), link.size()) == 0;
      });
    });
  };
  ASSERT_TRUE(own.post(SendOpcode::Send, 1, {own.sge(0, 8)}));
  ASSERT_TRUE(sent_to(kPeerLink));
  inject(arp_reply(kNobody, port_->link_address(), kPeer, kOwn));
  for (const LinkAddress& link : {kNobody, kPeerLink, kNobody}) {
    sent.clear();
    EXPECT_TRUE(sent_to(link));
  }
  peer_acknowledges(kOwnPsn);
  EXPECT_TRUE(completed(own, 1));
}

TEST_F(SoftDeviceTest, a_datagram_comes_with_what_is_needed_to_answer_it) {
  open();
  const Bytes data = pattern(256);
  inject(frame(own, Opcode::DatagramSendOnly, 5, data, [](Packet& packet, Route&) {
    packet.bth.destination_qp = 1;
    packet.deth = {0x80010000, 0x4321};
  }));
  settle();
  Datagram datagrams[2];
  ASSERT_EQ(device().receive_datagrams(datagrams), 1u);
  Datagram& datagram = datagrams[0];
  EXPECT_EQ(datagram.local, kOwn);
  EXPECT_EQ(datagram.remote, kPeer);
  EXPECT_EQ(datagram.remote_link, kPeerLink);
  EXPECT_EQ(datagram.remote_qp, 0x4321u);
  EXPECT_TRUE(std::ranges::equal(std::span(datagram.data).first(datagram.bytes), data));
  EXPECT_TRUE(device().send_datagram(datagram));  // unchanged
  settle();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].packet.bth.opcode, Opcode::DatagramSendOnly);
  EXPECT_EQ(sent[0].packet.bth.destination_qp, 0x4321u);
  EXPECT_EQ(sent[0].frame.destination, kPeer);
  EXPECT_TRUE(std::equal(kPeerLink.begin(), kPeerLink.end(),
                         reinterpret_cast<const std::uint8_t*>(sent[0].bytes.data())));
  EXPECT_TRUE(std::ranges::equal(sent[0].packet.payload, data));
}

/// The link address cannot be resolved, so the datagram is lost, as on the wire, without further effect.
TEST_F(SoftDeviceTest, datagrams_to_a_family_that_the_port_does_not_speak_are_lost_without_a_trace) {
  open();
  Datagram datagram;
  datagram.local = kOwn;
  datagram.remote = {{0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};
  for (int i = 0; i < 3000; ++i) ASSERT_TRUE(device().send_datagram(datagram)) << i;
  settle();
  EXPECT_TRUE(sent.empty());
}

}  // namespace
}  // namespace sluice::rdma::conformance
