// SPDX-License-Identifier: Apache-2.0
//
// Single segment file that releases up to layout 18 had for both planes. It shows whether a plane of such a
// release still runs. Used at setup.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "dataplane/base/file_descriptor.h"

namespace sluice::segment {

class FormerSegment {
 public:
  /// Returns nullopt if there is no usable file of a former release: none at the path, not a regular file,
  /// another user's, or without the magic number.
  static std::optional<FormerSegment> find(const std::string& segment);

  /// Throws SetupError if a plane of a former release runs with this file. While this object lives, no such
  /// plane can start.
  void check() const;
  void remove() const noexcept;

 private:
  FormerSegment(std::string path, int descriptor) : path_(std::move(path)), file_(descriptor) {}
  std::string path_;
  FileDescriptor file_;
};

}  // namespace sluice::segment
