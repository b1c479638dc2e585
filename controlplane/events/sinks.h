// SPDX-License-Identifier: Apache-2.0
//
// Where the events of a journal go besides the log: a file of JSON lines, and journald. Each has a thread that reads the
// journal as others do: a target that blocks, or is full, keeps nobody waiting, and what it loses is counted.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "controlplane/events/journal.h"
#include "dataplane/base/file_descriptor.h"

namespace sluice::events {

/// For what is not written at the end.
inline constexpr std::uint32_t kEndMs = 500;
inline constexpr const char* kJournaldSocket = "/run/systemd/journal/socket";

/// Used by the thread of its sink alone.
class Target {
 public:
  virtual ~Target() = default;
  /// False: it is lost.
  virtual bool write(const Event& event, std::uint64_t journal) = 0;
};

class FileTarget final : public Target {
 public:
  /// Opens the file to append to it, or creates it (mode 0640). Throws SetupError.
  explicit FileTarget(std::string path);
  /// A line that could be written in part goes on with the next one. Follows the path when the file is renamed, as logrotate
  /// does.
  bool write(const Event& event, std::uint64_t journal) override;

 private:
  FileDescriptor open() const;
  void follow_path();

  const std::string path_;
  FileDescriptor file_;
  std::string rest_;  ///< of a line
};

class JournaldTarget final : public Target {
 public:
  /// Throws SetupError when no journald runs here.
  explicit JournaldTarget(std::string socket = kJournaldSocket);
  bool write(const Event& event, std::uint64_t journal) override;

 private:
  const std::string path_;
  FileDescriptor socket_;
};

class Sink {
 public:
  /// Begins with the journal's first event that is there.
  Sink(std::shared_ptr<Journal> journal, std::unique_ptr<Target> target);
  /// Stops the journal. What is not written yet has kEndMs; a target that blocks longer keeps its thread, with what that needs.
  ~Sink();
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;

  /// Events that did not get there.
  std::uint64_t lost() const;

 private:
  struct State;

  const std::shared_ptr<State> state_;
};

}  // namespace sluice::events
