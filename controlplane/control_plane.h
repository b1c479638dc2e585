// SPDX-License-Identifier: Apache-2.0
//
// The control plane: its parts, and the operations that administrators call. Single-threaded. NLM has its own
// thread, which only reads the segment. MOUNT, Kerberos contexts, the exporter, the status page and the
// addresses of upstreams share a thread, which writes the addresses to the segment. Every writer must hold
// the right to write (segment/ownership.h). Work that may block on a disk runs in an arena (tasks/arena.h).
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "controlplane/admin/methods.h"
#include "controlplane/admin/paced_work.h"
#include "controlplane/admin/registry.h"
#include "controlplane/admin/server.h"
#include "controlplane/cm/connection_controller.h"
#include "controlplane/cm/outbox.h"
#include "controlplane/config/config.h"
#include "controlplane/configuration.h"
#include "controlplane/events/journal.h"
#include "controlplane/events/sinks.h"
#include "controlplane/locks/lock_service.h"
#include "controlplane/mount/kerberos_contexts.h"
#include "controlplane/mount/mount_service.h"
#include "controlplane/onc_rpc/poll_thread.h"
#include "controlplane/page/status.h"
#include "controlplane/policy/client_monitor.h"
#include "controlplane/policy/credit_controller.h"
#include "controlplane/properties/property_exchange.h"
#include "controlplane/statistics.h"
#include "controlplane/tasks/arena.h"
#include "controlplane/topology.h"
#include "controlplane/upstreams/address_manager.h"
#include "dataplane/base/polled_service.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/base/thread_owner.h"
#include "dataplane/log/log_queue.h"
#include "dataplane/segment/ownership.h"
#include "dataplane/segment/segment.h"
#include "telemetry/exporter.h"

namespace sluice::controlplane {

/// Measures stalls of the control plane's loop: the time from the end of a wait to the beginning of the
/// next.
class StallClock {
 public:
  /// Minimum period that recent_ns() covers. The maximum is twice as long.
  static constexpr std::uint64_t kPeriodNs = 60'000'000'000;

  /// Records an iteration whose wait ended at `woke_ns`. Times are monotonic; a `woke_ns` of zero means that
  /// the loop has not waited yet.
  void turned(std::uint64_t woke_ns, std::uint64_t now_ns) {
    if (now_ns - period_ns_ >= kPeriodNs) {
      earlier_ns_ = now_ns - period_ns_ < 2 * kPeriodNs ? current_ns_ : 0;
      current_ns_ = 0;
      period_ns_ = now_ns;
    }
    if (woke_ns == 0 || now_ns < woke_ns) return;
    current_ns_ = larger_of(current_ns_, now_ns - woke_ns);
    longest_ns_ = larger_of(longest_ns_, current_ns_);
  }

  /// Returns the longest stall of all iterations.
  std::uint64_t longest_ns() const { return longest_ns_; }
  std::uint64_t recent_ns() const { return larger_of(current_ns_, earlier_ns_); }

 private:
  std::uint64_t longest_ns_ = 0;
  std::uint64_t current_ns_ = 0;  ///< longest stall since period_ns_
  std::uint64_t earlier_ns_ = 0;  ///< longest stall in the previous period
  std::uint64_t period_ns_ = 0;
};

class ControlPlane final : public admin::Operations {
 public:
  /// Creates the segment or takes it over. Everything that can fail is done first, so a failed start has no
  /// visible effect. Throws SetupError and config::ConfigError. `log` is null if the log has no queue.
  explicit ControlPlane(config::Config config, std::shared_ptr<LogQueue> log = {});
  /// Clears only state that this control plane owns, which is nothing if another one has taken over.
  ~ControlPlane();
  ControlPlane(const ControlPlane&) = delete;
  ControlPlane& operator=(const ControlPlane&) = delete;

  enum class Pass : std::uint8_t {
    Idle,  ///< the data plane had no events
    Busy,
    NotOurs,  ///< another control plane has taken over, and nothing was done
  };
  /// Runs one iteration over all parts. Waits at most `timeout_ms` for requests on the admin socket.
  Pass poll(int timeout_ms);

  const Configuration& configuration() const { return configuration_; }
  const config::Config& config() const { return config_; }
  segment::Layout& layout() { return layout_; }
  const cm::ConnectionController& keeper() const { return *keeper_; }
  const policy::CreditController& credits() const { return *credits_; }
  const policy::ClientMonitor& client_watch() const { return *clients_; }
  const admin::Server& admin_server() const { return *admin_; }
  events::Journal& journal() { return *journal_; }
  EventCounts event_counts() const;
  const properties::PropertyExchange& exchange() const { return *exchange_; }

  /// Returns true if there is a data plane with a current heartbeat.
  bool data_plane_alive() const;
  /// Returns true if the data plane has applied the published configuration, or if there is no data plane.
  bool in_force() const;
  /// Returns the reason to replace this process by a new one of the same program, or an empty string.
  std::string reason_for_new_process() const;

