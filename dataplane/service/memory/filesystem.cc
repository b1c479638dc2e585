// SPDX-License-Identifier: Apache-2.0
#include "dataplane/service/memory/filesystem.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace sluice::service::memory {

FileSystem::FileSystem(rdma::MemoryRegion region, std::uint32_t max_files, const HashKey& key,
                       Clock wall_clock)
    : blocks_(region),
      inodes_(std::size_t{max_files} + 1),
      entries_(std::min<std::size_t>(std::size_t{max_files} * 2 + 1, std::size_t{1} << kCookieIndexBits)),
      buckets_(std::bit_ceil(entries_.size())),
      key_(key),
      clock_(wall_clock),
      free_inodes_(max_files) {}

std::uint32_t FileSystem::add_export(std::uint64_t quota_bytes) {
  const auto id = static_cast<std::uint32_t>(exports_.size());
  exports_.push_back({.quota_bytes = quota_bytes});
  const InodeNumber number = new_inode(id, {.type = FileType::Directory, .mode = 0777});
  if (number == 0) throw rdma::SetupError("max_files is too small for the number of exports.");
  Inode& root = inodes_[number];
  root.generation = 1;  // so that a client's mount survives a restart of the data plane
  root.links = 2;
  root.parent = number;
  exports_[id].root = number;
  return id;
}

// --- Inodes
// -------------------------------------------------------------------------------------------------------

HandleBytes FileSystem::handle_of(InodeNumber number) const noexcept {
  const Inode& inode = inodes_[number];
  return encode_handle(key_, {inode.export_id, number, inode.generation});
}

FileSystem::Found FileSystem::find(std::span<const std::byte> handle) noexcept {
  const auto decoded = decode_handle(key_, handle);
  if (!decoded) return {Status::BadHandle};
  if (decoded->inode == 0 || decoded->inode >= inodes_.size()) return {Status::Stale};
  const Inode& inode = inodes_[decoded->inode];
  if (inode.type == FileType::None || inode.generation != decoded->generation ||
      inode.export_id != decoded->export_id || inode.links == 0)
    return {Status::Stale};
  return {Status::Ok, decoded->inode};
}

InodeNumber FileSystem::new_inode(std::uint32_t export_id, const NewInode& what) noexcept {
  InodeNumber number = free_inode_list_;
  if (number != 0)
    free_inode_list_ = inodes_[number].next;
  else if (never_used_inode_ < inodes_.size())
    number = never_used_inode_++;
  else
    return 0;
  --free_inodes_;
  ++exports_[export_id].files;
  Inode& inode = inodes_[number];
  // The start of the file system is part of the generation: what was removed or lost with a restart stays
  // stale.
  const std::uint32_t generation =
      inode.generation != 0 ? inode.generation + 1 : static_cast<std::uint32_t>(clock_() >> 20) | 2;
  const std::uint64_t now = clock_();
  inode = {};
  inode.generation = generation == 1 ? 2 : generation;
  inode.type = what.type;
  inode.mode = what.mode;
  inode.uid = what.uid;
  inode.gid = what.gid;
  inode.links = 1;
  inode.export_id = export_id;
  inode.atime_ns = inode.mtime_ns = inode.ctime_ns = now;
  inode.device_major = what.device_major;
  inode.device_minor = what.device_minor;
  inode.next_sequence = 1;
  return number;
}

void FileSystem::free_inode(InodeNumber number) noexcept {
  Inode& inode = inodes_[number];
  --exports_[inode.export_id].files;
  inode.type = FileType::None;
  inode.next = free_inode_list_;
  free_inode_list_ = number;
  ++free_inodes_;
}

void FileSystem::drop_link(InodeNumber number) noexcept {
  Inode& inode = inodes_[number];
  inode.ctime_ns = clock_();
  const std::uint32_t last = inode.type == FileType::Directory ? 2 : 1;
  if (inode.links > last) {
    --inode.links;
    return;
  }
  inode.links = 0;
  inode.next = reclaim_head_;
  reclaim_head_ = number;
}

bool FileSystem::background() noexcept {
  if (blocks_.scrub_one()) return true;
  if (reclaim_head_ == 0) return false;
  Inode& inode = inodes_[reclaim_head_];
  for (std::uint32_t step = 0; step < kReclaimSteps; ++step)
    if (!reclaim_step(inode)) {
      const InodeNumber number = reclaim_head_;
      reclaim_head_ = inode.next;
      free_inode(number);
      break;
    }
  return true;
}

