// SPDX-License-Identifier: Apache-2.0
//
// Configurations that no port can have: each is refused with its own sentence before the ethdev is touched.
#include <gtest/gtest.h>

#include <string>

#include "pmd/softroce/softroce.h"

namespace sluice::rdma::softroce {
namespace {

constexpr std::uint16_t kNoEthdev = 0xFFFF;

std::string refusal(const PortConfig& config) {
  try {
    Port::open(config);
  } catch (const SetupError& error) {
    return error.what();
  }
  return {};
}

PortConfig config() {
  PortConfig config;
  config.name = "port-test";
  config.ethdev = kNoEthdev;
  config.addresses = {{PeerAddress::from_ipv4(192, 0, 2, 1), 120}};
  return config;
}

void expect_refused(const PortConfig& config, const char* words) {
  EXPECT_NE(refusal(config).find(words), std::string::npos) << refusal(config);
}

TEST(PortConfiguration, without_an_address_it_is_refused) {
  PortConfig none = config();
  none.addresses.clear();
  expect_refused(none, "has no address");
}

TEST(PortConfiguration, reactors_and_queue_pairs_have_their_largest_numbers) {
  PortConfig lanes = config();
  lanes.lanes = 0;
  expect_refused(lanes, "reactors can share a port");
  lanes.lanes = kMaxLanes + 1;
  expect_refused(lanes, "reactors can share a port");
  PortConfig queue_pairs = config();
  queue_pairs.max_queue_pairs = kMaxQueuePairs + 1;
  expect_refused(queue_pairs, "queue pairs on a reactor");
}

TEST(PortConfiguration, at_its_largest_numbers_the_ethdev_is_asked) {
  PortConfig largest = config();
  largest.lanes = kMaxLanes;
  largest.max_queue_pairs = kMaxQueuePairs;
  expect_refused(largest, "ask about the ethdev");
  largest.lanes = 1;
  expect_refused(largest, "ask about the ethdev");
}

}  // namespace
}  // namespace sluice::rdma::softroce
