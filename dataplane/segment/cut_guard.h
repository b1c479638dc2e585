// SPDX-License-Identifier: Apache-2.0
//
// Memory of a file whose owner may cut it short at any moment, or take pages out of it where there is no room for new
// ones: who reads there is sent SIGBUS. A guard has all of its memory read as zeros from then on, which is what a part
// of the segment looks like in which nothing has happened yet. The reader goes on, and finds out later.
//
// SIGBUS for any other reason is for whoever had it before. Setup, except for was_cut().
#pragma once

#include <cstddef>

#include "dataplane/base/setup_error.h"

namespace sluice::segment {

class CutGuard {
 public:
  /// Of memory that is mapped, and stays so while it is guarded; whole pages.
  CutGuard(std::byte* memory, std::size_t bytes) noexcept : memory_(memory), bytes_(bytes) {}
  ~CutGuard() { release(); }
  CutGuard(const CutGuard&) = delete;
  CutGuard& operator=(const CutGuard&) = delete;

  /// Guards what is mapped there now. Throws SetupError.
  void guard();
  void release() noexcept;
  /// Whether it reads as zeros since guard(). Any thread.
  bool was_cut() const noexcept;

 private:
  std::byte* const memory_;
  const std::size_t bytes_;
  int place_ = -1;  ///< among those that the handler knows; negative: none
};

}  // namespace sluice::segment
