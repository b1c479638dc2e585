// SPDX-License-Identifier: Apache-2.0
#include "tests/driver/flow_stub.h"

#include <rte_byteorder.h>
#include <rte_ethdev.h>
#include <rte_flow.h>

#include <algorithm>
#include <cerrno>

namespace sluice::rdma::conformance {
namespace {

FlowStub* stub = nullptr;

std::uint32_t number_at(std::span<const std::byte> frame, std::size_t at, std::size_t bytes) {
  std::uint32_t number = 0;
  for (const std::byte each : frame.subspan(at, bytes))
    number = number << 8 | std::to_integer<std::uint32_t>(each);
  return number;
}

/// Parses a rule as a driver does. Returns nothing for a kind of rule that these cards do not support.
std::optional<FlowRule> read(std::uint16_t ethdev, const rte_flow_attr& attributes, const rte_flow_item* item,
                             const rte_flow_action* action) {
  FlowRule rule{.ethdev = ethdev};
  if (attributes.ingress == 0 || attributes.egress != 0) return std::nullopt;
  bool addressed = false;
  for (; item->type != RTE_FLOW_ITEM_TYPE_END; ++item) switch (item->type) {
      case RTE_FLOW_ITEM_TYPE_ETH:
        break;
      case RTE_FLOW_ITEM_TYPE_VLAN:
        rule.tagged = true;
        break;
      case RTE_FLOW_ITEM_TYPE_IPV4:
        addressed = true;
        break;
      case RTE_FLOW_ITEM_TYPE_IPV6:
        addressed = rule.v6 = true;
        break;
      case RTE_FLOW_ITEM_TYPE_UDP: {
        const auto* const mask = static_cast<const rte_flow_item_udp*>(item->mask);
        if (mask->hdr.dst_port != 0xFFFF || mask->hdr.src_port != 0) return std::nullopt;
        rule.udp_port = rte_be_to_cpu_16(static_cast<const rte_flow_item_udp*>(item->spec)->hdr.dst_port);
        break;
      }
      case RTE_FLOW_ITEM_TYPE_RAW: {
        const auto* const spec = static_cast<const rte_flow_item_raw*>(item->spec);
        const auto* const mask = static_cast<const rte_flow_item_raw*>(item->mask);
        if (spec->relative == 0 || spec->search != 0 || spec->length != 1 || spec->offset < 0 ||
            mask->relative == 0)
          return std::nullopt;
        rule.at = static_cast<std::size_t>(spec->offset);
        rule.value = *spec->pattern;
        rule.mask = *mask->pattern;
        break;
      }
      default:
        return std::nullopt;
    }
  if (action[0].type != RTE_FLOW_ACTION_TYPE_QUEUE || action[1].type != RTE_FLOW_ACTION_TYPE_END ||
      !addressed || rule.udp_port == 0 || rule.mask == 0)
    return std::nullopt;
  rule.queue = static_cast<const rte_flow_action_queue*>(action[0].conf)->index;
  return rule;
}

}  // namespace

bool FlowRule::matches(std::span<const std::byte> frame) const {
  const std::size_t network = tagged ? 18 : 14;
  const std::size_t udp = network + (v6 ? 40 : 20);
  if (frame.size() <= udp + 8 + at) return false;
  if (tagged && number_at(frame, 12, 2) != 0x8100) return false;
  if (number_at(frame, network - 2, 2) != (v6 ? 0x86DDu : 0x0800u)) return false;
  if (number_at(frame, network + (v6 ? 6 : 9), 1) != 17) return false;
  if (number_at(frame, udp + 2, 2) != udp_port) return false;
  return (number_at(frame, udp + 8 + at, 1) & mask) == (value & mask);
}

FlowStub::FlowStub(std::size_t most) : room(most) {
  stub = this;
}

FlowStub::~FlowStub() {
  stub = nullptr;
}

std::optional<std::uint16_t> queue_by_rule(std::uint16_t ethdev, std::span<const std::byte> frame) {
  if (stub == nullptr) return std::nullopt;
  for (const auto& rule : stub->rules)
    if (rule->ethdev == ethdev && rule->matches(frame)) return rule->queue;
  return std::nullopt;
}

}  // namespace sluice::rdma::conformance

using sluice::rdma::conformance::FlowRule;
using sluice::rdma::conformance::stub;

extern "C" {

int rte_flow_validate(std::uint16_t port_id, const rte_flow_attr* attr, const rte_flow_item pattern[],
                      const rte_flow_action actions[], rte_flow_error* error) {
  const bool known = stub != nullptr && sluice::rdma::conformance::read(port_id, *attr, pattern, actions);
  return known
             ? 0
             : rte_flow_error_set(error, ENOTSUP, RTE_FLOW_ERROR_TYPE_UNSPECIFIED, nullptr, "no such rules");
}

rte_flow* rte_flow_create(std::uint16_t port_id, const rte_flow_attr* attr, const rte_flow_item pattern[],
                          const rte_flow_action actions[], rte_flow_error* error) {
  if (rte_flow_validate(port_id, attr, pattern, actions, error) != 0) return nullptr;
  const auto of_card = std::count_if(stub->rules.begin(), stub->rules.end(),
                                     [port_id](const auto& rule) { return rule->ethdev == port_id; });
  if (static_cast<std::size_t>(of_card) >= stub->room) {
    rte_flow_error_set(error, ENOSPC, RTE_FLOW_ERROR_TYPE_UNSPECIFIED, nullptr, "no room for rules");
    return nullptr;
  }
  stub->rules.push_back(
      std::make_unique<FlowRule>(*sluice::rdma::conformance::read(port_id, *attr, pattern, actions)));
  return reinterpret_cast<rte_flow*>(stub->rules.back().get());
}

int rte_flow_destroy(std::uint16_t port_id, rte_flow* flow, rte_flow_error* error) {
  if (rte_eth_dev_is_valid_port(port_id) == 0)
    return rte_flow_error_set(error, ENODEV, RTE_FLOW_ERROR_TYPE_UNSPECIFIED, nullptr,
                              "the ethdev is closed");
  std::erase_if(stub->rules,
                [flow](const auto& rule) { return reinterpret_cast<rte_flow*>(rule.get()) == flow; });
  return 0;
}
}
