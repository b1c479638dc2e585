// SPDX-License-Identifier: Apache-2.0
//
// The writing end of the pipe that a capture goes to. It never blocks, whatever its reader does. One thread, which has
// SIGPIPE blocked or ignored.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "dataplane/base/file_descriptor.h"
#include "dataplane/base/setup_error.h"

namespace sluice::process {

class CaptureOutput {
 public:
  /// Waits for the reader at most, besides what the pipe holds. Then the caller adds no more.
  static constexpr std::size_t kMaxPendingBytes = 1u << 20;

  /// Throws SetupError unless it is the writing end of a pipe or FIFO: a write to anything else may wait for a disk.
  explicit CaptureOutput(FileDescriptor pipe);

  /// Where to append.
  std::vector<std::byte>& pending() { return pending_; }
  bool full() const { return pending_.size() - written_ >= kMaxPendingBytes; }
  bool drained() const { return pending_.size() == written_; }
  /// Bytes that the pipe has taken.
  std::size_t total() const { return total_; }

  enum class Outcome { Progress, Blocked, Gone };
  /// Writes what the pipe takes now. Gone: nobody reads it any more.
  Outcome flush();
  /// For poll(): becomes writable, or in error when its reader goes away.
  int descriptor() const { return pipe_.get(); }

 private:
  FileDescriptor pipe_;
  std::vector<std::byte> pending_;
  std::size_t written_ = 0;  ///< of pending_
  std::size_t total_ = 0;
};

}  // namespace sluice::process
