// SPDX-License-Identifier: Apache-2.0
//
// Retransmission timer of one call at a server. A server with a duplicate request cache drops a retransmission of a
// call that it still executes, and a reply can be lost with its connection, so that silence about one call
// says nothing while the server answers others. The caller checks that it does: a server that answers nothing
// is the liveness timer's business. Arithmetic only; the clock is the caller's.
//
// RFC 5531, section 9 (retransmission keeps the XID); RFC 7530, section 3.1.1, and RFC 8881, section 2.9.2 (NFS
// version 4 retransmits on a new connection only). RPC-over-RDMA does so too (V1-152): on the same connection a
// retransmission would use a credit that no reply returns.
#pragma once

#include <cstdint>

namespace sluice::gateway {

/// First retransmission timeout of a call that may have been dropped: it has been sent over more than one
/// connection, its client has retransmitted it, or a retransmission costs no connection. Linux's for NFS over TCP.
inline constexpr std::uint64_t kRetransmitNs = 60'000'000'000;
/// First retransmission timeout of other calls, whose retransmission costs the connection: the server is slow in most cases.
inline constexpr std::uint64_t kUnansweredNs = 5 * kRetransmitNs;
/// A timeout doubles with each retransmission, this many times at most.
inline constexpr std::uint8_t kMaxBackoff = 4;

/// Whether a retransmission may repair the loss of a call at little cost.
enum class Loss : std::uint8_t { Unlikely, Likely };

class RetransmissionTimer {
 public:
  /// Returns whether to retransmit a call that was last sent `age_ns` ago.
  bool expired(std::uint64_t age_ns, Loss loss) const noexcept {
    return age_ns >= (loss == Loss::Likely ? kRetransmitNs : kUnansweredNs) << backoff_;
  }
  void back_off() noexcept {
    if (backoff_ < kMaxBackoff) ++backoff_;
  }

 private:
  std::uint8_t backoff_ = 0;
};

}  // namespace sluice::gateway
