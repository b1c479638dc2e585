// SPDX-License-Identifier: Apache-2.0
//
// Event loop of one reactor: polls the engine and everything that is attached to it, and decides whether an
// iteration without work spins or yields the core.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "dataplane/base/clock.h"
#include "dataplane/base/owned.h"
#include "dataplane/base/thread_owner.h"
#include "dataplane/reactor/commands.h"
#include "dataplane/reactor/config.h"
#include "dataplane/reactor/connection_setup.h"
#include "dataplane/reactor/connection_table.h"
#include "dataplane/reactor/connector.h"
#include "dataplane/reactor/properties.h"
#include "dataplane/reactor/publisher.h"
#include "dataplane/segment/config_block.h"
#include "dataplane/service/cross_reactor_call.h"
#include "pmd/device.h"

namespace sluice::cpu {

/// Pauses a polling loop briefly, which leaves the core's execution units to its sibling thread. No other
/// code depends on an architecture.
inline void pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();  // _mm_pause() of <immintrin.h>, which has 50,000 lines
#elif defined(__aarch64__)
  __asm__ volatile("yield" ::: "memory");
#endif
}

}  // namespace sluice::cpu

namespace sluice::reactor {

/// Idle time before the reactor sleeps, in ns. Sleeping delays the next packet by up to kSleepNs.
inline constexpr std::uint64_t kSpinBeforeSleepNs = 1'000'000;
inline constexpr std::uint64_t kSleepNs = 50'000;
/// Idle time before the reactor waits for a device that can wake it, in ns. It is shorter because a wake-up
/// costs about one spin period. kMaxWaitNs bounds the delay of timers and commands.
inline constexpr std::uint64_t kSpinBeforeWaitNs = 50'000;
inline constexpr std::uint64_t kMaxWaitNs = 10'000'000;

/// Behavior of a reactor after an iteration without work: it spins or yields the core. Used on the reactor's
/// thread.
class Idle {
 public:
  /// The device must outlive the object.
  Idle(segment::IdlePolicy policy, rdma::Device& device, Clock clock)
      : policy_(policy), device_(device), clock_(clock) {}

  /// Called after an iteration with work: restarts the idle time.
  void on_work() noexcept { idle_since_ns_ = 0; }
  /// Called after an iteration without work. `only_device` is true if all work arrives through the device,
  /// whose wake-up is then sufficient. Returns true if the core was yielded, false if the thread only paused.
  bool on_no_work(bool only_device) noexcept;

 private:
  const segment::IdlePolicy policy_;
  rdma::Device& device_;
  const Clock clock_;
  std::uint64_t idle_since_ns_ = 0;  ///< zero: the last iteration had work
};

/// Loop iterations between control passes. Connection management, commands, clock and counters are not on the
/// message path.
inline constexpr std::uint32_t kTurnsPerControlPass = 256;
/// Maximum interval between control passes of a reactor that sleeps and thus runs few iterations, in ns.
inline constexpr std::uint64_t kControlIntervalNs = 1'000'000;
/// Connections checked per control pass: their desired state, negotiation, use, and whether they are drained.
inline constexpr std::uint32_t kConnectionsPerPass = 64;

/// Work of the reactor's thread that is not on the message path.
class ControlTask {
 public:
  /// Called once per control pass, and once when the loop ends. Must be bounded. `now_ns` is monotonic.
  virtual void on_control_pass(std::uint64_t now_ns) noexcept = 0;

 protected:
  ~ControlTask() = default;
};

/// A polling loop on one core: an engine, further pollers, and the reactor's part of the shared segment.
/// Every member belongs to the thread that calls run(), unless stated otherwise.
class Reactor final {
 public:
  /// Called at setup. All arguments must outlive the reactor.
  Reactor(const ReactorConfig& config, rpcrdma::Engine& engine, segment::Layout& layout, Clock clock);
  Reactor(const Reactor&) = delete;
  Reactor& operator=(const Reactor&) = delete;

  // Called at setup. Added objects must outlive the reactor.
  /// Adds calls of this reactor's connections that services of another reactor serve.
  void use_remote_service(service::CrossReactorCall& call) { calls_to_others_.push_back(&call); }
  /// Adds calls of another reactor's connections that services of this reactor serve.
  void serve_remotely(service::CrossReactorCall& call) { calls_of_others_.push_back(&call); }
  /// Adds a poller that is polled in every iteration.
  void add_poller(service::Poller& poller) {
    pollers_.push_back(&poller);
    publisher_.add_poller(poller);
  }
  void add_control_task(ControlTask& task) { control_tasks_.push_back(&task); }
  /// Counts and times calls from now on. Called when the engine has all its services.
  void measure_calls();
  /// Listens at a port. Throws SetupError.
  void listen(std::uint16_t port) { connector_->listen(port); }
  /// Returns the dialer, which makes the reverse gateway's connections.
  rdma_server::Dialer& dialer() noexcept { return dialer_; }

  /// Runs the loop until stop() or a Shutdown command.
  void run() noexcept;
  /// Stops the loop. Any thread.
  void stop() noexcept { stopped_.store(true, std::memory_order_relaxed); }
  /// Returns true if the loop has been stopped. Any thread.
  bool stopped() const noexcept { return stopped_.load(std::memory_order_relaxed); }

  /// Runs one iteration. Returns true if there was work.
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
  std::uint16_t next_checked_ = 0;  ///< number of a connection

  Counters counters_;
  ConnectionTable connections_;
  Publisher publisher_;
  EventSender events_;
  ConnectionProperties properties_;
  const Owned<Connector> connector_;
  ConnectionSetup setup_;
  ServerDialer dialer_;
  Reconciler reconciler_;
  Commands commands_;
  Idle idle_;
  ThreadOwner owner_;
  std::vector<service::CrossReactorCall*> calls_to_others_;  ///< of this reactor's connections
  std::vector<service::CrossReactorCall*> calls_of_others_;  ///< for this reactor's services
  std::vector<service::Poller*> pollers_;
  std::vector<ControlTask*> control_tasks_;
};

}  // namespace sluice::reactor
