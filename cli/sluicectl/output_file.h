// SPDX-License-Identifier: Apache-2.0
//
// Where a command writes what it was asked for: a file that it creates, a FIFO or device, standard output. Every write
// is checked. One thread.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace sluice::ctl {

class OutputFile {
 public:
  /// "-" is standard output. Creates a file, for its owner alone; opens what is there unless that is a regular file, which
  /// is never replaced. Opening a FIFO waits for its reader. Throws std::runtime_error.
  explicit OutputFile(const std::string& path);
  /// Closes it.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  bool is_standard_output() const { return path_ == "-"; }
  /// Writes what can be written without waiting for a reader for longer than `timeout_ms`; a disk may take its time.
  /// Returns how much. Throws std::runtime_error.
  std::size_t write(std::span<const char> bytes, int timeout_ms);
  /// Everything has been written: closes it. Throws std::runtime_error if the system says now that it has not.
  void close();
  /// Takes a file back that was created for nothing.
  void discard();

 private:
  const std::string path_;
  int fd_ = -1;
  bool created_ = false;
  bool regular_ = false;
};

}  // namespace sluice::ctl
