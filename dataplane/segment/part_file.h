// SPDX-License-Identifier: Apache-2.0
//
// Files of the segment: their names, and the file of one part. For setup, and for the control plane's main
// thread, which looks for the data plane's file.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "dataplane/base/file_descriptor.h"
#include "dataplane/segment/layout.h"

namespace sluice::segment {

/// Returns the common prefix of the paths of a segment's files: below /dev/shm for a name; a path is used
/// unchanged.
std::string base_path_of(const std::string& segment);

std::size_t bytes_of(Part part) noexcept;
std::string path_of(const std::string& segment, Part part);

/// File of one part of the segment. Only its own plane opens it for writing; it outlives both planes.
class PartFile {
 public:
  enum class Access { Read, Write };

  /// Returns nullopt if there is no such file. Throws SetupError.
  static std::optional<PartFile> open(const std::string& segment, Part part, Access access);
  /// Creates a file with all of its memory allocated; no other process sees it before show(). Throws
  /// SetupError.
  static PartFile make(const std::string& segment, Part part);

  /// Gives the new file its name. Returns false if a file of that name exists. Throws SetupError.
  bool show();
  /// Removes the name of the file, if the path still leads to it.
  void unlink() noexcept;
  /// Returns whether the path still leads to this file.
  bool has_its_name() const noexcept;
  bool is_same_as(const PartFile& other) const noexcept;

  /// Returns the user that owns the file, the user of its plane.
  uid_t user() const noexcept;
  /// Returns why the file must not be used at all, such as a foreign owner; empty if it may be used.
  std::string why_untrusted() const;
  /// Returns why_untrusted(), or why the file is not this part of a segment of this layout; empty if it is.
  std::string defect() const;

  /// Fields that every version has at the same offset.
  struct Head {
    std::uint64_t magic = 0;
    std::uint32_t layout_version = 0;
    std::uint32_t pid = 0;
    std::uint64_t owner = 0;
    std::uint64_t beats = 0;
  };
  Head head() const noexcept;

  int descriptor() const noexcept { return file_.get(); }
  const std::string& path() const noexcept { return path_; }
  Part part() const noexcept { return part_; }
  bool writable() const noexcept { return access_ == Access::Write; }

 private:
  PartFile(std::string path, Part part, Access access, int descriptor)
      : path_(std::move(path)), part_(part), access_(access), file_(descriptor) {}
  std::string path_;
  Part part_;
  Access access_;
  FileDescriptor file_;
};

}  // namespace sluice::segment