/// Gives one block of a removed file back; false when there is nothing left.
bool FileSystem::reclaim_step(Inode& inode) noexcept {
  if (inode.reclaim_at < kDirectBlocks) {
    Block& block = inode.direct[inode.reclaim_at++];
    if (block != 0) give_back(inode, block, inode.small);
    return true;
  }
  if (inode.map_root == 0) return false;
  const std::uint32_t at = inode.reclaim_at - kDirectBlocks;
  if (at == kMapEntries * kMapEntries) {
    give_back(inode, inode.map_root, true);
    return false;
  }
  auto* maps = reinterpret_cast<Block*>(blocks_.data(inode.map_root));
  Block& map = maps[at / kMapEntries];
  if (map == 0) {
    inode.reclaim_at += kMapEntries - at % kMapEntries;
    return true;
  }
  Block& block = reinterpret_cast<Block*>(blocks_.data(map))[at % kMapEntries];
  if (block != 0) give_back(inode, block, false);
  ++inode.reclaim_at;
  if ((at + 1) % kMapEntries == 0) give_back(inode, map, true);
  return true;
}

// --- Directories
// --------------------------------------------------------------------------------------------------

std::uint32_t FileSystem::bucket_of(InodeNumber directory, std::string_view name) const noexcept {
  std::array<std::byte, kMaxNameBytes + sizeof directory> bytes;
  std::memcpy(bytes.data(), &directory, sizeof directory);
  const std::size_t name_bytes = std::min<std::size_t>(name.size(), kMaxNameBytes);
  std::memcpy(bytes.data() + sizeof directory, name.data(), name_bytes);
  return static_cast<std::uint32_t>(siphash(key_, std::span(bytes).first(sizeof directory + name_bytes)) &
                                    (buckets_.size() - 1));
}

EntryNumber FileSystem::lookup(InodeNumber directory, std::string_view name) noexcept {
  for (EntryNumber at = buckets_[bucket_of(directory, name)]; at != 0; at = entries_[at].hash_next)
    if (entries_[at].directory == directory && entries_[at].name_view() == name) return at;
  return 0;
}

EntryNumber FileSystem::add_entry(InodeNumber directory, std::string_view name, InodeNumber target) noexcept {
  EntryNumber number = free_entry_list_;
  if (number != 0)
    free_entry_list_ = entries_[number].hash_next;
  else if (never_used_entry_ < entries_.size())
    number = never_used_entry_++;
  else
    return 0;
  Inode& parent = inodes_[directory];
  Entry& entry = entries_[number];
  entry.directory = directory;
  entry.inode = target;
  entry.sequence = parent.next_sequence++;
  entry.name_bytes = static_cast<std::uint8_t>(name.size());
  std::memcpy(entry.name, name.data(), name.size());
  EntryNumber& bucket = buckets_[bucket_of(directory, name)];
  entry.hash_next = bucket;
  bucket = number;
  entry.next = 0;
  entry.previous = parent.last_entry;
  (parent.last_entry != 0 ? entries_[parent.last_entry].next : parent.first_entry) = number;
  parent.last_entry = number;
  ++parent.entries;
  parent.mtime_ns = parent.ctime_ns = clock_();
  if (inodes_[target].type == FileType::Directory) {
    inodes_[target].parent = directory;
    ++parent.links;
  }
  return number;
}

/// Takes an entry out of its directory; the inode it names is not touched.
void FileSystem::unlink_entry(EntryNumber number) noexcept {
  Entry& entry = entries_[number];
  Inode& parent = inodes_[entry.directory];
  EntryNumber* link = &buckets_[bucket_of(entry.directory, entry.name_view())];
  while (*link != number) link = &entries_[*link].hash_next;
  *link = entry.hash_next;
  (entry.previous != 0 ? entries_[entry.previous].next : parent.first_entry) = entry.next;
  (entry.next != 0 ? entries_[entry.next].previous : parent.last_entry) = entry.previous;
  --parent.entries;
  parent.mtime_ns = parent.ctime_ns = clock_();
  if (inodes_[entry.inode].type == FileType::Directory) --parent.links;
  entry.directory = 0;
  entry.hash_next = free_entry_list_;
  free_entry_list_ = number;
}

