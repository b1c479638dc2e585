// SPDX-License-Identifier: Apache-2.0
#include "controlplane/cm/id_destroyer.h"

#include <pthread.h>
#include <rdma/rdma_cma.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

namespace sluice::cm {

struct IdDestroyer::Shared {
  void run() {
    std::unique_lock lock(mutex);
    while (true) {
      given.wait(lock, [this] { return ends || !ids.empty(); });
      if (ids.empty()) return;
      rdma_cm_id* const id = ids.front();
      lock.unlock();
      rdma_destroy_id(id);
      lock.lock();
      ids.pop_front();
      ++destroyed;
    }
  }

  std::mutex mutex;
  std::condition_variable given;
  std::deque<rdma_cm_id*> ids;  ///< the first one is being destroyed
  std::uint64_t destroyed = 0;
  bool ends = false;
  std::thread thread{[this] { run(); }};
};

IdDestroyer::IdDestroyer() : shared_(make_owned<Shared>()) {
  ::pthread_setname_np(shared_->thread.native_handle(), "cm-destroy");
}

IdDestroyer::~IdDestroyer() {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->ends = true;
  }
  shared_->given.notify_one();
  shared_->thread.join();
}

void IdDestroyer::destroy(rdma_cm_id* id) {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->ids.push_back(id);
  }
  shared_->given.notify_one();
}

std::size_t IdDestroyer::stuck(std::uint64_t now_ns) {
  const std::lock_guard lock(shared_->mutex);
  if (shared_->ids.empty() || seen_destroyed_ != shared_->destroyed) {
    seen_destroyed_ = shared_->destroyed;
    since_ns_ = now_ns;
    told_ = false;
  }
  if (told_ || now_ns - since_ns_ < kLongNs) return 0;
  told_ = true;
  return shared_->ids.size();
}

}  // namespace sluice::cm
