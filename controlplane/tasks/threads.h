// SPDX-License-Identifier: Apache-2.0
//
// The threads of one arena: a tbb::task_arena. Its source is compiled without instrumentation, as the library is: the
// thread sanitizer sees no order between a thread that hands something to the library and that which gets it.
#pragma once

#include <cstdint>

#include "dataplane/base/owned.h"

namespace sluice::tasks {

class Threads {
 public:
  /// The library has `most_of_process` threads for all arenas: as the first caller says.
  Threads(std::uint32_t count, std::uint32_t most_of_process);
  /// Waits for nothing. What is enqueued is called all the same.
  ~Threads();
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  /// Has one of the threads call `call(argument)`, which throws nothing. The two have to synchronize by themselves.
  void enqueue(void (*call)(void*), void* argument);

 private:
  struct Arena;
  const Owned<Arena> arena_;
};

}  // namespace sluice::tasks
