// SPDX-License-Identifier: Apache-2.0
//
// A host on an Ethernet, byte by byte: ARP (RFC 826), neighbour discovery (RFC 4861) and echo.
#include "pmd/softroce/neighbours.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "pmd/softroce/announcer.h"
#include "pmd/softroce/byte_order.h"
#include "tests/unit/pmd/softroce/hex.h"

namespace sluice::rdma::softroce {
namespace {

constexpr MacAddress kOurMac{2, 0, 0, 0, 0, 1};
constexpr MacAddress kPeerMac{2, 0, 0, 0, 0, 2};

PeerAddress four(std::uint8_t host) {
  return PeerAddress::from_ipv4(192, 0, 2, host);
}
PeerAddress six(std::uint8_t host) {
  return {{0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host}};
}

class NeighbourFrames : public testing::Test {
 protected:
  NeighbourFrames() {
    config_.addresses = {{four(1), 120}, {six(1), 64}};
    config_.gateways = {four(254), six(254)};
  }
  Bytes answer(const Bytes& frame) {
    Bytes out(kMaxAnswerBytes);
    out.resize(here_.on_frame(parse(frame), frame, out.data(), statistics_));
    return out;
  }
  Bytes question(const PeerAddress& about) {
    Bytes out(kMaxAnswerBytes);
    out.resize(here_.ask(about, out.data()));
    return out;
  }
  /// Checks that `frame` is answered, and that no frame which differs from it in one of these bytes is.
  void only_as_it_is(const Bytes& frame, std::initializer_list<std::size_t> bytes) {
    EXPECT_FALSE(answer(frame).empty());
    for (const std::size_t at : bytes) {
      Bytes other = frame;
      other[at] ^= std::byte{0x40};
      EXPECT_TRUE(answer(other).empty()) << "byte " << at;
    }
  }

