// SPDX-License-Identifier: Apache-2.0
#include "pmd/common/region_table.h"

#include <linux/mempolicy.h>
#include <linux/mman.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "dataplane/base/invariant.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/base/small_algorithms.h"
#include "pmd/buffer_pool.h"
#include "pmd/device.h"
#include "pmd/work_request.h"

namespace sluice::rdma {
namespace {

constexpr int kPrivate = MAP_PRIVATE | MAP_ANONYMOUS;

/// Maps anonymous memory. Returns null on failure.
std::byte* map(std::size_t bytes, int flags) noexcept {
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
  return memory != MAP_FAILED ? static_cast<std::byte*>(memory) : nullptr;
}

/// Maps memory aligned to huge pages, which the kernel backs with huge pages on the first write if it has
/// any.
std::byte* map_aligned(std::size_t bytes) noexcept {
  constexpr std::size_t kMore = kHugePageBytes - kPageBytes;
  std::byte* const all = map(bytes + kMore, kPrivate | MAP_NORESERVE);
  if (all == nullptr) return nullptr;
  const std::size_t before = -reinterpret_cast<std::uintptr_t>(all) & (kHugePageBytes - 1);
  if (before > 0) ::munmap(all, before);
  if (before < kMore) ::munmap(all + before + bytes, kMore - before);
  ::madvise(all + before, bytes, MADV_HUGEPAGE);
  return all + before;
}

/// Sets a preferred node. Without memory on that node the kernel uses another one.
void prefer_node(std::span<std::byte> memory, int node) noexcept {
  constexpr int kMostNodes = 64;
  if (node < 0 || node >= kMostNodes) return;
  const unsigned long mask = 1ul << node;
  ::syscall(SYS_mbind, memory.data(), memory.size(), MPOL_PREFERRED, &mask, kMostNodes + 1, 0);
}

[[noreturn]] void fail(std::size_t bytes) {
  throw SetupError("Cannot allocate " + std::to_string(bytes >> 20) + " MiB of memory (" +
                   std::strerror(errno) + "). Configure smaller exports or fewer connections.");
}

}  // namespace

SteeringTags::SteeringTags() {
  if (::getrandom(key_.data(), key_.size(), 0) != static_cast<ssize_t>(key_.size()))
    throw SetupError("Cannot get random numbers for steering tags from the kernel.");
}

std::size_t page_bytes(std::size_t bytes) noexcept {
  return larger_of(kPageBytes, (bytes + kPageBytes - 1) / kPageBytes * kPageBytes);
}

Pages::~Pages() {
  for (const auto& bytes : mapped_) ::munmap(bytes.data(), bytes.size());
}

std::span<std::byte> Pages::allocate(std::size_t bytes) {
  const std::size_t rounded = page_bytes(bytes);
  std::byte* const memory = map(rounded, kPrivate | MAP_NORESERVE);
  if (memory == nullptr) fail(rounded);
  mapped_.push_back({memory, rounded});
  static_cast<void>(SLUICE_INVARIANT(rounded >= bytes && rounded % kPageBytes == 0, buffer_bounds));
  return mapped_.back();
}

std::span<std::byte> Pages::allocate_for_device(std::size_t bytes, int node) {
  if (bytes < kHugePageBytes) {
    const auto memory = allocate(bytes);
    prefer_node(memory, node);
    return memory;
  }
  const std::size_t rounded = (bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  std::byte* memory = map(rounded, kPrivate | MAP_HUGETLB | MAP_HUGE_2MB);
  if (memory == nullptr) memory = map_aligned(rounded);
  if (memory == nullptr) fail(rounded);
  mapped_.push_back({memory, rounded});
  prefer_node(mapped_.back(), node);
  return mapped_.back();
}

MemoryRegion RegionTable::add(std::span<std::byte> bytes) {
  static_cast<void>(SLUICE_INVARIANT(bytes.data() != nullptr || bytes.empty(), buffer_bounds));
  if (regions_.size() >> kRegionBits != 0)
    throw SetupError("Too many memory regions on the " + device_ + " device.");
  const auto lkey =
      static_cast<Lkey>(static_cast<std::uint32_t>(tags_.next()) << kRegionBits | regions_.size());
  regions_.push_back({bytes, lkey});
  count_ = regions_.size();
  static_cast<void>(SLUICE_INVARIANT(covers({bytes.data(), 0, lkey}), table_index));
  return regions_.back();
}

// --- Parts of the interface that all drivers share

void Device::wait(std::uint64_t limit_ns) noexcept {
  constexpr std::uint64_t kSecond = 1'000'000'000;
  const timespec interval{static_cast<time_t>(limit_ns / kSecond), static_cast<long>(limit_ns % kSecond)};
  ::nanosleep(&interval, nullptr);
}

BufferPool::BufferPool(Device& device, std::size_t buffers, std::size_t buffer_bytes)
    : BufferPool(device.allocate_memory(buffers * buffer_bytes), buffer_bytes) {}

const char* to_string(WcStatus status) noexcept {
  switch (status) {
    case WcStatus::Success:
      return "success";
    case WcStatus::LocalLengthError:
      return "local length error";
    case WcStatus::LocalProtectionError:
      return "local protection error";
    case WcStatus::WrFlushError:
      return "flushed";
    case WcStatus::BindError:
      return "memory window bind error";
    case WcStatus::RemoteInvalidRequest:
      return "remote invalid request";
    case WcStatus::RemoteAccessError:
      return "remote access error";
    case WcStatus::RemoteOperationError:
      return "remote operation error";
    case WcStatus::RetryExceeded:
      return "retries exceeded";
    case WcStatus::RnrRetryExceeded:
      return "receiver-not-ready retries exceeded";
  }
  return "unknown";
}

}  // namespace sluice::rdma
