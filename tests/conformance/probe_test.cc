// SPDX-License-Identifier: Apache-2.0
//
// A silent peer is probed with an RDMA Write of no bytes.
#include <gtest/gtest.h>

#include "tests/conformance/lab.h"

namespace sluice::conformance {
namespace {

constexpr std::uint64_t kSecondNs = 1'000'000'000;

LabOptions probing() {
  LabOptions options;
  options.connection.probe_after_ns = kSecondNs;
  options.engine.max_connections = 2;
  return options;
}

/// Advances the clock in steps so short that the engine's timer visits each connection every tenth of a
/// second.
void pass(ServerLab& lab, std::uint64_t ns) {
  const std::uint64_t step = kSecondNs / 10 / lab.options.engine.max_connections;
  for (const std::uint64_t end = lab.now_ns + ns; lab.now_ns < end;) {
    lab.now_ns += step;
    lab.settle();
  }
}

std::uint64_t probes(ServerLab& lab) {
  return lab.engine->counters().probes_sent;
}

TEST(Probes, a_silent_peer_is_probed_and_kept_when_it_answers) {
  ServerLab lab(probing());
  pass(lab, kSecondNs * 8 / 10);
  EXPECT_EQ(lab.log.count(OpKind::PostWrite), 0u);
  pass(lab, kSecondNs * 4 / 10);
  const auto written = lab.log.all(OpKind::PostWrite);
  ASSERT_EQ(written.size(), 1u);
  EXPECT_EQ(written[0].bytes, 0u);
  EXPECT_EQ(probes(lab), 1u);
  pass(lab, kSecondNs * 3);
  EXPECT_GE(probes(lab), 3u);
  EXPECT_LE(probes(lab), 4u);
  EXPECT_TRUE(lab.alive());
}

TEST(Probes, a_peer_that_calls_is_not_probed) {
  ServerLab lab(probing());
  for (std::uint32_t i = 0; i < 10; ++i) {
    pass(lab, kSecondNs * 8 / 10);
    EXPECT_TRUE(lab.alive(0x100 + i));
  }
  EXPECT_EQ(probes(lab), 0u);
}

TEST(Probes, one_is_out_at_a_time) {
  ServerLab lab(probing());
  lab.device->hold = [](const rdma::WorkCompletion& wc) {
    return rpcrdma::WrId::decode(wc.wr_id).kind == rpcrdma::WrKind::Probe;
  };
  pass(lab, 10 * kSecondNs);
  EXPECT_EQ(probes(lab), 1u);
  lab.device->hold = nullptr;
  pass(lab, 2 * kSecondNs);
  EXPECT_GE(probes(lab), 2u);
}

TEST(Probes, the_next_connection_is_probed_though_the_last_one_left_a_probe) {
  ServerLab lab(probing());
  lab.device->hold = [](const rdma::WorkCompletion& wc) {
    return rpcrdma::WrId::decode(wc.wr_id).kind == rpcrdma::WrKind::Probe;
  };
  pass(lab, 2 * kSecondNs);
  EXPECT_EQ(probes(lab), 1u);
  lab.reconnect();
  lab.device->hold = nullptr;
  pass(lab, 2 * kSecondNs);
  EXPECT_GE(probes(lab), 2u);
  EXPECT_TRUE(lab.alive());
}

TEST(Probes, none_are_sent_where_none_are_wanted) {
  ServerLab lab;
  pass(lab, 100 * kSecondNs);
  EXPECT_EQ(lab.log.count(OpKind::PostWrite), 0u);
}

}  // namespace
}  // namespace sluice::conformance
