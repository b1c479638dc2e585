// SPDX-License-Identifier: Apache-2.0
//
// The configuration from its files to the data plane: read, merged with what was published before, published, changed by
// administrators, saved. What only a start brings into force waits for a data plane that starts (start_watch.h). The control
// plane's loop; from take_over() on in a turn (segment/ownership.h). Files may be anywhere, also on a server that does not
// answer: an arena reads and writes them.
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
#include "controlplane/start_watch.h"
#include "controlplane/tasks/arena.h"
#include "dataplane/base/function.h"
#include "dataplane/segment/segment.h"

namespace sluice::controlplane {

class Configuration {
 public:
  /// What a file says is published; with the keys that were read along, null where the configuration has no method.
  using Applied = Function<void(std::unique_ptr<properties::HostAuthentication>)>;

  /// All outlive it; `files` delivers nothing afterwards. It has one thread: a reload has read what was saved before it, and
  /// nothing that is saved after it gets lost.
  Configuration(config::Config config, segment::Segment& segment, segment::Layout& layout,
                events::Journal& journal, tasks::Arena& files, Applied applied);
  Configuration(const Configuration&) = delete;
  Configuration& operator=(const Configuration&) = delete;

  // --- Start
  /// Beside a data plane that runs: what it has started with stays.
  void keep_to_data_plane();
  /// Takes handle key and numbers from what was published before. Throws SetupError.
  void keep_numbers() { config_ = merged(std::move(config_)); }
  /// Publishes it.
  void take_over(std::uint64_t now_ns);

  const config::Config& current() const { return config_; }
  /// Keys of the file that are not in force before a data plane starts.
  const std::vector<std::string>& pending() const { return pending_; }
  /// Those that are not in force before another control plane starts, and need no more.
  const std::vector<std::string>& pending_control() const { return pending_control_; }
  /// A data plane starts, with which pending keys come into force: a new process of the control plane has to answer it.
  bool begins_anew() const { return begins_anew_; }
  std::uint64_t starts_answered() const { return starts_.starts_answered(); }
  /// Of the data plane, or of the last one that there was.
  segment::UpstreamPlaces upstream_places() const;

  /// Answers a data plane that starts.
  void poll(std::uint64_t now_ns);

  // As of admin::Operations. These throw config::ConfigError.
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
  StartWatch starts_;
  Reloader reloader_{files_, [this] { return begin_reload(); }};
  std::vector<std::string> pending_;
  std::vector<std::string> pending_control_;
  bool begins_anew_ = false;
  bool beside_data_plane_ = false;  ///< this control plane has found one running
};

}  // namespace sluice::controlplane
