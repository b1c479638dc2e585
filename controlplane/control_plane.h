// SPDX-License-Identifier: Apache-2.0
//
// The control plane at work: everything it consists of, and what administrators can have it do. One thread,
// but for MOUNT's and the exporter's, which read the segment only.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "controlplane/admin/server.h"
#include "controlplane/cm/connection_keeper.h"
#include "controlplane/config/config.h"
#include "controlplane/config/describe.h"
#include "controlplane/mount/mount_server.h"
#include "controlplane/policy/credit_keeper.h"
#include "controlplane/properties/property_exchange.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/segment/segment.h"
#include "telemetry/exporter.h"

namespace sluice::controlplane {

class ControlPlane {
 public:
  /// Takes over the segment, or makes it. Throws SetupError and config::ConfigError.
  explicit ControlPlane(config::Config config);
  ~ControlPlane();
  ControlPlane(const ControlPlane&) = delete;
  ControlPlane& operator=(const ControlPlane&) = delete;

  /// Waits at most `timeout_ms` for administrators, and does what there is to do; false: the data plane had
  /// nothing.
  bool poll(int timeout_ms);

  const config::Config& config() const { return config_; }
  segment::Layout& layout() { return layout_; }
  const cm::ConnectionKeeper& keeper() const { return *keeper_; }
  const policy::CreditKeeper& credits() const { return *credits_; }
  const properties::PropertyExchange& exchange() const { return *exchange_; }

  // For administrators. These throw config::ConfigError.
  /// Reads the file again; what can take effect does.
  config::Changes reload();
  void set_log_level(const std::string& level);
  /// Adds an export, or changes one. Not written to the file.
  void set_export(const segment::ExportConfig& entry);
  /// False when there is none of this path.
  bool remove_export(const std::string& path);
  /// Whether the data plane has taken the newest configuration; also when there is no data plane.
  bool in_force() const;

  /// Refuses new connections and ends those there are, each when it has no call; or stops doing so.
  void set_draining(bool draining);
  bool draining() const { return keeper_->draining(); }
  /// False when there is no such connection, or the ring has no room.
  bool command(std::uint32_t reactor, std::uint32_t connection, segment::Command command);

 private:
  void publish(config::Config next);
  void drain(std::uint64_t now_ns);
  void show_statistics();
  void look_at_data_plane(std::uint64_t now_ns);
  mount::Exports mount_exports();

  config::Config config_;
  std::unique_ptr<segment::Segment> segment_;
  segment::Layout& layout_;
  std::unique_ptr<policy::CreditKeeper> credits_;
  std::unique_ptr<cm::ConnectionKeeper> keeper_;
  std::unique_ptr<properties::PropertyExchange> exchange_;
  std::unique_ptr<admin::Server> admin_;
  std::unique_ptr<telemetry::Exporter> exporter_;
  std::unique_ptr<mount::MountServer> mount_;
  std::uint32_t data_plane_pid_ = 0;
  bool data_plane_alive_ = false;
  std::uint64_t looked_ns_ = 0;
  std::uint64_t drained_ns_ = 0;
};

}  // namespace sluice::controlplane
