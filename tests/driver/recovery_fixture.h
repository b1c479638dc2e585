// SPDX-License-Identifier: Apache-2.0
//
// A softroce queue pair whose peer is the test. Time passes only when the test says so.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "pmd/softroce/queue_pair.h"
#include "tests/driver/raw_peer.h"

namespace sluice::rdma::conformance {

class Recovery : public RawPeerTest {
 protected:
  void SetUp() override {
    open([](softroce::PortConfig& config) { config.clock_ns = []() noexcept { return now_ns_; }; });
    connect(own);
  }
  void pass(std::uint64_t ns) {
    now_ns_ += ns;
    settle();
  }
  static constexpr std::uint32_t kMtu = 1024;
  static constexpr std::uint64_t kUs = 1000;
  static constexpr std::uint64_t kTickNs = 1024;  ///< of the timer wheel
  static inline std::uint64_t now_ns_ = 5'000'000'000;

  static std::span<const std::byte> part(const Bytes& data, std::uint32_t number) {
    return std::span(data).subspan(number * kMtu,
                                   std::min<std::size_t>(kMtu, data.size() - std::size_t{number} * kMtu));
  }
  const softroce::Packet& last() { return sent.back().packet; }
  void expect_acknowledgement(softroce::Syndrome syndrome, std::uint32_t psn) {
    settle();
    ASSERT_FALSE(sent.empty());
    EXPECT_EQ(last().bth.opcode, softroce::Opcode::Acknowledge);
    EXPECT_EQ(last().aeth.syndrome, syndrome);
    EXPECT_EQ(last().bth.psn, psn & softroce::kPsnMask);
  }
};

}  // namespace sluice::rdma::conformance
