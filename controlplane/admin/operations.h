// SPDX-License-Identifier: Apache-2.0
//
// Operations that administrators can trigger in the control plane. The control plane implements the
// interface; tests use a fake. Single-threaded.
#pragma once

#include <cstdint>
#include <string>

#include "controlplane/config/changes.h"
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
  /// Saves a change, so that it is applied at each restart. Does not apply it to the running planes. Calls
  /// `done` on completion, which may be before save() returns.
  virtual void save(const config::Change& change, Saved done) = 0;
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

}  // namespace sluice::admin