FileSystem::Found FileSystem::create(InodeNumber directory, std::string_view name,
                                     const NewInode& what) noexcept {
  const InodeNumber number = new_inode(inodes_[directory].export_id, what);
  if (number == 0) return {Status::NoSpc};
  if (what.type == FileType::Directory) inodes_[number].links = 2;
  if (add_entry(directory, name, number) == 0) {
    free_inode(number);
    return {Status::NoSpc};
  }
  return {Status::Ok, number};
}

Status FileSystem::link(InodeNumber directory, std::string_view name, InodeNumber target) noexcept {
  if (inodes_[target].links >= kMaxLinks) return Status::MLink;
  if (add_entry(directory, name, target) == 0) return Status::NoSpc;
  ++inodes_[target].links;
  inodes_[target].ctime_ns = clock_();
  return Status::Ok;
}

void FileSystem::remove_entry(EntryNumber number) noexcept {
  const InodeNumber target = entries_[number].inode;
  unlink_entry(number);
  drop_link(target);
}

Status FileSystem::rename(EntryNumber from, InodeNumber to_directory, std::string_view to_name) noexcept {
  const InodeNumber target = entries_[from].inode;
  if (const EntryNumber existing = lookup(to_directory, to_name); existing != 0) remove_entry(existing);
  unlink_entry(from);
  add_entry(to_directory, to_name, target);  // the entry just freed is there to be used
  inodes_[target].ctime_ns = clock_();
  return Status::Ok;
}

/// Walks up to the root: at most the depth of the tree.
bool FileSystem::is_within(InodeNumber directory, InodeNumber ancestor) noexcept {
  for (std::size_t depth = 0; depth < inodes_.size(); ++depth) {
    if (directory == ancestor) return true;
    const InodeNumber parent = inodes_[directory].parent;
    if (parent == directory) return false;
    directory = parent;
  }
  return true;
}

EntryNumber FileSystem::entry_after(InodeNumber directory, std::uint64_t cookie) noexcept {
  const Inode& inode = inodes_[directory];
  const auto number = static_cast<EntryNumber>(cookie & ((1u << kCookieIndexBits) - 1));
  const std::uint64_t sequence = cookie >> kCookieIndexBits;
  if (number != 0 && number < entries_.size() && entries_[number].directory == directory &&
      entries_[number].sequence == sequence)
    return entries_[number].next;
  EntryNumber at = inode.first_entry;
  while (at != 0 && entries_[at].sequence <= sequence) at = entries_[at].next;
  return at;
}

// --- Data
// ---------------------------------------------------------------------------------------------------------

bool FileSystem::charge(Inode& inode, std::uint32_t bytes) noexcept {
  ExportUse& use = exports_[inode.export_id];
  if (use.quota_bytes != 0 && use.used_bytes + bytes > use.quota_bytes) return false;
  use.used_bytes += bytes;
  inode.used_bytes += bytes;
  return true;
}

void FileSystem::uncharge(Inode& inode, std::uint32_t bytes) noexcept {
  exports_[inode.export_id].used_bytes -= bytes;
  inode.used_bytes -= bytes;
}

Block FileSystem::allocate(Inode& inode, bool small) noexcept {
  const std::uint32_t bytes = small ? kSmallBytes : kLargeBytes;
  if (!charge(inode, bytes)) return 0;
  const Block block = small ? blocks_.allocate_small() : blocks_.allocate_large();
  if (block == 0) uncharge(inode, bytes);
  return block;
}

void FileSystem::give_back(Inode& inode, Block& block, bool small) noexcept {
  uncharge(inode, small ? kSmallBytes : kLargeBytes);
  if (small)
    blocks_.free_small(block);
  else
    blocks_.free_large(block);
  block = 0;
}

Block FileSystem::block_of(const Inode& inode, std::uint32_t block) const noexcept {
  if (block < kDirectBlocks) return inode.direct[block];
  if (inode.map_root == 0 || block >= kMaxFileBlocks) return 0;
  const std::uint32_t at = block - kDirectBlocks;
  const Block map = reinterpret_cast<const Block*>(blocks_.data(inode.map_root))[at / kMapEntries];
  return map == 0 ? 0 : reinterpret_cast<const Block*>(blocks_.data(map))[at % kMapEntries];
}

