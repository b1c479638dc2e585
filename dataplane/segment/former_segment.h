// SPDX-License-Identifier: Apache-2.0
//
// The one file of both planes that releases up to layout 18 had: it shows whether one of them still works with it.
// Setup.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "dataplane/base/file_descriptor.h"

namespace sluice::segment {

class FormerSegment {
 public:
  /// None: there is no such file. Throws SetupError: it is not a file, or another user's.
  static std::optional<FormerSegment> find(const std::string& segment);

  /// Throws SetupError where a plane lives with it; none can start with it afterwards, while this lives.
  void check() const;
  void remove() const noexcept;

 private:
  FormerSegment(std::string path, int descriptor) : path_(std::move(path)), file_(descriptor) {}
  std::string path_;
  FileDescriptor file_;
};

}  // namespace sluice::segment
