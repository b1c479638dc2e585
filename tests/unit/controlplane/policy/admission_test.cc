// SPDX-License-Identifier: Apache-2.0
#include "controlplane/policy/admission.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(Admission, limits_in_all_of_a_client_and_by_rate) {
  constexpr std::uint64_t kSecond = 1'000'000'000;
  policy::Admission admission(
      {.max_connections = 4, .max_requests_per_second = 10, .max_requests_per_second_per_client = 5});
  const auto a = PeerAddress::from_ipv4(10, 0, 0, 1);
  const auto b = PeerAddress::from_ipv4(10, 0, 0, 2);
  const auto c = PeerAddress::from_ipv4(10, 0, 0, 3);
  using policy::Verdict;
  EXPECT_EQ(admission.judge(a, 2, kSecond), Verdict::Admit);
  EXPECT_EQ(admission.judge(a, 2, kSecond), Verdict::Admit);
  EXPECT_EQ(admission.judge(a, 2, kSecond), Verdict::TooManyOfClient);
  EXPECT_EQ(admission.judge(b, 2, kSecond), Verdict::Admit);
  EXPECT_EQ(admission.judge(b, 2, kSecond), Verdict::Admit);
  EXPECT_EQ(admission.judge(c, 2, kSecond), Verdict::TooManyConnections);
  admission.disconnected(a);
  EXPECT_EQ(admission.judge(c, 2, kSecond), Verdict::Admit);
  for (int i = 0; i < 2; ++i) admission.judge(a, 2, kSecond);
  EXPECT_EQ(admission.judge(a, 2, kSecond), Verdict::TooFastOfClient);
  EXPECT_EQ(admission.judge(c, 2, kSecond), Verdict::TooManyConnections);
  EXPECT_EQ(admission.judge(c, 2, kSecond), Verdict::TooFast)
      << "the eleventh that is not its client's fault";
  admission.disconnected(c);
  EXPECT_EQ(admission.judge(a, 2, 2 * kSecond), Verdict::Admit);
  EXPECT_EQ(admission.count(Verdict::Admit), 6u);
  admission.set_draining(true);
  EXPECT_EQ(admission.judge(b, 9, 3 * kSecond), Verdict::Draining);
}

TEST(Admission, many_addresses_cannot_make_it_remember_without_bound) {
  policy::Admission admission(
      {.max_connections = 1, .max_requests_per_second = 1'000'000, .max_requests_per_second_per_client = 1});
  const auto first = PeerAddress::from_ipv4(10, 9, 9, 9);
  EXPECT_EQ(admission.judge(first, 1, 1), policy::Verdict::Admit);
  for (std::uint32_t i = 0; i < 20000; ++i)
    admission.judge(
        PeerAddress::from_ipv4(10, 0, static_cast<std::uint8_t>(i >> 8), static_cast<std::uint8_t>(i)), 1,
        1 + i);
  EXPECT_LE(admission.remembered(), 4097u);
  EXPECT_EQ(admission.connections(), 1u);
  admission.disconnected(first);
  EXPECT_EQ(admission.connections(), 0u);
}

/// All connections belong to different clients, and requests come from unknown addresses.
TEST(Admission, an_unknown_address_costs_no_look_at_all_that_are_known) {
  constexpr std::uint32_t kConnected = 131'072;
  policy::Admission admission({.max_connections = kConnected,
                               .max_requests_per_second = 1'000'000,
                               .max_requests_per_second_per_client = 1});
  const auto address = [](std::uint8_t net, std::uint32_t number) {
    return PeerAddress::from_ipv4(net, static_cast<std::uint8_t>(number >> 16),
                                  static_cast<std::uint8_t>(number >> 8), static_cast<std::uint8_t>(number));
  };
  for (std::uint32_t i = 0; i < kConnected; ++i) admission.connected(address(10, i));
  constexpr std::uint32_t kUnknown = 20'000;
  for (std::uint32_t i = 0; i < kUnknown; ++i) admission.judge(address(11, i), 1, 1 + i);
  EXPECT_LE(admission.looked_at(), kUnknown);
  EXPECT_EQ(admission.connections(), kConnected);
  EXPECT_EQ(admission.remembered(), kConnected + 4096u);
  // Later requests replace the remembered addresses, and their rate is limited.
  constexpr std::uint64_t kLater = 10'000'000'000;
  const auto next = address(12, 1);
  const std::uint64_t before = admission.looked_at();
  EXPECT_EQ(admission.judge(next, 1, kLater), policy::Verdict::TooManyConnections);
  EXPECT_LE(admission.looked_at() - before, 4u);
  EXPECT_EQ(admission.judge(next, 1, kLater + 1), policy::Verdict::TooFastOfClient);
  EXPECT_LE(admission.remembered(), kConnected + 4096u);
  // A client that disconnects is remembered for its rate, and forgotten after the others.
  admission.disconnected(address(10, 7));
  EXPECT_EQ(admission.connections(), kConnected - 1);
  EXPECT_EQ(admission.judge(address(10, 7), 1, kLater + 2), policy::Verdict::Admit);
  EXPECT_EQ(admission.judge(address(10, 7), 9, kLater + 3), policy::Verdict::TooFastOfClient);
}

TEST(Admission, who_has_asked_lately_is_remembered_longest) {
  policy::Admission admission(
      {.max_connections = 0, .max_requests_per_second = 1'000'000, .max_requests_per_second_per_client = 1});
  const auto address = [](std::uint32_t number) {
    return PeerAddress::from_ipv4(10, 0, static_cast<std::uint8_t>(number >> 8),
                                  static_cast<std::uint8_t>(number));
  };
  for (std::uint32_t i = 0; i < 4095; ++i) admission.judge(address(i), 1, 1 + i);
  constexpr std::uint64_t kSecond = 1'000'000'000;
  EXPECT_EQ(admission.judge(address(0), 1, kSecond + 10'000), policy::Verdict::TooManyConnections);
  admission.judge(address(5000), 1, kSecond + 10'001);  // the table is full now
  const auto next = PeerAddress::from_ipv4(10, 1, 0, 0);
  EXPECT_EQ(admission.judge(next, 1, kSecond + 20'000), policy::Verdict::TooManyConnections);
  EXPECT_EQ(admission.judge(next, 1, kSecond + 20'001), policy::Verdict::TooFastOfClient);
  EXPECT_EQ(admission.judge(address(0), 1, kSecond + 20'002), policy::Verdict::TooFastOfClient);
}

}  // namespace
}  // namespace sluice
