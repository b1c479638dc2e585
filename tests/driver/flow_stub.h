// SPDX-License-Identifier: Apache-2.0
//
// rte_flow of cards that take rules about a byte behind the UDP header: it stands in for DPDK's functions in the program that it is
// linked to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace sluice::rdma::conformance {

struct FlowRule {
  std::uint16_t ethdev = 0;
  std::uint16_t queue = 0;
  bool tagged = false;
  bool v6 = false;
  std::uint16_t udp_port = 0;
  std::size_t at = 0;  ///< of the byte, behind the UDP header
  std::uint8_t value = 0;
  std::uint8_t mask = 0;

  bool matches(std::span<const std::byte> frame) const;
};

struct FlowStub {
  /// While one exists, each card takes so many rules, and refuses more. Without one they take none.
  explicit FlowStub(std::size_t room = std::numeric_limits<std::size_t>::max());
  ~FlowStub();
  FlowStub(const FlowStub&) = delete;
  FlowStub& operator=(const FlowStub&) = delete;

  const std::size_t room;
  std::vector<std::unique_ptr<FlowRule>> rules;
};

/// Where a card's rules bring a frame. Nothing: no rule is about it.
std::optional<std::uint16_t> queue_by_rule(std::uint16_t ethdev, std::span<const std::byte> frame);

}  // namespace sluice::rdma::conformance
