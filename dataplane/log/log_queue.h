// SPDX-License-Identifier: Apache-2.0
//
// The log behind a queue: who logs never waits for what standard output leads to, be it a pipe that nobody reads, a terminal
// that was stopped or a disk that is full. Lines that find the queue full are dropped and counted, and the log says how many.
// Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace sluice {

inline constexpr std::size_t kMaxQueuedLines = 4096;
inline constexpr std::size_t kMaxLineBytes = 4096;
/// What is queued when a process ends has so long.
inline constexpr std::uint32_t kLogEndMs = 500;

class LogQueue final {
 public:
  /// Starts a thread that writes to `descriptor`, which stays open and has its flags as they are.
  explicit LogQueue(int descriptor);
  /// Waits for what is queued, at most kLogEndMs.
  ~LogQueue();
  LogQueue(const LogQueue&) = delete;
  LogQueue& operator=(const LogQueue&) = delete;

  /// Queues a line, of which at most kMaxLineBytes are kept, or drops and counts it.
  void add(std::string line);
  std::uint64_t dropped() const;
  /// Waits until what is queued has been written, at most `limit_ms`.
  void drain(std::uint32_t limit_ms);

 private:
  struct State;
  const std::shared_ptr<State> state_;  ///< shared with the thread, which a target that blocks keeps
};

/// Makes a queue on standard output the target of the log.
std::shared_ptr<LogQueue> log_by_queue();

}  // namespace sluice
