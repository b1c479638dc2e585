// SPDX-License-Identifier: Apache-2.0
//
// The driver recognizes packets of a peer by their headers, until the path changes. The effect of a packet is
// the same on both paths, so only the counter packets_expected shows the difference.
#include "pmd/softroce/byte_order.h"
#include "tests/driver/recovery_fixture.h"

namespace sluice::rdma::conformance {
namespace {

using namespace softroce;

class Expected : public Recovery {
 protected:
  void SetUp() override {
    Recovery::SetUp();
    for (std::uint64_t id = 0; id < 64; ++id) ASSERT_TRUE(own.receive(id, own.sge(id * 1024, 1024)));
  }
  /// The peer sends its next message. Returns whether its headers were expected, and checks its effect.
  bool is_expected(const Change& change = {}, const std::function<void(Bytes&)>& edit = {}) {
    const Statistics before = statistics();
    Bytes bytes = frame(own, Opcode::SendOnly, kPeerPsn + sent_, pattern(100), change);
    if (edit) edit(bytes);
    inject(bytes);
    settle();
    const bool taken = own.completions.size() > received_;
    received_ = own.completions.size();
    sent_ += taken;
    taken_ = taken;
    return statistics().packets_expected > before.packets_expected;
  }
  static void mend_checksum(Bytes& frame) {
    store_be16(frame.data() + 24, 0);
    store_be16(frame.data() + 24, internet_checksum(std::span(frame).subspan(14, 20)));
  }

