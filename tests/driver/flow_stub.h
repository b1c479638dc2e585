// SPDX-License-Identifier: Apache-2.0
//
// Stub of rte_flow for cards that support rules about one byte after the UDP header. It replaces DPDK's
// functions in the program that it is linked to.
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
  std::size_t at = 0;  ///< offset of the byte after the UDP header
  std::uint8_t value = 0;
  std::uint8_t mask = 0;

  bool matches(std::span<const std::byte> frame) const;
};

struct FlowStub {
  /// Makes each card accept `room` rules and refuse further ones while the object exists. Without a FlowStub
  /// cards accept no rules.
  explicit FlowStub(std::size_t room = std::numeric_limits<std::size_t>::max());
  ~FlowStub();
  FlowStub(const FlowStub&) = delete;
  FlowStub& operator=(const FlowStub&) = delete;

  const std::size_t room;
  std::vector<std::unique_ptr<FlowRule>> rules;
};

/// Queue that a card's rules select for a frame. Nothing if no rule matches it.
std::optional<std::uint16_t> queue_by_rule(std::uint16_t ethdev, std::span<const std::byte> frame);

}  // namespace sluice::rdma::conformance
