// SPDX-License-Identifier: Apache-2.0
//
// One upstream server on one reactor: has its connections and calls, looks after both from time to time, limits the
// credits of clients whose calls wait, and can be given to another upstream. Only the owning reactor may call.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "dataplane/base/paced_round.h"
#include "dataplane/gateway/tcp_upstream/upstream_calls.h"

namespace sluice::tcp_upstream {

/// A client none of whose calls could be sent for so long while some wait is granted half as much, down to one.
inline constexpr std::uint64_t kStuckNs = 500'000'000;
/// Period of halving or doubling credit limits, of looking at silent connections and of publishing gauges.
inline constexpr std::uint64_t kCreditIntervalNs = 200'000'000;
/// Calls of a connection that a turn looks at.
inline constexpr std::uint32_t kCallsInATurn = 64;

/// Calls at an upstream whose place another one takes may be answered for so long.
inline constexpr std::uint64_t kLeaveNs = 30'000'000'000;

class Upstream {
 public:
  using Counter = segment::UpstreamCounter;

  /// Setup: the upstream `number` of those that share the context. The references outlive it.
  Upstream(const UpstreamConfig& config, const UpstreamContext& context, std::uint32_t number,
           segment::UpstreamArea& area);
  Upstream(const Upstream&) = delete;
  Upstream& operator=(const Upstream&) = delete;

  UpstreamShared& shared() noexcept { return shared_; }
  UpstreamCalls& calls() noexcept { return calls_; }
  /// In each turn until it is true: nothing of the upstream is left here. Before, it gets no calls any more; those that it
  /// has are answered within kLeaveNs, or their clients disconnected.
  bool leave() noexcept;
  /// After leave(): is this upstream from now on, whose counters begin at zero.
  void become(std::string_view name, std::uint16_t port) noexcept;
  /// A call of the client is about to be submitted.
  void register_client(service::Client& client) noexcept;
  void client_gone(service::Client& client) noexcept;

  // For the reactor's loop.
  void flush() noexcept;
  /// The end of an operation of a connection of this upstream.
  void on_completion(UpstreamConnection& connection, tcp::Uring::Kind kind,
                     const tcp::Uring::Completion& end) noexcept;
  /// A bounded slice, however many clients there are.
  void background(std::uint64_t now_ns) noexcept;

 private:
  void attend_connections(std::uint64_t now_ns) noexcept;
  void look_around(std::uint64_t now_ns) noexcept;
  bool look_at(UpstreamConnection& connection, std::uint64_t now_ns, std::uint32_t& calls) noexcept;
  void look_at_client(std::uint32_t client, std::uint64_t now_ns) noexcept;
  void watch_orphans(std::uint64_t now_ns) noexcept;
  std::uint32_t next_credit_limit(std::uint32_t client, std::uint64_t now_ns) const noexcept;
  void update_credit_limit(std::uint32_t client, std::uint64_t now_ns) noexcept;
  void publish() noexcept;
  void part_from_clients() noexcept;

  UpstreamShared shared_;
  CreditLimits& credits_;
  UpstreamConnections connections_;
  UpstreamCalls calls_;

  PacedRound attention_round_{kTickNs};
  struct ClientEntry {
    service::Client* client = nullptr;  ///< null until the client's first call
    std::uint32_t credit_limit = kNoLimit;
  };
  std::vector<ClientEntry> clients_;  ///< by number
  /// What a round over all connections and clients has found so far.
  struct Found {
    std::uint32_t up = 0;
    std::uint32_t connecting = 0;
    std::uint32_t waiting = 0;      ///< calls for their connection
    std::uint32_t outstanding = 0;  ///< calls
    Admission::Waiting waiting_for_pools{};
    std::uint32_t lowest_credit_limit = kNoLimit;
  };
  PacedRound round_{kCreditIntervalNs};
  std::uint32_t next_looked_at_ = 0;  ///< connection, and client
  /// Some calls of that connection are still to be looked at. No state, because it is a part of a position.
  bool among_calls_ = false;
  Found found_;
  PacedRound orphans_round_{kCreditIntervalNs};
  std::uint64_t leaving_since_ns_ = 0;  ///< zero: it is not
  /// A leaving upstream has no calls and no clients left. No state, because the time of leaving has to
  /// stay.
  bool parted_ = false;
};

}  // namespace sluice::tcp_upstream
