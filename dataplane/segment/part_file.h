// SPDX-License-Identifier: Apache-2.0
//
// The file of one part of the segment. Only the plane that it is of opens it for writing; it outlives both planes.
// Setup, and the control plane's main thread, which looks for the data plane's.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "dataplane/base/file_descriptor.h"
#include "dataplane/segment/parts.h"

namespace sluice::segment {

std::size_t bytes_of(Part part) noexcept;
std::string path_of(const std::string& segment, Part part);

class PartFile {
 public:
  enum class Access { Read, Write };

  /// None: there is no such file. Throws SetupError.
  static std::optional<PartFile> open(const std::string& segment, Part part, Access access);
  /// A new one, all of its memory allocated, that no other process sees before show(). Throws SetupError.
  static PartFile make(const std::string& segment, Part part);

  /// Gives the new file its name. False if there is a file of that name. Throws SetupError.
  bool show();
  /// Takes the name away from it.
  void unlink() noexcept;
  /// Whether the path still leads to it.
  bool has_its_name() const noexcept;
  bool is_same_as(const PartFile& other) const noexcept;

  /// Of its plane.
  uid_t user() const noexcept;
  /// Why it must not be used at all, such as that it is a stranger's; or empty.
  std::string why_untrusted() const;
  /// The same, or why it is not this part of a segment of this layout; or empty.
  std::string defect() const;

  /// What every version has at the same place.
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

/// Why an open file must not be used at all; or empty. It may be of root or of this user; of another plane's
/// user only in a folder in which strangers cannot make files, which /dev/shm is not.
std::string why_untrusted(int descriptor, const std::string& path, bool others_allowed);

}  // namespace sluice::segment
