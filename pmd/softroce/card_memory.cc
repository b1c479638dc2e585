// SPDX-License-Identifier: Apache-2.0
#include "pmd/softroce/card_memory.h"

#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_memory.h>

#include <algorithm>
#include <iterator>

#include "pmd/common/pages.h"

namespace sluice::rdma::softroce {
namespace {

void* pointer(std::uintptr_t address) noexcept {
  return reinterpret_cast<void*>(address);
}

}  // namespace

bool CardMemory::open(rte_device& card) {
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
    const std::uintptr_t stop = after != mapped_.end() ? std::min(end, after->first) : end;
    if (!map(at, stop)) return false;
    at = stop;
  }
  return true;
}

bool CardMemory::map(std::uintptr_t begin, std::uintptr_t end) {
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

}  // namespace sluice::rdma::softroce
