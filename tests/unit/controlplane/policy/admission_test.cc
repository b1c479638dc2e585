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

}  // namespace
}  // namespace sluice
