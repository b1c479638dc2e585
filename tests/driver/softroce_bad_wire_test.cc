// SPDX-License-Identifier: Apache-2.0
//
// softroce on failing wires: every kind of fault at several rates, bursts, a link that flaps, a peer that
// moves. Data is compared, no connection ends, and each run finishes within a bounded time.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <random>
#include <vector>

#include "pmd/softroce/byte_order.h"
#include "tests/driver/softroce_pair.h"

namespace sluice::rdma::conformance {
namespace {

constexpr std::uint64_t kMs = 1'000'000;

class BadWire : public DriverTest {
 protected:
  void SetUp() override {}
  /// Time passes with polls: 5 us each.
  void open(const WireFaults& faults = {}, bool expect_headers = true, bool v6 = false) {
    a = {};
    b = {};
    pair_.reset();
    auto made = std::make_unique<SoftRocePair>(
        SoftRocePair::Options{.faults = faults,
                              .v6 = v6,
                              .clock_ns = []() noexcept { return now_ns_ += 5'000; },
                              .expect_headers = expect_headers});
    soft_ = made.get();
    pair_ = std::move(made);
    attributes_.ack_timeout = 17;  // value of a gateway's connections: 4.3 s with retries
    connect();
    window_ = expose(b, kTo, kBytes, kRemoteRead | kRemoteWrite);
    began_ns_ = now_ns_;
  }
  /// Runs a Write, a Send, and a Read of the written data.
  void round(std::uint32_t number) {
    const std::uint64_t id = 10 * (number + std::uint64_t{1});
    fill(a, 0, kBytes, number);
    std::memset(a.memory.bytes.data() + kBack, 0, kBytes);
    ASSERT_TRUE(b.receive(id, b.sge(kMessage, kMessageBytes)));
    ASSERT_TRUE(a.post(SendOpcode::RdmaWrite, id + 1, {a.sge(0, kBytes)}, window_.address, window_.rkey));
    ASSERT_TRUE(a.post(SendOpcode::Send, id + 2, {a.sge(0, kMessageBytes)}));
    ASSERT_TRUE(a.post(SendOpcode::RdmaRead, id + 3, {a.sge(kBack, kBytes)}, window_.address, window_.rkey));
    ASSERT_EQ(status_of(b, id), WcStatus::Success) << number;
    ASSERT_EQ(status_of(a, id + 3), WcStatus::Success) << number;
    ASSERT_TRUE(same(a, 0, b, kTo, kBytes)) << number;
    ASSERT_TRUE(same(a, 0, b, kMessage, kMessageBytes)) << number;
    ASSERT_TRUE(same(a, 0, a, kBack, kBytes)) << number;
    a.completions.clear();
    b.completions.clear();
  }
  void rounds(std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) ASSERT_NO_FATAL_FAILURE(round(i));
  }
  /// Returns the simulated time of a run and its counters, except that of packets with expected headers,
  /// which `expected` gets.
  std::vector<std::uint64_t> outcome(std::uint64_t& expected) {
    std::vector<std::uint64_t> all{passed_ns(), wire().counts().carried, wire().counts().dropped};
    expected = 0;
    for (softroce::SoftRoce* end : {&soft_->left(), &soft_->right()}) {
      std::uint64_t values[std::size(softroce::kStatistics)];
      end->read_statistics(values);
      for (std::size_t i = 0; i < std::size(values); ++i)
        if (softroce::kStatistics[i].name == "packets_expected")
          expected += values[i];
        else
          all.push_back(values[i]);
    }
    return all;
  }
  std::uint64_t passed_ns() const { return now_ns_ - began_ns_; }
  FaultyWire& wire() { return soft_->wire(); }