  /// Returns the arena for slow work of the loop.
  tasks::Arena& tasks() { return tasks_; }
  /// Returns the limits of the work of admin requests in one iteration.
  admin::ViewLimits admin_limits() { return {admin_pace_, admin_work_}; }

  // Operations as in admin::Operations. They throw config::ConfigError.
  void reload(admin::Reloaded done) override { changing().reload(std::move(done)); }
  void set_log_level(const std::string& level) override { changing().set_log_level(level); }
  void set_export(const segment::ExportConfig& entry) override { changing().set_export(entry); }
  bool remove_export(const std::string& path) override { return changing().remove_export(path); }
  void save_export(const segment::ExportConfig& entry, admin::Saved done) override {
    changing().save_export(entry, done);
  }
  void set_draining(bool draining) override;
  bool draining() const override { return keeper_->draining(); }
  bool close_connection(std::uint32_t reactor, std::uint32_t connection) override;
  bool trace_connection(std::uint32_t reactor, std::uint32_t connection, bool on) override;

 private:
  /// Sinks of events: a file and journald.
  static constexpr std::uint32_t kSinks = 2;
  /// Limits for slow work that clients request: one request per admin client, and one by a signal.
  static constexpr tasks::ArenaLimits kTasks{.threads = 1, .queued = admin::kMaxClients + 1};
  /// Limits for the files of the configuration (configuration.h) and of events.
  static constexpr tasks::ArenaLimits kFileTasks{.threads = 1, .queued = admin::kMaxClients + 1 + kSinks};
  static_assert(kTasks.threads + kFileTasks.threads + upstreams::kLookupThreads == tasks::kMaxThreads);

  /// Checks that the thread of the loop calls.
  void check_thread() const;
  void wait(int timeout_ms);
  Configuration& changing() { return check_thread(), configuration_; }
  void make_servers();
  void make_sinks();
  void make_page();
  void take_over();
  void reconfigure(std::unique_ptr<properties::HostAuthentication> keys);
  std::optional<std::uint32_t> incarnation_of(std::uint32_t reactor, std::uint32_t connection) const;
  void publish_statistics();
  void check_configuration();
  void keep_off_reactors();
  void look_for_data_plane(std::uint64_t now_ns);
  void notice_new_data_plane(std::uint64_t now_ns);
  void check_data_plane(std::uint64_t now_ns);

  topology::OwnProcessors own_processors_;
  const std::shared_ptr<LogQueue> log_;
  const std::shared_ptr<events::Journal> journal_;
  const std::unique_ptr<segment::ControlOwnership> ownership_;
  segment::Layout& layout_;
  cm::Outbox outbox_;
  tasks::Arena file_tasks_{kFileTasks};
  tasks::Arena tasks_{kTasks};
  Configuration configuration_;
  const config::Config& config_;  ///< current configuration of configuration_
  std::unique_ptr<policy::CreditController> credits_;
  std::unique_ptr<cm::ConnectionController> keeper_;
  std::unique_ptr<properties::PropertyExchange> exchange_;
  admin::Registry methods_;
  admin::Pace admin_pace_;
  admin::PacedWork admin_work_;
  std::vector<std::unique_ptr<events::Sink>> sinks_;
  std::unique_ptr<admin::Server> admin_;
  telemetry::PendingKeys pending_keys_;
  std::unique_ptr<telemetry::Exporter> exporter_;
  std::unique_ptr<page::PageServer> page_;
  onc_rpc::PollThread services_{"services"};  ///< polls the HTTP servers, MOUNT, contexts and the addresses
  std::list<onc_rpc::PollThread::Attachment> sites_;
  std::unique_ptr<upstreams::AddressManager> addresses_;
  std::unique_ptr<policy::ClientMonitor> clients_;
  std::unique_ptr<mount::MountServer> mount_;
  std::unique_ptr<kerberos::ContextServer> contexts_;
  std::unique_ptr<locks::LockServer> locks_;
  std::uint32_t data_plane_epoch_ = 0;
  bool data_plane_alive_ = false;
  std::uint64_t checked_ns_ = 0;
  std::uint64_t sampled_ns_ = 0;
  bool data_part_replaced_ = false;
  std::uint64_t data_parts_cut_ = 0;
  std::string data_part_problem_;  ///< problem that was logged last
  PollSet waited_;                 ///< descriptors of the last wait()
  std::uint64_t woke_ns_ = 0;  ///< end of the last wait(), or its deadline if that was earlier; zero: none
  StallClock stalls_;
  upstreams::UpstreamMonitor reach_;
  DeviceMonitor devices_;
  std::uint64_t generation_told_ = 0;
  ThreadOwner loop_;  ///< thread that polls
};

/// Adds all methods that sluicectl calls, and connects each with the part of the control plane that it shows
/// or changes. `plane` outlives the registry.
void add_admin_methods(admin::Registry& registry, ControlPlane& plane);

}  // namespace sluice::controlplane
