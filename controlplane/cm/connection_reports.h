// SPDX-License-Identifier: Apache-2.0
//
// Reports connections that come up and go down, and refused requests, to the journal. The tables show which
// connections exist, but only the reactor's event contains the reason for a close. This event may arrive
// before or after the connection disappears, or be lost. Therefore the report of a closed connection is
// delayed for a short time until the event arrives. Single-threaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "controlplane/cm/connection_monitor.h"
#include "controlplane/policy/admission.h"
#include "dataplane/base/net_address.h"

namespace sluice::events {
class Journal;
}

namespace sluice::cm {

/// Time for which the report of a closed connection waits for the reactor's event.
inline constexpr std::uint64_t kReasonWaitNs = 500'000'000;

class ConnectionReports {
 public:
  /// `journal` outlives this object.
  explicit ConnectionReports(events::Journal& journal) : journal_(journal) {}

  /// Reports a client's request that admission control refused. Admission control counts it.
  void refused(const PeerAddress& peer, policy::Verdict verdict);
  /// Reports and counts a client's request that was refused for another reason. `detail` is a sentence for
  /// people, or empty.
  void refused(const PeerAddress& peer, policy::Refusal why, const std::string& detail = {});
  const policy::RefusalCounts& refusals() const { return refusals_; }
  /// Reports an own request that a server refused.
  void server_refused(const PeerAddress& server, const std::string& reason, const std::string& detail = {});
  /// Reports a connection on which the peer was heard.
  void up(std::uint32_t reactor, std::uint32_t number, const SeenConnection& seen);
  void gone(std::uint32_t reactor, std::uint32_t number, const SeenConnection& seen, std::uint64_t now_ns);
  /// Records the reason from the reactor's event. `reason` is an rpcrdma::CloseReason, or any number.
  void reason(std::uint32_t reactor, std::uint32_t incarnation, std::uint32_t reason, std::uint64_t now_ns);
  /// Reports the connections that have waited for kReasonWaitNs.
  void poll(std::uint64_t now_ns);
  std::size_t waiting() const { return waiting_.size(); }

 private:
  /// Limit of waiting entries. Beyond it, connections are reported without a reason, and reasons are dropped.
  static constexpr std::size_t kMaxWaiting = 4096;
  struct Half {
    std::uint32_t number = 0;
    SeenConnection seen{};  ///< incarnation is zero until the connection has disappeared
    const char* why = nullptr;
    std::uint64_t since_ns = 0;
  };
  using Key = std::pair<std::uint32_t, std::uint32_t>;  ///< reactor, incarnation
  void report(std::uint32_t reactor, const Half& half);

  events::Journal& journal_;
  policy::RefusalCounts refusals_{};
  std::map<Key, Half> waiting_;
};

}  // namespace sluice::cm
