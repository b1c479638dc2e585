// SPDX-License-Identifier: Apache-2.0
//
// Walk from the root of an export to a directory below it, a few names at a time, so that a long path does
// not hold up the calls of the reactor. Only the owner of the file system may use it; it never allocates.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/service/memory/filesystem.h"

namespace sluice::service::memory {

inline constexpr std::size_t kMaxWalkBytes = 1024;
inline constexpr int kNamesPerSlice = 16;

class PathWalk {
 public:
  explicit PathWalk(const FileSystem& fs) noexcept : fs_(fs) {}

  /// Starts a walk. `path` is relative to the root of the export and has at most kMaxWalkBytes. Slashes
  /// around a name are ignored.
  void start(std::uint32_t export_id, std::string_view path) noexcept {
    static_cast<void>(SLUICE_INVARIANT(export_id < fs_.export_count(), table_index));
    std::memcpy(path_.data(), path.data(), smaller_of(path.size(), path_.size()));
    bytes_ = smaller_of(path.size(), path_.size());
    at_ = 0;
    root_ = fs_.root(export_id);
    go_to(root_);
    status_ = path.size() > kMaxWalkBytes ? Status::NameTooLong : Status::Ok;
  }

  /// Ends the walk before its first name, with the result that the directory does not exist.
  void refuse() noexcept { status_ = Status::NoEnt; }

  /// Follows up to kNamesPerSlice names. Returns true when the walk has ended; status() and directory() are
  /// then valid.
  bool slice() noexcept {
    static_cast<void>(SLUICE_INVARIANT(at_ <= bytes_ && bytes_ <= path_.size(), buffer_bounds));
    // A directory that was removed between two slices may have given its inode to another file.
    if (fs_.inode(directory_).generation != generation_) status_ = Status::NoEnt;
    for (int i = 0; i < kNamesPerSlice && status_ == Status::Ok; ++i) {
      const std::string_view name = next_name();
      if (name.empty()) return true;
      status_ = follow(name);
    }
    return status_ != Status::Ok;
  }

  Status status() const noexcept { return status_; }
  InodeNumber directory() const noexcept { return directory_; }

 private:
  std::string_view next_name() noexcept {
    while (at_ < bytes_ && path_[at_] == '/') ++at_;
    const std::size_t begin = at_;
    while (at_ < bytes_ && path_[at_] != '/') ++at_;
    return {path_.data() + begin, at_ - begin};
  }

  /// Follows one name. The parent of the root is outside of the export. Symbolic links belong to clients and
  /// are not followed.
  Status follow(std::string_view name) noexcept {
    if (name == ".") return Status::Ok;
    if (name == "..") {
      if (directory_ == root_) return Status::NoEnt;
      go_to(fs_.inode(directory_).parent);
      return Status::Ok;
    }
    if (name.size() > kMaxNameBytes) return Status::NameTooLong;
    const EntryNumber entry = fs_.lookup(directory_, name);
    if (entry == 0) return Status::NoEnt;
    const InodeNumber found = fs_.entry(entry).inode.own();
    if (fs_.inode(found).type != FileType::Directory) return Status::NotDir;
    go_to(found);
    return Status::Ok;
  }

  void go_to(InodeNumber number) noexcept {
    directory_ = number;
    generation_ = fs_.inode(number).generation;
  }

  const FileSystem& fs_;
  std::array<char, kMaxWalkBytes> path_{};
  std::size_t bytes_ = 0;
  std::size_t at_ = 0;
  InodeNumber root_ = 0;
  InodeNumber directory_ = 0;
  std::uint32_t generation_ = 0;
  Status status_ = Status::NoEnt;
};

}  // namespace sluice::service::memory
