// SPDX-License-Identifier: Apache-2.0
//
// Blocks, and block maps of files: allocation, lookup, truncation and reclaiming.
//
// Invariant: the bytes of a block after the end of its file are zero, or belong to a WRITE in flight on it,
// or the block is marked to be cleared when the last transfer on it ends. Extending a file therefore never
// exposes old data.
#include "dataplane/base/invariant.h"

#include <cstring>

#include "dataplane/base/small_algorithms.h"
#include "dataplane/service/memory/blocks.h"
#include "dataplane/service/memory/filesystem.h"

namespace sluice::service::memory {
namespace {

/// Stores a block number in a map that other reactors may read.
void store(Block& place, Block block) noexcept {
  // Pairs with load(): the inode is open.
  std::atomic_ref(place).store(block, std::memory_order_release);
  SLUICE_STORE_POINT();
}

/// Loads a block number from a map that the owner may be changing.
Block load(Block& place) noexcept {
  SLUICE_LOAD_POINT();
  // Pairs with store(): the inode is open.
  return std::atomic_ref(place).load(std::memory_order_acquire);
}

}  // namespace

BlockPool::BlockPool(rdma::MemoryRegion region)
    : region_(region),
      large_count_(static_cast<std::uint32_t>(region.bytes.size() / kLargeBytes)),
      free_bytes_(std::uint64_t{large_count_} * kLargeBytes),
      pages_(std::size_t{large_count_} * kSmallPerLarge + 2) {}

void BlockPool::push(List& list, Block block) noexcept {
  SLUICE_INVARIANT_DEBUG(block != 0 && list.head != block, list_membership);
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
  SLUICE_INVARIANT_DEBUG(page.previous != 0 ? pages_[page.previous].next == block : list.head == block,
                         list_membership);
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
  SLUICE_INVARIANT_DEBUG(free_bytes_ >= kLargeBytes, pool_balance);
  SLUICE_INVARIANT_DEBUG(pages_[block].pins == 0 && pages_[block].doomed == 0, file_storage);
  free_bytes_ -= kLargeBytes;
  pages_[block].small = 0;
  return block;
}

bool BlockPool::divide_large() noexcept {
  const Block parent = allocate_large();
  if (parent == 0) return false;
  SLUICE_INVARIANT_DEBUG(parent_of(parent) == parent && pages_[parent].free_small == 0, file_storage);
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
  SLUICE_INVARIANT_DEBUG(pages_[parent_of(block)].free_small > 0 && free_bytes_ >= kSmallBytes, pool_balance);
  SLUICE_INVARIANT_DEBUG(pages_[block].small != 0 && pages_[block].pins == 0, file_storage);
  --pages_[parent_of(block)].free_small;
  free_bytes_ -= kSmallBytes;
  return block;
}

void BlockPool::give_back(Block block, bool small) noexcept {
  Page& page = pages_[block];
  SLUICE_INVARIANT_DEBUG(block != 0 && page.doomed == 0, file_storage);
  SLUICE_INVARIANT_DEBUG((page.small != 0) == small, file_storage);
  page.small = small ? 1 : 0;
  page.tail = 0;
  if (!readers_.none()) {
    page.doomed = 1;
    settling_bytes_ += small ? kSmallBytes : kLargeBytes;
    append(retired_, block, block);
  } else if (page.pins > 0) {
    page.doomed = 1;
  } else {
    make_dirty(block);
  }
}

void BlockPool::add_reader(ReaderPins& reader) {
  readers_.add(reader);
  if (reserved_bytes_ > 0) return;
  reserved_bytes_ = kLargeBytes + kSmallBytes;
  reserved_large_ = allocate_large();
  reserved_small_ = allocate_small();
  if (reserved_large_ == 0 || reserved_small_ == 0)
    throw SetupError("The memory of the exports is too small for several reactors. Raise [memory] size_mib.");
}

Block BlockPool::take_reserved(bool small) noexcept {
  Block& reserved = small ? reserved_small_ : reserved_large_;
  const Block block = reserved;
  reserved = 0;
  if (block != 0) std::memset(data(block), 0, small ? kSmallBytes : kLargeBytes);
  return block;
}

/// Appends blocks that are linked from `first` to `last`; nothing if there is none.
void BlockPool::append(Queue& queue, Block first, Block last) noexcept {
  if (first == 0) return;
  SLUICE_INVARIANT_DEBUG((queue.head == 0) == (queue.tail == 0) && first != queue.tail, list_membership);
  pages_[last].next = 0;
  (queue.head != 0 ? pages_[queue.tail].next : queue.head) = first;
  queue.tail = last;
}

bool BlockPool::settle() noexcept {
  if (readers_.none()) return false;
  if (grace_.head != 0 && readers_.period_has_ended()) {
    append(settled_, grace_.head, grace_.tail);
    grace_ = {};
  }
  if (grace_.head == 0 && retired_.head != 0) {
    grace_ = retired_;
    retired_ = {};
    readers_.start_period();
  }
  bool any = false;
  for (std::uint32_t i = 0; i < kSettledPerPass && settled_.head != 0; ++i) {
    const Block block = settled_.head;
    settled_.head = pages_[block].next;
    if (settled_.head == 0) settled_.tail = 0;
    if (pages_[block].pins > 0 || readers_.any_pin(block)) {
      append(settled_, block, block);
      continue;
    }
    SLUICE_INVARIANT_DEBUG(pages_[block].doomed != 0, file_storage);
    settling_bytes_ -= pages_[block].small != 0 ? kSmallBytes : kLargeBytes;
    pages_[block].doomed = 0;
    make_dirty(block);
    any = true;
  }
  return any;
}

void BlockPool::make_dirty(Block block) noexcept {
  SLUICE_INVARIANT_DEBUG(pages_[block].pins == 0 && free_bytes_ <= capacity_bytes(), pool_balance);
  if (Block& reserved = pages_[block].small != 0 ? reserved_small_ : reserved_large_;
      reserved == 0 && !readers_.none()) {
    reserved = block;
    return;
  }
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

/// Joins the small blocks of `parent` into a large block. Requires that all of them are free.
void BlockPool::join_small(Block parent) noexcept {
  for (std::uint32_t i = 0; i < kSmallPerLarge; ++i) {
    Page& page = pages_[parent + i];
    SLUICE_INVARIANT_DEBUG(page.small != 0 && page.pins == 0, file_storage);
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

// --- Quota accounting ----------------------------------------------------------------------------

bool FileSystem::charge(Inode& inode, std::uint64_t bytes) noexcept {
  SLUICE_INVARIANT_DEBUG(inode.export_id < exports_.size() && inode.type != FileType::None, table_index);
  ExportUse& use = exports_[inode.export_id];
  if (use.quota_bytes != 0 && use.used_bytes + bytes > use.quota_bytes) return false;
  use.used_bytes += bytes;
  inode.used_bytes += bytes;
  return true;
}

void FileSystem::uncharge(Inode& inode, std::uint64_t bytes) noexcept {
  SLUICE_INVARIANT_DEBUG(inode.used_bytes >= bytes, file_storage);
  SLUICE_INVARIANT_DEBUG(exports_[inode.export_id].used_bytes >= bytes, file_storage);
  exports_[inode.export_id].used_bytes -= bytes;
  inode.used_bytes -= bytes;
}

/// Allocates a block. If memory is short, reclaims removed files now instead of in the background.
Block FileSystem::take(bool small) noexcept {
  for (std::uint32_t slice = 0;; ++slice) {
    const Block block = small ? blocks_.allocate_small() : blocks_.allocate_large();
    if (block != 0 || slice == kReclaimSlicesOnDemand || reclaimable_bytes_ == 0) return block;
    reclaim_slice();
  }
}

Block FileSystem::allocate(Inode& inode, bool small) noexcept {
  const std::uint32_t bytes = small ? kSmallBytes : kLargeBytes;
  if (!charge(inode, bytes)) return 0;
  const Block block = take(small);
  if (block == 0) {
    uncharge(inode, bytes);
    pool_is_short_ = true;
  }
  return block;
}

void FileSystem::give_back(Inode& inode, Block& block, bool small) noexcept {
  SLUICE_INVARIANT_DEBUG(block != 0, file_storage);
  uncharge(inode, small ? kSmallBytes : kLargeBytes);
  if (small)
    blocks_.free_small(block);
  else
    blocks_.free_large(block);
  store(block, 0);
}

// --- Block lookup --------------------------------------------------------------------------------

/// Returns a block that the inode does not refer to directly, or zero.
Block FileSystem::mapped_block_of(const FileAttributes& file, std::uint32_t block) const noexcept {
  if (file.map_root == 0 || block >= kMaxFileBlocks) return 0;
  const std::uint32_t at = block - kDirectBlocks;
  const Block page = load(root_of(file)[at / kMapEntries]);
  return page == 0 ? 0 : load(map_page(page).blocks[at % kMapEntries]);
}

/// Allocates a block that does not exist, with its map pages. Returns false if no memory or quota is left.
bool FileSystem::put_block(Inode& inode, std::uint32_t block) noexcept {
  SLUICE_INVARIANT_DEBUG(block < kMaxFileBlocks && block_of(inode, block) == 0, table_index);
  if (block < kDirectBlocks) return (inode.direct[block] = allocate(inode, inode.small)) != 0;
  const std::uint32_t at = block - kDirectBlocks;
  if (inode.map_root == 0 && (inode.map_root = allocate(inode, true)) == 0) return false;
  Block page = root_of(inode)[at / kMapEntries];
  if (page == 0) {
    if ((page = allocate(inode, true)) == 0) return false;
    store(root_of(inode)[at / kMapEntries], page);
  }
  MapPage& map = map_page(page);
  const Block fresh = allocate(inode, false);
  if (fresh == 0) return false;
  store(map.blocks[at % kMapEntries], fresh);
  ++map.used;
  SLUICE_INVARIANT_DEBUG(map.used <= kMapEntries, file_storage);
  return true;
}

/// Frees a block, which must exist, and leaves a hole.
void FileSystem::drop_block(Inode& inode, std::uint32_t block) noexcept {
  if (block < kDirectBlocks) return give_back(inode, inode.direct[block], inode.small);
  const std::uint32_t at = block - kDirectBlocks;
  MapPage& map = map_page(root_of(inode)[at / kMapEntries]);
  SLUICE_INVARIANT_DEBUG(map.used > 0, file_storage);
  give_back(inode, map.blocks[at % kMapEntries], false);
  --map.used;
}

/// Moves the data of a small file to a large block. Only the bytes up to the end of the file are copied; a
/// WRITE in flight on the small block copies its data when it commits.
bool FileSystem::grow_small(Inode& inode) noexcept {
  SLUICE_INVARIANT_DEBUG(inode.small && inode.map_root == 0, file_storage);
  Block& block = inode.direct[0];
  if (block != 0) {
    const Block large = allocate(inode, false);
    if (large == 0) return false;
    std::memcpy(blocks_.data(large), blocks_.data(block), smaller_of<std::uint64_t>(inode.size, kSmallBytes));
    give_back(inode, block, true);
    block = large;
  }
  inode.small = false;
  return true;
}

/// Returns the error for a WRITE that found no block. A quota that is used up does not become free by itself.
Status FileSystem::shortage() const noexcept {
  return pool_is_short_ && blocks_.settling_bytes() > 0 ? Status::Jukebox : Status::NoSpc;
}

Status FileSystem::ensure_blocks(InodeNumber number, std::uint64_t offset, std::uint32_t bytes) noexcept {
  if (bytes == 0) return Status::Ok;
  pool_is_short_ = false;
  const Inode& inode = inodes_[number];
  const std::uint64_t end = offset + bytes;
  SLUICE_INVARIANT_DEBUG(end <= kMaxFileBytes && inode.used_bytes % kSmallBytes == 0, file_storage);
  const bool fits_small = end <= kSmallBytes && inode.size <= kSmallBytes;
  if (inode.used_bytes == 0 && inode.small != fits_small) inodes_.change(number).small = fits_small;
  if (inode.small && !fits_small && !grow_small(inodes_.change(number))) return shortage();
  for (std::uint64_t at = offset / kLargeBytes; at <= (end - 1) / kLargeBytes; ++at) {
    const auto block = static_cast<std::uint32_t>(at);
    if (block_of(inode, block) == 0 && !put_block(inodes_.change(number), block)) return shortage();
  }
  return Status::Ok;
}

// --- Truncation ----------------------------------------------------------------------------------

/// Keeps the first bytes of a block. If a transfer is in flight on it, or other reactors may read it, the
/// file gets a new block instead, because a READ or WRITE still needs the old data. Returns false if no block
/// is free.
bool FileSystem::cut_block(Inode& inode, std::uint32_t index, std::uint32_t keep_bytes) noexcept {
  const Block block = block_of(inode, index);
  const std::uint32_t block_bytes = inode.small ? kSmallBytes : kLargeBytes;
  if (block == 0 || keep_bytes >= block_bytes) return true;
  if (blocks_.pins(block) == 0 && blocks_.readers().none()) {
    std::memset(blocks_.data(block) + keep_bytes, 0, block_bytes - keep_bytes);
    return true;
  }
  Block fresh = take(inode.small);
  if (fresh == 0) fresh = blocks_.take_reserved(inode.small);
  if (fresh == 0) return false;
  std::memcpy(blocks_.data(fresh), blocks_.data(block), keep_bytes);
  const std::uint32_t at = index - smaller_of(index, kDirectBlocks);
  store(index < kDirectBlocks ? inode.direct[index]
                              : map_page(root_of(inode)[at / kMapEntries]).blocks[at % kMapEntries],
        fresh);
  if (inode.small)
    blocks_.free_small(block);
  else
    blocks_.free_large(block);
  return true;
}

/// Queues the map pages from `first` on (counted from the first mapped block) for background reclaiming.
void FileSystem::drop_map_from(Inode& inode, std::uint32_t first) noexcept {
  Block* root = root_of(inode);
  std::uint32_t page = first / kMapEntries;
  if (first % kMapEntries != 0) {
    if (root[page] != 0)
      for (std::uint32_t at = first; at % kMapEntries != 0; ++at)
        if (map_page(root[page]).blocks[at % kMapEntries] != 0) drop_block(inode, at + kDirectBlocks);
    ++page;
  }
  for (; page < kRootEntries; ++page) {
    if (root[page] == 0) continue;
    MapPage& map = map_page(root[page]);
    SLUICE_INVARIANT_DEBUG(map.used <= kMapEntries, file_storage);
    const std::uint64_t bytes = std::uint64_t{map.used} * kLargeBytes + kSmallBytes;
    uncharge(inode, bytes);
    reclaimable_bytes_ += bytes;
    map.next = reclaim_list_;
    reclaim_list_ = root[page];
    store(root[page], 0);
  }
  if (first == 0) give_back(inode, inode.map_root, true);
}

void FileSystem::drop_blocks_from(Inode& inode, std::uint32_t first) noexcept {
  for (std::uint32_t block = first; block < kDirectBlocks; ++block)
    if (inode.direct[block] != 0) drop_block(inode, block);
  if (inode.map_root != 0) drop_map_from(inode, larger_of(first, kDirectBlocks) - kDirectBlocks);
}

Status FileSystem::truncate(InodeNumber number, std::uint64_t size) noexcept {
  Inode& inode = inodes_.change(number);
  SLUICE_INVARIANT_DEBUG(size <= kMaxFileBytes && inode.type == FileType::Regular, file_storage);
  if (size <= inode.size) {
    const auto within = static_cast<std::uint32_t>(size % kLargeBytes);
    const auto index = static_cast<std::uint32_t>(size / kLargeBytes);
    if (within != 0 && size < inode.size && !cut_block(inode, index, within)) return Status::Jukebox;
    drop_blocks_from(inode, within != 0 ? index + 1 : index);
  } else if (inode.small && size > kSmallBytes) {
    // On failure the data stays in the small block, and the rest is a hole until it is written.
    static_cast<void>(grow_small(inode));
  }
  inode.size = size;
  return Status::Ok;
}

void FileSystem::forget_tail(InodeNumber number, std::uint32_t index) noexcept {
  const Inode& inode = inodes_[number];
  const Block block = block_of(inode, index);
  SLUICE_INVARIANT_DEBUG(block != 0 && blocks_.pins(block) > 0, file_storage);
  if (blocks_.pins(block) > 1) return blocks_.mark_tail(block);
  blocks_.clear_tail_mark(block);
  const std::uint64_t begin = std::uint64_t{index} * kLargeBytes;
  if (inode.size <= begin) return drop_block(inodes_.change(number), index);
  const std::uint64_t keep = inode.size - begin;
  const std::uint64_t block_bytes = inode.small ? kSmallBytes : kLargeBytes;
  if (keep < block_bytes) std::memset(blocks_.data(block) + keep, 0, block_bytes - keep);
}

// --- Reclaiming ----------------------------------------------------------------------------------

/// Performs one slice of reclaiming. Returns true if there is more to reclaim.
bool FileSystem::reclaim_slice() noexcept {
  for (std::uint32_t step = 0; step < kReclaimSteps; ++step) {
    if (reclaim_page_ == 0) {
      if (reclaim_list_ == 0) return false;
      reclaim_page_ = reclaim_list_;
      reclaim_list_ = map_page(reclaim_page_).next;
      reclaim_at_ = 0;
    }
    MapPage& map = map_page(reclaim_page_);
    SLUICE_INVARIANT_DEBUG(map.used == 0 || reclaim_at_ < kMapEntries, table_index);
    SLUICE_INVARIANT_DEBUG(reclaimable_bytes_ >= std::uint64_t{map.used} * kLargeBytes + kSmallBytes,
                           pool_balance);
    if (map.used == 0) {
      blocks_.free_small(reclaim_page_);
      reclaim_page_ = 0;
      reclaimable_bytes_ -= kSmallBytes;
    } else if (const Block block = map.blocks[reclaim_at_++]; block != 0) {
      blocks_.free_large(block);
      --map.used;
      reclaimable_bytes_ -= kLargeBytes;
    }
  }
  return reclaimable_bytes_ > 0;
}

}  // namespace sluice::service::memory
