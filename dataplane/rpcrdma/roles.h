// SPDX-License-Identifier: Apache-2.0
//
// The two roles of one connection, and which of them a message is for: direction follows from msg_type, never
// from the XID (V1-157). One reactor.
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
  /// Null: no calls are made on this connection.
  Requester* requester() const noexcept { return requester_; }
  void set_requester(Requester* requester) noexcept { requester_ = requester; }

  bool awaits_reply(rpc::Xid xid) const noexcept {
    return requester_ != nullptr && requester_->is_outstanding(xid);
  }
  /// A call, or an error for one.
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
  /// The message does not say whether it is a call or a reply. One that names an outstanding call of ours
  /// ends that call and is not answered.
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
