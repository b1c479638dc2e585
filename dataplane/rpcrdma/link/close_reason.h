// SPDX-License-Identifier: Apache-2.0
//
// Why a connection has ended. Any thread of any plane: the numbers go through the shared segment.
#pragma once

#include <cstdint>

namespace sluice::rpcrdma {

enum class CloseReason : std::uint8_t {
  None,
  PeerClosed,         ///< connection management said so
  LocalClose,         ///< asked for by the control plane or the application
  TransportError,     ///< a work completion with an error
  RemoteAccess,       ///< the peer's memory refused an RDMA Read or Write
  InvalidationError,  ///< memory could not be fenced (RFC 8166, section 4.5.4; V1-143)
  CreditOverrun,      ///< version 2: the peer sent more than it was granted (V2-043)
  NoAnswer,           ///< version 2: the first message was never answered (V2-015)
  SequenceTimeout,    ///< version 2: a continued message that did not go on (V2-095)
  NotAuthenticated,   ///< version 2: the peer did not show who it is (V2-062)
  NoCommonVersion,    ///< version 2: the server speaks none of our versions (V2-014)
  InternalError,      ///< an invariant of ours did not hold
  NoProgress,         ///< a call or its reply waited too long for the peer
  Unanswerable,       ///< a call can no longer be answered: the peer has to repeat it
  Silent,             ///< calls were out, and nothing was answered, not even a NULL call
};

/// Clause that completes "closed because ..." in logs. Static, never null.
const char* to_string(CloseReason reason) noexcept;

/// Neither side asked for the end: it is counted as an error.
constexpr bool is_failure(CloseReason reason) noexcept {
  return reason != CloseReason::None && reason != CloseReason::PeerClosed &&
         reason != CloseReason::LocalClose;
}

}  // namespace sluice::rpcrdma
