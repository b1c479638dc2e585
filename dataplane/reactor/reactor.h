// SPDX-License-Identifier: Apache-2.0
//
// One polling loop on one core: an engine, its services, and the reactor's part of the shared segment.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "dataplane/ingress/dialer.h"
#include "dataplane/reactor/property_relay.h"
#include "dataplane/rpcrdma/engine.h"
#include "dataplane/segment/segment.h"
#include "dataplane/service/handover.h"

namespace sluice::reactor {

/// Bounds of one turn's stages.
inline constexpr std::size_t kCmEventsPerTurn = 8;
inline constexpr std::size_t kCommandsPerTurn = 8;
inline constexpr std::size_t kDatagramsPerTurn = 8;
/// Turns between looks at connection management, commands, clock and counters: none of them is on the message
/// path.
inline constexpr std::uint32_t kTurnsPerHousekeeping = 256;
/// Connections that are looked at in one housekeeping: what they have negotiated, use, and whether they are
/// drained.
inline constexpr std::uint32_t kConnectionsPerLook = 64;
/// Connection requests that wait for the control plane; further ones are refused.
inline constexpr std::size_t kMaxPendingRequests = 64;

/// The server that the reverse gateway's connections go to, and how.
struct DialConfig {
  PeerAddress server;
  std::uint16_t port = 0;
  std::uint32_t inline_bytes = 4096;
  std::uint32_t credits_requested = 0;
  std::uint32_t call_backs = 0;  ///< credits for the server's own calls
};

struct ReactorConfig {
  std::uint32_t number = 0;
  std::uint32_t cpu = 0;
  std::uint32_t numa_node = 0;
  rpcrdma::ReplyChunkPolicy reply_chunks = rpcrdma::ReplyChunkPolicy::Always;
  std::uint32_t max_version = 1;
  rpcrdma::Version2Config version2;
  segment::IdlePolicy idle = segment::IdlePolicy::Spin;
  DialConfig dial{};
};

/// Monotonic nanoseconds.
using rpcrdma::Clock;

class Reactor final : public ingress::Dialer {
 public:
  /// Setup. Everything given has to outlive the reactor.
  Reactor(const ReactorConfig& config, rpcrdma::Engine& engine, segment::Layout& layout, Clock clock);
  /// Setup: calls of this reactor's that others serve, and calls of others that this one serves. They outlive
  /// it.
  void borrow_from(service::Handover& handover) { borrowed_.push_back(&handover); }
  void lend_to(service::Handover& handover) { lent_.push_back(&handover); }
  /// Setup: polled in every turn. It outlives the reactor.
  void add_poller(service::Poller& poller) { pollers_.push_back(&poller); }
  /// Called now and then from the loop, to show what services have (exports).
  std::function<void()> publish_services;

  /// Setup, when the engine has all its services: counts and times calls.
  void measure_calls() {
    engine_.measure(area_.calls, clock_);
    engine_.shared().trace = &area_.trace;
  }

  /// The loop, until stop() or a Shutdown command.
  void run() noexcept;
  /// Any thread.
  void stop() noexcept { stopped_.store(true, std::memory_order_relaxed); }
  bool stopped() const noexcept { return stopped_.load(std::memory_order_relaxed); }

  /// One turn; true when it found work.
  bool poll_once() noexcept;

  rpcrdma::Connection* dial(rpcrdma::Requester& requester, service::Service& callee) noexcept override;
  void hang_up(rpcrdma::Connection& connection) noexcept override;

 private:
  struct PendingRequest {
    bool used = false;
    bool told = false;  ///< the control plane that is there now has the event
    rdma::CmEvent event;
  };
  struct Tracked {
    bool up = false;
    bool heard_told = false;
    bool drains = false;
    bool outgoing = false;  ///< dialed
    bool untold = false;    ///< dialed; the control plane that is there now has not been asked yet
    rdma::CmId cm_id{};
    std::uint32_t peer_pid = 0;
    std::uint64_t since_ns = 0;
    std::uint32_t queue_pair = 0;
    bool negotiated_shown = false;  ///< the table has what version 2 has agreed on
    std::uint32_t version_shown = 0;
    std::array<std::byte, segment::kCmStateBytes> cm_state{};
  };

