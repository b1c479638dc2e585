// SPDX-License-Identifier: Apache-2.0
//
// Values that the owner of a file system publishes for reactors that read it: attributes of inodes, states of
// names, and roots of exports.
//
// A change opens each inode and each name that it touches, and publish() closes them when the call is
// complete, inodes first. A reader that meets an open one lets the owner execute the call, which waits there
// until the change is complete. So a client that was answered finds the change on every reactor, and nobody
// waits in a loop.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "dataplane/base/cache_line.h"
#include "dataplane/base/invariant.h"
#include "dataplane/base/owned.h"
#include "dataplane/base/seqlock.h"
#include "dataplane/base/store_point.h"
#include "dataplane/service/memory/inode.h"

namespace sluice::service::memory {

/// Maximum inodes that one call changes: RENAME changes two directories, the object, and the one it replaces.
inline constexpr std::size_t kMaxChangedInodes = 4;
/// Maximum names that one call changes: RENAME removes the replaced entry and the old one, and adds one.
inline constexpr std::size_t kMaxChangedNames = 3;
/// Number of words that show changes of names. Each stands for several buckets of the hash table.
inline constexpr std::uint32_t kNameStates = 4096;

/// Identity of an export's root, for file handles.
struct PublishedRoot {
  InodeNumber root = 0;     ///< zero: the export has never been in use
  std::uint64_t token = 0;  ///< FileHandle::token of the root
};

/// Values that readers load. Written by the owner only.
class Publication {
 public:
  static constexpr std::size_t kBytesPerInode = 2 * kCacheLine;

  /// Called at setup; throws SetupError. `inodes` is the number of inodes, with number zero.
  explicit Publication(std::size_t inodes) : inodes_(inodes), names_(kNameStates) {}

  // --- Functions of the owner

  /// Notes that the inode changes until publish().
  void open(InodeNumber number) noexcept {
    for (std::size_t i = 0; i < changed_count_; ++i)
      if (changed_[i] == number) return;
    if (!SLUICE_INVARIANT(changed_count_ < changed_.size(), table_index)) return;
    changed_[changed_count_++] = number;
    inodes_[number].value.open();
  }
  /// Notes that entries of the bucket change until publish().
  void open_name(std::uint32_t bucket) noexcept {
    const std::uint32_t state = bucket % kNameStates;
    for (std::size_t i = 0; i < name_count_; ++i)
      if (changed_names_[i] == state) return;
    if (!SLUICE_INVARIANT(name_count_ < changed_names_.size(), table_index)) return;
    changed_names_[name_count_++] = state;
    // The stores of the entries follow with release order, so a reader that sees one sees the odd number.
    names_[state].store(names_[state].load(std::memory_order_relaxed) | 1, std::memory_order_relaxed);
    SLUICE_STORE_POINT();
  }
  /// Publishes all changed inodes, then closes the names. `inodes` is indexed by inode number.
  void publish(const LazyArray<Inode>& inodes) noexcept {
    SLUICE_INVARIANT_DEBUG(changed_count_ <= changed_.size() && name_count_ <= changed_names_.size(),
                           table_index);
    for (std::size_t i = 0; i < changed_count_; ++i) inodes_[changed_[i]].value.write(inodes[changed_[i]]);
    changed_count_ = 0;
    SLUICE_STORE_POINT();
    for (std::size_t i = 0; i < name_count_; ++i) {
      std::atomic<std::uint32_t>& name = names_[changed_names_[i]];
      // Pairs with name(): the entries, and the inodes that they name.
      name.store(name.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    }
    name_count_ = 0;
  }
  /// Returns whether an inode or a name is open.
  bool is_open() const noexcept { return changed_count_ + name_count_ > 0; }
  void publish_root(std::uint32_t export_id, const PublishedRoot& root) noexcept {
    SLUICE_INVARIANT_DEBUG(export_id < roots_.size(), table_index);
    roots_[export_id].write(root);
  }

  // --- Functions of the readers, in any reactor

  /// Reads the attributes of an inode, and their number for is_unchanged(). Returns false if they are being
  /// changed.
  [[nodiscard]] bool read(InodeNumber number, FileAttributes& attributes,
                          std::uint32_t& sequence) const noexcept {
    SLUICE_LOAD_POINT();
    return inodes_[number].value.read_once(attributes, sequence);
  }
  /// Returns whether the attributes, and the map of blocks that they name, have not changed since read().
  bool is_unchanged(InodeNumber number, std::uint32_t sequence) const noexcept {
    SLUICE_LOAD_POINT();
    return inodes_[number].value.is_unchanged(sequence);
  }
  /// Returns the state of the names in a bucket, which differs after each change and is odd during one.
  std::uint32_t name(std::uint32_t bucket) const noexcept {
    // Pairs with publish(): the entries, and the inodes that they name.
    return names_[bucket % kNameStates].load(std::memory_order_acquire);
  }
  /// Returns whether the names in a bucket have this state. What was read since by acquire loads then belongs
  /// to it.
  bool name_is(std::uint32_t bucket, std::uint32_t state) const noexcept {
    SLUICE_LOAD_POINT();
    return names_[bucket % kNameStates].load(std::memory_order_relaxed) == state;
  }
  [[nodiscard]] bool read_root(std::uint32_t export_id, PublishedRoot& root) const noexcept {
    std::uint32_t sequence = 0;
    return roots_[export_id].read_once(root, sequence);
  }

 private:
  /// Two cache lines that no other inode shares.
  struct alignas(2 * kCacheLine) PublishedInode {
    SeqLock<FileAttributes> value;
  };
  static_assert(sizeof(PublishedInode) == kBytesPerInode);

  LazyArray<PublishedInode> inodes_;
  LazyArray<std::atomic<std::uint32_t>> names_;
  std::array<SeqLock<PublishedRoot>, kMaxExports> roots_{};
  std::array<InodeNumber, kMaxChangedInodes> changed_{};
  std::array<std::uint32_t, kMaxChangedNames> changed_names_{};
  std::size_t changed_count_ = 0;
  std::size_t name_count_ = 0;
};

/// Inodes of a file system, which can only be changed by change(). Owner only.
class InodeTable {
 public:
  /// Called at setup; throws SetupError.
  explicit InodeTable(std::size_t count) : inodes_(count) {}

  std::size_t size() const noexcept { return inodes_.size(); }
  const Inode& operator[](InodeNumber number) const noexcept { return inodes_[number]; }
  /// Returns an inode for a change, which readers see after publish().
  Inode& change(InodeNumber number) noexcept {
    if (publication_) publication_->open(number);
    return inodes_[number];
  }
  /// Opens the names of a bucket for a change, which readers see after publish().
  void change_name(std::uint32_t bucket) noexcept {
    if (publication_) publication_->open_name(bucket);
  }
  /// Publishes what has been changed.
  void publish() noexcept {
    if (publication_ && publication_->is_open()) publication_->publish(inodes_);
  }
  bool is_published() const noexcept { return !publication_ || !publication_->is_open(); }

  /// Publishes all inodes below `end` for the first time, and each change from now on. Called at setup.
  Publication& start_publication(InodeNumber end) {
    if (publication_) return *publication_;
    publication_ = make_owned<Publication>(inodes_.size());
    for (InodeNumber number = 1; number < end; ++number) {
      change(number);
      publish();
    }
    return *publication_;
  }
  /// Returns null if no reactor but the owner's reads the files.
  Publication* publication() noexcept { return publication_.get(); }

 private:
  LazyArray<Inode> inodes_;
  Owned<Publication> publication_;
};

}  // namespace sluice::service::memory
