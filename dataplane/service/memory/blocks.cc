// SPDX-License-Identifier: Apache-2.0
#include "dataplane/service/memory/blocks.h"

#include <cstring>

namespace sluice::service::memory {

BlockPool::BlockPool(rdma::MemoryRegion region)
    : region_(region),
      large_count_(static_cast<std::uint32_t>(region.bytes.size() / kLargeBytes)),
      free_bytes_(std::uint64_t{large_count_} * kLargeBytes),
      pages_(std::size_t{large_count_} * kSmallPerLarge + 2) {}

void BlockPool::push(List& list, Block block) noexcept {
  Page& page = pages_[block];
  page.next = list.head;
  page.previous = 0;
  if (list.head != 0) pages_[list.head].previous = block;
  list.head = block;
}

Block BlockPool::pop(List& list) noexcept {
  const Block block = list.head;
  if (block != 0) remove(list, block);
  return block;
}

void BlockPool::remove(List& list, Block block) noexcept {
  const Page& page = pages_[block];
  if (page.previous != 0)
    pages_[page.previous].next = page.next;
  else
    list.head = page.next;
  if (page.next != 0) pages_[page.next].previous = page.previous;
}

Block BlockPool::allocate_large() noexcept {
  Block block = pop(clean_large_);
  if (block == 0 && never_used_ < large_count_) block = never_used_++ * kSmallPerLarge + 1;
  if (block == 0 && (block = pop(dirty_large_)) != 0) std::memset(data(block), 0, kLargeBytes);
  if (block == 0) return 0;
  free_bytes_ -= kLargeBytes;
  pages_[block].small = 0;
  return block;
}

bool BlockPool::divide_large() noexcept {
  const Block parent = allocate_large();
  if (parent == 0) return false;
  free_bytes_ += kLargeBytes;
  for (std::uint32_t i = kSmallPerLarge; i-- > 0;) {
    Page& page = pages_[parent + i];
    page.small = page.clean = 1;
    push(clean_small_, parent + i);
  }
  pages_[parent].free_small = kSmallPerLarge;
  return true;
}

Block BlockPool::allocate_small() noexcept {
  Block block = pop(clean_small_);
  if (block == 0 && (block = pop(dirty_small_)) != 0) std::memset(data(block), 0, kSmallBytes);
  if (block == 0 && divide_large()) block = pop(clean_small_);
  if (block == 0) return 0;
  --pages_[parent_of(block)].free_small;
  free_bytes_ -= kSmallBytes;
  return block;
}

void BlockPool::give_back(Block block, bool small) noexcept {
  Page& page = pages_[block];
  page.small = small ? 1 : 0;
  page.tail = 0;
  if (page.pins > 0)
    page.doomed = 1;
  else
    make_dirty(block);
}

void BlockPool::unpin(Block block) noexcept {
  Page& page = pages_[block];
  if (--page.pins > 0 || page.doomed == 0) return;
  page.doomed = 0;
  make_dirty(block);
}

void BlockPool::make_dirty(Block block) noexcept {
  if (pages_[block].small == 0) {
    free_bytes_ += kLargeBytes;
    return push(dirty_large_, block);
  }
  free_bytes_ += kSmallBytes;
  pages_[block].clean = 0;
  push(dirty_small_, block);
  const Block parent = parent_of(block);
  if (++pages_[parent].free_small == kSmallPerLarge) join_small(parent);
}

/// All small blocks of a large one are free: makes it a large block again.
void BlockPool::join_small(Block parent) noexcept {
  for (std::uint32_t i = 0; i < kSmallPerLarge; ++i) {
    Page& page = pages_[parent + i];
    remove(page.clean != 0 ? clean_small_ : dirty_small_, parent + i);
    page.small = page.clean = 0;
  }
  pages_[parent].free_small = 0;
  push(dirty_large_, parent);
}

bool BlockPool::scrub_one() noexcept {
  if (const Block block = pop(dirty_large_); block != 0) {
    std::memset(data(block), 0, kLargeBytes);
    push(clean_large_, block);
    return true;
  }
  if (const Block block = pop(dirty_small_); block != 0) {
    std::memset(data(block), 0, kSmallBytes);
    pages_[block].clean = 1;
    push(clean_small_, block);
    return true;
  }
  return false;
}

}  // namespace sluice::service::memory
