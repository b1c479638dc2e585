// SPDX-License-Identifier: Apache-2.0
//
// Truncation guard for a mapped file. The owner of the file may truncate it at any moment, or remove pages
// from it while the file system has no memory for new ones; a read of such a page raises SIGBUS. From then
// on, all guarded memory reads as zeros, like a part of the segment in which nothing has happened yet. The
// reader continues and detects the truncation later with was_truncated().
//
// A SIGBUS for any other reason goes to the previous handler. All functions are for setup, except
// was_truncated().
#pragma once

#include <cstddef>

#include "dataplane/base/setup_error.h"

namespace sluice::segment {

class TruncationGuard {
 public:
  /// Guards memory of whole pages that is mapped and remains mapped while it is guarded.
  TruncationGuard(std::byte* memory, std::size_t bytes) noexcept : memory_(memory), bytes_(bytes) {}
  ~TruncationGuard() { release(); }
  TruncationGuard(const TruncationGuard&) = delete;
  TruncationGuard& operator=(const TruncationGuard&) = delete;

  /// Guards the current mapping. Throws SetupError.
  void guard();
  void release() noexcept;
  /// Returns whether the memory has been replaced by zeros since guard(). Any thread.
  bool was_truncated() const noexcept;

 private:
  std::byte* const memory_;
  const std::size_t bytes_;
  int place_ = -1;  ///< index in the handler's table; negative: not guarded
};

}  // namespace sluice::segment
