// SPDX-License-Identifier: Apache-2.0
//
// Users of the server side that wait until something is released: a call, memory, or room in a queue. What was
// released may be of use to any of them, so each tries again, in turn and a few in each turn of the loop; who has to
// wait on is put behind. Only the owning reactor may call.
#pragma once

#include <cstdint>

#include "dataplane/base/intrusive_queue.h"
#include "dataplane/base/small_algorithms.h"

namespace sluice::rdma_server {

/// Users that try again in one turn.
inline constexpr std::uint32_t kResumedInATurn = 64;

template <typename User, QueueLink<User> User::*Link>
class ReleaseWaiters {
 public:
  /// No effect if it waits already.
  void push_back(User& user) noexcept {
    if ((user.*Link).linked()) return;
    queue_.push_back(user);
    ++count_;
  }
  /// Those that wait now are to try again.
  void on_release() noexcept { to_resume_ = count_; }
  /// Calls resume() of some of them. False: there are none to try again.
  bool resume_some() noexcept {
    const std::uint32_t some = smaller_of(to_resume_, kResumedInATurn);
    for (std::uint32_t i = 0; i < some; ++i) {
      --to_resume_;
      --count_;
      queue_.pop_front()->resume();
    }
    return some > 0;
  }

 private:
  IntrusiveQueue<User, Link> queue_;
  std::uint32_t count_ = 0;
  std::uint32_t to_resume_ = 0;  ///< the first of them
};

}  // namespace sluice::rdma_server
