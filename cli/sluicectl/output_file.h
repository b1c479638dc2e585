// SPDX-License-Identifier: Apache-2.0
//
// Output of a command: a file that it creates, a FIFO or device, or standard output. Every write is checked.
// Single-threaded.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace sluice::ctl {

class OutputFile {
 public:
  /// Opens the output. "-" means standard output. A new file is accessible to its owner only. An existing
  /// regular file is never replaced; other existing files are opened. Opening a FIFO blocks until it has a
  /// reader. Throws std::runtime_error.
  explicit OutputFile(const std::string& path);
  /// Closes the output.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  bool is_standard_output() const { return path_ == "-"; }
  /// Writes what can be written without blocking on a reader for longer than `timeout_ms`; writes to a disk
  /// may block. Returns the number of bytes written. Throws std::runtime_error.
  std::size_t write(std::span<const char> bytes, int timeout_ms);
  /// Closes the output after the last write. Throws std::runtime_error if the system reports a write error on
  /// closing.
  void close();
  /// Removes a created file that remained unused.
  void discard();

 private:
  const std::string path_;
  int fd_ = -1;
  bool created_ = false;
  bool regular_ = false;
};

}  // namespace sluice::ctl
