// SPDX-License-Identifier: Apache-2.0
#include "dataplane/rpcrdma/link/close_reason.h"

namespace sluice::rpcrdma {

const char* to_string(CloseReason reason) noexcept {
  switch (reason) {
    case CloseReason::None:
      return "it has not been closed";
    case CloseReason::PeerClosed:
      return "the peer ended it";
    case CloseReason::LocalClose:
      return "we ended it";
    case CloseReason::TransportError:
      return "of an error of the transport";
    case CloseReason::RemoteAccess:
      return "the peer's memory refused an access";
    case CloseReason::InvalidationError:
      return "memory could not be fenced";
    case CloseReason::CreditOverrun:
      return "the peer sent more than it was granted";
    case CloseReason::NoAnswer:
      return "the first message was not answered";
    case CloseReason::SequenceTimeout:
      return "a continued message did not go on";
    case CloseReason::NotAuthenticated:
      return "the peer did not show who it is";
    case CloseReason::NoCommonVersion:
      return "there is no common version of RPC-over-RDMA";
    case CloseReason::InternalError:
      return "of an error of our own";
    case CloseReason::NoProgress:
      return "the peer did not go on with a call";
    case CloseReason::Unanswerable:
      return "a call could not be answered, and has to be repeated";
    case CloseReason::Silent:
      return "the server answered no calls";
  }
  return "?";
}

}  // namespace sluice::rpcrdma
