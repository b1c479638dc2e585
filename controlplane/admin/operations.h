// SPDX-License-Identifier: Apache-2.0
//
// What administrators can have the control plane do. The control plane implements it, tests fake it.
// One thread.
#pragma once

#include <cstdint>
#include <string>

#include "controlplane/config/changes.h"
#include "dataplane/base/function.h"
#include "dataplane/segment/segment.h"

namespace sluice::admin {

/// What came of a reload.
struct ReloadResult {
  config::Changes changes;
  std::string problem;  ///< defects, a line for each: nothing has changed. Empty: none
};
/// With why it is not saved; empty: it is.
using Saved = Function<void(const std::string& problem)>;
using Reloaded = Function<void(const ReloadResult&)>;

class Operations {
 public:
  /// Reads the configuration file again and applies what can take effect; calls `done` when it has, or at once.
  virtual void reload(Reloaded done) = 0;
  virtual void set_log_level(const std::string& level) = 0;
  /// Adds an export, or changes the one of this path; files stay as they are. Throws config::ConfigError.
  virtual void set_export(const segment::ExportConfig& entry) = 0;
  /// False when there is no export of this path.
  virtual bool remove_export(const std::string& path) = 0;
  /// Keeps a change over restarts, which is not in force by that; calls `done` when it has, or at once.
  virtual void save(const config::Change& change, Saved done) = 0;
  /// While draining, new connections are refused, and each of the others is closed once it has no call.
  virtual void set_draining(bool draining) = 0;
  virtual bool draining() const = 0;
  // Of one connection. False when there is none.
  virtual bool close_connection(std::uint32_t reactor, std::uint32_t connection) = 0;
  /// Its reactor records its calls, or no longer.
  virtual bool trace_connection(std::uint32_t reactor, std::uint32_t connection, bool on) = 0;

 protected:
  ~Operations() = default;
};

}  // namespace sluice::admin
