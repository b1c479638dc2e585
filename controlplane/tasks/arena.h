// SPDX-License-Identifier: Apache-2.0
//
// Blocking and slow work of the control plane: names, files, the machine's topology. It runs on the threads of an arena;
// what comes of it goes back, through a queue, to the one loop that owns the state which it changes. So that loop never
// waits for a network or a disk.
//
// An arena belongs to one loop, whose thread calls everything here. At most `threads` tasks run at a time and at most
// `queued` others wait; what is beyond is refused, and its owner asks again later. All three are counted.
#pragma once

#include <atomic>
#include <cstdint>

#include "controlplane/tasks/threads.h"
#include "dataplane/base/function.h"

namespace sluice::tasks {

/// Of all arenas of a process together: the library keeps as many threads.
inline constexpr std::uint32_t kMaxThreads = 16;
/// How long an arena waits at its end for work that is running. Work that takes longer, as a name server or a file
/// server that does not answer makes it, is left to itself: it has nothing of its owner's.
inline constexpr std::uint32_t kEndMs = 25;

struct ArenaLimits {
  std::uint32_t threads = 1;
  std::uint32_t queued = 16;
  std::uint32_t end_ms = kEndMs;
};

/// Any thread may read them.
struct ArenaStatistics {
  std::atomic<std::uint64_t> started{0};
  std::atomic<std::uint64_t> delayed{0};  ///< of those: found all threads at work
  std::atomic<std::uint64_t> refused{0};  ///< found the queue full
};

class Arena {
 public:
  /// Called by deliver().
  using Done = Function<void()>;
  /// Called on a thread of the arena. It refers to nothing that may end before the process, unless it shares it, and does
  /// not write the segment: only the loop has a turn (segment/ownership.h). What it returns may refer to the owner.
  using Work = Function<Done()>;

  /// Throws SetupError. The threads of all arenas together are at most kMaxThreads.
  explicit Arena(ArenaLimits limits);
  /// What waits is dropped; what runs has `end_ms`. No result is delivered any more.
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// False: the arena is full.
  [[nodiscard]] bool start(Work work);
  /// For poll(): readable while there may be something to deliver.
  int descriptor() const;
  /// Calls what finished work has returned. Throws what the work has thrown.
  void deliver();
  /// Tasks whose results have not been delivered.
  std::uint32_t outstanding() const { return outstanding_; }
  const ArenaStatistics& statistics() const { return statistics_; }

 private:
  struct Shared;

  const ArenaLimits limits_;
  Threads threads_;
  Shared* const shared_;  ///< with the tasks, which may outlive the arena
  std::uint32_t outstanding_ = 0;
  ArenaStatistics statistics_;
};

}  // namespace sluice::tasks
