// SPDX-License-Identifier: Apache-2.0
//
// Write end of the pipe that a capture is written to. Writes do not block, even if the reader stops reading.
// Used by one thread, which has SIGPIPE blocked or ignored.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "dataplane/base/file_descriptor.h"
#include "dataplane/base/setup_error.h"

namespace sluice::process {

class CaptureOutput {
 public:
  /// Limit on pending bytes, in addition to the bytes in the pipe. At the limit, the caller stops adding.
  static constexpr std::size_t kMaxPendingBytes = 1u << 20;

  /// Takes the pipe. Throws SetupError unless it is the write end of a pipe or FIFO, because a write to
  /// anything else may block on a disk.
  explicit CaptureOutput(FileDescriptor pipe);

  /// Returns the buffer to append to.
  std::vector<std::byte>& pending() { return pending_; }
  bool full() const { return pending_.size() - written_ >= kMaxPendingBytes; }
  bool drained() const { return pending_.size() == written_; }
  /// Returns the number of bytes written to the pipe.
  std::size_t total() const { return total_; }

  enum class Outcome { Progress, Blocked, Gone };
  /// Writes as much as the pipe accepts without blocking. Gone: the pipe has no reader any longer.
  Outcome flush();
  /// Returns the descriptor for poll(), which becomes writable, or reports an error when the reader closes
  /// the pipe.
  int descriptor() const { return pipe_.get(); }

 private:
  FileDescriptor pipe_;
  std::vector<std::byte> pending_;
  std::size_t written_ = 0;  ///< bytes of pending_ that are written
  std::size_t total_ = 0;
};

}  // namespace sluice::process
