// SPDX-License-Identifier: Apache-2.0
//
// State of a gateway's calls: changes of state, which a table checks, and the retransmission timer.
#pragma once

#include <cstdint>

#include "dataplane/base/invariant.h"
#include "dataplane/base/transition_table.h"

namespace sluice::gateway {

/// Changes `state` to `to`. A transition that the table does not allow fails an invariant.
template <typename State, State kLast>
inline void change_state(const TransitionTable<State, kLast>& table, State& state, State to) noexcept {
  static_cast<void>(SLUICE_INVARIANT(table.allows(state, to), gateway_state));
  state = to;
}

/// First retransmission timeout in nanoseconds of a call that was sent over more than one connection, that
/// the client has retransmitted, or that can be retransmitted on the same connection. Linux uses the same
/// value for NFS over TCP.
inline constexpr std::uint64_t kRetransmitNs = 60'000'000'000;
/// First retransmission timeout in nanoseconds of all other calls. Their retransmission requires a new
/// connection, and in most cases the server is only slow.
inline constexpr std::uint64_t kUnansweredNs = 5 * kRetransmitNs;
/// Maximum number of times that the timeout of a call doubles. It doubles with each retransmission.
inline constexpr std::uint8_t kMaxBackoff = 4;

/// Likelihood that the call or its reply was lost, which selects the first retransmission timeout.
enum class Loss : std::uint8_t { Unlikely, Likely };

/// Retransmission timer of one call at a server. A server with a duplicate request cache drops the
/// retransmission of a call that it still executes, and a reply can be lost with its connection. A missing
/// reply to one call is therefore ambiguous while the server answers other calls. The caller checks that the
/// server does answer other calls, because the liveness timer handles a server that answers none. The class
/// only computes; the caller passes the time.
///
/// RFC 5531, section 9 (retransmission keeps the XID); RFC 7530, section 3.1.1, and RFC 8881, section 2.9.2
/// (NFS version 4 retransmits on a new connection only). RPC-over-RDMA also retransmits on a new connection
/// only (V1-152), because a retransmission on the same connection would use a credit that no reply returns.
class RetransmissionTimer {
 public:
  /// Returns whether to retransmit a call that was last sent `age_ns` ago.
  bool expired(std::uint64_t age_ns, Loss loss) const noexcept {
    static_cast<void>(SLUICE_INVARIANT(backoff_ <= kMaxBackoff, timer_state));
    return age_ns >= (loss == Loss::Likely ? kRetransmitNs : kUnansweredNs) << backoff_;
  }
  /// Doubles the timeout, up to kMaxBackoff times.
  void back_off() noexcept {
    if (backoff_ < kMaxBackoff) ++backoff_;
  }

 private:
  std::uint8_t backoff_ = 0;
};

}  // namespace sluice::gateway
