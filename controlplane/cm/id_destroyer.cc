// SPDX-License-Identifier: Apache-2.0
#include "controlplane/cm/id_destroyer.h"

#include <pthread.h>

namespace sluice::cm {

IdDestroyer::IdDestroyer() : thread_([this] { run(); }) {
  ::pthread_setname_np(thread_.native_handle(), "cm-destroy");
}

IdDestroyer::~IdDestroyer() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  given_.notify_one();
  thread_.join();
}

void IdDestroyer::destroy(rdma_cm_id* id) {
  {
    const std::lock_guard lock(mutex_);
    ids_.push_back(id);
  }
  given_.notify_one();
}

std::size_t IdDestroyer::stuck(std::uint64_t now_ns) {
  const std::lock_guard lock(mutex_);
  if (ids_.empty() || seen_destroyed_ != destroyed_) {
    seen_destroyed_ = destroyed_;
    since_ns_ = now_ns;
    told_ = false;
  }
  if (told_ || now_ns - since_ns_ < kLongNs) return 0;
  told_ = true;
  return ids_.size();
}

void IdDestroyer::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    given_.wait(lock, [this] { return ends_ || !ids_.empty(); });
    if (ids_.empty()) return;
    rdma_cm_id* const id = ids_.front();
    lock.unlock();
    rdma_destroy_id(id);
    lock.lock();
    ids_.pop_front();
    ++destroyed_;
  }
}

}  // namespace sluice::cm
