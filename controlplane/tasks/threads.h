// SPDX-License-Identifier: Apache-2.0
//
// Threads of one arena, implemented by a tbb::task_arena. The source is compiled without instrumentation
// because the library is too, so the thread sanitizer sees no order between a thread that submits work to the
// library and the thread that runs it.
#pragma once

#include <cstdint>

#include "dataplane/base/owned.h"

namespace sluice::tasks {

class Threads {
 public:
  /// Creates an arena with `count` threads. The first call sets the library's limit for all arenas,
  /// `most_of_process`.
  Threads(std::uint32_t count, std::uint32_t most_of_process);
  /// Destroys the arena without waiting. Enqueued work still runs.
  ~Threads();
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  /// Runs `call(argument)` on one of the threads. `call` must not throw. Caller and callee must provide their
  /// own synchronization.
  void enqueue(void (*call)(void*), void* argument);

 private:
  struct Arena;
  const Owned<Arena> arena_;
};

}  // namespace sluice::tasks
