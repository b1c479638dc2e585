// SPDX-License-Identifier: Apache-2.0
//
// The two roles of one connection. Dispatches messages to a role by msg_type, never by XID (V1-157). Confined
// to one reactor.
#pragma once

#include "dataplane/rpcrdma/link/link.h"
#include "dataplane/rpcrdma/requester/requester.h"
#include "dataplane/rpcrdma/responder/responder.h"

namespace sluice::rpcrdma {

class Roles {
 public:
  Roles(Link& link, Responder& responder) : link_(link), responder_(responder) {}

  Responder& responder() noexcept { return responder_; }
  const Responder& responder() const noexcept { return responder_; }
  /// Returns the requester, or null if no calls are made on this connection.
  Requester* requester() const noexcept { return requester_; }
  void set_requester(Requester* requester) noexcept { requester_ = requester; }

  bool awaits_reply(rpc::Xid xid) const noexcept {
    return requester_ != nullptr && requester_->is_outstanding(xid);
  }
  /// Hands over a call, or a message that must be refused as one.
  void to_responder(const ReceivedMessage& message, const Refusal& refusal) noexcept {
    if (link_.config().credit_grant > 0) return responder_.on_call(message, refusal);
    ++link_.counters().direction_not_served;  // V1-171
    link_.discard(message);
  }
  void to_requester(const ReceivedMessage& message) noexcept {
    if (requester_ != nullptr) return requester_->on_reply(message);
    ++link_.counters().unknown_xid;
    link_.discard(message);
  }
  /// Handles a message whose direction is unknown. If its XID matches one of our outstanding calls, that call
  /// ends and no error is sent.
  void to_either(const ReceivedMessage& message, const Refusal& refusal) noexcept {
    if (!awaits_reply(message.header.fixed.xid)) return to_responder(message, refusal);
    requester_->on_unusable(message.header.fixed.xid);
    link_.discard(message);
  }

 private:
  Link& link_;
  Responder& responder_;
  Requester* requester_ = nullptr;
};

}  // namespace sluice::rpcrdma
