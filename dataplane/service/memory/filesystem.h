// SPDX-License-Identifier: Apache-2.0
//
// File system of the memory exports: inodes, directories, and files with their data in registered blocks.
//
// Only the owning reactor may call. The constructor allocates everything; every other operation is O(1)
// unless its bound is documented. Sizes in bytes, times in ns since 1970; errors are nfsstat3.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dataplane/base/siphash.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/service/memory/blocks.h"

namespace sluice::service::memory {

inline constexpr std::size_t kHandleBytes = 32;
using HandleBytes = std::array<std::byte, kHandleBytes>;

/// NFSv3 file handles that cannot be guessed. A handle contains the identity of a file and a keyed MAC over
/// it. Pure functions, which own nothing and only read `bytes`; any thread. Sizes in bytes.
struct FileHandle {
  std::uint32_t export_id = 0;
  std::uint32_t inode = 0;
  std::uint32_t generation = 0;
  /// FileSystem::start() of the instance that created the file, so that handles of files lost in a restart
  /// are stale. For the root of an export it is a value that survives restarts.
  std::uint64_t token = 0;
};

HandleBytes encode_handle(const HashKey& key, const FileHandle& handle) noexcept;
/// Decodes a handle. Returns nothing for a handle of another size, or one not made with this key: answer
/// NFS3ERR_BADHANDLE.
std::optional<FileHandle> decode_handle(const HashKey& key, std::span<const std::byte> bytes) noexcept;

/// Values of nfsstat3 (RFC 1813, section 2.6).
enum class Status : std::uint32_t {
  Ok = 0,
  Perm = 1,
  NoEnt = 2,
  Io = 5,
  Acces = 13,
  Exist = 17,
  XDev = 18,
  NotDir = 20,
  IsDir = 21,
  Inval = 22,
  FBig = 27,
  NoSpc = 28,
  RoFs = 30,
  MLink = 31,
  NameTooLong = 63,
  NotEmpty = 66,
  DQuot = 69,
  Stale = 70,
  BadHandle = 10001,
  NotSync = 10002,
  BadCookie = 10003,
  NotSupp = 10004,
  TooSmall = 10005,
  ServerFault = 10006,
  BadType = 10007,
  Jukebox = 10008,
};

/// Values of ftype3 (RFC 1813, section 2.6).
enum class FileType : std::uint8_t {
  None = 0,
  Regular = 1,
  Directory = 2,
  BlockDevice = 3,
  CharDevice = 4,
  Symlink = 5,
  Socket = 6,
  Fifo = 7,
};

inline constexpr std::uint32_t kMaxNameBytes = 255;
/// PATH_MAX of Linux without the null byte. Linux clients refuse longer paths.
inline constexpr std::uint32_t kMaxSymlinkBytes = 4095;
inline constexpr std::uint32_t kMaxLinks = 65000;
/// Maximum number of steps in RENAME's search for a cycle. A directory cannot be moved below a deeper one.
inline constexpr std::uint32_t kMaxDirectoryDepth = 4096;

/// An indirect block: a small block that holds block numbers of file data.
inline constexpr std::uint32_t kMapEntries = kSmallBytes / sizeof(Block) - 2;
struct MapPage {
  std::uint32_t used;  ///< nonzero entries
  Block next;          ///< next in the list of map pages to be reclaimed
  std::array<Block, kMapEntries> blocks;
};
static_assert(sizeof(MapPage) == kSmallBytes);
inline constexpr std::uint32_t kRootEntries = kSmallBytes / sizeof(Block);
inline constexpr std::uint32_t kDirectBlocks = 8;
inline constexpr std::uint32_t kMaxFileBlocks = kDirectBlocks + kRootEntries * kMapEntries;
inline constexpr std::uint64_t kMaxFileBytes = std::uint64_t{kMaxFileBlocks} * kLargeBytes;

/// Number of map entries visited in one slice of reclaiming.
inline constexpr std::uint32_t kReclaimSteps = 64;
/// Maximum number of slices per allocation when memory is short. They cover more than two map pages.
inline constexpr std::uint32_t kReclaimSlicesOnDemand = 40;
/// First READDIR cookie of an entry. Lower cookies are reserved: 0 for the beginning, 1 and 2 for "." and
/// "..".
inline constexpr std::uint64_t kFirstCookie = 3;

using InodeNumber = std::uint32_t;
using EntryNumber = std::uint32_t;

struct Inode {
  std::uint32_t generation;
  FileType type;
  bool small;      ///< the data, at most kSmallBytes, is in one small block
  bool exclusive;  ///< create_verifier is valid
  std::uint16_t mode;
  std::uint32_t uid;
  std::uint32_t gid;
  std::uint32_t links;
  std::uint32_t export_id;
  InodeNumber parent;  ///< parent of a directory
  InodeNumber next;    ///< next in the list of free inodes
  std::uint64_t size;
  std::uint64_t used_bytes;
  std::uint64_t atime_ns;
  std::uint64_t mtime_ns;
  std::uint64_t ctime_ns;
  std::uint64_t create_verifier;  ///< verifier of an exclusive CREATE
  std::uint32_t device_major;
  std::uint32_t device_minor;
  std::array<Block, kDirectBlocks> direct;
  Block map_root;          ///< small block of kRootEntries map pages
  EntryNumber entry_root;  ///< directory: root of the treap of its entries
  std::uint32_t entries;
  std::uint64_t next_sequence;
};

/// A directory entry. Entries of one directory form a treap (Seidel, Aragon: "Randomized search trees", 1996)
/// ordered by `sequence`, the order of creation, so that READDIR resumes in O(log n) even if the entry of its
/// cookie was removed.
struct Entry {
  InodeNumber directory;
  InodeNumber inode;
  EntryNumber left;
  EntryNumber right;
  EntryNumber parent;
  std::uint32_t priority;
  EntryNumber hash_next;  ///< also links the free list
  std::uint8_t name_bytes;
  std::uint64_t sequence;
  char name[kMaxNameBytes];

