// SPDX-License-Identifier: Apache-2.0
//
// Admission control for connections: limits on their number, in total and per client, and on the rate of
// requests. While draining, every request is refused. The file also has the other reasons for refusing a
// client's request. Performs no I/O and reads no clock; single-threaded.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <list>
#include <map>

#include "dataplane/base/net_address.h"

namespace sluice::policy {

// X(name, text). Texts are for people.
#define SLUICE_VERDICTS(X)                                          \
  X(Admit, "admitted")                                              \
  X(TooManyConnections, "too many connections")                     \
  X(TooManyOfClient, "too many connections of this client")         \
  X(TooFast, "too many connection requests")                        \
  X(TooFastOfClient, "too many connection requests of this client") \
  X(Draining, "the appliance is being drained")

enum class Verdict : std::uint8_t {
#define SLUICE_VERDICT(name, what) name,
  SLUICE_VERDICTS(SLUICE_VERDICT)
#undef SLUICE_VERDICT
};
inline constexpr const char* kVerdicts[] = {
#define SLUICE_VERDICT(name, what) what,
    SLUICE_VERDICTS(SLUICE_VERDICT)
#undef SLUICE_VERDICT
};
/// Names for programs, as label values of a metric and fields of events and of the status.
inline constexpr const char* kVerdictNames[] = {"admitted", "too_many_connections", "too_many_of_client",
                                                "too_fast", "too_fast_of_client",   "draining"};
static_assert(std::size(kVerdictNames) == std::size(kVerdicts));
inline const char* name_of(Verdict verdict) {
  return kVerdictNames[static_cast<std::size_t>(verdict)];
}
inline const char* to_string(Verdict verdict) {
  return kVerdicts[static_cast<std::size_t>(verdict)];
}

struct AdmissionLimits {
  std::uint32_t max_connections = 0;
  std::uint32_t max_requests_per_second = 0;
  std::uint32_t max_requests_per_second_per_client = 0;
};

// X(enumerator, name, cm::RejectReason, text). Names are for programs, as label values of a metric and fields
// of events and of the status. Texts are for people.
#define SLUICE_REFUSALS(X)                                                                                  \
  X(InvalidServiceId, invalid_service_id, InvalidServiceId, "no service at this port")                      \
  X(InvalidTransport, invalid_transport_service_type, InvalidTransportServiceType,                          \
    "not for a reliable connection")                                                                        \
  X(UnsupportedRequest, unsupported_request, UnsupportedRequest, "without IP addressing")                   \
  X(InvalidPathMtu, invalid_path_mtu, InvalidPathMtu, "a path MTU above that of the port")                  \
  X(StaleConnection, stale_connection, StaleConnection, "the client's queue pair already had a connection") \
  X(HalfOpenOfClient, half_open_of_client, NoResources, "too many unconfirmed requests of this client")     \
  X(HalfOpen, half_open, NoResources, "too many unconfirmed requests")                                      \
  X(NoPlace, no_place, NoResources, "the table of connections was full")                                    \
  X(NotConfirmed, not_confirmed, Timeout, "admitted, but the client did not confirm the connection")        \
  X(NotMadeInTime, not_made_in_time, Timeout, "admitted, but the data plane did not answer in time")        \
  X(NoRoomInDataPlane, no_room_in_data_plane, NoResources,                                                  \
    "admitted, but the data plane had no free connection")                                                  \
  X(FailedInDataPlane, failed_in_data_plane, NoResources, "admitted, but the data plane could not connect") \
  X(DataPlaneReplaced, data_plane_replaced, NoResources, "admitted, but the data plane was replaced")       \
  X(NoReactor, no_reactor, Consumer, "no reactor polls the device's port")                                  \
  X(NoAttributes, no_attributes, Consumer, "the kernel provides no attributes for the queue pair")

enum class Refusal : std::uint8_t {
#define SLUICE_REFUSAL(enumerator, name, reason, text) enumerator,
  SLUICE_REFUSALS(SLUICE_REFUSAL)
#undef SLUICE_REFUSAL
};

struct RefusalInfo {
  const char* name;
  const char* text;
};
inline constexpr RefusalInfo kRefusals[] = {
#define SLUICE_REFUSAL(enumerator, name, reason, text) {#name, text},
    SLUICE_REFUSALS(SLUICE_REFUSAL)
#undef SLUICE_REFUSAL
};
inline constexpr std::size_t kRefusalCount = std::size(kRefusals);

constexpr const RefusalInfo& info_of(Refusal refusal) noexcept {
  return kRefusals[static_cast<std::size_t>(refusal)];
}

/// Number of requests refused since the start, indexed by reason.
using RefusalCounts = std::array<std::uint64_t, kRefusalCount>;

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
