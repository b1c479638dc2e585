// SPDX-License-Identifier: Apache-2.0
//
// Admission control for connections: limits on their number, in total and per client, and on the rate of
// requests. While draining, every request is refused. Performs no I/O and reads no clock; single-threaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>

#include "controlplane/policy/verdicts.h"
#include "dataplane/base/net_address.h"

namespace sluice::policy {

/// Rate limit: a burst of `per_second` requests, then `per_second` of them each second.
class TokenBucket {
 public:
  bool take(std::uint32_t per_second, std::uint64_t now_ns);
  /// Returns true if the bucket would admit a full burst.
  bool full(std::uint64_t now_ns) const { return spent_until_ns_ <= now_ns; }

 private:
  std::uint64_t spent_until_ns_ = 0;
};

/// Decides on the connection requests of clients, and counts their connections.
class Admission {
 public:
  explicit Admission(const AdmissionLimits& limits) : limits_(limits) {}

  void set_limits(const AdmissionLimits& limits) { limits_ = limits; }
  void set_draining(bool draining) { draining_ = draining; }
  bool draining() const { return draining_; }

  /// Decides on a request. An admitted request counts as a connection from then on. `max_of_client` is the
  /// limit of the client's class; `now_ns` is monotonic.
  Verdict judge(const PeerAddress& client, std::uint32_t max_of_client, std::uint64_t now_ns);
  void connected(const PeerAddress& client);
  void disconnected(const PeerAddress& client);
  void forget_all();
  std::uint32_t connections() const { return total_; }
  /// Returns the number of clients with an entry: clients with connections, and clients whose recent requests
  /// count towards their rate.
  std::size_t remembered() const { return clients_.size(); }
  /// Returns the number of entries that were examined to make room for others, since the start.
  std::uint64_t looked_at() const { return looked_at_; }
  /// Returns the number of requests with this verdict since the start.
  std::uint64_t count(Verdict verdict) const { return counts_[static_cast<std::size_t>(verdict)]; }

 private:
  /// Limit of clients without connections that keep an entry for the rate of their requests.
  static constexpr std::size_t kMaxRemembered = 4096;
  /// Entries without connections that are examined per request.
  static constexpr std::size_t kForgottenAtATime = 4;
  using Key = std::array<std::uint8_t, 16>;
  struct Client {
    std::uint32_t connections = 0;
    TokenBucket requests;
    std::list<Key>::iterator quiet;  ///< position in quiet_, valid while the client has no connection
  };
  Client& entry_of(const Key& key);
  Verdict decide(const PeerAddress& client, std::uint32_t max_of_client, std::uint64_t now_ns);
  void forget_quiet(std::uint64_t now_ns);

  AdmissionLimits limits_;
  bool draining_ = false;
  std::map<Key, Client> clients_;
  std::list<Key> quiet_;  ///< clients without connections, ordered by their last request
  std::uint64_t looked_at_ = 0;
  std::uint32_t total_ = 0;
  TokenBucket requests_;
  std::array<std::uint64_t, std::size(kVerdicts)> counts_{};
};

}  // namespace sluice::policy
