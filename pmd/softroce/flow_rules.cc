// SPDX-License-Identifier: Apache-2.0
#include "pmd/softroce/flow_rules.h"

#include <rte_byteorder.h>
#include <rte_errno.h>
#include <rte_flow.h>

#include <algorithm>

#include "pmd/softroce/frame.h"

namespace sluice::rdma::softroce {
namespace {

/// Of the destination QP's low byte, behind the UDP header.
constexpr std::int32_t kLowByteOfQueuePair = 7;

/// Packets of RoCEv2 for the queue pairs of a lane. Its items point into it.
class Match {
 public:
  Match(bool tagged, bool v6, std::uint32_t lane) : low_bits_(static_cast<std::uint8_t>(lane)) {
    port_.hdr.dst_port = rte_cpu_to_be_16(kRoceUdpPort);
    port_mask_.hdr.dst_port = 0xFFFF;
    queue_pair_.relative = 1;
    queue_pair_.offset = kLowByteOfQueuePair;
    queue_pair_.length = 1;
    queue_pair_.pattern = &low_bits_;
    // As rte_flow_item_raw_mask, which C++ does not have.
    queue_pair_mask_.relative = 1;
    queue_pair_mask_.search = 1;
    queue_pair_mask_.reserved = 0x3FFFFFFF;
    queue_pair_mask_.offset = -1;
    queue_pair_mask_.limit = 0xFFFF;
    queue_pair_mask_.length = 0xFFFF;
    queue_pair_mask_.pattern = &kLowBitsMask;
    add(RTE_FLOW_ITEM_TYPE_ETH);
    if (tagged) add(RTE_FLOW_ITEM_TYPE_VLAN);
    add(v6 ? RTE_FLOW_ITEM_TYPE_IPV6 : RTE_FLOW_ITEM_TYPE_IPV4);
    add(RTE_FLOW_ITEM_TYPE_UDP, &port_, &port_mask_);
    add(RTE_FLOW_ITEM_TYPE_RAW, &queue_pair_, &queue_pair_mask_);
    add(RTE_FLOW_ITEM_TYPE_END);
  }
  Match(const Match&) = delete;
  Match& operator=(const Match&) = delete;

  const rte_flow_item* items() const noexcept { return items_.data(); }

 private:
  void add(rte_flow_item_type type, const void* spec = nullptr, const void* mask = nullptr) {
    items_.push_back({.type = type, .spec = spec, .last = nullptr, .mask = mask});
  }

  static constexpr std::uint8_t kLowBitsMask = kMaxLanes - 1;
  const std::uint8_t low_bits_;
  rte_flow_item_udp port_{};
  rte_flow_item_udp port_mask_{};
  rte_flow_item_raw queue_pair_{};
  rte_flow_item_raw queue_pair_mask_{};
  std::vector<rte_flow_item> items_;
};

}  // namespace

bool FlowRules::make_one(const PortConfig& config, bool v6, std::uint32_t lane) {
  const Match match(config.vlan != kNoVlan, v6, lane);
  const rte_flow_action_queue queue{.index = static_cast<std::uint16_t>(lane)};
  const rte_flow_action actions[] = {{RTE_FLOW_ACTION_TYPE_QUEUE, &queue},
                                     {RTE_FLOW_ACTION_TYPE_END, nullptr}};
  rte_flow_attr attributes{};
  attributes.ingress = 1;
  rte_flow_error error{};
  rte_flow* rule = nullptr;
  if (rte_flow_validate(ethdev_, &attributes, match.items(), actions, &error) == 0)
    rule = rte_flow_create(ethdev_, &attributes, match.items(), actions, &error);
  if (rule == nullptr) {
    steering_.refusal = error.message != nullptr ? error.message : rte_strerror(rte_errno);
    return false;
  }
  made_.push_back(rule);
  return true;
}

void FlowRules::make(const PortConfig& config, std::uint32_t queues) {
  ethdev_ = config.ethdev;
  for (const bool v6 : {false, true}) {
    const auto is_of_family = [v6](const InterfaceAddress& own) { return is_ipv4(own.address) != v6; };
    if (std::none_of(config.addresses.begin(), config.addresses.end(), is_of_family)) continue;
    for (std::uint32_t lane = 0; lane < queues; ++lane)
      if (!make_one(config, v6, lane)) return remove();
  }
  steering_.rules = made_.size();
}

void FlowRules::remove() noexcept {
  for (rte_flow* const rule : made_) {
    rte_flow_error error{};
    rte_flow_destroy(ethdev_, rule, &error);
  }
  made_.clear();
  steering_.rules = 0;
}

}  // namespace sluice::rdma::softroce
