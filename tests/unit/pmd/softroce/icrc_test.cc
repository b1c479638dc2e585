// SPDX-License-Identifier: Apache-2.0
//
// The invariant CRC, compared with one that is computed bit by bit.
#include "pmd/softroce/icrc.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string_view>
#include <vector>

#include "pmd/softroce/frame.h"
#include "pmd/softroce/wire.h"

namespace sluice::rdma::softroce {
namespace {

constexpr std::size_t kMost = 4096 + kMaxTransportHeaderBytes;

std::uint32_t bit_by_bit(std::uint32_t crc, std::span<const std::byte> bytes) {
  crc = ~crc;
  for (const std::byte byte : bytes) {
    crc ^= static_cast<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0u);
  }
  return ~crc;
}

std::vector<std::byte> random_bytes(std::size_t count) {
  std::mt19937 random(7);
  std::vector<std::byte> bytes(count);
  std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<std::byte>(random()); });
  return bytes;
}

/// Returns the packet with the pseudo header, and with ones in the fields that routers change (A17.3.3).
std::vector<std::byte> masked(std::vector<std::byte> packet, bool v4) {
  const auto ones = [&](std::initializer_list<std::size_t> places) {
    for (const std::size_t at : places) packet[at] = std::byte{0xFF};
  };
  if (v4) {
    ones({1, 8, 10, 11, 26, 27, 32});  // type of service, TTL, checksums, FECN and BECN
  } else {
    packet[0] |= std::byte{0x0F};
    ones({1, 2, 3, 7, 46, 47, 52});  // class and label, hop limit, checksum, FECN and BECN
  }
  packet.insert(packet.begin(), 8, std::byte{0xFF});
  return packet;
}

TEST(InvariantCrc, of_the_check_string) {
  constexpr std::string_view kCheck = "123456789";
  EXPECT_EQ(icrc_continue(0, std::as_bytes(std::span(kCheck))), 0xCBF43926u);
}

// Each packet has a buffer of exactly its size, so that a sanitizer detects reads beyond it.
TEST(InvariantCrc, of_headers_with_any_number_of_bytes_behind) {
  for (const bool v4 : {true, false}) {
    const std::size_t network = (v4 ? kIpv4Bytes : kIpv6Bytes) + kUdpBytes;
    const auto all = random_bytes(network + kMost);
    for (std::size_t transport = kBthBytes; transport <= kMost; transport += transport < 600 ? 1 : 97) {
      const std::vector<std::byte> some(all.begin(),
                                        all.begin() + static_cast<std::ptrdiff_t>(network + transport));
      const std::uint32_t expected = bit_by_bit(0, masked(some, v4));
      ASSERT_EQ(icrc_start(some.data(), network, transport), expected) << network << ' ' << transport;
      ASSERT_EQ(icrc_start_copied(some.data(), network, transport), expected) << network << ' ' << transport;
      for (const bool wide : {false, true}) {
        if (wide ? !icrc_is_wide() : !icrc_folds()) continue;
        ASSERT_EQ(icrc_start_folded(some.data(), network, transport, wide), expected)
            << network << ' ' << transport << ' ' << wide;
      }
    }
  }
}

TEST(InvariantCrc, is_continued_and_copied_over_any_number_of_bytes) {
  const auto all = random_bytes(kMost);
  for (std::size_t count = 0; count <= kMost; count += count < 800 ? 1 : 61) {
    const std::vector<std::byte> some(all.end() - static_cast<std::ptrdiff_t>(count), all.end());
    const auto start = static_cast<std::uint32_t>(count * 0x9E3779B9u);
    const std::uint32_t expected = bit_by_bit(start, some);
    ASSERT_EQ(icrc_continue(start, some), expected) << count;
    std::vector<std::byte> copy(count);
    ASSERT_EQ(icrc_copy(start, some, copy.data()), expected) << count;
    ASSERT_EQ(copy, some) << count;
  }
}

}  // namespace
}  // namespace sluice::rdma::softroce
