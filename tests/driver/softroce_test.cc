// SPDX-License-Identifier: Apache-2.0
//
// softroce beyond the driver suite: bulk transfers on a bad wire against a model, packets that no
// well-behaved peer sends, host functions on Ethernet, congestion, and several lanes.
#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

#include "pmd/softroce/byte_order.h"
#include "pmd/softroce/congestion.h"
#include "pmd/softroce/frame.h"
#include "pmd/softroce/neighbours.h"
#include "pmd/softroce/wire.h"
#include "tests/driver/frame_builder.h"
#include "tests/driver/softroce_pair.h"

namespace sluice::rdma::conformance {
namespace {

using namespace softroce;
using Bytes = std::vector<std::byte>;

/// The fixture of the driver suite, without its parameters.
class SoftRoceTest : public DriverTest {
 protected:
  void SetUp() override {}
  void open(const SoftRocePair::Options& options = {}) {
    a = {};
    b = {};
    pair_.reset();
    next_psn_ = 0xFFFFF0;
    auto made = std::make_unique<SoftRocePair>(options);
    soft_ = made.get();
    pair_ = std::move(made);
    connect();
  }
  Statistics left() { return soft_->left().statistics(); }
  Statistics right() { return soft_->right().statistics(); }

  /// Sends a packet to the queue pair of b, as if a had sent it; `spoil` changes it first.
  template <typename Spoil>
  void inject(Opcode opcode, std::uint32_t psn, std::span<const std::byte> payload, Spoil spoil) {
    Route route;
    route.source_mac = soft_->link_of_left();
    route.destination_mac = soft_->link_of_right();
    route.source = a.device->addresses()[0];
    route.destination = b.device->addresses()[0];
    Packet packet = make_packet(opcode, static_cast<std::uint32_t>(b.qp->number()), psn, payload);
    spoil(packet, route);
    soft_->wire().inject(true, build_frame(route, packet, payload));
    if (settle_) quiesce();
  }
  void inject(Opcode opcode, std::uint32_t psn, std::span<const std::byte> payload = {}) {
    inject(opcode, psn, payload, [](Packet&, Route&) {});
  }