  static constexpr std::uint32_t kBytes = 200'000;
  static constexpr std::uint32_t kMessageBytes = 3000;
  static constexpr std::uint32_t kTo = 1u << 20;
  static constexpr std::uint32_t kBack = 1u << 20;
  static constexpr std::uint32_t kMessage = 2u << 20;
  static inline std::uint64_t now_ns_ = 1'000 * kMs;
  SoftRocePair* soft_ = nullptr;
  Window window_;
  std::uint64_t began_ns_ = 0;
};

TEST_F(BadWire, faults_of_every_kind_at_every_rate_cost_round_trips) {
  struct Case {
    std::uint32_t per_mille;
    std::uint64_t most_ms;  ///< simulated time for a round
  };
  for (const Case& each : {Case{1, 50}, Case{10, 100}, Case{50, 1000}, Case{100, 3000}}) {
    constexpr std::uint32_t kRounds = 10;
    open({.per_mille = each.per_mille, .seed = each.per_mille});
    ASSERT_NO_FATAL_FAILURE(rounds(kRounds)) << each.per_mille;
    EXPECT_LT(passed_ns(), kRounds * each.most_ms * kMs) << each.per_mille;
    const FaultyWire::Counts& counts = wire().counts();
    if (each.per_mille < 10) continue;
    EXPECT_GT(counts.dropped, 0u);
    EXPECT_GT(counts.duplicated, 0u);
    EXPECT_GT(counts.reordered, 0u);
    EXPECT_GT(counts.corrupted, 0u);
  }
}

/// The driver runs with the same faults, with and without expected headers. The rounds compare the data, and
/// counters and simulated time are equal.
TEST_F(BadWire, expected_headers_change_neither_data_nor_counters_nor_time) {
  const WireFaults kFaults[] = {{},
                                {.marks_per_mille = 100},
                                {.per_mille = 10, .seed = 2},
                                {.per_mille = 10, .seed = 3, .marks_per_mille = 20},
                                {.per_mille = 50, .seed = 4},
                                {.drops_per_mille = 30}};
  for (const bool v6 : {false, true})
    for (const WireFaults& faults : kFaults) {
      std::vector<std::uint64_t> outcomes[2];
      std::uint64_t expected[2];
      for (const bool expect_headers : {false, true}) {
        now_ns_ = 1'000 * kMs;
        open(faults, expect_headers, v6);
        ASSERT_NO_FATAL_FAILURE(rounds(6));
        outcomes[expect_headers] = outcome(expected[expect_headers]);
      }
      EXPECT_EQ(outcomes[0], outcomes[1]) << faults.per_mille << " of seed " << faults.seed;
      EXPECT_EQ(expected[0], 0u);
      EXPECT_GT(expected[1], 500u);
    }
}

/// A switch whose buffers overflow: each burst loses up to 1000 frames, or all frames of 20 ms.
TEST_F(BadWire, bursts_of_a_thousand_lost_packets_end_nothing) {
  open();
  std::uint32_t until_burst = 300;
  std::uint32_t left = 0;
  std::uint64_t since_ns = 0;
  std::uint32_t bursts = 0;
  wire().lose = [&](bool, std::span<const std::byte>) {
    if (left > 0 && now_ns_ - since_ns < 20 * kMs) {
      --left;
      return true;
    }
    left = 0;
    if (--until_burst > 0) return false;
    until_burst = 1500;
    left = 1000;
    since_ns = now_ns_;
    ++bursts;
    return true;
  };
  ASSERT_NO_FATAL_FAILURE(rounds(40));
  EXPECT_GT(bursts, 2u);
  EXPECT_LT(passed_ns(), (bursts + 1) * 500 * kMs);
}

TEST_F(BadWire, a_link_that_flaps_each_second_ends_nothing) {
  open();
  constexpr std::uint64_t kHalfNs = 500 * kMs;
  wire().lose = [&](bool, std::span<const std::byte>) { return (now_ns_ / kHalfNs) % 2 == 1; };
  std::uint32_t done = 0;
  while (passed_ns() < 1'100 * kMs) ASSERT_NO_FATAL_FAILURE(round(done++));
  EXPECT_GT(wire().counts().dropped, 0u);
  EXPECT_GT(done, 3u);
}

/// Each side moves once. The left side is followed because it sends requests. The right side only answers, so
/// the left side has to resolve its address anew.
TEST_F(BadWire, a_peer_whose_link_address_changes_is_followed) {
  for (const bool right_moves : {false, true}) {
    open();
    ASSERT_NO_FATAL_FAILURE(round(0));
    const LinkAddress real = right_moves ? soft_->link_of_right() : soft_->link_of_left();
    const LinkAddress moved{2, 0, 0, 0, 0x77, 1};
    wire().edit = [&](bool to_right, std::span<std::byte> frame) {
      if (to_right != right_moves) {  // frame of the moved side
        std::memcpy(frame.data() + 6, moved.data(), moved.size());
        if (softroce::load_be16(frame.data() + 12) == 0x0806)
          std::memcpy(frame.data() + 22, moved.data(), moved.size());
        return true;
      }
      // Both ethdevs have the same address and ignore ARP from their own address, so the sender's address is
      // replaced.
      constexpr LinkAddress kAsker{2, 0, 0, 0, 0x77, 2};
      if (softroce::load_be16(frame.data() + 12) == 0x0806)
        std::memcpy(frame.data() + 22, kAsker.data(), kAsker.size());
      const bool all = frame[0] == std::byte{0xff};
      if (!all && std::memcmp(frame.data(), moved.data(), moved.size()) != 0)
        return false;  // no host has this address
      if (!all) std::memcpy(frame.data(), real.data(), real.size());
      return true;
    };
    ASSERT_NO_FATAL_FAILURE(rounds(3)) << right_moves;
    EXPECT_LT(passed_ns(), 4'000 * kMs) << right_moves;
    EXPECT_EQ(soft_->left().statistics().hops_changed, right_moves ? 1u : 0u);
  }
}

}  // namespace
}  // namespace sluice::rdma::conformance
