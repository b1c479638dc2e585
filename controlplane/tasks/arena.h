// SPDX-License-Identifier: Apache-2.0
//
// Thread pool for blocking and slow work of the control plane, such as name lookups, file access and the
// detection of the machine's topology. Tasks run on the threads of an arena. Their results return through a
// queue to the single loop that owns the affected state, so that the loop never blocks on a network or a
// disk.
//
// An arena belongs to one loop, whose thread calls all functions of this file. At most `threads` tasks run
// at a time and at most `queued` others wait. Further tasks are refused, and the owner retries later. All
// three cases are counted.
#pragma once

#include <atomic>
#include <cstdint>

#include "dataplane/base/function.h"
#include "dataplane/base/owned.h"
#include "dataplane/base/thread_owner.h"

namespace sluice::tasks {

/// Threads of one arena, implemented by a tbb::task_arena. The source is compiled without instrumentation
/// because the library is too, so the thread sanitizer sees no order between a thread that submits work to
/// the library and the thread that runs it.
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

/// Limit of threads of all arenas in a process, on any number of processors. The library starts a thread when
/// it is needed, and keeps it.
inline constexpr std::uint32_t kMaxThreads = 4;
/// Time in milliseconds that the destructor waits for running work. Work that takes longer, for example
/// because a name server or file server does not answer, is detached; it refers to no data of the owner.
inline constexpr std::uint32_t kEndMs = 25;

struct ArenaLimits {
  std::uint32_t threads = 1;
  std::uint32_t queued = 16;
  std::uint32_t end_ms = kEndMs;
};

/// Counters of an arena. Any thread may read them.
struct ArenaStatistics {
  std::atomic<std::uint64_t> started{0};
  std::atomic<std::uint64_t> delayed{0};  ///< tasks started while all threads were busy
  std::atomic<std::uint64_t> refused{0};  ///< tasks refused because the queue was full
};

class Arena {
 public:
  /// Result of a task, called by deliver().
  using Done = Function<void()>;
  /// Task, called on a thread of the arena. It must not refer to data that may be destroyed before the
  /// process ends, unless it shares ownership, and it must not write the segment, because only the loop holds
  /// the right to write (segment/ownership.h). The returned Done may refer to the owner.
  using Work = Function<Done()>;

  /// Creates the arena. Throws SetupError. The threads of all arenas together are at most kMaxThreads.
  explicit Arena(ArenaLimits limits);
  /// Drops waiting tasks, waits up to `end_ms` for running ones, and delivers no further results.
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Starts or queues a task. Returns false if the arena is full.
  [[nodiscard]] bool start(Work work);
  /// Returns a descriptor for poll(), which is readable when there may be results to deliver.
  int descriptor() const;
  /// Calls the results of finished tasks. Rethrows exceptions of the tasks.
  void deliver();
  /// Returns the number of tasks whose results have not been delivered.
  std::uint32_t outstanding() const { return outstanding_; }
  const ArenaStatistics& statistics() const { return statistics_; }

 private:
  struct Shared;

  const ArenaLimits limits_;
  Threads threads_;
  Shared* const shared_;  ///< shared with the tasks, which may outlive the arena
  std::uint32_t outstanding_ = 0;
  ArenaStatistics statistics_;
  ThreadOwner owner_;  ///< thread of the loop
};

}  // namespace sluice::tasks
