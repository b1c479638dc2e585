// SPDX-License-Identifier: Apache-2.0
//
// Groups of methods that sluicectl calls, and the operations that they trigger. The control plane's thread,
// which never blocks in them.
#pragma once

#include <cstdint>
#include <string>

#include "controlplane/admin/paced_work.h"
#include "controlplane/admin/registry.h"
#include "controlplane/config/changes.h"
#include "controlplane/config/config.h"
#include "controlplane/events/journal.h"
#include "dataplane/base/function.h"
#include "dataplane/segment/segment.h"

namespace sluice::admin {

/// Result of a reload.
struct ReloadResult {
  config::Changes changes;
  std::string problem;  ///< one line per defect; nothing has changed then. Empty if there is none
};
/// Called when a change has been saved, with an empty string, or with the reason why it has not been saved.
using Saved = Function<void(const std::string& problem)>;
using Reloaded = Function<void(const ReloadResult&)>;

/// Operations that administrators can trigger in the control plane. The control plane implements the
/// interface; tests use a fake.
class Operations {
 public:
  /// Rereads the configuration file and applies the keys that can take effect without a restart. Calls `done`
  /// on completion, which may be before reload() returns.
  virtual void reload(Reloaded done) = 0;
  virtual void set_log_level(const std::string& level) = 0;
  /// Adds an export, or changes the export with this path. Its files are not touched. Throws
  /// config::ConfigError.
  virtual void set_export(const segment::ExportConfig& entry) = 0;
  /// Removes an export. Returns false if there is no export with this path.
  virtual bool remove_export(const std::string& path) = 0;
  /// Saves an export, or its removal if it is not in use, for reloads and restarts. Does not apply it to the
  /// running planes. Calls `done` on completion, which may be before save_export() returns.
  virtual void save_export(const segment::ExportConfig& entry, Saved done) = 0;
  /// Starts or ends draining. While draining, new connections are refused, and each existing connection is
  /// closed once it has no calls in progress.
  virtual void set_draining(bool draining) = 0;
  virtual bool draining() const = 0;
  /// Closes one connection. Returns false if there is no such connection.
  virtual bool close_connection(std::uint32_t reactor, std::uint32_t connection) = 0;
  /// Starts or stops the trace of a connection's calls. Returns false if there is no such connection.
  virtual bool trace_connection(std::uint32_t reactor, std::uint32_t connection, bool on) = 0;

 protected:
  ~Operations() = default;
};

/// Limits of the work that views of connections do in one iteration of the control loop.
struct ViewLimits {
  Pace& pace;       ///< budget for requests that are answered in the same iteration
  PacedWork& work;  ///< requests that take several iterations
};

/// Adds the methods that show the segment and the configuration in force. `layout`, `config` and the
/// members of `limits` outlive the registry.
void add_segment_views(Registry& registry, const segment::Layout& layout, const config::Config& config,
                       const ViewLimits& limits);

/// Maximum number of calls per reactor in one answer. The reader requests the rest with "next".
inline constexpr std::uint64_t kSlowCallsPerAnswer = 32;

/// Adds slow_calls, which lists calls that took longer than [observability] slow_call_ms. Clients read on
/// by the numbers of the calls. `layout` and `config` outlive the registry.
void add_slow_calls(Registry& registry, const segment::Layout& layout, const config::Config& config);

/// Adds trace_start, trace_stop and trace_read, for the calls of one connection with the time that each
/// spent in each state of its slot. `operations`, `layout` and `config` outlive the registry.
void add_trace(Registry& registry, Operations& operations, const segment::Layout& layout,
               const config::Config& config);

/// Maximum number of events in one answer, which bounds the work per request. The reader requests the next
/// events with another call.
inline constexpr std::size_t kEventsPerAnswer = 256;

/// Adds events_read, which reads the journal of events. `journal` outlives the registry.
void add_events(Registry& registry, events::Journal& journal);

/// Adds capture_start, capture_stop and capture_status. The control plane passes the writing end of a
/// client's pipe to the data plane, which writes the packets to it (segment/capture_channel.h). `layout`
/// outlives the registry. `socket` is the path of the socket on which the data plane receives capture
/// requests.
void add_capture(Registry& registry, const segment::Layout& layout, const std::string& socket);

/// Adds the methods that change something: reload, log level, exports, connections, drain. `operations`,
/// `layout` and `config` outlive the registry.
void add_changes(Registry& registry, Operations& operations, const segment::Layout& layout,
                 const config::Config& config);

}  // namespace sluice::admin
