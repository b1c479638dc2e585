// SPDX-License-Identifier: Apache-2.0
#include "pmd/loopback/device.h"

#include <cstring>

#include "dataplane/base/setup_error.h"
#include "dataplane/base/small_algorithms.h"

namespace sluice::rdma::loopback {
namespace {

constexpr std::uint32_t kMaxSge = 32;

}  // namespace

LoopbackDevice::LoopbackDevice(std::shared_ptr<Fabric> fabric, const DeviceConfig& config)
    : fabric_(std::move(fabric)), config_(config), number_(fabric_->claim_device()), cm_(*fabric_, number_) {
  queue_pairs_.reserve(config.max_queue_pairs);
}

LoopbackDevice::~LoopbackDevice() {
  fabric_->release_device(number_);
}

DeviceLimits LoopbackDevice::limits() const noexcept {
  return {.max_queue_pairs = config_.max_queue_pairs,
          .max_send_sge = kMaxSge,
          .max_windows = kMaxWindows,
          .max_message_bytes = 1u << 30,
          .max_send_bytes = kMaxSendBytes,
          .remote_invalidation = true};
}

/// Across processes, a connecting device allocates from its arena, which the peer has mapped, so that windows
/// can expose it.
MemoryRegion LoopbackDevice::allocate_memory(std::size_t bytes) {
  const std::size_t rounded = page_bytes(bytes);
  if (fabric_->across_processes() && !fabric_->is_creator()) {
    if (rounded > fabric_->arena_bytes() - arena_used_)
      throw SetupError("The loopback arena of " + std::to_string(fabric_->arena_bytes() >> 20) +
                       " MiB is used up: use fewer or smaller buffers.");
    std::byte* memory = fabric_->arena(number_) + arena_used_;
    fabric_->allocate(memory, rounded);
    arena_used_ += rounded;
    std::memset(memory, 0, rounded);  // may hold data of an earlier client
    return regions_.add({memory, rounded});
  }
  return regions_.allocate(bytes);
}

MemoryRegion LoopbackDevice::register_memory(std::span<std::byte> bytes) {
  return regions_.add(bytes);
}

MemoryWindow LoopbackDevice::allocate_window() {
  if (window_owners_.size() == kMaxWindows)
    throw SetupError("All " + std::to_string(kMaxWindows) +
                     " memory windows of the loopback device are allocated.");
  window_owners_.push_back(nullptr);
  return {static_cast<std::uint32_t>(window_owners_.size() - 1)};
}

Owned<QueuePair> LoopbackDevice::create_queue_pair(const QueuePairLimits& limits) {
  if (queue_pairs_.size() == config_.max_queue_pairs)
    throw SetupError("All " + std::to_string(config_.max_queue_pairs) +
                     " queue pairs of the loopback device are in use.");
  QueuePairLimits checked = limits;
  checked.max_send_sge = smaller_of(limits.max_send_sge, kMaxSge);
  auto qp = std::make_unique<LoopbackQueuePair>(*this, static_cast<QueuePairNumber>(next_qpn_++), checked);
  queue_pairs_.push_back(qp.get());
  return qp;
}

void LoopbackDevice::remove(LoopbackQueuePair& qp) noexcept {
  std::erase(queue_pairs_, &qp);
}

std::optional<std::uint64_t> LoopbackDevice::arena_offset(std::span<const std::byte> bytes) noexcept {
  if (!fabric_->across_processes()) return 0;
  const auto base = reinterpret_cast<std::uintptr_t>(fabric_->arena(number_));
  const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
  if (address < base || address - base > fabric_->arena_bytes() ||
      bytes.size() > fabric_->arena_bytes() - (address - base))
    return std::nullopt;
  return address - base;
}

Rkey LoopbackDevice::next_rkey(std::uint32_t window) noexcept {
  auto tag = static_cast<std::uint32_t>(tags_.next()) & ~(kMaxWindows - 1);
  if (tag == 0) tag = kMaxWindows;  // key zero means unbound
  return static_cast<Rkey>(tag | window);
}

std::size_t LoopbackDevice::poll(std::span<WorkCompletion> completions) noexcept {
  CompletionSink sink(completions);
  moved_ = false;
  const std::size_t count = queue_pairs_.size();
  if (next_polled_ >= count) next_polled_ = 0;
  for (std::size_t i = 0; i < count && !sink.full(); ++i) {
    const std::size_t at = next_polled_ + i;
    queue_pairs_[at < count ? at : at - count]->poll(sink);
  }
  ++next_polled_;
  return sink.count();
}

std::unique_ptr<Loopback> make_device(std::shared_ptr<Fabric> fabric, const DeviceConfig& config) {
  return std::make_unique<LoopbackDevice>(std::move(fabric), config);
}

}  // namespace sluice::rdma::loopback
