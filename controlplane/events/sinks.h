// SPDX-License-Identifier: Apache-2.0
//
// Text formats of events, and sinks that write the events of a journal outside of the log: a file of JSON
// lines, and journald. A sink reads the journal like any other reader, and writes in tasks of an arena. A
// target that blocks or is full therefore blocks no producer, and lost events are counted.
//
// In the text formats quotes, newlines, control characters and bytes that are not UTF-8 are escaped or
// replaced, so that a peer cannot break out of a field.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "controlplane/events/journal.h"
#include "controlplane/json/json.h"
#include "controlplane/tasks/arena.h"
#include "dataplane/base/file_descriptor.h"

namespace sluice::events {

/// Formats a time as in RFC 3339, in UTC, with microseconds.
std::string time_of(std::uint64_t wall_ns);
/// Formats `A connection request is refused: event=connection_refused peer=192.0.2.7 reason=too_fast`,
/// without a line end and in ASCII only.
std::string to_log_line(const Event& event);
/// Returns {"sequence", "time", "severity", "event", "fields"}, and "suppressed" if it is not zero.
Json to_json(const Event& event);
/// Formats to_json() as one line with its end, and adds "journal", which together with "sequence" identifies
/// an event uniquely.
std::string to_json_line(const Event& event, std::uint64_t journal);
/// Formats one datagram of journald's native protocol: MESSAGE, PRIORITY, SLUICE_EVENT and a SLUICE_ field
/// for each field of the event.
std::string to_journald(const Event& event);

/// Time in milliseconds for writing the remaining events at shutdown.
inline constexpr std::uint32_t kEndMs = 500;
inline constexpr const char* kJournaldSocket = "/run/systemd/journal/socket";

/// Destination of a sink, used by one task at a time. SIGPIPE must be ignored.
class Target {
 public:
  virtual ~Target() = default;
  /// Writes one event. Returns false if the event is lost.
  virtual bool write(const Event& event, std::uint64_t journal) = 0;
};

class FileTarget final : public Target {
 public:
  /// Opens the file for appending, or creates it with mode 0640. Throws SetupError.
  explicit FileTarget(std::string path);
  /// Appends a line. The rest of a partly written line is written before the next one. Reopens the path after
  /// the file was renamed, for example by logrotate.
  bool write(const Event& event, std::uint64_t journal) override;

 private:
  FileDescriptor open() const;
  void follow_path();

  const std::string path_;
  FileDescriptor file_;
  std::string rest_;  ///< unwritten rest of a line
};

class JournaldTarget final : public Target {
 public:
  /// Connects to journald. Throws SetupError if no journald runs on this host.
  explicit JournaldTarget(std::string socket = kJournaldSocket);
  bool write(const Event& event, std::uint64_t journal) override;

 private:
  const std::string path_;
  FileDescriptor socket_;
};

/// All functions but lost() are called by the thread of the arena's loop.
class Sink {
 public:
  /// Begins with the oldest event in the journal. `arena` must have one thread, and must not deliver results
  /// after the sink's destruction.
  Sink(std::shared_ptr<Journal> journal, std::unique_ptr<Target> target, tasks::Arena& arena);
  /// Allows kEndMs for the remaining events. A task whose target blocks longer keeps the state that it needs.
  ~Sink();
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;

  /// Starts a task if there are new events and the previous task has ended. Called periodically.
  void poll();
  /// Returns the number of events that were not written to the target.
  std::uint64_t lost() const;

 private:
  struct State;

  tasks::Arena& arena_;
  const std::shared_ptr<State> state_;
  bool writing_ = false;  ///< a task runs or waits
};

}  // namespace sluice::events
