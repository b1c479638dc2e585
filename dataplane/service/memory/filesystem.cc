// SPDX-License-Identifier: Apache-2.0
//
// Exports, handles and inodes.
#include "dataplane/service/memory/filesystem.h"

#include <bit>

namespace sluice::service::memory {
namespace {

/// Each file has at least one name; the second one is room for hard links.
constexpr std::size_t kEntriesPerInode = 2;
constexpr std::uint32_t kRootGeneration = 1;

std::uint64_t hash_text(const HashKey& key, std::string_view text) noexcept {
  return siphash(key, std::as_bytes(std::span{text.data(), text.size()}));
}

}  // namespace

FileSystem::FileSystem(rdma::MemoryRegion region, std::uint32_t max_files, const HashKey& key,
                       Clock wall_clock)
    : blocks_(region),
      inodes_(std::size_t{max_files} + 1),
      entries_(kEntriesPerInode * max_files + 1),
      buckets_(std::bit_ceil(entries_.size())),
      key_(key),
      clock_(wall_clock),
      start_(wall_clock()),
      priority_state_(hash_text(key, "treap priorities") | 1),
      free_inodes_(max_files) {
  exports_.reserve(kMaxExports);
}

bool FileSystem::set_export(std::uint32_t id, std::string_view path, std::uint64_t quota_bytes) noexcept {
  const std::uint64_t token = hash_text(key_, path);
  while (exports_.size() <= id) exports_.emplace_back();  // within the reserved capacity
  ExportUse& use = exports_[id];
  use.quota_bytes = quota_bytes;
  if (use.root != 0 && use.root_token == token) return true;
  const InodeNumber number = new_inode(id, {.type = FileType::Directory, .mode = 0777});
  if (number == 0) return false;
  Inode& root = inodes_[number];
  root.generation = kRootGeneration;
  root.links = 2;
  root.parent = number;
  use.root = number;
  use.root_token = token;
  return true;
}

HandleBytes FileSystem::handle_of(InodeNumber number) const noexcept {
  const Inode& inode = inodes_[number];
  const ExportUse& use = exports_[inode.export_id];
  return encode_handle(key_, {.export_id = inode.export_id,
                              .inode = number,
                              .generation = inode.generation,
                              .token = number == use.root ? use.root_token : start_});
}

FileSystem::Found FileSystem::find(std::span<const std::byte> handle) noexcept {
  const auto decoded = decode_handle(key_, handle);
  if (!decoded) return {Status::BadHandle};
  if (decoded->inode == 0 || decoded->inode >= inodes_.size()) return {Status::Stale};
  const Inode& inode = inodes_[decoded->inode];
  if (inode.type == FileType::None || inode.generation != decoded->generation ||
      inode.export_id != decoded->export_id)
    return {Status::Stale};
  const ExportUse& use = exports_[inode.export_id];
  const std::uint64_t token = decoded->inode == use.root ? use.root_token : start_;
  if (decoded->token != token) return {Status::Stale};
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
  const std::uint32_t generation = inode.generation + 1;
  inode = {};
  inode.generation = generation;
  inode.type = what.type;
  inode.mode = what.mode;
  inode.uid = what.uid;
  inode.gid = what.gid;
  inode.links = 1;
  inode.export_id = export_id;
  inode.atime_ns = inode.mtime_ns = inode.ctime_ns = clock_();
  inode.device_major = what.device_major;
  inode.device_minor = what.device_minor;
  inode.next_sequence = kFirstCookie;
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

/// A file without links is removed at once; its blocks are reclaimed in the background.
void FileSystem::drop_link(InodeNumber number) noexcept {
  Inode& inode = inodes_[number];
  inode.ctime_ns = clock_();
  const std::uint32_t last = inode.type == FileType::Directory ? 2 : 1;
  if (inode.links > last) {
    --inode.links;
    return;
  }
  drop_blocks_from(inode, 0);
  free_inode(number);
}

bool FileSystem::background() noexcept {
  const bool reclaiming = reclaim_slice();
  return blocks_.scrub_one() || reclaiming;
}

}  // namespace sluice::service::memory
