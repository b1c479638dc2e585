// SPDX-License-Identifier: Apache-2.0
#include "pmd/softroce/early_packets.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <vector>

namespace sluice::rdma::softroce {
namespace {

constexpr std::size_t kMtu = 256;

Packet packet(std::uint32_t psn, std::span<const std::byte> payload = {}) {
  Packet result;
  result.bth.psn = psn & kPsnMask;
  result.payload = payload;
  return result;
}

TEST(EarlyPackets, are_found_in_psn_order_also_where_numbers_wrap) {
  EarlyPackets packets(kMtu);
  EarlyPackets::Queue queue;
  for (const std::uint32_t psn : {3u, 0xFFFFFFu, 1u, 0u}) EXPECT_TRUE(packets.add(queue, packet(psn)));
  for (const std::uint32_t psn : {0xFFFFFFu, 0u, 1u}) {
    const Packet* found = packets.find(queue, psn);
    ASSERT_NE(found, nullptr) << psn;
    EXPECT_EQ(found->bth.psn, psn);
  }
  EXPECT_EQ(packets.find(queue, 2), nullptr);
  EXPECT_EQ(queue.count, 1u);
  EXPECT_NE(packets.find(queue, 3), nullptr);
}

TEST(EarlyPackets, are_copies) {
  EarlyPackets packets(kMtu);
  EarlyPackets::Queue queue;
  std::array<std::byte, kMtu> payload;
  payload.fill(std::byte{7});
  ASSERT_TRUE(packets.add(queue, packet(5, payload)));
  payload.fill(std::byte{8});
  ASSERT_TRUE(packets.add(queue, packet(6, std::span(payload).first(9))));
  EXPECT_EQ(packets.find(queue, 5)->payload.size(), kMtu);
  EXPECT_EQ(packets.find(queue, 5)->payload.back(), std::byte{7});
  EXPECT_EQ(packets.find(queue, 6)->payload.size(), 9u);
}

TEST(EarlyPackets, longer_than_a_valid_packet_are_not_kept) {
  EarlyPackets packets(kMtu);
  EarlyPackets::Queue queue;
  const std::vector<std::byte> payload(kMtu + 1);
  EXPECT_FALSE(packets.add(queue, packet(5, payload)));
  EXPECT_EQ(packets.room(), kEarlyPackets);
}

TEST(EarlyPackets, of_one_queue_pair_have_a_share) {
  EarlyPackets packets(kMtu);
  EarlyPackets::Queue greedy;
  for (std::uint32_t i = 0; i < kEarlyPacketsPerQueuePair; ++i) EXPECT_TRUE(packets.add(greedy, packet(i)));
  EXPECT_TRUE(packets.add(greedy, packet(0))) << "it is kept already";
  EXPECT_FALSE(packets.add(greedy, packet(kEarlyPacketsPerQueuePair)));
  EarlyPackets::Queue other;
  EXPECT_TRUE(packets.add(other, packet(0)));
}

TEST(EarlyPackets, are_bounded_and_released_ones_make_room) {
  EarlyPackets packets(kMtu);
  std::vector<EarlyPackets::Queue> queues(kEarlyPackets / kEarlyPacketsPerQueuePair);
  for (EarlyPackets::Queue& queue : queues)
    for (std::uint32_t i = 0; i < kEarlyPacketsPerQueuePair; ++i) ASSERT_TRUE(packets.add(queue, packet(i)));
  EarlyPackets::Queue late;
  EXPECT_FALSE(packets.add(late, packet(9)));
  packets.release(queues[3]);
  EXPECT_TRUE(packets.add(late, packet(9)));
  EXPECT_EQ(packets.room(), kEarlyPacketsPerQueuePair - 1u);
}

}  // namespace
}  // namespace sluice::rdma::softroce
