// SPDX-License-Identifier: Apache-2.0
//
// Manages the configuration from its files to the data plane: reads it, merges it with the previously
// published one, publishes it, and applies and saves changes by administrators. Keys that only a start
// applies wait until a data plane starts. Runs on the control plane's loop, which must hold the right to
// write the segment from take_over() on (segment/ownership.h). Files are accessed by an arena, because they
// may be on a server that does not answer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "controlplane/admin/methods.h"
#include "controlplane/config/changes.h"
#include "controlplane/config/config.h"
#include "controlplane/events/journal.h"
#include "controlplane/locks/lock_service.h"
#include "controlplane/mount/exports.h"
#include "controlplane/mount/nfs_listener.h"
#include "controlplane/mount/statistics.h"
#include "controlplane/properties/host_handshake.h"
#include "controlplane/tasks/arena.h"
#include "dataplane/base/function.h"
#include "dataplane/segment/segment.h"

namespace sluice::controlplane {

/// Reloads of the configuration, one at a time. Files are read in an arena, and the loop applies the
/// result. Requests that arrive during a read are answered by the next read, because the current one may
/// have read an older file. Runs on the thread of the arena's loop.
class Reloader {
 public:
  /// Applies what was read. Called on the loop.
  using Apply = Function<admin::ReloadResult()>;
  /// Reads files on a thread of the arena, with its own copies only (Arena::Work). Must not throw; a defect
  /// is part of the result of the returned function.
  using Read = Function<Apply()>;
  /// Prepares a read. Called on the loop.
  using Begin = Function<Read()>;

  /// `arena` outlives this object, and must not deliver results after its destruction.
  Reloader(tasks::Arena& arena, Begin begin);
  Reloader(const Reloader&) = delete;
  Reloader& operator=(const Reloader&) = delete;

  /// Requests a reload. `done` is called with the result, or before this function returns if the arena is
  /// full.
  void request(admin::Reloaded done);

 private:
  void start();
  void finish(const admin::ReloadResult& result);

  tasks::Arena& arena_;
  const Begin begin_;
  std::vector<admin::Reloaded> reading_;  ///< requests that the current read answers; empty without one
  std::vector<admin::Reloaded> next_;
};

/// Decides how to answer a data plane that starts, which requests its configuration and waits
/// (dataplane/process/start.h). If no key has changed that only a start applies, it gets the published
/// configuration. Otherwise the control plane has to be restarted as well, because its own parts have sizes
/// and addresses from the same keys. It reads the files before that, so that a file that is just being
/// written does not end it.
class StartMonitor {
 public:
  /// `layout` outlives this object.
  explicit StartMonitor(segment::Layout& layout) : layout_(layout) {}

  /// Sets whether keys have changed that only a start applies.
  void set_changed(bool changed) { changed_ = changed; }

  enum class Step : std::uint8_t {
    Nothing,
    Answer,    ///< publish the configuration, then call answered()
    Read,      ///< read the files, then call has_read()
    BeginAnew  ///< a new process of the control plane answers
  };
  Step poll(std::uint64_t now_ns);
  void has_read(bool usable);
  /// Records that the published configuration is for the data plane with the most recent request.
  void answered();
  std::uint64_t starts_answered() const { return starts_answered_; }

 private:
  /// Timeout for reading the files. It only expires if a disk or server does not answer. The data plane then
  /// starts with the published configuration.
  static constexpr std::uint64_t kReadNs = 5'000'000'000;
  enum class Files : std::uint8_t { NotRead, Reading, Usable, Unusable };

  segment::Layout& layout_;
  std::uint64_t asked_ = 0;  ///< last value of start_asked
  std::uint64_t starts_answered_ = 0;
  bool changed_ = false;
  Files files_ = Files::NotRead;
  std::uint64_t reading_since_ns_ = 0;
};

/// Returns true if a data plane runs that has received its configuration.
bool data_plane_has_started(const segment::Segment& segment, const segment::Layout& layout);

/// The configuration in force, with the operations that change it.
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
  void save_export(const segment::ExportConfig& entry, const admin::Saved& done);

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

/// Returns the exports for MOUNT. NFSv3 clients use this MOUNT service for exports in memory, an upstream,
/// and the server of [reverse] alike. The result may be moved to MOUNT's thread. `layout` and `statistics`
/// outlive it.
std::unique_ptr<mount::Exports> mount_exports(const segment::ConfigBlock& block,
                                              const segment::Layout& layout,
                                              mount::MountStatistics& statistics);

/// Returns the listener of the reverse gateway, which is registered with rpcbind while the data plane runs.
/// Returns none without [reverse]. `layout` outlives the result.
std::optional<mount::NfsListener> nfs_listener(const segment::ConfigBlock& block,
                                               const segment::Layout& layout);

/// Returns the settings for locks at the upstream of NFSv3, which the configuration must have. `layout`
/// outlives the lock service.
locks::LockSettings lock_settings(const config::Config& config, const segment::Layout& layout);

}  // namespace sluice::controlplane
