// SPDX-License-Identifier: Apache-2.0
//
// Pool of requesters for calls in the reverse direction, assigned to connections on demand. Owned by the
// engine; confined to one reactor.
#pragma once

#include <utility>
#include <vector>

#include "dataplane/base/owned.h"
#include "dataplane/rpcrdma/requester/requester.h"

namespace sluice::rpcrdma {

class ReverseCallers {
 public:
  /// Adds a requester at setup.
  void add(Owned<Requester> requester) {
    free_.push_back(requester.get());
    all_.push_back(std::move(requester));
  }
  /// Returns a free requester, or null if all are assigned.
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
  std::vector<Requester*> free_;  ///< never reallocates: add() has made room for all of them
};

}  // namespace sluice::rpcrdma
