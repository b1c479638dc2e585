// SPDX-License-Identifier: Apache-2.0
//
// Manages the configuration from its files to the data plane: reads it, merges it with the previously
// published one, publishes it, and applies and saves changes by administrators. Keys that only a start
// applies wait until a data plane starts (start_monitor.h). Runs on the control plane's loop, which must hold
// the right to write the segment from take_over() on (segment/ownership.h). Files are accessed by an arena,
// because they may be on a server that does not answer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "controlplane/admin/operations.h"
#include "controlplane/config/changes.h"
#include "controlplane/config/config.h"
#include "controlplane/events/journal.h"
#include "controlplane/properties/host_handshake.h"
#include "controlplane/reloader.h"
#include "controlplane/start_monitor.h"
#include "controlplane/tasks/arena.h"
#include "dataplane/base/function.h"
#include "dataplane/segment/segment.h"

namespace sluice::controlplane {

class Configuration {
 public:
  /// Called after the content of a file was published, with the keys that were read along. The keys are null
  /// if the configuration has no authentication method.
  using Applied = Function<void(std::unique_ptr<properties::HostAuthentication>)>;

  /// All referenced objects outlive this object. `files` must not deliver results after its destruction, and
  /// must have one thread, so that a reload reads what was saved before it, and nothing that is saved later
  /// gets lost.
  Configuration(config::Config config, segment::Segment& segment, segment::Layout& layout,
                events::Journal& journal, tasks::Arena& files, Applied applied);
  Configuration(const Configuration&) = delete;
  Configuration& operator=(const Configuration&) = delete;

  // Functions for the start, in this order. keep_to_data_plane() keeps the values that a running data plane
  // was started with.
  void keep_to_data_plane();
  /// Adopts the handle key and the indices that were published before. Throws SetupError.
  void keep_numbers() { config_ = merged(std::move(config_)); }
  /// Publishes the configuration.
  void take_over(std::uint64_t now_ns);

  const config::Config& current() const { return config_; }
  /// Returns the keys of the file that need a restart of the data plane.
  const std::vector<std::string>& pending() const { return pending_; }
  /// Returns the keys of the file that need a restart of the control plane only.
  const std::vector<std::string>& pending_control() const { return pending_control_; }
  /// Returns true if a data plane starts for which pending keys must be applied. A new process of the control
  /// plane then has to answer it.
  bool begins_anew() const { return begins_anew_; }
  std::uint64_t starts_answered() const { return starts_.starts_answered(); }
  /// Returns the upstream slots of the data plane, or of the last one.
  segment::UpstreamPlaces upstream_places() const;

  /// Answers a data plane that starts.
  void poll(std::uint64_t now_ns);

  // Operations as in admin::Operations. They throw config::ConfigError.
  void reload(admin::Reloaded done);
  void set_log_level(const std::string& level);
  void set_export(const segment::ExportConfig& entry);
  bool remove_export(const std::string& path);
  void save(const config::Change& change, const admin::Saved& done);

 private:
  Reloader::Read begin_reload();
  admin::ReloadResult apply(const config::Config& next, std::unique_ptr<properties::HostAuthentication> keys);
  config::Config merged(config::Config next) const;
  void publish(config::Config next);
  void set_pending(std::vector<std::string> keys);

  config::Config config_;
  const segment::Segment& segment_;
  segment::Layout& layout_;
  events::Journal& journal_;
  tasks::Arena& files_;
  const Applied applied_;
  StartMonitor starts_;
  Reloader reloader_{files_, [this] { return begin_reload(); }};
  std::vector<std::string> pending_;
  std::vector<std::string> pending_control_;
  bool begins_anew_ = false;
  bool beside_data_plane_ = false;  ///< a data plane was running when this control plane started
};

}  // namespace sluice::controlplane
