// SPDX-License-Identifier: Apache-2.0
//
// Queue of server-side users that wait for a release: of a call, of memory, or of room in a queue. A release
// may help any waiting user, so all of them retry in queue order, a limited number per iteration. A user that
// still has to wait rejoins the queue at the end. Callable only on the owning reactor.
#pragma once

#include <cstdint>

#include "dataplane/base/intrusive_lists.h"
#include "dataplane/base/small_algorithms.h"

namespace sluice::rdma_server {

/// Maximum number of users that retry per iteration.
inline constexpr std::uint32_t kResumedInATurn = 64;

template <typename User, QueueLink<User> User::*Link>
class ReleaseWaiters {
 public:
  /// Adds a user at the end. No effect if the user already waits.
  void push_back(User& user) noexcept {
    if ((user.*Link).linked()) return;
    queue_.push_back(user);
    ++count_;
  }
  /// Marks all users that wait now for a retry.
  void on_release() noexcept { to_resume_ = count_; }
  /// Calls resume() for a limited number of marked users. Returns false if no user is marked.
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
  std::uint32_t to_resume_ = 0;  ///< number of users at the front of the queue that are marked for a retry
};

}  // namespace sluice::rdma_server
