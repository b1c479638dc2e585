// SPDX-License-Identifier: Apache-2.0
//
// File system of the memory exports: inodes, directories, and files with their data in registered blocks.
//
// Only the owning reactor may call, except the functions for readers in other reactors. The constructor
// allocates everything; every other operation is O(1) unless its bound is documented. Sizes in bytes, times
// in ns since 1970; errors are nfsstat3.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "dataplane/base/siphash.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/service/memory/blocks.h"
#include "dataplane/service/memory/inode.h"
#include "dataplane/service/memory/publication.h"

namespace sluice::service::memory {

struct ExportUse {
  InodeNumber root = 0;
  std::uint64_t root_token = 0;   ///< FileHandle::token of the root, instead of start()
  std::uint64_t quota_bytes = 0;  ///< zero: limited only by the pool
  std::uint64_t used_bytes = 0;
};

struct NewInode {
  FileType type = FileType::Regular;
  std::uint16_t mode = 0644;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::uint32_t device_major = 0;
  std::uint32_t device_minor = 0;
};

/// Result of a reader's lookup. Unknown: the owner has to look the name up.
enum class NameResult : std::uint8_t { Found, None, Unknown };

/// Maximum number of entries of a bucket that a reader examines.
inline constexpr std::uint32_t kMaxChainSteps = 8;

class FileSystem {
 public:
  using Clock = std::uint64_t (*)() noexcept;

  /// Called at setup. `wall_clock` returns ns since 1970 without a system call. `region` must outlive the
  /// file system.
  FileSystem(rdma::MemoryRegion region, std::uint32_t max_files, const HashKey& key, Clock wall_clock);

  /// Creates the root of an export if it does not exist, sets its quota, and gives it a share of inodes and
  /// entries. A root keeps its handle across restarts as long as path, `id` and key do not change. `id` is
  /// below kMaxExports. Returns false if no inode is free.
  bool set_export(std::uint32_t id, std::string_view path, std::uint64_t quota_bytes) noexcept;
  /// Ends an export's share of inodes and entries. Its files stay.
  void close_export(std::uint32_t id) noexcept;
  const ExportUse& use(std::uint32_t export_id) const noexcept { return exports_[export_id]; }
  std::uint32_t export_count() const noexcept { return static_cast<std::uint32_t>(exports_.size()); }
  InodeNumber root(std::uint32_t export_id) const noexcept { return exports_[export_id].root; }

  const Inode& inode(InodeNumber number) const noexcept { return inodes_[number]; }
  /// Returns an inode for a change, which publish() makes visible to readers.
  Inode& change(InodeNumber number) noexcept { return inodes_.change(number); }
  /// Publishes what has been changed since the last call. Called before the client is answered.
  void publish() noexcept { inodes_.publish(); }
  bool is_published() const noexcept { return inodes_.is_published(); }
  const Entry& entry(EntryNumber number) const noexcept { return entries_[number]; }
  BlockPool& blocks() noexcept { return blocks_; }
  const BlockPool& blocks() const noexcept { return blocks_; }
  std::uint64_t now_ns() const noexcept { return clock_(); }
  /// Returns the wall clock time at construction, which differs after each restart.
  std::uint64_t start() const noexcept { return start_; }
  std::uint32_t max_files() const noexcept { return static_cast<std::uint32_t>(inodes_.size() - 1); }
  std::uint64_t free_files() const noexcept { return inode_shares_.free(); }
  std::uint64_t files(std::uint32_t export_id) const noexcept { return inode_shares_.taken(export_id); }
  /// Returns the number of files that the export can create. Each takes an inode and an entry.
  std::uint64_t available_files(std::uint32_t export_id) const noexcept {
    return smaller_of(inode_shares_.available(export_id), entry_shares_.available(export_id));
  }
  /// Returns the bytes that are free now, plus those that reclaiming removed files will free.
  std::uint64_t free_bytes() const noexcept {
    return blocks_.free_bytes() + blocks_.settling_bytes() + reclaimable_bytes_;
  }

  HandleBytes handle_of(InodeNumber number) const noexcept;
  struct Found {
    Status status = Status::Stale;
    InodeNumber number = 0;
  };
  Found find(std::span<const std::byte> handle) const noexcept;

  // Directories. The caller has checked permissions and the name, which is not "." or "..".
  EntryNumber lookup(InodeNumber directory, std::string_view name) const noexcept;
  Found create(InodeNumber directory, std::string_view name, const NewInode& what) noexcept;
  Status link(InodeNumber directory, std::string_view name, InodeNumber target) noexcept;
  void remove_entry(EntryNumber number) noexcept;  ///< also drops the link to its inode
  /// Moves an entry. Replaces `to_name` if it exists.
  void rename(EntryNumber from, InodeNumber to_directory, std::string_view to_name) noexcept;
  /// Takes at most kMaxDirectoryDepth steps; a deeper directory counts as within.
  bool is_within(InodeNumber directory, InodeNumber ancestor) const noexcept;
  /// Returns the first entry with a cookie above `cookie`, or zero. O(log n) expected.
  EntryNumber entry_after(InodeNumber directory, std::uint64_t cookie) const noexcept;
  /// Returns the next entry in the order of cookies, or zero. O(1) amortized.
  EntryNumber entry_next(EntryNumber number) const noexcept;