  std::string_view name_view() const noexcept { return {name, name_bytes}; }
  std::uint64_t cookie() const noexcept { return sequence; }
};

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

  Inode& inode(InodeNumber number) noexcept { return inodes_[number]; }
  const Inode& inode(InodeNumber number) const noexcept { return inodes_[number]; }
  const Entry& entry(EntryNumber number) const noexcept { return entries_[number]; }
  BlockPool& blocks() noexcept { return blocks_; }
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
  std::uint64_t free_bytes() const noexcept { return blocks_.free_bytes() + reclaimable_bytes_; }

  HandleBytes handle_of(InodeNumber number) const noexcept;
  struct Found {
    Status status = Status::Stale;
    InodeNumber number = 0;
  };
  Found find(std::span<const std::byte> handle) noexcept;

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
  Block block_of(const Inode& inode, std::uint32_t block) const noexcept {
    SLUICE_INVARIANT_DEBUG(!inode.small || (inode.map_root == 0 && inode.direct[1] == 0), file_storage);
    return block < kDirectBlocks ? inode.direct[block] : mapped_block_of(inode, block);
  }
  /// Allocates the missing blocks of a range, at most 18 for one WRITE. NoSpc leaves those allocated so far.
  Status ensure_blocks(Inode& inode, std::uint64_t offset, std::uint32_t bytes) noexcept;
  /// Truncates a file in at most 2 * kRootEntries steps. Returns Jukebox, with no effect, if a transfer is in
  /// flight on the block that is cut and no block is free to replace it.
  Status truncate(InodeNumber number, std::uint64_t size) noexcept;

  /// Clears what a failed WRITE left in block `index` after the end of the file, as soon as no other transfer
  /// uses the block. Called before the WRITE unpins.
  void forget_tail(Inode& inode, std::uint32_t index) noexcept;
  /// Returns true if an earlier forget_tail() was deferred to the caller, which holds the last pin of the
  /// block and must call forget_tail() too.
  bool must_forget_tail(const Inode& inode, std::uint32_t index, Block pinned) const noexcept {
    return blocks_.tail_marked(pinned) && blocks_.pins(pinned) == 1 && block_of(inode, index) == pinned;
  }

  /// Performs one bounded slice of reclaiming and scrubbing. Returns true if there is more to do.
  bool background() noexcept;

 private:
  Block mapped_block_of(const Inode& inode, std::uint32_t block) const noexcept;
  InodeNumber new_inode(std::uint32_t export_id, const NewInode& what) noexcept;
  void free_inode(InodeNumber number) noexcept;
  void drop_link(InodeNumber number) noexcept;

  EntryNumber add_entry(InodeNumber directory, std::string_view name, InodeNumber target) noexcept;
  void unlink_entry(EntryNumber number) noexcept;
  std::uint32_t bucket_of(InodeNumber directory, std::string_view name) const noexcept;
  void tree_append(Inode& directory, EntryNumber number) noexcept;
  void tree_remove(Inode& directory, EntryNumber number) noexcept;

  Block* root_of(const Inode& inode) const noexcept {
    return reinterpret_cast<Block*>(blocks_.data(inode.map_root));
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
  LazyArray<Inode> inodes_;
  LazyArray<Entry> entries_;
  LazyArray<EntryNumber> buckets_;
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
};

}  // namespace sluice::service::memory
