// SPDX-License-Identifier: Apache-2.0
//
// The memory exports' file system: inodes, directories, and files whose data lies in registered blocks. One
// reactor. Everything is allocated at setup; operations are O(1) but for the bounded loops named at them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dataplane/service/memory/blocks.h"
#include "dataplane/service/memory/file_handle.h"
#include "dataplane/service/memory/lazy_array.h"

namespace sluice::service::memory {

/// nfsstat3 (RFC 1813, section 2.6).
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
};

/// ftype3.
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
inline constexpr std::uint32_t kMaxSymlinkBytes = 1024;
inline constexpr std::uint32_t kMaxLinks = 65000;
inline constexpr std::uint32_t kDirectBlocks = 8;
inline constexpr std::uint32_t kMapEntries = kSmallBytes / sizeof(Block);
inline constexpr std::uint32_t kMaxFileBlocks = kDirectBlocks + kMapEntries * kMapEntries;
inline constexpr std::uint64_t kMaxFileBytes = std::uint64_t{kMaxFileBlocks} * kLargeBytes;
/// Steps of reclaiming a removed file in one slice of background work.
inline constexpr std::uint32_t kReclaimSteps = 64;
/// Cookies are a directory's running number of the entry, and the entry's index in the low bits.
inline constexpr std::uint32_t kCookieIndexBits = 24;

using InodeNumber = std::uint32_t;
using EntryNumber = std::uint32_t;

struct Inode {
  std::uint32_t generation;
  FileType type;
  bool small;  ///< its data, at most kSmallBytes, is in one small block
  std::uint16_t mode;
  std::uint32_t uid;
  std::uint32_t gid;
  std::uint32_t links;
  std::uint32_t export_id;
  InodeNumber parent;  ///< of a directory
  InodeNumber next;    ///< in the list of free or of reclaimed inodes
  std::uint64_t size;
  std::uint64_t used_bytes;
  std::uint64_t atime_ns;
  std::uint64_t mtime_ns;
  std::uint64_t ctime_ns;
  std::uint64_t create_verifier;  ///< of an exclusive CREATE
  std::uint32_t device_major;
  std::uint32_t device_minor;
  std::array<Block, kDirectBlocks> direct;
  Block map_root;  ///< small block of map blocks, each of kMapEntries data blocks
  std::uint32_t reclaim_at;
  EntryNumber first_entry;
  EntryNumber last_entry;
  std::uint32_t entries;
  std::uint64_t next_sequence;
};

struct Entry {
  InodeNumber directory;
  InodeNumber inode;
  EntryNumber next;
  EntryNumber previous;
  EntryNumber hash_next;  ///< also the link of the free list
  std::uint8_t name_bytes;
  std::uint64_t sequence;
  char name[kMaxNameBytes];

  std::string_view name_view() const noexcept { return {name, name_bytes}; }
};

struct ExportUse {
  InodeNumber root = 0;
  std::uint64_t quota_bytes = 0;  ///< zero: as much as there is
  std::uint64_t used_bytes = 0;
  std::uint64_t files = 0;
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

  /// Setup. `wall_clock` gives nanoseconds since 1970 and is no system call.
  FileSystem(rdma::MemoryRegion region, std::uint32_t max_files, const HashKey& key, Clock wall_clock);

  /// Setup. Roots keep their handle from one start to the next.
  std::uint32_t add_export(std::uint64_t quota_bytes);
  ExportUse& use(std::uint32_t export_id) noexcept { return exports_[export_id]; }
  std::uint32_t export_count() const noexcept { return static_cast<std::uint32_t>(exports_.size()); }
  InodeNumber root(std::uint32_t export_id) const noexcept { return exports_[export_id].root; }

  Inode& inode(InodeNumber number) noexcept { return inodes_[number]; }
  Entry& entry(EntryNumber number) noexcept { return entries_[number]; }
  BlockPool& blocks() noexcept { return blocks_; }
  std::uint64_t now_ns() const noexcept { return clock_(); }
  std::uint32_t max_files() const noexcept { return static_cast<std::uint32_t>(inodes_.size() - 1); }
  std::uint64_t free_files() const noexcept { return free_inodes_; }

  HandleBytes handle_of(InodeNumber number) const noexcept;
  struct Found {
    Status status = Status::Stale;
    InodeNumber number = 0;
  };
  Found find(std::span<const std::byte> handle) noexcept;

  // Directories. Names are not "." or ".."; whoever calls has checked permissions and name length.
  EntryNumber lookup(InodeNumber directory, std::string_view name) noexcept;
  Found create(InodeNumber directory, std::string_view name, const NewInode& what) noexcept;
  Status link(InodeNumber directory, std::string_view name, InodeNumber target) noexcept;
  void remove_entry(EntryNumber number) noexcept;  ///< drops the link of its inode too
  Status rename(EntryNumber from, InodeNumber to_directory, std::string_view to_name) noexcept;
  bool is_within(InodeNumber directory, InodeNumber ancestor) noexcept;
  static std::uint64_t cookie_of(const Entry& entry, EntryNumber number) noexcept {
    return entry.sequence << kCookieIndexBits | number;
  }
  /// First entry behind a cookie (zero: the first of all), or none. O(1) while the cookie's entry exists;
  /// otherwise at most one pass over the directory.
  EntryNumber entry_after(InodeNumber directory, std::uint64_t cookie) noexcept;

  // Files. `block` counts in kLargeBytes.
  Block block_of(const Inode& inode, std::uint32_t block) const noexcept;
  /// Makes blocks [first, last] exist, or NoSpc / DQuot; those made stay. At most 18 for one WRITE.
  Status ensure_blocks(Inode& inode, std::uint64_t offset, std::uint32_t bytes) noexcept;
  /// Passes over at most the file's blocks.
  void truncate(InodeNumber number, std::uint64_t size) noexcept;
  void zero(Inode& inode, std::uint64_t from, std::uint64_t to) noexcept;

  /// Drops one link; a file without links is reclaimed in the background.
  void drop_link(InodeNumber number) noexcept;
  /// One bounded slice of scrubbing and reclaiming; true when there is more.
  bool background() noexcept;

 private:
  InodeNumber new_inode(std::uint32_t export_id, const NewInode& what) noexcept;
  void free_inode(InodeNumber number) noexcept;
  EntryNumber add_entry(InodeNumber directory, std::string_view name, InodeNumber target) noexcept;
  void unlink_entry(EntryNumber number) noexcept;
  std::uint32_t bucket_of(InodeNumber directory, std::string_view name) const noexcept;
  Block* slot_for(Inode& inode, std::uint32_t block) noexcept;
  bool charge(Inode& inode, std::uint32_t bytes) noexcept;
  void uncharge(Inode& inode, std::uint32_t bytes) noexcept;
  Block allocate(Inode& inode, bool small) noexcept;
  void give_back(Inode& inode, Block& block, bool small) noexcept;
  bool grow_small(Inode& inode) noexcept;
  bool reclaim_step(Inode& inode) noexcept;

  BlockPool blocks_;
  LazyArray<Inode> inodes_;
  LazyArray<Entry> entries_;
  LazyArray<EntryNumber> buckets_;
  const HashKey key_;
  const Clock clock_;
  std::vector<ExportUse> exports_;
  InodeNumber free_inode_list_ = 0;
  InodeNumber never_used_inode_ = 1;
  std::uint64_t free_inodes_;
  EntryNumber free_entry_list_ = 0;
  EntryNumber never_used_entry_ = 1;
  InodeNumber reclaim_head_ = 0;
};

}  // namespace sluice::service::memory