  SoftRocePair* soft_ = nullptr;
  bool settle_ = true;  ///< whether turns follow each injected packet
};

class Bulk : public SoftRoceTest {
 protected:
  /// Posts random Sends, Writes and Reads both ways. Content, order and number of completions are compared
  /// with a model.
  void run(const WireFaults& faults, int operations) {
    open({.faults = faults});
    std::mt19937 random(faults.seed * 7919);
    constexpr std::size_t kArea = 1 << 20;  // of each area: sent from, received into, written to
    const Window exposed = expose(b, 2 * kArea, kArea, kRemoteRead | kRemoteWrite);
    fill(b, 2 * kArea, kArea, 3);
    Bytes model(b.memory.bytes.begin() + 2 * kArea, b.memory.bytes.begin() + 3 * kArea);
    fill(a, 0, kArea, 9);
    std::uint64_t next = 1;
    std::uint64_t receives = 0;
    for (int i = 0; i < operations; ++i) {
      const auto bytes = static_cast<std::uint32_t>(random() % (random() % 4 == 0 ? 150'000 : 6000));
      const auto at = static_cast<std::uint32_t>(random() % (kArea - 150'000));
      const std::uint64_t id = next++;
      switch (random() % 3) {
        case 0: {
          const std::uint64_t slot = 1'000'000 + receives++;
          std::memset(b.memory.bytes.data() + kArea, 0, bytes + 1);
          ASSERT_TRUE(b.receive(slot, b.sge(kArea, std::max(bytes, 1u))));
          ASSERT_TRUE(
              a.post(SendOpcode::Send, id, {a.sge(at, bytes / 3), a.sge(at + bytes / 3, bytes - bytes / 3)}));
          ASSERT_EQ(status_of(b, slot), WcStatus::Success);
          ASSERT_EQ(b.find(slot)->byte_len, bytes);
          ASSERT_TRUE(same(a, at, b, kArea, bytes)) << "operation " << i;
          break;
        }
        case 1: {
          const auto to = static_cast<std::uint32_t>(random() % (kArea - bytes));
          ASSERT_TRUE(
              a.post(SendOpcode::RdmaWrite, id, {a.sge(at, bytes)}, exposed.address + to, exposed.rkey));
          std::copy_n(a.memory.bytes.begin() + at, bytes, model.begin() + to);
          break;
        }
        case 2: {
          const auto from = static_cast<std::uint32_t>(random() % (kArea - bytes));
          ASSERT_TRUE(a.post(SendOpcode::RdmaRead, id, {a.sge(2 * kArea, bytes)}, exposed.address + from,
                             exposed.rkey));
          ASSERT_EQ(status_of(a, id), WcStatus::Success) << "operation " << i;
          ASSERT_TRUE(std::equal(model.begin() + from, model.begin() + from + bytes,
                                 a.memory.bytes.begin() + 2 * kArea))
              << "operation " << i;
          break;
        }
      }
    }
    ASSERT_EQ(status_of(a, next - 1), WcStatus::Success);
    ASSERT_TRUE(until([&] { return a.completions.size() == next - 1; }));
    for (std::uint64_t i = 0; i + 1 < next; ++i) {
      ASSERT_EQ(a.completions[i].wr_id, i + 1);
      ASSERT_EQ(a.completions[i].status, WcStatus::Success);
    }
    ASSERT_EQ(b.completions.size(), receives);
    EXPECT_TRUE(std::equal(model.begin(), model.end(), b.memory.bytes.begin() + 2 * kArea));
    if (faults.per_mille == 0) {
      // A timeout may occur if the machine was busy; nothing else may cause a retransmission.
      EXPECT_EQ(right().sequence_errors, 0u);
      EXPECT_EQ(left().naks_received, 0u);
      EXPECT_EQ(left().go_backs, left().timeouts);
    } else {
      EXPECT_GT(soft_->wire().counts().dropped, 0u);
      EXPECT_GT(left().packets_sent_again, 0u);
      EXPECT_GT(
          right().icrc_errors + right().frames_malformed + right().frames_foreign + right().frames_ignored,
          0u);
    }
  }
};

TEST_F(Bulk, on_a_good_wire_nothing_is_missed) {
  run({}, 600);
}
TEST_F(Bulk, one_percent_of_every_fault_changes_nothing) {
  for (std::uint32_t seed = 1; seed <= 4; ++seed)
    ASSERT_NO_FATAL_FAILURE(run({.per_mille = 10, .seed = seed}, 400));
}
TEST_F(Bulk, ten_percent_of_every_fault_changes_nothing) {
  for (std::uint32_t seed = 1; seed <= 3; ++seed)
    ASSERT_NO_FATAL_FAILURE(run({.per_mille = 100, .seed = seed}, 120));
}

TEST_F(Bulk, every_path_mtu_does) {
  for (const auto mtu : std::initializer_list<std::uint16_t>{256, 512, 1024, 2048, 4096}) {
    path_mtu_ = mtu;
    ASSERT_NO_FATAL_FAILURE(run({.per_mille = 5, .seed = mtu}, 60)) << mtu;
  }
}

TEST_F(SoftRoceTest, path_mtus_that_cannot_be_are_refused) {
  open({.link_mtu = 1500});
  for (const auto mtu : std::initializer_list<std::uint16_t>{0, 128, 1000, 2048, 8192}) {
    auto qp = a.device->create_queue_pair({});
    RcAttributes attributes;
    attributes.path_mtu = mtu;
    EXPECT_FALSE(qp->connect(attributes)) << mtu;
  }
}

TEST_F(SoftRoceTest, a_dead_wire_ends_in_bounded_retries) {
  attributes_.ack_timeout = 8;  // 1 ms
  attributes_.retry_count = 3;
  open({.faults = {.per_mille = 1000}});
  ASSERT_TRUE(a.post(SendOpcode::Send, 1, {a.sge(0, 100)}));
  EXPECT_EQ(status_of(a, 1), WcStatus::RetryExceeded);
  EXPECT_EQ(a.qp->state(), QueuePair::State::Error);
  EXPECT_LE(left().timeouts, 10u);
}

// --- Packets that no well-behaved peer sends

TEST_F(SoftRoceTest, time_in_which_nobody_polled_is_no_retry) {
  attributes_.ack_timeout = 8;  // the pause is longer than all its retries
  open({});
  ASSERT_TRUE(b.receive(1, b.sge(0, 100)));
  ASSERT_TRUE(a.post(SendOpcode::Send, 2, {a.sge(0, 100)}));
  a.device->poll({});
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(status_of(a, 2), WcStatus::Success);
  EXPECT_EQ(status_of(b, 1), WcStatus::Success);
}

TEST_F(SoftRoceTest, packets_that_are_not_the_peers_change_nothing) {
  open();
  const std::uint32_t psn = 0xFFFFF0;  // the fixture's first
  b.receive(1, b.sge(0, 64));
  const Bytes hello(8, std::byte{1});
  inject(Opcode::SendOnly, psn, hello, [](Packet& p, Route&) { p.bth.partition_key = 0x1234; });
  EXPECT_EQ(right().partition_errors, 1u);
  inject(Opcode::SendOnly, psn, hello, [](Packet& p, Route&) { p.bth.destination_qp ^= 0x800000; });
  EXPECT_EQ(right().unknown_queue_pair, 1u);
  inject(Opcode::SendOnly, psn, hello,
         [](Packet&, Route& r) { r.source = PeerAddress::from_ipv4(192, 0, 2, 66); });
  EXPECT_EQ(right().wrong_peer, 1u);
  inject(Opcode::SendOnly, psn, hello,
         [](Packet&, Route& r) { r.destination = PeerAddress::from_ipv4(192, 0, 2, 77); });
  EXPECT_EQ(right().frames_foreign, 1u);
  inject(Opcode::DatagramSendOnly, psn, hello, [](Packet& p, Route&) {
    p.bth.destination_qp = 1;
    p.deth.queue_key = 0x80010001;
  });
  EXPECT_EQ(right().queue_key_errors, 1u);
  // These are answers to requests that were never sent.
  inject(Opcode::Acknowledge, 77);
  inject(Opcode::ReadResponseOnly, 78, hello);
  EXPECT_EQ(right().stale_responses, 2u);
  EXPECT_EQ(b.find(1), nullptr);
  EXPECT_EQ(b.qp->state(), QueuePair::State::ReadyToSend);
  a.post(SendOpcode::Send, 2, {a.sge(0, 8)});
  EXPECT_EQ(status_of(b, 1), WcStatus::Success);
}

TEST_F(SoftRoceTest, requests_out_of_shape_are_refused_and_end_the_connection) {
  const Bytes full(4096, std::byte{2});
  const Bytes some(100, std::byte{3});
  struct Case {
    const char* name;
    Opcode opcode;
    const Bytes* payload;
    std::uint32_t length = 100;
  };
  const Case cases[] = {{"a Middle without a First", Opcode::SendMiddle, &full},
                        {"a Last without a First", Opcode::SendLast, &some},
                        {"a Write's Middle without its First", Opcode::WriteMiddle, &full},
                        {"a First that is not full", Opcode::SendFirst, &some},
                        {"a Write longer than it says", Opcode::WriteOnly, &some, 99},
                        {"a Write shorter than it says", Opcode::WriteOnly, &some, 101},
                        {"a Write of more than 2 GiB", Opcode::WriteOnly, &some, 0x80000001}};
  for (const Case& bad : cases) {
    open();
    const Window window = expose(b, 0, 4096, kRemoteWrite);
    b.receive(1, b.sge(8192, 8192));
    inject(bad.opcode, 0xFFFFF0, *bad.payload, [&](Packet& p, Route&) {
      p.reth = {window.address, static_cast<std::uint32_t>(window.rkey), bad.length};
    });
    EXPECT_EQ(b.qp->state(), QueuePair::State::Error) << bad.name;
    EXPECT_EQ(right().naks_sent, 1u) << bad.name;
    EXPECT_EQ(right().invalid_requests, 1u) << bad.name;
    EXPECT_EQ(status_of(b, 1), WcStatus::WrFlushError) << bad.name;
  }
}

TEST_F(SoftRoceTest, more_reads_at_once_than_agreed_are_refused) {
  for (const std::uint32_t reads : {2u, 3u}) {
    attributes_.responder_resources = 2;
    open();
    const Window window = expose(b, 0, 1u << 20, kRemoteRead);
    settle_ = false;  // all arrive in one poll of b
    const std::uint32_t first = 0xFFFFF0;
    for (std::uint32_t i = 0; i < reads; ++i)
      inject(Opcode::ReadRequest, first + i * 16, {}, [&](Packet& p, Route&) {
        p.reth = {window.address, static_cast<std::uint32_t>(window.rkey), 16 * 4096};
      });
    quiesce();
    EXPECT_EQ(right().reads_served, 2u);
    EXPECT_EQ(right().invalid_requests, reads - 2);
    EXPECT_EQ(b.qp->state(), reads == 2 ? QueuePair::State::ReadyToSend : QueuePair::State::Error);
  }
}

TEST_F(SoftRoceTest, random_packets_do_no_harm_to_other_connections) {
  open();
  std::mt19937 generator(5);
  const auto random = [&] { return static_cast<std::uint32_t>(generator()); };
  constexpr Opcode kAll[] = {Opcode::SendFirst,
                             Opcode::SendMiddle,
                             Opcode::SendLast,
                             Opcode::SendOnly,
                             Opcode::WriteFirst,
                             Opcode::WriteMiddle,
                             Opcode::WriteLast,
                             Opcode::WriteOnly,
                             Opcode::ReadRequest,
                             Opcode::ReadResponseFirst,
                             Opcode::ReadResponseOnly,
                             Opcode::Acknowledge,
                             Opcode::SendOnlyWithInvalidate,
                             Opcode::CongestionNotification,
                             Opcode::DatagramSendOnly};
  Endpoint c;
  Endpoint d;
  std::swap(a, c);
  std::swap(b, d);
  a.memory = c.memory;
  b.memory = d.memory;
  connect();  // a second connection, which is attacked
  for (int i = 0; i < 400; ++i) {
    const Bytes payload(random() % 3 == 0 ? 4096 : random() % 64);
    inject(
        kAll[random() % std::size(kAll)], 0xFFFFF0 + 0x654321 + random() % 8, payload,
        [&](Packet& p, Route&) {
          p.reth = {random(), random(), random() % 2 ? static_cast<std::uint32_t>(payload.size()) : random()};
          p.aeth = {static_cast<Syndrome>(random() % 4), static_cast<std::uint8_t>(random() % 32),
                    random() & kPsnMask};
          p.invalidate_rkey = random();
          if (random() % 4 == 0) p.bth.destination_qp = random() & 0xFFFFFF;
        });
  }
  d.receive(1, d.sge(0, 64));
  c.completions.clear();
  ASSERT_TRUE(c.post(SendOpcode::Send, 2, {c.sge(0, 64)}));
  EXPECT_TRUE(until([&] {
    for (const auto& wc : b.completions)
      if (wc.wr_id == 1 && wc.qp == d.qp->number()) return wc.status == WcStatus::Success;
    return false;
  }));
}

// --- Congestion

TEST_F(SoftRoceTest, congestion_marks_are_told_to_the_sender_who_slows_down) {
  open({.faults = {.marks_per_mille = 200}});
  const Window window = expose(b, 0, 1u << 20, kRemoteWrite);
  for (std::uint64_t i = 0; i < 20; ++i) {
    ASSERT_TRUE(a.post(SendOpcode::RdmaWrite, i, {a.sge(0, 1u << 20)}, window.address, window.rkey));
    ASSERT_EQ(status_of(a, i), WcStatus::Success);
  }
  EXPECT_GT(right().congestion_marks, 0u);
  EXPECT_GT(right().cnps_sent, 0u);
  EXPECT_LE(right().cnps_sent, right().congestion_marks);
  EXPECT_GT(left().cnps_received, 0u);
}

TEST(Congestion, a_notification_cuts_the_rate_and_time_restores_it) {
  constexpr double kLineRate = 1.25;
  CongestionRate rate;
  rate.open(kLineRate);
  EXPECT_FALSE(rate.limited());
  EXPECT_EQ(rate.wait_until(1000), 0u);
  std::uint64_t now = 1'000'000;
  rate.charge(4096, now);
  EXPECT_TRUE(rate.on_notification(now));
  ASSERT_TRUE(rate.limited());
  const double first = rate.bytes_per_ns();
  EXPECT_LT(first, kLineRate * 0.6);
  rate.charge(4096, now);
  EXPECT_FALSE(rate.on_notification(now + 1000));  // too early: once per interval is enough
  EXPECT_EQ(rate.bytes_per_ns(), first);
  EXPECT_TRUE(rate.on_notification(now += 60'000));
  EXPECT_LT(rate.bytes_per_ns(), first);
  rate.charge(4096, now);
  EXPECT_GT(rate.wait_until(now), now);
  for (int i = 0; i < 10'000 && rate.limited(); ++i) rate.wait_until(now += 1'000'000);
  EXPECT_FALSE(rate.limited());
}

TEST(Congestion, loss_halves_the_window_and_progress_widens_it) {
  CongestionWindow window;
  window.open(256);
  EXPECT_EQ(window.packets(), 64u);
  window.on_acknowledged(64);
  EXPECT_EQ(window.packets(), 128u);
  window.on_loss();
  EXPECT_EQ(window.packets(), 64u);
  window.on_acknowledged(64);
  EXPECT_EQ(window.packets(), 65u);  // grows by one packet per round trip
  window.on_timeout();
  EXPECT_EQ(window.packets(), CongestionWindow::kMin);
  for (int i = 0; i < 100'000; ++i) window.on_acknowledged(10);
  EXPECT_EQ(window.packets(), 256u);
}

// --- Several reactors on one port

TEST_F(SoftRoceTest, packets_find_the_lane_that_owns_their_queue_pair) {
  open({.right_lanes = 3});
  EXPECT_EQ(static_cast<std::uint32_t>(b.qp->number()) & 7, 2u);
  fill(a, 0, 100'000, 1);
  b.receive(1, b.sge(0, 100'000));
  a.post(SendOpcode::Send, 2, {a.sge(0, 100'000)});
  ASSERT_EQ(status_of(b, 1), WcStatus::Success);
  ASSERT_EQ(status_of(a, 2), WcStatus::Success);
  EXPECT_TRUE(same(a, 0, b, 0, 100'000));
  EXPECT_GT(soft_->right_lane(0).statistics().handed_over, 0u);
  EXPECT_EQ(right().handed_over, 0u);
}

// --- A host on an Ethernet

class Host : public testing::Test {
 protected:
  static PeerAddress v6(std::uint8_t host) {
    return {{0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host}};
  }
  Host() {
    config_.addresses = {{PeerAddress::from_ipv4(192, 0, 2, 1), 120}, {v6(1), 64}};
    config_.gateways = {PeerAddress::from_ipv4(192, 0, 2, 254)};
    other_config_.addresses = {{PeerAddress::from_ipv4(192, 0, 2, 2), 120}, {v6(2), 64}};
  }
  /// Returns the answer of `to` to `frame`.
  Bytes answer(Neighbours& to, const Bytes& frame) {
    Bytes out(kMaxAnswerBytes);
    out.resize(to.on_frame(parse(frame), frame, out.data(), statistics_));
    return out;
  }
  Bytes question(Neighbours& from, const PeerAddress& about) {
    Bytes out(kMaxAnswerBytes);
    out.resize(from.ask(about, out.data()));
    return out;
  }

  PortConfig config_;
  PortConfig other_config_;
  const MacAddress mac_{2, 0, 0, 0, 0, 1};
  const MacAddress other_mac_{2, 0, 0, 0, 0, 2};
  static MacAddress link_of(Neighbours& host, const PeerAddress& remote) {
    const auto hop = host.find(remote);
    return hop ? hop->link : MacAddress{};
  }
  Statistics statistics_;
  NeighbourCache cache_;
  NeighbourCache other_cache_;
  std::uint64_t now_ns_ = 1'000'000'000;
};

TEST_F(Host, neighbours_find_each_other_by_arp_and_neighbour_discovery) {
  for (const bool six : {false, true})
    for (const std::uint16_t vlan : {kNoVlan, std::uint16_t{9}}) {
      config_.vlan = other_config_.vlan = vlan;
      NeighbourCache cache;
      NeighbourCache other_cache;
      Neighbours here(config_, mac_, cache, now_ns_);
      Neighbours there(other_config_, other_mac_, other_cache, now_ns_);
      const PeerAddress remote = six ? v6(2) : PeerAddress::from_ipv4(192, 0, 2, 2);
      EXPECT_FALSE(here.find(remote));
      const Bytes asked = question(here, remote);
      ASSERT_FALSE(asked.empty());
      const Bytes reply = answer(there, asked);
      ASSERT_FALSE(reply.empty());
      EXPECT_TRUE(answer(here, reply).empty());
      EXPECT_EQ(link_of(here, remote), other_mac_);
      EXPECT_EQ(link_of(there, six ? v6(1) : PeerAddress::from_ipv4(192, 0, 2, 1)),
                mac_);  // learned from our request
    }
}

TEST_F(Host, what_is_off_the_link_goes_by_the_gateway) {
  Neighbours here(config_, mac_, cache_, now_ns_);
  here.learn(PeerAddress::from_ipv4(192, 0, 2, 254), other_mac_);
  EXPECT_EQ(link_of(here, PeerAddress::from_ipv4(198, 51, 100, 7)), other_mac_);
  EXPECT_FALSE(here.find(PeerAddress::from_ipv4(192, 0, 2, 7)));
}

TEST_F(Host, questions_about_others_and_broken_ones_are_not_answered) {
  Neighbours here(config_, mac_, cache_, now_ns_);
  Neighbours there(other_config_, other_mac_, other_cache_, now_ns_);
  EXPECT_TRUE(answer(here, question(there, PeerAddress::from_ipv4(192, 0, 2, 9))).empty());
  EXPECT_TRUE(answer(here, question(there, v6(9))).empty());
  Bytes solicitation = question(there, v6(1));
  for (std::size_t cut = 0; cut < solicitation.size(); ++cut)
    EXPECT_TRUE(
        answer(here, Bytes(solicitation.begin(), solicitation.begin() + static_cast<std::ptrdiff_t>(cut)))
            .empty());
  solicitation.back() ^= std::byte{1};  // its checksum is wrong
  EXPECT_TRUE(answer(here, solicitation).empty());
}

TEST_F(Host, echo_requests_come_back_whole) {
  Neighbours here(config_, mac_, cache_, now_ns_);
  const auto from_hex = [](std::string_view hex) {
    Bytes out;
    for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
      out.push_back(static_cast<std::byte>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
    return out;
  };
  // 192.0.2.2 > 192.0.2.1: echo request, identifier 1, sequence 2, "sluice"; checksums computed by hand.
  Bytes ping = from_hex(
      "020000000001020000000002"
      "0800"
      "45000022000040004001b6d4c0000202c0000201"
      "0800000000010002"
      "736c75696365");
  store_be16(ping.data() + 24, 0);
  store_be16(ping.data() + 24, internet_checksum(std::span(ping).subspan(14, 20)));
  store_be16(ping.data() + 36, internet_checksum(std::span(ping).subspan(34)));
  const Bytes pong = answer(here, ping);
  ASSERT_EQ(pong.size(), ping.size());
  EXPECT_EQ(pong[34], std::byte{0});
  EXPECT_EQ(internet_checksum(std::span(pong).subspan(34)), 0);
  EXPECT_EQ(internet_checksum(std::span(pong).subspan(14, 20)), 0);
  EXPECT_TRUE(std::equal(ping.begin() + 38, ping.end(), pong.begin() + 38));
  EXPECT_TRUE(std::equal(ping.begin() + 26, ping.begin() + 30, pong.begin() + 30));
  EXPECT_EQ(statistics_.echo_replies, 1u);
}

}  // namespace
}  // namespace sluice::rdma::conformance
