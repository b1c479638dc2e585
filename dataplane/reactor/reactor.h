// SPDX-License-Identifier: Apache-2.0
//
// One polling loop on one core: an engine, what it polls beside it, and the reactor's part of the shared
// segment. Every member belongs to the thread that calls run(), unless it says otherwise.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "dataplane/base/owned.h"
#include "dataplane/reactor/commands.h"
#include "dataplane/reactor/config.h"
#include "dataplane/reactor/connection_properties.h"
#include "dataplane/reactor/connection_setup.h"
#include "dataplane/reactor/connection_table.h"
#include "dataplane/reactor/connector.h"
#include "dataplane/reactor/follower.h"
#include "dataplane/reactor/idle.h"
#include "dataplane/reactor/publisher.h"
#include "dataplane/reactor/server_dialer.h"
#include "dataplane/service/handover.h"

namespace sluice::reactor {

/// Turns between control passes: connection management, commands, clock and counters are not on the message
/// path.
inline constexpr std::uint32_t kTurnsPerControlPass = 256;
/// A reactor that sleeps makes few turns: it runs a control pass at least this often.
inline constexpr std::uint64_t kControlIntervalNs = 1'000'000;
/// Connections that are looked at in one control pass: what is wanted of them, what they have negotiated, their use,
/// whether they are drained.
inline constexpr std::uint32_t kConnectionsPerPass = 64;

/// Work of the reactor's thread that is not on the message path.
class ControlTask {
 public:
  /// Once in every control pass, and once when the loop ends. Bounded. `now_ns` is monotonic.
  virtual void on_control_pass(std::uint64_t now_ns) noexcept = 0;

 protected:
  ~ControlTask() = default;
};

class Reactor final {
 public:
  /// Setup. Everything given outlives the reactor.
  Reactor(const ReactorConfig& config, rpcrdma::Engine& engine, segment::Layout& layout, Clock clock);
  Reactor(const Reactor&) = delete;
  Reactor& operator=(const Reactor&) = delete;

  // Setup. What is added outlives the reactor.
  /// Calls of this reactor's connections that another one's services serve.
  void borrow_from(service::Handover& handover) { borrowed_.push_back(&handover); }
  /// Calls of another reactor's connections that services here serve.
  void lend_to(service::Handover& handover) { lent_.push_back(&handover); }
  /// Polled in every turn.
  void add_poller(service::Poller& poller) {
    pollers_.push_back(&poller);
    publisher_.add_poller(poller);
  }
  void add_control_task(ControlTask& task) { control_tasks_.push_back(&task); }
  /// When the engine has all its services: counts and times calls from here on.
  void measure_calls();
  /// Throws SetupError.
  void listen(std::uint16_t port) { connector_->listen(port); }
  /// Makes the reverse gateway's connections.
  rdma_server::Dialer& dialer() noexcept { return dialer_; }

  /// The loop, until stop() or a Shutdown command.
  void run() noexcept;
  /// Any thread.
  void stop() noexcept { stopped_.store(true, std::memory_order_relaxed); }
  /// Any thread.
  bool stopped() const noexcept { return stopped_.load(std::memory_order_relaxed); }

  /// One turn; true when it found work.
  bool poll_once() noexcept;

 private:
  bool poll_services() noexcept;
  bool poll_upstreams() noexcept;
  bool control_pass() noexcept;
  void publish() noexcept;
  void announce_requests() noexcept;
  void check_connections() noexcept;
  void idle() noexcept;

  rpcrdma::Engine& engine_;
  segment::Layout& layout_;
  segment::ReactorArea& area_;
  const Clock clock_;
  std::atomic<bool> stopped_{false};
  std::uint64_t now_ns_;
  std::uint32_t turns_to_control_pass_ = 0;
  std::uint64_t last_control_pass_ns_ = 0;
  std::uint32_t control_plane_epoch_ = 0;
  std::uint16_t next_checked_ = 0;  ///< connection

  Counters counters_;
  ConnectionTable connections_;
  Publisher publisher_;
  EventSender events_;
  ConnectionProperties properties_;
  const Owned<Connector> connector_;
  ConnectionSetup setup_;
  ServerDialer dialer_;
  Follower follower_;
  Commands commands_;
  Idle idle_;
  std::vector<service::Handover*> borrowed_;
  std::vector<service::Handover*> lent_;
  std::vector<service::Poller*> pollers_;
  std::vector<ControlTask*> control_tasks_;
};

}  // namespace sluice::reactor