  PortConfig config_;
  std::optional<MacAddress> link_of(const PeerAddress& remote) {
    const auto hop = here_.find(remote);
    return hop ? std::optional(hop->link) : std::nullopt;
  }
  std::uint64_t now_ns_ = 5'000'000'000;
  NeighbourCache cache_;
  Neighbours here_{config_, kOurMac, cache_, now_ns_};
  Statistics statistics_;
};

/// ARP request of 192.0.2.2 at 02:...:02 for 192.0.2.1.
const Bytes kArpRequest = from_hex(
    "ffffffffffff0200000000020806"
    "00010800060400010200000000"
    "02c0000202000000000000c0000201");

/// Returns a neighbour solicitation of 2001:db8::2 for 2001:db8::1, with hop limit 255 and the source link
/// option.
Bytes solicitation() {
  Bytes frame = from_hex(
      "3333ff00000102000000000286dd"
      "6000000000203aff"
      "20010db8000000000000000000000002"
      "ff0200000000000000000001ff000001"
      "8700000000000000"
      "20010db8000000000000000000000001"
      "0101020000000002");
  return frame;
}
/// Sets the checksum over pseudo header and message, computed independently of the driver (RFC 8200, 8.1).
Bytes with_checksum(Bytes frame) {
  store_be16(frame.data() + 56, 0);
  const auto bytes = std::span<const std::byte>(frame);
  const auto message = bytes.subspan(54);
  Bytes covered;
  covered.reserve(bytes.size());
  for (const std::byte byte : bytes.subspan(22, 32)) covered.push_back(byte);
  for (const std::size_t byte : {std::size_t{0}, std::size_t{0}, std::size_t{0}, message.size(),
                                 std::size_t{0}, std::size_t{0}, std::size_t{0}, std::size_t{58}})
    covered.push_back(static_cast<std::byte>(byte));
  for (const std::byte byte : message) covered.push_back(byte);
  store_be16(frame.data() + 56, internet_checksum(covered));
  return frame;
}

TEST_F(NeighbourFrames, an_arp_request_is_answered_with_our_address) {
  EXPECT_EQ(answer(kArpRequest), from_hex("0200000000020200000000010806"
                                          "00010800060400020200000000"
                                          "01c0000201020000000002c0000202"));
  EXPECT_EQ(statistics_.arp_replies, 1u);
  EXPECT_EQ(link_of(four(2)), kPeerMac);  // the sender of the request is learned
}

TEST_F(NeighbourFrames, what_is_no_arp_request_for_us_is_not_answered) {
  only_as_it_is(kArpRequest, {15, 16, 18, 19, 20, 41});  // types, lengths, operation, target
  for (std::size_t bytes = 0; bytes < kArpRequest.size(); ++bytes)
    EXPECT_TRUE(
        answer(Bytes(kArpRequest.begin(), kArpRequest.begin() + static_cast<std::ptrdiff_t>(bytes))).empty());
}

TEST_F(NeighbourFrames, an_arp_reply_is_learned_from_and_not_answered) {
  Bytes reply = kArpRequest;
  reply[21] = std::byte{2};
  EXPECT_TRUE(answer(reply).empty());
  EXPECT_EQ(statistics_.arp_replies, 0u);
  EXPECT_EQ(link_of(four(2)), kPeerMac);
}

TEST_F(NeighbourFrames, arp_for_others_teaches_nothing) {
  Bytes other = kArpRequest;
  other[41] = std::byte{9};
  answer(other);
  EXPECT_FALSE(here_.find(four(2)));
}

TEST_F(NeighbourFrames, frames_of_another_vlan_are_not_ours) {
  config_.vlan = 9;
  EXPECT_TRUE(answer(kArpRequest).empty());
  Bytes tagged = kArpRequest;
  const Bytes tag = from_hex("81000009");
  tagged.insert(tagged.begin() + 12, tag.begin(), tag.end());
  const Bytes reply = answer(tagged);
  ASSERT_EQ(reply.size(), tagged.size());
  EXPECT_EQ(Bytes(reply.begin() + 12, reply.begin() + 18), from_hex("810000090806"));
}

TEST_F(NeighbourFrames, a_priority_tag_is_no_vlan_and_is_not_answered_with_one) {
  Bytes tagged = kArpRequest;
  const Bytes tag = from_hex("8100a000");
  tagged.insert(tagged.begin() + 12, tag.begin(), tag.end());
  EXPECT_EQ(answer(tagged), answer(kArpRequest));
  EXPECT_FALSE(answer(tagged).empty());
}

Bytes advertisement();

// --- Neighbours that change their address or disappear

TEST_F(NeighbourFrames, a_neighbour_is_asked_again_when_it_is_old_and_forgotten_when_it_is_older) {
  here_.learn(four(2), kPeerMac);
  EXPECT_FALSE(here_.find(four(2))->stale);
  now_ns_ += kNeighbourFreshNs;
  EXPECT_FALSE(here_.find(four(2))->stale);
  now_ns_ += 1;
  EXPECT_TRUE(here_.find(four(2))->stale);
  EXPECT_EQ(link_of(four(2)), kPeerMac);
  answer(kArpRequest);  // confirms the neighbour
  EXPECT_FALSE(here_.find(four(2))->stale);
  now_ns_ += kNeighbourForgottenNs;
  EXPECT_TRUE(here_.find(four(2))->stale);
  now_ns_ += 1;
  EXPECT_FALSE(here_.find(four(2)));
}

constexpr MacAddress kNewMac{2, 0, 0, 0, 0, 0x22};

/// Gratuitous ARP: 192.0.2.2 announces that it is at 02:...:22.
const Bytes kGratuitousArp = from_hex(
    "ffffffffffff0200000000220806"
    "00010800060400010200000000"
    "22c0000202000000000000c0000202");

TEST_F(NeighbourFrames, a_gratuitous_arp_is_followed_by_who_knows_its_sender_and_makes_nobody_known) {
  EXPECT_TRUE(answer(kGratuitousArp).empty());
  EXPECT_FALSE(here_.find(four(2)));
  here_.learn(four(2), kPeerMac);
  Bytes from_group = kGratuitousArp;
  from_group[22] |= std::byte{1};
  answer(from_group);
  EXPECT_EQ(link_of(four(2)), kPeerMac);
  answer(kGratuitousArp);
  EXPECT_EQ(link_of(four(2)), kNewMac);
}

TEST_F(NeighbourFrames, an_advertisement_to_everybody_is_followed_if_it_replaces_what_is_known) {
  Bytes announced = from_hex(
      "3333000000010200000000220000"
      "6000000000203aff"
      "20010db8000000000000000000000002"
      "ff020000000000000000000000000001"
      "8800000020000000"
      "20010db8000000000000000000000002"
      "0201020000000022");
  announced[12] = std::byte{0x86};
  announced[13] = std::byte{0xdd};
  answer(with_checksum(announced));
  EXPECT_FALSE(here_.find(six(2)));
  here_.learn(six(2), kPeerMac);
  Bytes weak = announced;
  weak[58] = std::byte{0};  // without the override flag
  answer(with_checksum(weak));
  EXPECT_EQ(link_of(six(2)), kPeerMac);
  answer(with_checksum(announced));
  EXPECT_EQ(link_of(six(2)), kNewMac);
}

// --- Duplicate addresses

TEST_F(NeighbourFrames, who_asks_whether_an_address_of_ours_is_in_use_is_told_so) {
  Bytes probe = kArpRequest;
  for (std::size_t i = 28; i < 32; ++i) probe[i] = std::byte{0};
  EXPECT_FALSE(answer(probe).empty());
  EXPECT_FALSE(here_.find(four(0)));
  EXPECT_FALSE(here_.find(PeerAddress::from_ipv4(0, 0, 0, 0)));
  Bytes solicited = solicitation();  // RFC 4862: unspecified source address and no option
  std::fill(solicited.begin() + 22, solicited.begin() + 38, std::byte{0});
  solicited.resize(78);
  solicited[19] = std::byte{24};
  EXPECT_EQ(answer(with_checksum(solicited)), with_checksum(from_hex("33330000000102000000000186dd"
                                                                     "6000000000203aff"
                                                                     "20010db8000000000000000000000001"
                                                                     "ff020000000000000000000000000001"
                                                                     "8800000020000000"
                                                                     "20010db8000000000000000000000001"
                                                                     "0201020000000001")));
  EXPECT_FALSE(here_.find(PeerAddress{}));
}

TEST_F(NeighbourFrames, another_host_with_an_address_of_ours_is_counted_and_not_learned) {
  Bytes claim = kGratuitousArp;
  claim[31] = claim[41] = std::byte{1};
  EXPECT_TRUE(answer(claim).empty());
  EXPECT_EQ(statistics_.address_conflicts, 1u);
  Bytes advertised = advertisement();
  advertised[77] = std::byte{1};
  answer(with_checksum(advertised));
  EXPECT_EQ(statistics_.address_conflicts, 2u);
  std::copy(kOurMac.begin(), kOurMac.end(), reinterpret_cast<std::uint8_t*>(claim.data()) + 22);
  answer(claim);  // a frame of this host that came back
  EXPECT_EQ(statistics_.address_conflicts, 2u);
}

// --- Unsolicited messages

std::vector<Bytes> said(Announcer& announcer, std::uint64_t now_ns) {
  std::vector<Bytes> frames;
  for (int i = 0; i < 20 && announcer.due(now_ns); ++i) {
    Bytes out(kMaxAnswerBytes, std::byte{0xA5});
    out.resize(announcer.next(now_ns, out.data()));
    if (!out.empty()) frames.push_back(out);
  }
  return frames;
}

TEST_F(NeighbourFrames, at_start_addresses_are_asked_for_and_announced_and_groups_reported) {
  config_.announce = true;
  Announcer announcer(config_, kOurMac, now_ns_);
  const std::vector<Bytes> first = said(announcer, now_ns_);
  ASSERT_EQ(first.size(), 5u);
  EXPECT_EQ(first[0], from_hex("ffffffffffff0200000000010806"
                               "00010800060400010200000000"
                               "0100000000000000000000c0000201"));
  EXPECT_EQ(first[1], from_hex("ffffffffffff0200000000010806"
                               "00010800060400010200000000"
                               "01c0000201000000000000c0000201"));
  EXPECT_EQ(first[2], with_checksum(from_hex("3333ff00000102000000000186dd"
                                             "6000000000183aff"
                                             "00000000000000000000000000000000"
                                             "ff0200000000000000000001ff000001"
                                             "8700000000000000"
                                             "20010db8000000000000000000000001")));
  EXPECT_EQ(first[3], with_checksum(from_hex("33330000000102000000000186dd"
                                             "6000000000203aff"
                                             "20010db8000000000000000000000001"
                                             "ff020000000000000000000000000001"
                                             "8800000020000000"
                                             "20010db8000000000000000000000001"
                                             "0201020000000001")));
  // RFC 3810: hop limit 1, router alert, one record that excludes no source. Its checksum begins at the
  // message.
  Bytes report = first[4];
  ASSERT_EQ(report.size(), 14u + 40 + 8 + 28);
  EXPECT_EQ(Bytes(report.begin(), report.begin() + 62), from_hex("33330000001602000000000186dd"
                                                                 "6000000000240001"
                                                                 "00000000000000000000000000000000"
                                                                 "ff020000000000000000000000000016"
                                                                 "3a00050200000100"));
  EXPECT_EQ(icmp6_checksum(PeerAddress{}, PeerAddress{{0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x16}},
                           std::span(report).subspan(62)),
            0);
  EXPECT_EQ(report[62], std::byte{143});
  EXPECT_EQ(Bytes(report.begin() + 66, report.end()), from_hex("0000000104000000"
                                                               "ff0200000000000000000001ff000001"));
  EXPECT_FALSE(announcer.due(now_ns_ + kAnnounceIntervalNs - 1));
  for (std::uint32_t again = 1; again < kAnnouncements; ++again)
    EXPECT_EQ(said(announcer, now_ns_ += kAnnounceIntervalNs),
              (std::vector<Bytes>{first[1], first[3], first[4]}));
  EXPECT_FALSE(announcer.due(~std::uint64_t{0} - 1));
}

TEST_F(NeighbourFrames, an_address_is_defended_once_in_a_while) {
  config_.announce = true;
  Announcer announcer(config_, kOurMac, now_ns_);
  for (std::uint32_t i = 0; i < kAnnouncements; ++i) said(announcer, now_ns_ += kAnnounceIntervalNs);
  announcer.defend(now_ns_);
  EXPECT_EQ(said(announcer, now_ns_).size(), 3u);
  announcer.defend(now_ns_ += kDefendIntervalNs - 1);
  EXPECT_TRUE(said(announcer, now_ns_).empty());
  announcer.defend(now_ns_ += 1);
  EXPECT_EQ(said(announcer, now_ns_).size(), 3u);
}

TEST_F(NeighbourFrames, who_asks_for_listeners_is_told_our_groups) {
  Bytes query = from_hex(
      "33330000000102000000000286dd"
      "6000000000240001"
      "fe800000000000000000000000000002"
      "ff020000000000000000000000000001"
      "3a00050200000100"
      "8200000003e80000"
      "00000000000000000000000000000000"
      "027d0000");
  const auto message = std::span(query).subspan(62);
  const PeerAddress from{{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}};
  store_be16(query.data() + 64, icmp6_checksum(from, kAllNodes, message));
  const Bytes report = answer(query);
  ASSERT_EQ(report.size(), 90u);
  EXPECT_EQ(report[70], std::byte{2});  // the report says that the group has a listener
  only_as_it_is(query, {20, 21, 54, 62, 64});
  for (std::size_t bytes = 0; bytes < query.size(); ++bytes)
    EXPECT_TRUE(answer(Bytes(query.begin(), query.begin() + static_cast<std::ptrdiff_t>(bytes))).empty());
}

TEST_F(NeighbourFrames, questions_go_to_everybody_or_to_the_solicited_group) {
  EXPECT_EQ(question(four(2)), from_hex("ffffffffffff0200000000010806"
                                        "00010800060400010200000000"
                                        "01c0000201000000000000c0000202"));
  const Bytes asked = question(six(2));
  EXPECT_EQ(asked, with_checksum(from_hex("3333ff00000202000000000186dd"
                                          "6000000000203aff"
                                          "20010db8000000000000000000000001"
                                          "ff0200000000000000000001ff000002"
                                          "8700000000000000"
                                          "20010db8000000000000000000000002"
                                          "0101020000000001")));
}

/// RFC 2464, section 7: the Ethernet group ends with the last four octets of the IPv6 group, which end with
/// the last three of the address.
TEST_F(NeighbourFrames, the_ethernet_group_of_a_solicitation_has_the_end_of_the_address) {
  const PeerAddress about{{0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xaa, 0x12, 0x34, 0x56}};
  const Bytes asked = question(about);
  ASSERT_GE(asked.size(), 54u);
  EXPECT_EQ(Bytes(asked.begin(), asked.begin() + 6), from_hex("3333ff123456"));
  EXPECT_EQ(Bytes(asked.begin() + 38, asked.begin() + 54), from_hex("ff0200000000000000000001ff123456"));
}

TEST_F(NeighbourFrames, questions_are_the_same_in_a_buffer_that_was_used_before) {
  for (const PeerAddress& about : {four(2), six(2)}) {
    Bytes used(kMaxAnswerBytes, std::byte{0xA5});
    used.resize(here_.ask(about, used.data()));
    EXPECT_EQ(used, question(about));
  }
}

TEST_F(NeighbourFrames, questions_about_what_is_off_the_link_ask_for_the_gateway_of_the_family) {
  EXPECT_EQ(question(PeerAddress::from_ipv4(198, 51, 100, 7)), question(four(254)));
  EXPECT_EQ(question(PeerAddress{{0x20, 0x01, 0x0d, 0xb9}}), question(six(254)));
  config_.gateways.clear();
  const Bytes asked = question(PeerAddress::from_ipv4(198, 51, 100, 7));
  EXPECT_EQ(Bytes(asked.end() - 4, asked.end()), from_hex("c6336407"));
  config_.addresses.pop_back();  // removes the address of that family
  EXPECT_TRUE(question(six(2)).empty());
}

TEST_F(NeighbourFrames, a_solicitation_is_answered_with_an_advertisement) {
  const Bytes asked = with_checksum(solicitation());
  EXPECT_EQ(answer(asked), with_checksum(from_hex("02000000000202000000000186dd"
                                                  "6000000000203aff"
                                                  "20010db8000000000000000000000001"
                                                  "20010db8000000000000000000000002"
                                                  "8800000060000000"
                                                  "20010db8000000000000000000000001"
                                                  "0201020000000001")));
  EXPECT_EQ(statistics_.arp_replies, 1u);
  EXPECT_EQ(link_of(six(2)), kPeerMac);
}

TEST_F(NeighbourFrames, a_solicitation_from_off_the_link_or_about_others_is_not_answered) {
  Bytes routed = solicitation();
  routed[21] = std::byte{254};
  EXPECT_TRUE(answer(with_checksum(routed)).empty());
  Bytes about_others = solicitation();
  about_others[77] = std::byte{9};
  EXPECT_TRUE(answer(with_checksum(about_others)).empty());
  Bytes other_type = solicitation();
  other_type[54] = std::byte{133};
  EXPECT_TRUE(answer(with_checksum(other_type)).empty());
  Bytes wrong_checksum = with_checksum(solicitation());
  wrong_checksum[60] ^= std::byte{1};
  EXPECT_TRUE(answer(wrong_checksum).empty());
  EXPECT_FALSE(here_.find(six(2)));
  // The option is not required: 24 bytes are sufficient, 23 are not.
  for (const std::size_t message : {24u, 23u, 8u, 7u}) {
    Bytes plain = solicitation();
    plain.resize(54 + message);
    plain[19] = static_cast<std::byte>(message);
    EXPECT_EQ(answer(with_checksum(plain)).empty(), message < 24) << message;
  }
}

/// Returns an advertisement of 2001:db8::2 to 2001:db8::1 that `target` is at 02:...:02.
Bytes advertisement() {
  return from_hex(
      "02000000000102000000000286dd"
      "6000000000203aff"
      "20010db8000000000000000000000002"
      "20010db8000000000000000000000001"
      "8800000060000000"
      "20010db8000000000000000000000002"
      "0201020000000002");
}

TEST_F(NeighbourFrames, an_advertisement_to_us_is_learned_from_and_not_answered) {
  EXPECT_TRUE(answer(with_checksum(advertisement())).empty());
  EXPECT_EQ(link_of(six(2)), kPeerMac);
}

TEST_F(NeighbourFrames, advertisements_without_their_option_or_to_others_teach_nothing) {
  const auto learns = [&](auto change) {
    NeighbourCache cache;
    Neighbours fresh{config_, kOurMac, cache, now_ns_};
    Bytes frame = advertisement();
    change(frame);
    frame = with_checksum(frame);
    Bytes out(kMaxAnswerBytes);
    EXPECT_EQ(fresh.on_frame(parse(frame), frame, out.data(), statistics_), 0u);
    return fresh.find(six(2)).has_value();
  };
  EXPECT_TRUE(learns([](Bytes&) {}));
  EXPECT_FALSE(learns([](Bytes& frame) { frame[53] = std::byte{9}; }));  // to another destination
  EXPECT_FALSE(learns([](Bytes& frame) { frame[78] = std::byte{1}; }));  // the source's option
  EXPECT_FALSE(learns([](Bytes& frame) { frame[79] = std::byte{2}; }));  // an option of another length
  EXPECT_FALSE(learns([](Bytes& frame) { frame[21] = std::byte{254}; }));
  EXPECT_FALSE(learns([](Bytes& frame) { frame.resize(frame.size() - 8), frame[19] = std::byte{24}; }));
  EXPECT_FALSE(learns([](Bytes& frame) { frame.resize(frame.size() - 1), frame[19] = std::byte{31}; }));
}

TEST_F(NeighbourFrames, an_echo_request_of_ipv6_comes_back_whole) {
  const Bytes ping =
      with_checksum(from_hex("02000000000102000000000286dd"
                             "60000000000e3a40"
                             "20010db8000000000000000000000002"
                             "20010db8000000000000000000000001"
                             "8000000000010002"
                             "736c75696365"));
  EXPECT_EQ(answer(ping), with_checksum(from_hex("02000000000202000000000186dd"
                                                 "60000000000e3aff"
                                                 "20010db8000000000000000000000001"
                                                 "20010db8000000000000000000000002"
                                                 "8100000000010002"
                                                 "736c75696365")));
  EXPECT_EQ(statistics_.echo_replies, 1u);
  Bytes to_another = ping;
  to_another[53] = std::byte{9};
  EXPECT_TRUE(answer(with_checksum(to_another)).empty());
}

/// Returns an echo request with `data` bytes, 192.0.2.2 > 192.0.2.1.
Bytes ping_of(std::size_t data) {
  Bytes frame = from_hex(
      "0200000000010200000000020800"
      "450000000000400040010000c0000202c0000201"
      "0800000000010002");
  frame.resize(frame.size() + data, std::byte{0x5A});
  store_be16(frame.data() + 16, static_cast<std::uint16_t>(frame.size() - 14));
  store_be16(frame.data() + 24, internet_checksum(std::span(frame).subspan(14, 20)));
  store_be16(frame.data() + 36, internet_checksum(std::span(frame).subspan(34)));
  return frame;
}

TEST_F(NeighbourFrames, an_echo_request_of_ipv4_comes_back_whole) {
  Bytes expected = ping_of(6);
  std::swap_ranges(expected.begin(), expected.begin() + 6, expected.begin() + 6);
  std::swap_ranges(expected.begin() + 26, expected.begin() + 30, expected.begin() + 30);
  expected[34] = std::byte{0};
  store_be16(expected.data() + 36, 0);
  store_be16(expected.data() + 36, internet_checksum(std::span(expected).subspan(34)));
  EXPECT_EQ(answer(ping_of(6)), expected);
  EXPECT_EQ(statistics_.echo_replies, 1u);
  EXPECT_FALSE(answer(ping_of(0)).empty());
}

TEST_F(NeighbourFrames, echoes_have_a_largest_size_and_are_asked_of_us) {
  EXPECT_EQ(answer(ping_of(kMaxAnswerBytes - 42)).size(), kMaxAnswerBytes);
  EXPECT_TRUE(answer(ping_of(kMaxAnswerBytes - 41)).empty());
  Bytes reply = ping_of(6);
  reply[34] = std::byte{0};
  EXPECT_TRUE(answer(reply).empty());
  Bytes to_another = ping_of(6);
  to_another[33] = std::byte{9};
  store_be16(to_another.data() + 24, 0);
  store_be16(to_another.data() + 24, internet_checksum(std::span(to_another).subspan(14, 20)));
  EXPECT_TRUE(answer(to_another).empty());
  Bytes cut = ping_of(0);
  cut.pop_back();
  store_be16(cut.data() + 16, 27);
  store_be16(cut.data() + 24, 0);
  store_be16(cut.data() + 24, internet_checksum(std::span(cut).subspan(14, 20)));
  EXPECT_TRUE(answer(cut).empty());
  Bytes other_protocol = ping_of(6);
  other_protocol[23] = std::byte{6};
  store_be16(other_protocol.data() + 24, 0);
  store_be16(other_protocol.data() + 24, internet_checksum(std::span(other_protocol).subspan(14, 20)));
  EXPECT_TRUE(answer(other_protocol).empty());
}

TEST_F(NeighbourFrames, a_neighbour_that_moves_is_known_at_its_new_place_and_takes_no_second_one) {
  for (std::size_t time = 0; time <= kMaxNeighbours; ++time) {
    here_.learn(four(2), {2, 0, 0, 0, 1, static_cast<std::uint8_t>(time)});
    if (time == 0) here_.learn(four(3), kPeerMac);
  }
  EXPECT_EQ(link_of(four(2)), (MacAddress{2, 0, 0, 0, 1, kMaxNeighbours}));
  EXPECT_EQ(link_of(four(3)), kPeerMac);
}

TEST_F(NeighbourFrames, the_oldest_neighbour_gives_way) {
  for (std::uint8_t host = 100; host < 100 + kMaxNeighbours; ++host) here_.learn(four(host), kPeerMac);
  for (std::uint8_t host = 100; host < 100 + kMaxNeighbours; ++host) EXPECT_TRUE(here_.find(four(host)));
  here_.learn(four(2), kPeerMac);
  EXPECT_FALSE(here_.find(four(100)));
  EXPECT_TRUE(here_.find(four(101)));
  EXPECT_TRUE(here_.find(four(2)));
}

}  // namespace
}  // namespace sluice::rdma::softroce
