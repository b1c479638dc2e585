// SPDX-License-Identifier: Apache-2.0
//
// Records of the file system of the memory exports: file handles, inodes and directory entries.
//
// One reactor owns the records and changes them. Other reactors read the published part of an inode (see
// publication.h) and the words of an entry that are atomic. Sizes in bytes, times in ns since 1970; errors
// are nfsstat3.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

#include "dataplane/base/invariant.h"
#include "dataplane/base/siphash.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/base/store_point.h"
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
/// Number of 64-bit words that hold a name.
inline constexpr std::size_t kNameWords = (kMaxNameBytes + 7) / 8;
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

/// Part of an inode that every reactor may read. The owner publishes it after each change.
struct FileAttributes {
  std::uint32_t generation;
  FileType type;
  bool small;  ///< the data, at most kSmallBytes, is in one small block
  std::uint16_t mode;
  std::uint32_t uid;
  std::uint32_t gid;
  std::uint32_t links;
  std::uint32_t export_id;
  InodeNumber parent;  ///< parent of a directory
  Block map_root;      ///< small block of kRootEntries map pages
  std::uint64_t size;
  std::uint64_t used_bytes;
  std::uint64_t atime_ns;
  std::uint64_t mtime_ns;
  std::uint64_t ctime_ns;
  std::uint32_t device_major;
  std::uint32_t device_minor;
  std::array<Block, kDirectBlocks> direct;
};

/// An inode. The members after the attributes belong to the owner alone.
struct Inode : FileAttributes {
  bool exclusive;                 ///< create_verifier is valid
  InodeNumber next;               ///< next in the list of free inodes
  std::uint64_t create_verifier;  ///< verifier of an exclusive CREATE
  EntryNumber entry_root;         ///< directory: root of the treap of its entries
  std::uint32_t entries;
  std::uint64_t next_sequence;
};

/// A word of a directory entry or of a bucket, which other reactors load while the owner may be storing it.
template <typename T>
class EntryWord {
 public:
  /// Stores a value. Owner only.
  void store(T value) noexcept {
    value_.store(value, std::memory_order_release);  // pairs with load(): the name is open
  }
  /// Returns the value. Any reactor; it is valid if the state of the name has not changed since before.
  T load() const noexcept {
    SLUICE_LOAD_POINT();
    return value_.load(std::memory_order_acquire);  // pairs with store(): the name is open
  }
  /// Returns the value. Owner only.
  T own() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<T> value_;
};

/// A directory entry. Entries of one directory form a treap (Seidel, Aragon: "Randomized search trees", 1996)
/// ordered by `sequence`, the order of creation, so that READDIR resumes in O(log n) even if the entry of its
/// cookie was removed.
///
/// Other reactors follow the chains of the hash table. The owner changes a chain only while the name is open
/// (see Publication::open_name()).
struct Entry {
  EntryWord<InodeNumber> directory;
  EntryWord<InodeNumber> inode;
  EntryWord<EntryNumber> hash_next;  ///< also links the free list
  EntryNumber left;
  EntryNumber right;
  EntryNumber parent;
  std::uint32_t priority;
  EntryWord<std::uint32_t> name_bytes;
  std::uint64_t sequence;
  std::array<EntryWord<std::uint64_t>, kNameWords> name;  ///< bytes in the order of memory

  /// Returns the name. Owner only.
  std::string_view name_view() const noexcept {
    return {reinterpret_cast<const char*>(name.data()), name_bytes.own()};
  }
  /// Stores a name of at most kMaxNameBytes. Owner only.
  void set_name(std::string_view text) noexcept {
    SLUICE_INVARIANT_DEBUG(text.size() <= kMaxNameBytes, buffer_bounds);
    for (std::size_t at = 0, word = 0; at < text.size(); at += sizeof(std::uint64_t), ++word)
      name[word].store(word_of(text, at));
    name_bytes.store(static_cast<std::uint32_t>(text.size()));
  }
  /// Returns whether the entry has this name. Any reactor; see EntryWord::load().
  bool is_named(std::string_view text) const noexcept {
    if (name_bytes.load() != text.size()) return false;
    for (std::size_t at = 0, word = 0; at < text.size(); at += sizeof(std::uint64_t), ++word)
      if (name[word].load() != word_of(text, at)) return false;
    return true;
  }
  std::uint64_t cookie() const noexcept { return sequence; }

 private:
  /// Returns up to eight bytes of the text, padded with zeros.
  static std::uint64_t word_of(std::string_view text, std::size_t at) noexcept {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + at, smaller_of(sizeof word, text.size() - at));
    return word;
  }
};

}  // namespace sluice::service::memory
