// SPDX-License-Identifier: Apache-2.0
//
// Owner of an object that only one thread may use. The check detects a call from another thread even if the
// calls do not overlap, which ThreadSanitizer does not report. A release build never reads the owner of an
// object of the message path, whose functions use SLUICE_INVARIANT_DEBUG. Functions off the message path use
// SLUICE_INVARIANT.
//
//   SLUICE_INVARIANT_DEBUG(owner_.is_caller(), object_owner);
#pragma once

#include "dataplane/base/invariant.h"

namespace sluice {

class ThreadOwner {
 public:
  /// Returns whether the calling thread owns the object. The first thread that calls becomes the owner.
  bool is_caller() const noexcept {
    if (thread_ == nullptr) thread_ = this_thread();
    return thread_ == this_thread();
  }
  /// Lets another thread become the owner, with its next call. Requires that no other thread calls.
  void pass_on() noexcept { thread_ = nullptr; }

 private:
  /// Returns an address that differs between all threads that exist.
  static const void* this_thread() noexcept {
    static thread_local char place = 0;
    return &place;
  }

  mutable const void* thread_ = nullptr;
};

}  // namespace sluice