  // Files. `block` is an index in units of kLargeBytes.
  /// Returns a block of a file, or zero for a hole. A reader must check afterwards that the attributes are
  /// unchanged, and pin the block before it confirms the next grace period.
  Block block_of(const FileAttributes& file, std::uint32_t block) const noexcept {
    SLUICE_INVARIANT_DEBUG(!file.small || (file.map_root == 0 && file.direct[1] == 0), file_storage);
    return block < kDirectBlocks ? file.direct[block] : mapped_block_of(file, block);
  }
  /// Allocates the missing blocks of a range, at most 66 for one WRITE. An error leaves those allocated so
  /// far. Returns Jukebox if freed blocks will be available soon, otherwise NoSpc.
  Status ensure_blocks(InodeNumber number, std::uint64_t offset, std::uint32_t bytes) noexcept;
  /// Truncates a file in at most 2 * kRootEntries steps. Returns Jukebox, with no effect, if a transfer or
  /// another reactor may use the block that is cut and no block is free to replace it.
  Status truncate(InodeNumber number, std::uint64_t size) noexcept;

  /// Clears what a failed WRITE left in block `index` after the end of the file, as soon as no other transfer
  /// uses the block. Called before the WRITE unpins.
  void forget_tail(InodeNumber number, std::uint32_t index) noexcept;
  /// Returns true if an earlier forget_tail() was deferred to the caller, which holds the last pin of the
  /// block and must call forget_tail() too.
  bool must_forget_tail(const Inode& inode, std::uint32_t index, Block pinned) const noexcept {
    return blocks_.tail_marked(pinned) && blocks_.pins(pinned) == 1 && block_of(inode, index) == pinned;
  }

  /// Performs one bounded slice of reclaiming and scrubbing. Returns true if there is more to do.
  bool background() noexcept;

  // Readers in other reactors.
  /// Lets a reader use the files. Called at setup; the reader's pins outlive the last call.
  const Publication& add_reader(ReaderPins& reader);
  /// Returns the export's token of its root, from the path of the export. Any reactor.
  std::uint64_t root_token(std::string_view path) const noexcept;
  /// Returns the handle of a file. Any reactor.
  HandleBytes encode(InodeNumber number, const FileAttributes& file,
                     const PublishedRoot& root) const noexcept;
  /// Returns what a handle names, unless it was not made with the key. Any reactor.
  std::optional<FileHandle> decode(std::span<const std::byte> handle) const noexcept {
    return decode_handle(key_, handle);
  }
  /// Returns whether a handle names the inode that has these attributes. Any reactor.
  bool names(const FileHandle& handle, const FileAttributes& file, const PublishedRoot& root) const noexcept;
  /// Returns the bucket of a name. Any reactor.
  std::uint32_t bucket_of(InodeNumber directory, std::string_view name) const noexcept;
  /// Looks a name up in its bucket, in at most kMaxChainSteps steps, and sets `found` to the inode. The
  /// result is valid if the state of the names has not changed since before. Any reactor.
  NameResult look_up_published(std::uint32_t bucket, InodeNumber directory, std::string_view name,
                               InodeNumber& found) const noexcept;

 private:
  Block mapped_block_of(const FileAttributes& file, std::uint32_t block) const noexcept;
  Status shortage() const noexcept;
  void publish_root(std::uint32_t export_id) noexcept;
  InodeNumber new_inode(std::uint32_t export_id, const NewInode& what) noexcept;
  void free_inode(InodeNumber number) noexcept;
  void drop_link(InodeNumber number) noexcept;

  EntryNumber add_entry(InodeNumber directory, std::string_view name, InodeNumber target) noexcept;
  void unlink_entry(EntryNumber number) noexcept;
  void tree_append(Inode& directory, EntryNumber number) noexcept;
  void tree_remove(Inode& directory, EntryNumber number) noexcept;

  Block* root_of(const FileAttributes& file) const noexcept {
    return reinterpret_cast<Block*>(blocks_.data(file.map_root));
  }
  MapPage& map_page(Block block) const noexcept { return *reinterpret_cast<MapPage*>(blocks_.data(block)); }
  bool put_block(Inode& inode, std::uint32_t block) noexcept;
  Block allocate(Inode& inode, bool small) noexcept;
  Block take(bool small) noexcept;
  bool charge(Inode& inode, std::uint64_t bytes) noexcept;
  void uncharge(Inode& inode, std::uint64_t bytes) noexcept;
  void give_back(Inode& inode, Block& block, bool small) noexcept;
  void drop_block(Inode& inode, std::uint32_t block) noexcept;
  bool grow_small(Inode& inode) noexcept;
  bool cut_block(Inode& inode, std::uint32_t index, std::uint32_t keep_bytes) noexcept;
  void drop_blocks_from(Inode& inode, std::uint32_t first) noexcept;
  void drop_map_from(Inode& inode, std::uint32_t first) noexcept;
  bool reclaim_slice() noexcept;

  BlockPool blocks_;
  InodeTable inodes_;
  LazyArray<Entry> entries_;
  LazyArray<EntryWord<EntryNumber>> buckets_;
  const HashKey key_;
  const Clock clock_;
  const std::uint64_t start_;
  std::uint64_t priority_state_;
  std::vector<ExportUse> exports_;
  InodeNumber free_inode_list_ = 0;
  InodeNumber never_used_inode_ = 1;
  EntryNumber free_entry_list_ = 0;
  EntryNumber never_used_entry_ = 1;
  PoolShares inode_shares_;
  PoolShares entry_shares_;

  Block reclaim_page_ = 0;  ///< map page being reclaimed
  std::uint32_t reclaim_at_ = 0;
  Block reclaim_list_ = 0;  ///< map pages still to be reclaimed
  std::uint64_t reclaimable_bytes_ = 0;
  bool pool_is_short_ = false;  ///< the last ensure_blocks() found no block, within the quota
};

}  // namespace sluice::service::memory