  bool housekeeping() noexcept;
  bool poll_cm() noexcept;
  bool poll_datagrams() noexcept;
  bool poll_properties() noexcept;
  static bool on_properties(void* reactor, rpcrdma::Connection& connection, std::span<const std::byte> body,
                            bool first) noexcept;
  void look_at_connections() noexcept;
  void show_negotiated(rpcrdma::Connection& connection, Tracked& tracked) noexcept;
  void tell_heard(rpcrdma::Connection& connection, Tracked& tracked) noexcept;
  void show_use(rpcrdma::Connection& connection) noexcept;
  void carry_out_on(rpcrdma::Connection& connection, const segment::Command& command) noexcept;
  rpcrdma::Connection* named(const segment::Command& command) noexcept;
  void mark_up(rpcrdma::Connection& connection) noexcept;
  void on_connect_request(const rdma::CmEvent& event) noexcept;
  void tell_pending() noexcept;
  bool tell_wanted(std::uint16_t number) noexcept;
  void on_established(const rdma::CmEvent& event) noexcept;
  segment::CommandStatus connect(const segment::Command& command, segment::Event& done) noexcept;
  rpcrdma::Connection* dialed(const segment::Command& command) noexcept;
  bool poll_commands() noexcept;
  segment::CommandStatus carry_out(const segment::Command& command, segment::Event& done) noexcept;
  segment::CommandStatus accept(const segment::Command& command) noexcept;
  segment::CommandStatus establish(const segment::Command& command, segment::Event& done) noexcept;
  rdma::QueuePair* open_connection(rpcrdma::Connection& connection, const rpcrdma::ConnectionConfig& config,
                                   const PeerAddress& peer, rpcrdma::Requester* requester) noexcept;
  rpcrdma::ConnectionConfig connection_config(const segment::Command& command) const noexcept;
  PendingRequest* find_pending(std::uint32_t cm_id) noexcept;
  rpcrdma::Connection* find_connection(rdma::CmId id) noexcept;
  void report_closed() noexcept;
  void send_event(const segment::Event& event) noexcept;
  void publish() noexcept;
  void publish_connection(std::uint32_t number) noexcept;
  void idle() noexcept;

  const ReactorConfig config_;
  rpcrdma::Engine& engine_;
  rdma::ConnectionManager* const cm_;  ///< null: connection management is the control plane's, by datagrams
  rdma::PeerProcesses* const peers_;   ///< null: not processes of this machine
  segment::Layout& layout_;
  segment::ReactorArea& area_;
  const Clock clock_;
  std::atomic<bool> stopped_{false};
  std::uint64_t now_ns_;
  std::uint32_t turns_to_housekeeping_ = 0;
  std::uint64_t kept_house_ns_ = 0;
  std::uint64_t idle_since_ns_ = 0;  ///< zero: was busy
  std::uint32_t control_plane_pid_ = 0;
  std::uint64_t started_wall_ns_;

  struct {
#define SLUICE_COUNTER_FIELD(name, group, help) std::uint64_t name = 0;
    SLUICE_REACTOR_COUNTERS(SLUICE_COUNTER_FIELD)
#undef SLUICE_COUNTER_FIELD
  } counters_;
  std::array<PendingRequest, kMaxPendingRequests> pending_{};
  std::vector<Tracked> tracked_;
  std::uint32_t next_look_ = 0;
  std::uint32_t open_ = 0;    ///< connections
  std::uint32_t untold_ = 0;  ///< connections whose Tracked::untold is set
  PropertyRelay properties_;
  std::vector<service::Handover*> borrowed_;
  std::vector<service::Handover*> lent_;
  std::vector<service::Poller*> pollers_;
};

}  // namespace sluice::reactor
