// SPDX-License-Identifier: Apache-2.0
//
// One upstream server on one reactor. Owns the connections and calls, checks both periodically, and limits
// the credits of clients whose calls wait. Its slot can be reassigned to another upstream. Only the owning
// reactor may call.
#pragma once

#include <cstdint>
#include <vector>

#include "dataplane/base/clock.h"
#include "dataplane/gateway/tcp_upstream/upstream_calls.h"

namespace sluice::tcp_upstream {

/// Time in nanoseconds after which a client's credit limit is halved (minimum 1) if it has waiting calls and
/// none could be sent.
inline constexpr std::uint64_t kStuckNs = 500'000'000;
/// Period in nanoseconds of updating credit limits, of checking connections for silence and of publishing
/// gauges.
inline constexpr std::uint64_t kCreditIntervalNs = 200'000'000;
/// Maximum number of calls on connections that one loop iteration checks.
inline constexpr std::uint32_t kCallsInATurn = 64;

class Upstream {
 public:
  using Counter = segment::UpstreamCounter;

  /// Setup. `number` is the slot that this object serves if an upstream in it is reached over TCP. The
  /// references outlive this object.
  Upstream(const UpstreamConfig& config, const UpstreamContext& context, std::uint32_t number,
           segment::UpstreamArea& area);
  Upstream(const Upstream&) = delete;
  Upstream& operator=(const Upstream&) = delete;

  UpstreamShared& shared() noexcept { return shared_; }
  UpstreamCalls& calls() noexcept { return calls_; }
  /// Drains the upstream, which gets no new calls. Called in each loop iteration until it returns true, when
  /// neither calls nor connections remain. Disconnects the clients of calls that are not answered within
  /// gateway::kLeaveNs.
  bool drain() noexcept;
  /// Changes the settings of the upstream. Surplus connections are closed when they have no calls.
  void apply(const UpstreamSettings& settings) noexcept;
  /// Begins to serve an upstream. Requires that none is served.
  void begin(const UpstreamSettings& settings) noexcept;
  /// Returns whether an upstream is served or drained.
  bool in_use() const noexcept { return in_use_; }
  /// Registers the client of a call that is about to be submitted.
  void register_client(service::Client& client) noexcept {
    SLUICE_INVARIANT_DEBUG(client.number() < clients_.size(), table_index);
    if (clients_[client.number()].client != &client) replace_client(client);
  }
  void client_gone(service::Client& client) noexcept;

  // The reactor's loop calls the next three functions.
  /// Settles closed connections, and submits the bytes that are queued on the others to io_uring.
  void flush() noexcept {
    calls_.settle_closed();
    while (UpstreamConnection* const connection = connections_.work.to_flush.pop_front()) connection->flush();
  }
  /// Handles the completion of an io_uring operation of a connection of this upstream.
  void on_completion(UpstreamConnection& connection, tcp::Uring::Kind kind,
                     const tcp::Uring::Completion& end) noexcept;
  /// Performs a bounded part of the periodic work, regardless of the number of clients.
  void background(std::uint64_t now_ns) noexcept;

 private:
  void replace_client(service::Client& client) noexcept;
  void attend_connections(std::uint32_t due, std::uint64_t now_ns) noexcept;
  void reconcile(std::uint32_t due) noexcept;
  bool look_at(UpstreamConnection& connection, std::uint64_t now_ns, std::uint32_t& calls) noexcept;
  void look_at_client(std::uint32_t client, std::uint64_t now_ns) noexcept;
  void watch_orphans(std::uint32_t due) noexcept;
  std::uint32_t next_credit_limit(std::uint32_t client, std::uint64_t now_ns) const noexcept;
  void update_credit_limit(std::uint32_t client, std::uint64_t now_ns) noexcept;
  void publish() noexcept;
  void detach_clients() noexcept;

  UpstreamShared shared_;
  CreditLimits& credits_;
  UpstreamConnections connections_;
  UpstreamCalls calls_;

  PacedRound attention_round_{kTickNs};
  struct ClientEntry {
    service::Client* client = nullptr;  ///< null until the client's first call
    std::uint32_t credit_limit = kNoLimit;
  };
  std::vector<ClientEntry> clients_;  ///< indexed by client number
  /// Sums of the current round over all connections and clients.
  struct Found {
    std::uint32_t up = 0;
    std::uint32_t connecting = 0;
    std::uint32_t waiting = 0;      ///< calls on connections that are not up
    std::uint32_t outstanding = 0;  ///< calls on connections that are up
    Admission::Waiting waiting_for_pools{};
    std::uint32_t lowest_credit_limit = kNoLimit;
  };
  PacedRound round_{kCreditIntervalNs};
  std::uint32_t next_looked_at_ = 0;  ///< index of the connection and of the client that are checked next
  /// True if some calls of that connection remain to be checked. This flag is not a state, because it is a
  /// part of the position.
  bool among_calls_ = false;
  Found found_;
  PacedRound orphans_round_{kCreditIntervalNs};
  bool in_use_ = false;                  ///< begin() was called, and drain() has not returned true since
  std::uint64_t draining_since_ns_ = 0;  ///< time of the first drain(); zero: not leaving
  /// True if a leaving upstream has no calls and clients left. This flag is not a state, because
  /// draining_since_ns_ is still needed.
  bool parted_ = false;
};

}  // namespace sluice::tcp_upstream
