// SPDX-License-Identifier: Apache-2.0
#include "controlplane/tasks/arena.h"

#include <pthread.h>
#include <tbb/global_control.h>
#include <tbb/task_arena.h>

namespace sluice::tasks {
namespace {

/// Raises the library's thread limit before the first arena is constructed. By default the library uses one
/// thread per processor, but blocking work needs more. The additional thread is the caller's own.
std::uint32_t allowed(std::uint32_t count, std::uint32_t most_of_process) {
  static const tbb::global_control control(tbb::global_control::max_allowed_parallelism, most_of_process + 1);
  return count;
}

}  // namespace

struct Threads::Arena {
  explicit Arena(std::uint32_t count) : arena(static_cast<int>(count), 0) { arena.initialize(); }
  tbb::task_arena arena;
};

Threads::Threads(std::uint32_t count, std::uint32_t most_of_process)
    : arena_(make_owned<Arena>(allowed(count, most_of_process))) {}

Threads::~Threads() = default;

void Threads::enqueue(void (*call)(void*), void* argument) {
  arena_->arena.enqueue([call, argument] {
    // The library's threads inherit the name of the thread that needed them first.
    thread_local const int named = ::pthread_setname_np(::pthread_self(), "tasks");
    static_cast<void>(named);
    call(argument);
  });
}

}  // namespace sluice::tasks
