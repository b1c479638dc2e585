// SPDX-License-Identifier: Apache-2.0
// Parts of a port's ethdev: memory that a network card may read, the guard against DPDK's interrupt thread,
// events of the driver, and flow rules.
#include "dataplane/base/invariant.h"

#include <rte_byteorder.h>
#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_flow.h>
#include <rte_interrupts.h>
#include <rte_memory.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "dataplane/base/setup_error.h"
#include "pmd/common/pages.h"
#include "pmd/common/sleep.h"
#include "pmd/softroce/card_memory.h"
#include "pmd/softroce/ethdev_events.h"
#include "pmd/softroce/flow_rules.h"
#include "pmd/softroce/frame.h"
#include "pmd/softroce/interrupt_guard.h"

namespace sluice::rdma::softroce {
namespace {

void* pointer(std::uintptr_t address) noexcept {
  return reinterpret_cast<void*>(address);
}

}  // namespace

bool CardMemory::open(rte_device& card) {
  static_cast<void>(SLUICE_INVARIANT(mapped_.empty(), pool_balance));
  card_ = &card;
  Pages trial;
  const bool possible = add(trial.allocate(kPageBytes));
  remove();
  return possible;
}

bool CardMemory::add(std::span<std::byte> bytes) {
  const auto first = reinterpret_cast<std::uintptr_t>(bytes.data());
  std::uintptr_t at = first / kPageBytes * kPageBytes;
  const std::uintptr_t end = (first + bytes.size() + kPageBytes - 1) / kPageBytes * kPageBytes;
  while (at < end) {
    const auto after = mapped_.upper_bound(at);
    if (after != mapped_.begin() && std::prev(after)->second > at) {
      at = std::prev(after)->second;
      continue;
    }
    const std::uintptr_t stop = after != mapped_.end() && after->first < end ? after->first : end;
    if (!map(at, stop)) return false;
    at = stop;
  }
  return true;
}

bool CardMemory::map(std::uintptr_t begin, std::uintptr_t end) {
  static_cast<void>(SLUICE_INVARIANT(begin < end && (begin | end) % kPageBytes == 0, buffer_bounds));
  const std::size_t bytes = end - begin;
  const std::size_t page = (begin | end) % kHugePageBytes == 0 ? kHugePageBytes : kPageBytes;
  const bool known =
      rte_extmem_register(pointer(begin), bytes, nullptr, static_cast<unsigned>(bytes / page), page) == 0;
  if (known && rte_dev_dma_map(card_, pointer(begin), begin, bytes) == 0) {
    mapped_.emplace(begin, end);
    return true;
  }
  error_ = rte_strerror(rte_errno);
  if (known) rte_extmem_unregister(pointer(begin), bytes);
  return false;
}

void CardMemory::unmap(std::uintptr_t begin, std::uintptr_t end) noexcept {
  rte_dev_dma_unmap(card_, pointer(begin), begin, end - begin);
  rte_extmem_unregister(pointer(begin), end - begin);
}

void CardMemory::remove() noexcept {
  for (const auto& [begin, end] : mapped_) unmap(begin, end);
  mapped_.clear();
}

void CardMemory::suspend() noexcept {
  for (const auto& [begin, end] : mapped_) unmap(begin, end);
  suspended_.merge(mapped_);
  mapped_.clear();
}

bool CardMemory::resume(rte_device& card) {
  static_cast<void>(SLUICE_INVARIANT(mapped_.empty(), pool_balance));
  card_ = &card;
  for (const auto& [begin, end] : suspended_)
    if (!map(begin, end)) return false;
  suspended_.clear();
  return true;
}

namespace {

/// Interval between two checks of a lane that is in a burst, because its thread may not be scheduled there.
constexpr std::uint64_t kBackOffNs = 5'000;

}  // namespace

InterruptGuard::InterruptGuard(std::uint32_t lanes) : count_(lanes) {
  fd_ = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
  handle_ = rte_intr_instance_alloc(RTE_INTR_INSTANCE_F_PRIVATE);
  const bool ready = fd_ >= 0 && handle_ != nullptr && rte_intr_fd_set(handle_, fd_) == 0 &&
                     rte_intr_type_set(handle_, RTE_INTR_HANDLE_EXT) == 0;
  const int error = ready ? rte_intr_callback_register(handle_, on_interrupt, this) : -errno;
  if (ready && error == 0) {
    hold();
    release();
    return;
  }
  rte_intr_instance_free(handle_);
  if (fd_ >= 0) close(fd_);
  throw SetupError(std::string("Cannot join DPDK's interrupt thread (") + rte_strerror(-error) +
                   "), which memif requires. Raise the limit of open files (ulimit -n).");
}

InterruptGuard::~InterruptGuard() {
  ending_.store(true, std::memory_order_relaxed);
  rte_intr_callback_unregister_sync(handle_, on_interrupt, this);
  rte_intr_instance_free(handle_);
  close(fd_);
}

void InterruptGuard::hold() noexcept {
  while (!enter(kSetup)) sleep_ns(kBackOffNs);
}

void InterruptGuard::on_interrupt(void* guard) noexcept {
  static_cast<InterruptGuard*>(guard)->let_lanes_work();
}

/// Runs in the interrupt thread, which holds the locks of all lanes at the start and at the end.
void InterruptGuard::let_lanes_work() noexcept {
  if (ending_.load(std::memory_order_relaxed)) return;
  const auto each = [this](auto&& change) {
    for (std::uint32_t lane = 0; lane < count_; ++lane) change(lanes_[lane]);
    change(lanes_[kSetup]);
  };
  each([](Lane& lane) {
    lane.wanted.store(false, std::memory_order_relaxed);
    lane.taken.store(false, std::memory_order_release);  // pairs with take(): the callbacks' changes
  });
  sleep_ns(kPeriodNs);
  each([](Lane& lane) { lane.wanted.store(true, std::memory_order_relaxed); });
  each([](Lane& lane) {
    while (!lane.take()) sleep_ns(kBackOffNs);
  });
}

// --- Events

namespace {

constexpr rte_eth_event_type kEvents[] = {RTE_ETH_EVENT_INTR_RMV, RTE_ETH_EVENT_INTR_RESET,
                                          RTE_ETH_EVENT_INTR_LSC};

int on_event(std::uint16_t /*ethdev*/, rte_eth_event_type event, void* events, void* /*parameter*/) {
  static_cast<EthdevEvents*>(events)->add(event);
  return 0;
}

}  // namespace

void EthdevEvents::subscribe(std::uint16_t ethdev) noexcept {
  unsubscribe();
  static_cast<void>(SLUICE_INVARIANT(!ethdev_, ethdev_use));
  seen_.store(0, std::memory_order_relaxed);
  for (const rte_eth_event_type event : kEvents) rte_eth_dev_callback_register(ethdev, event, on_event, this);
  ethdev_ = ethdev;
}

void EthdevEvents::unsubscribe() noexcept {
  if (!ethdev_) return;
  for (const rte_eth_event_type event : kEvents)
    while (rte_eth_dev_callback_unregister(*ethdev_, event, on_event, this) == -EAGAIN) sleep_ns(kBackOffNs);
  ethdev_.reset();
}

EthdevEvents::Seen EthdevEvents::take() noexcept {
  const std::uint32_t seen = seen_.exchange(0, std::memory_order_relaxed);
  const auto has = [seen](rte_eth_event_type event) { return (seen >> event & 1) != 0; };
  return {.removed = has(RTE_ETH_EVENT_INTR_RMV),
          .reset = has(RTE_ETH_EVENT_INTR_RESET),
          .link = has(RTE_ETH_EVENT_INTR_LSC)};
}

// --- Flow rules

namespace {

/// Offset of the destination QP's low byte after the UDP header.
constexpr std::int32_t kLowByteOfQueuePair = 7;

/// Match of RoCEv2 packets for the queue pairs of a lane. Its items point into the object.
class Match {
 public:
  Match(bool tagged, bool v6, std::uint32_t lane) : low_bits_(static_cast<std::uint8_t>(lane)) {
    port_.hdr.dst_port = rte_cpu_to_be_16(kRoceUdpPort);
    port_mask_.hdr.dst_port = 0xFFFF;
    queue_pair_.relative = 1;
    queue_pair_.offset = kLowByteOfQueuePair;
    queue_pair_.length = 1;
    queue_pair_.pattern = &low_bits_;
    // Values of rte_flow_item_raw_mask, which is not available in C++.
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
  static_cast<void>(SLUICE_INVARIANT(made_.empty(), pool_balance));
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