/// Where the number of a data block stands, its map blocks made if needed. Null when there is no room for
/// them.
Block* FileSystem::slot_for(Inode& inode, std::uint32_t block) noexcept {
  if (block < kDirectBlocks) return &inode.direct[block];
  const std::uint32_t at = block - kDirectBlocks;
  if (inode.map_root == 0 && (inode.map_root = allocate(inode, true)) == 0) return nullptr;
  Block& map = reinterpret_cast<Block*>(blocks_.data(inode.map_root))[at / kMapEntries];
  if (map == 0 && (map = allocate(inode, true)) == 0) return nullptr;
  return &reinterpret_cast<Block*>(blocks_.data(map))[at % kMapEntries];
}

/// Moves the data of a small file to a large block. Transfers under way in the small one see to it
/// themselves.
bool FileSystem::grow_small(Inode& inode) noexcept {
  Block& block = inode.direct[0];
  if (block != 0) {
    const Block large = allocate(inode, false);
    if (large == 0) return false;
    std::memcpy(blocks_.data(large), blocks_.data(block), kSmallBytes);
    give_back(inode, block, true);
    block = large;
  }
  inode.small = false;
  return true;
}

Status FileSystem::ensure_blocks(Inode& inode, std::uint64_t offset, std::uint32_t bytes) noexcept {
  if (bytes == 0) return Status::Ok;
  const std::uint64_t end = offset + bytes;
  const bool fits_small = end <= kSmallBytes && inode.size <= kSmallBytes;
  if (inode.used_bytes == 0) inode.small = fits_small;
  if (inode.small && !fits_small && !grow_small(inode)) return Status::NoSpc;
  for (auto block = static_cast<std::uint32_t>(offset / kLargeBytes); block <= (end - 1) / kLargeBytes;
       ++block) {
    Block* slot = slot_for(inode, block);
    if (slot == nullptr) return Status::NoSpc;
    if (*slot == 0 && (*slot = allocate(inode, inode.small)) == 0) return Status::NoSpc;
  }
  return Status::Ok;
}

void FileSystem::zero(Inode& inode, std::uint64_t from, std::uint64_t to) noexcept {
  const std::uint64_t block_bytes = inode.small ? kSmallBytes : kLargeBytes;
  if (inode.small) to = std::min<std::uint64_t>(to, kSmallBytes);
  while (from < to) {
    const std::uint64_t within = from % block_bytes;
    const std::uint64_t run = std::min(block_bytes - within, to - from);
    const Block block = block_of(inode, static_cast<std::uint32_t>(from / kLargeBytes));
    if (block != 0) std::memset(blocks_.data(block) + within, 0, run);
    from += run;
  }
}

void FileSystem::truncate(InodeNumber number, std::uint64_t size) noexcept {
  Inode& inode = inodes_[number];
  if (size < inode.size) {
    const std::uint64_t old_blocks = (inode.size + kLargeBytes - 1) / kLargeBytes;
    const std::uint64_t kept = (size + kLargeBytes - 1) / kLargeBytes;
    zero(inode, size, std::min<std::uint64_t>(kept * kLargeBytes, inode.size));
    for (std::uint64_t block = kept; block < old_blocks; ++block) {
      if (block_of(inode, static_cast<std::uint32_t>(block)) == 0) {
        // A hole may be as wide as a whole map block.
        const std::uint64_t at = block - std::min<std::uint64_t>(block, kDirectBlocks);
        if (block >= kDirectBlocks && inode.map_root == 0) break;
        if (block >= kDirectBlocks &&
            reinterpret_cast<Block*>(blocks_.data(inode.map_root))[at / kMapEntries] == 0)
          block += kMapEntries - at % kMapEntries - 1;
        continue;
      }
      give_back(inode, *slot_for(inode, static_cast<std::uint32_t>(block)), inode.small);
    }
  } else if (inode.small && size > kSmallBytes && !grow_small(inode)) {
    // No room to move it: the data stays in the small block, and the rest is a hole until something is
    // written.
    zero(inode, inode.size, kSmallBytes);
  }
  inode.size = size;
}

}  // namespace sluice::service::memory
