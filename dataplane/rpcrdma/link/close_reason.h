// SPDX-License-Identifier: Apache-2.0
//
// Reasons for closing a connection. Any thread of either plane: the numbers are exported through the shared
// segment.
#pragma once

#include <cstdint>

namespace sluice::rpcrdma {

enum class CloseReason : std::uint8_t {
  None,
  PeerClosed,         ///< reported by connection management
  LocalClose,         ///< requested by the control plane or the application
  TransportError,     ///< a work completion with an error
  RemoteAccess,       ///< the peer's memory refused an RDMA Read or Write
  InvalidationError,  ///< memory could not be fenced (RFC 8166, section 4.5.4; V1-143)
  CreditOverrun,      ///< version 2: the peer sent more than it was granted (V2-043)
  NoAnswer,           ///< version 2: the first message was never answered (V2-015)
  SequenceTimeout,    ///< version 2: a continued message made no progress (V2-095)
  NotAuthenticated,   ///< version 2: the peer did not authenticate itself in time (V2-062)
  NoCommonVersion,    ///< version 2: the server speaks none of our versions (V2-014)
  InternalError,      ///< an internal invariant was violated
  NoProgress,         ///< a call or its reply waited too long for the peer
  Unanswerable,       ///< a call can no longer be answered; the client must retransmit it
  Silent,             ///< calls were outstanding and nothing was answered, not even a NULL call
};

/// Clause that completes "closed because ..." in logs. Static, never null.
const char* to_string(CloseReason reason) noexcept;

/// Returns true for reasons that count as an error: neither side requested the close.
constexpr bool is_failure(CloseReason reason) noexcept {
  return reason != CloseReason::None && reason != CloseReason::PeerClosed &&
         reason != CloseReason::LocalClose;
}

}  // namespace sluice::rpcrdma
