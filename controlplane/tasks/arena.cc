// SPDX-License-Identifier: Apache-2.0
#include "controlplane/tasks/arena.h"

#include <sys/eventfd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "dataplane/base/file_descriptor.h"
#include "dataplane/base/invariant.h"
#include "dataplane/base/setup_error.h"

namespace sluice::tasks {
namespace {

/// Counter of submitted tasks. It is written before a task is passed to the library and read after it, so
/// that the thread sanitizer sees the order (threads.h).
std::atomic<std::uint64_t> handed_over{0};
/// Threads of all existing arenas.
std::atomic<std::uint32_t> threads_in_use{0};

std::uint32_t reserved(std::uint32_t threads) {
  if (threads_in_use.fetch_add(threads) + threads <= kMaxThreads) return threads;
  threads_in_use.fetch_sub(threads);
  throw std::logic_error("The arenas of a process have more than kMaxThreads threads.");
}

}  // namespace

/// State shared by the arena and its tasks. The arena and each pending call of run_one() hold one reference;
/// the last holder deletes the state.
struct Arena::Shared {
  Shared() : wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  void let_go() {
    if (holders.fetch_sub(1) == 1) delete this;
  }
  void add(Work work);
  /// Runs the oldest waiting task, if there is one. The queue is empty after the arena has ended. Called on a
  /// thread of the arena.
  void run_one();
  /// Takes the oldest result. Returns false if there is none.
  bool take_result(Done& done);
  void end(std::uint32_t wait_ms);

  const FileDescriptor wake;
  std::atomic<std::uint32_t> holders{1};
  std::mutex mutex;  ///< guards all of the following
  std::condition_variable idle;
  // start() admits a limited number of tasks, which bounds both queues.
  std::deque<Work> waiting;
  std::deque<Done> results;
  std::uint32_t running = 0;
};

void Arena::Shared::add(Work work) {
  const std::lock_guard lock(mutex);
  waiting.push_back(std::move(work));
  holders.fetch_add(1);
}

void Arena::Shared::run_one() {
  Work work;
  {
    const std::lock_guard lock(mutex);
    if (waiting.empty()) return;
    work = std::move(waiting.front());
    waiting.pop_front();
    ++running;
  }
  Done done;
  try {
    done = work();
  } catch (...) {
    done = [thrown = std::current_exception()] { std::rethrow_exception(thrown); };
  }
  work = nullptr;
  const std::lock_guard lock(mutex);
  --running;
  idle.notify_all();
  results.push_back(std::move(done));
  ::eventfd_write(wake.get(), 1);
}

bool Arena::Shared::take_result(Done& done) {
  const std::lock_guard lock(mutex);
  if (results.empty()) return false;
  done = std::move(results.front());
  results.pop_front();
  return true;
}

void Arena::Shared::end(std::uint32_t wait_ms) {
  std::unique_lock lock(mutex);
  waiting.clear();
  idle.wait_for(lock, std::chrono::milliseconds(wait_ms), [this] { return running == 0; });
  results.clear();
}

Arena::Arena(ArenaLimits limits)
    : limits_(limits), threads_(reserved(limits.threads), kMaxThreads), shared_(new Shared) {
  if (!shared_->wake) {
    shared_->let_go();
    threads_in_use.fetch_sub(limits_.threads);
    throw SetupError("No file descriptor is left for the wake-up of a loop. Raise LimitNOFILE.");
  }
}

Arena::~Arena() {
  shared_->end(limits_.end_ms);
  shared_->let_go();
  threads_in_use.fetch_sub(limits_.threads);
}

bool Arena::start(Work work) {
  static_cast<void>(SLUICE_INVARIANT(owner_.is_caller(), object_owner));
  if (outstanding_ == limits_.threads + limits_.queued) {
    ++statistics_.refused;
    return false;
  }
  if (outstanding_ >= limits_.threads) ++statistics_.delayed;
  ++outstanding_;
  ++statistics_.started;
  shared_->add(std::move(work));
  // Pairs with the load of `handed_over` in the task: its work.
  handed_over.fetch_add(1, std::memory_order_release);
  threads_.enqueue(
      [](void* argument) {
        handed_over.load(std::memory_order_acquire);  // pairs with start(): the work
        auto* const shared = static_cast<Shared*>(argument);
        shared->run_one();
        shared->let_go();
      },
      shared_);
  return true;
}

int Arena::descriptor() const {
  return shared_->wake.get();
}

void Arena::deliver() {
  static_cast<void>(SLUICE_INVARIANT(owner_.is_caller(), object_owner));
  eventfd_t ignored = 0;
  ::eventfd_read(shared_->wake.get(), &ignored);
  Done done;
  for (std::uint32_t most = outstanding_; most > 0 && shared_->take_result(done); --most) {
    --outstanding_;
    if (done) done();
  }
}

}  // namespace sluice::tasks
