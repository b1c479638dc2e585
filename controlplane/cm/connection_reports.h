// SPDX-License-Identifier: Apache-2.0
//
// Reports to the journal: connections that come up and go down, and requests that are refused. Which connections there are
// follows from the tables. Only the reactor's event says why one has ended. That event may come before or after the
// connection is gone, or be lost, so a connection that is gone waits for it for a short time. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "controlplane/cm/connection_watch.h"
#include "controlplane/policy/refusal.h"
#include "controlplane/policy/verdict.h"
#include "dataplane/base/net_address.h"

namespace sluice::events {
class Journal;
}

namespace sluice::cm {

/// How long a connection that is gone waits for the reactor to say why.
inline constexpr std::uint64_t kReasonWaitNs = 500'000'000;

class ConnectionReports {
 public:
  /// `journal` outlives it.
  explicit ConnectionReports(events::Journal& journal) : journal_(journal) {}

  /// A client's request, by admission, which counts it.
  void refused(const PeerAddress& peer, policy::Verdict verdict);
  /// A client's request, by all others. `detail` is a sentence for people, or empty.
  void refused(const PeerAddress& peer, policy::Refusal why, const std::string& detail = {});
  const policy::RefusalCounts& refusals() const { return refusals_; }
  /// Our request, by a server.
  void server_refused(const PeerAddress& server, const std::string& reason, const std::string& detail = {});
  /// Its peer was heard.
  void up(std::uint32_t reactor, std::uint32_t number, const SeenConnection& seen);
  void gone(std::uint32_t reactor, std::uint32_t number, const SeenConnection& seen, std::uint64_t now_ns);
  /// The reactor's event. `reason` is an rpcrdma::CloseReason, or any number.
  void reason(std::uint32_t reactor, std::uint32_t incarnation, std::uint32_t reason, std::uint64_t now_ns);
  /// Reports those that have waited long enough.
  void turn(std::uint64_t now_ns);
  std::size_t waiting() const { return waiting_.size(); }

 private:
  /// At most so many wait; what is beyond is reported without a reason, or its reason is dropped.
  static constexpr std::size_t kMaxWaiting = 4096;
  struct Half {
    std::uint32_t number = 0;
    SeenConnection seen{};  ///< incarnation zero: it is not gone yet
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
