// SPDX-License-Identifier: Apache-2.0
//
// Calls at an upstream whose clients have gone: what stands for them once their slots are free, until it is known
// that they have been executed or will not be. Only the owning reactor may call; only the constructor allocates.
#pragma once

#include <cstdint>
#include <vector>

#include "dataplane/gateway/tcp_upstream/forwarded_call.h"

namespace sluice::tcp_upstream {

class Orphans {
 public:
  /// Setup.
  explicit Orphans(std::uint32_t most) : calls_(most) {
    free_.reserve(most);
    for (ForwardedCall& call : calls_) free_.push_back(&call);
  }

  bool full() const noexcept { return free_.empty(); }
  bool none() const noexcept { return free_.size() == calls_.size(); }
  /// Not while full().
  ForwardedCall& take() noexcept {
    ForwardedCall& call = *free_.back();
    free_.pop_back();
    return call;
  }
  /// It is on no connection any more.
  void give_back(ForwardedCall& call) noexcept { free_.push_back(&call); }
  /// As many as there can be.
  std::uint32_t places() const noexcept { return static_cast<std::uint32_t>(calls_.size()); }
  /// Those in the next `places`, which come round.
  template <typename Visit>
  void visit_next(std::uint32_t places, Visit&& visit) noexcept {
    for (; places > 0; --places) {
      ForwardedCall& call = calls_[next_];
      next_ = next_ + 1 < calls_.size() ? next_ + 1 : 0;
      if (call.connection != nullptr) visit(call);
    }
  }

 private:
  std::vector<ForwardedCall> calls_;
  std::vector<ForwardedCall*> free_;
  std::size_t next_ = 0;
};

}  // namespace sluice::tcp_upstream
