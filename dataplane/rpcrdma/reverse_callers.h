// SPDX-License-Identifier: Apache-2.0
//
// Requesters for calls in the reverse direction, lent to connections that need one. Owned by the engine; one
// reactor.
#pragma once

#include <utility>
#include <vector>

#include "dataplane/base/owned.h"
#include "dataplane/rpcrdma/requester/requester.h"

namespace sluice::rpcrdma {

class ReverseCallers {
 public:
  /// Setup.
  void add(Owned<Requester> requester) {
    free_.push_back(requester.get());
    all_.push_back(std::move(requester));
  }
  /// Null when all are lent.
  Requester* acquire() noexcept {
    if (free_.empty()) return nullptr;
    Requester* const requester = free_.back();
    free_.pop_back();
    return requester;
  }
  void release(Requester& requester) noexcept { free_.push_back(&requester); }
  bool all_free() const noexcept { return free_.size() == all_.size(); }

 private:
  std::vector<Owned<Requester>> all_;
  std::vector<Requester*> free_;  ///< has had room for all of them from the start
};

}  // namespace sluice::rpcrdma
