// SPDX-License-Identifier: Apache-2.0
#include "controlplane/tasks/threads.h"

#include <tbb/global_control.h>
#include <tbb/task_arena.h>

namespace sluice::tasks {

struct Threads::Arena {
  explicit Arena(std::uint32_t count) : arena(static_cast<int>(count), 0) { arena.initialize(); }
  tbb::task_arena arena;
};

Threads::Threads(std::uint32_t count, std::uint32_t most_of_process)
    : arena_(std::make_unique<Arena>(count)) {
  // Else there are as many as processors, and work that blocks needs more. The one is the caller's own.
  static const tbb::global_control control(tbb::global_control::max_allowed_parallelism, most_of_process + 1);
}

Threads::~Threads() = default;

void Threads::enqueue(void (*call)(void*), void* argument) {
  arena_->arena.enqueue([call, argument] { call(argument); });
}

}  // namespace sluice::tasks