  std::uint32_t sent_ = 0;
  std::size_t received_ = 0;
  bool taken_ = false;  ///< the latest message was received
};

TEST_F(Expected, the_first_packet_teaches_the_headers_of_the_next) {
  EXPECT_FALSE(is_expected());
  EXPECT_TRUE(taken_);
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(is_expected());
    EXPECT_TRUE(taken_);
  }
}

TEST_F(Expected, each_difference_of_the_path_takes_the_general_path_with_its_own_effect) {
  struct Case {
    const char* what;
    Change change;
    std::function<void(Bytes&)> edit;
    bool taken;
    std::uint64_t Statistics::*counter;
  };
  const Case kCases[] = {
      {"wrong peer", [](Packet&, Route& r) { r.source.bytes[15] ^= 1; }, {}, false, &Statistics::wrong_peer},
      {"wrong host",
       [](Packet&, Route& r) { r.destination.bytes[15] ^= 1; },
       {},
       false,
       &Statistics::frames_foreign},
      {"other MAC",
       [](Packet&, Route& r) { r.destination_mac[5] ^= 1; },
       {},
       false,
       &Statistics::frames_misaddressed},
      {"VLAN", [](Packet&, Route& r) { r.vlan = 9; }, {}, false, &Statistics::frames_foreign},
      {"port", [](Packet&, Route& r) { r.udp_source_port ^= 1; }, {}, true, nullptr},
      {"class", [](Packet&, Route& r) { r.traffic_class ^= 0x40; }, {}, true, nullptr},
      {"mark",
       [](Packet&, Route& r) { r.traffic_class |= kEcnCongested; },
       {},
       true,
       &Statistics::congestion_marks},
      {"FECN", [](Packet& p, Route&) { p.bth.fecn = true; }, {}, true, nullptr},
      {"partition",
       [](Packet& p, Route&) { p.bth.partition_key = 0x7FFE; },
       {},
       false,
       &Statistics::partition_errors},
      {"limited member", [](Packet& p, Route&) { p.bth.partition_key = 0x7FFF; }, {}, true, nullptr},
      {"CRC", {}, [](Bytes& b) { b.back() ^= std::byte{1}; }, false, &Statistics::icrc_errors},
      {"payload", {}, [](Bytes& b) { b[60] ^= std::byte{1}; }, false, &Statistics::icrc_errors},
      {"IPv4 checksum", {}, [](Bytes& b) { b[24] ^= std::byte{1}; }, false, &Statistics::frames_malformed},
      {"IP length",
       {},
       [](Bytes& b) {
         store_be16(b.data() + 16, 2000);
         mend_checksum(b);
       },
       false,
       &Statistics::frames_malformed},
      {"UDP length",
       {},
       [](Bytes& b) { store_be16(b.data() + 38, 2000); },
       false,
       &Statistics::frames_malformed},
      {"fragment",
       {},
       [](Bytes& b) {
         b[20] = std::byte{0x20};
         mend_checksum(b);
       },
       false,
       &Statistics::frames_malformed},
      {"cut", {}, [](Bytes& b) { b.resize(b.size() - 9); }, false, &Statistics::frames_malformed},
      {"version", [](Packet& p, Route&) { p.bth.version = 1; }, {}, false, &Statistics::frames_malformed},
  };
  ASSERT_FALSE(is_expected());
  for (const Case& each : kCases) {
    // The message before it shows that headers are expected. They are learned again after a packet with
    // others was received.
    for (int i = 0; i < 2; ++i) is_expected();
    ASSERT_TRUE(is_expected()) << each.what;
    const Statistics before = statistics();
    EXPECT_FALSE(is_expected(each.change, each.edit)) << each.what;
    EXPECT_EQ(taken_, each.taken) << each.what;
    if (each.counter != nullptr) EXPECT_EQ(statistics().*each.counter, before.*each.counter + 1) << each.what;
  }
}

TEST_F(Expected, a_marked_packet_teaches_nothing) {
  const Change mark = [](Packet&, Route& route) { route.traffic_class |= kEcnCongested; };
  EXPECT_FALSE(is_expected(mark));
  EXPECT_FALSE(is_expected(mark));
  EXPECT_EQ(statistics().congestion_marks, 2u);
  EXPECT_FALSE(is_expected());
  EXPECT_TRUE(is_expected());
}

/// The path expects only headers with its own link address. The first packet from another address is not
/// learned, and the known headers are forgotten.
TEST_F(Expected, packets_from_another_link_address_are_expected_after_the_path_has_followed) {
  const Change moved = [](Packet&, Route& route) { route.source_mac = {2, 0, 0, 0, 0, 0x77}; };
  is_expected();
  ASSERT_TRUE(is_expected());
  EXPECT_FALSE(is_expected(moved));
  EXPECT_FALSE(is_expected());  // the two addresses in turn
  EXPECT_FALSE(is_expected(moved));
  EXPECT_FALSE(is_expected(moved));  // the path follows, and these are its headers
  EXPECT_TRUE(is_expected(moved));
  EXPECT_FALSE(is_expected());
}

TEST_F(Expected, nothing_is_expected_after_the_connection_has_ended) {
  is_expected();
  ASSERT_TRUE(is_expected());
  own.qp->to_error();
  settle();
  const auto done = own.completions.size();
  EXPECT_FALSE(is_expected());
  EXPECT_EQ(own.completions.size(), done);
}

TEST_F(Expected, a_duplicate_and_a_packet_after_a_gap_are_expected_and_are_not_executed) {
  is_expected();
  ASSERT_TRUE(is_expected());
  const Statistics before = statistics();
  peer_sends(Opcode::SendOnly, kPeerPsn, pattern(100));
  peer_sends(Opcode::SendOnly, kPeerPsn + sent_ + 1, pattern(100));
  settle();
  EXPECT_EQ(statistics().packets_expected, before.packets_expected + 2);
  EXPECT_EQ(statistics().duplicates, before.duplicates + 1);
  EXPECT_EQ(statistics().packets_kept, before.packets_kept + 1);
  EXPECT_EQ(own.completions.size(), received_);
}

TEST_F(Expected, an_unsupported_opcode_is_refused_on_the_general_path) {
  is_expected();
  ASSERT_TRUE(is_expected());
  const Statistics before = statistics();
  peer_sends(Opcode::FetchAndAdd, kPeerPsn + sent_, pattern(28));
  settle();
  EXPECT_EQ(statistics().packets_expected, before.packets_expected);
  EXPECT_EQ(statistics().invalid_requests, before.invalid_requests + 1);
}

}  // namespace
}  // namespace sluice::rdma::conformance
