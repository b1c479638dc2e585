// SPDX-License-Identifier: Apache-2.0
//
// Queue between the log and its target. A thread that logs never blocks on the target of standard output,
// such as a pipe without a reader, a stopped terminal or a full disk. Lines are dropped and counted while the
// queue is full, and the log reports their number. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace sluice {

inline constexpr std::size_t kMaxQueuedLines = 4096;
inline constexpr std::size_t kMaxLineBytes = 4096;
/// Time limit for writing the queued lines when the process exits.
inline constexpr std::uint32_t kLogEndMs = 500;

class LogQueue final {
 public:
  /// Starts a thread that writes to `descriptor`. Neither closes the descriptor nor changes its flags.
  explicit LogQueue(int descriptor);
  /// Waits until the queued lines are written, at most kLogEndMs.
  ~LogQueue();
  LogQueue(const LogQueue&) = delete;
  LogQueue& operator=(const LogQueue&) = delete;

  /// Queues a line, truncated to kMaxLineBytes. Drops and counts the line if the queue is full.
  void add(std::string line);
  /// Returns the number of dropped lines.
  std::uint64_t dropped() const;
  /// Waits until the queued lines are written, at most `limit_ms`.
  void drain(std::uint32_t limit_ms);

 private:
  struct State;
  const std::shared_ptr<State> state_;  ///< shared with the thread; a blocked write may outlive the queue
};

/// Redirects the log to a new queue for standard output, and returns the queue.
std::shared_ptr<LogQueue> log_by_queue();

}  // namespace sluice
