// SPDX-License-Identifier: Apache-2.0
//
// State of one call forwarded to an upstream, stored in service::Call::state(). Only the owning reactor may
// call.
#pragma once

#include <cstdint>

#include "dataplane/base/invariant.h"
#include "dataplane/gateway/call_state.h"
#include "dataplane/gateway/tcp_upstream/duplicate_request_cache.h"
#include "dataplane/service/api/service.h"
#include "dataplane/tcp/streams.h"

namespace sluice::tcp_upstream {

class UpstreamConnection;
class Upstream;
class ForwardService;

/// Memory that the reply of a call may need before it can be delivered. It is acquired before the call is
/// sent.
enum class ReplyNeed : std::uint8_t {
  None,    ///< no memory: the reply is delivered from the stream's buffer
  Item,    ///< one of ReplyMemory's short buffers
  Record,  ///< one of ReplyMemory's long buffers
};
inline constexpr std::size_t kReplyNeeds = 3;

struct ForwardedCall {
  enum class State : std::uint8_t {
    None,            ///< not executed yet, or finished
    AwaitingXid,     ///< waits for an earlier call, its client's share of numbers and memory, or a connection
    AwaitingReplay,  ///< waits as in AwaitingXid, but `entry` already has its reply
    AwaitingSend,    ///< waits for its connection to come up, or for room in its send queue
    Sending,         ///< the send queue refers to its message, which has to stay in place
    AwaitingReply,   ///< sent, or copied into the send queue
    Replied,         ///< the send queue refers to its message, and its reply is in `memory`
    Held,            ///< its reply is in `memory` until the transport has room for the results
    GivenUp,    ///< as Sending, but expired, without a connected client, or with a reply that is too long
    Discarded,  ///< as Replied, but expired or without a connected client
  };
  State state;          ///< changed only by transition()
  bool own_connection;  ///< sent on the connection dedicated to its client, not on a shared one
  bool keeps_xid;       ///< sent with the client's XID, because RPCSEC_GSS signs it
  bool in_session;      ///< in a session of NFS 4.1 or later, which the upstream accepts on any connection
  /// True if the call was on a connection that was lost. This flag is not a state, because it selects the
  /// retransmission timeout of a call that has been sent since.
  bool resent;
  /// True if the call counts as RequestHost::earlier. This flag is not a state, because an orphan in any
  /// state may stop counting.
  bool earlier;
  bool announces_sizes : 1;  ///< the reply may announce sizes, and is not encrypted
  bool tells_withheld : 1;   ///< the reply may announce withheld features, and is not encrypted
  std::uint8_t failures;  ///< number of connections that were lost while this call was alone in a probe batch
  gateway::RetransmissionTimer retransmission;
  ReplyNeed need;
  service::Repetition repetition;
  std::uint8_t procedure;  ///< procedure number; set only if the program's handles have tags
  std::uint32_t xid;
  std::uint32_t record_bytes;  ///< size of the reply in `memory` while Replied or Held
  std::uint32_t
      probe_batch;  ///< number of the connection's probe batch in which the call was sent; zero: none
  std::uint32_t handle_tag;            ///< tag of its handles on the client side; zero: no tag
  service::Call* call;                 ///< null: an orphan, which the upstream may still execute
  std::span<const std::byte> message;  ///< message to send; empty for an orphan whose message was not kept
  RequestHost* host;
  DuplicateRequestCache::Entry* entry;  ///< null: a retransmission of the call need not be recognised
  ForwardService* service;
  UpstreamConnection* connection;
  ForwardedCall* next;
  ForwardedCall* previous;
  /// Buffer for `need`, held until the call is released. Null if there is none or if it is lent to the
  /// connection's stream.
  std::byte* memory;
  std::uint64_t begun_ns;
  std::uint64_t sent_ns;  ///< time of the last transmission; zero: never sent

  void transition(State to) noexcept;
  /// Returns whether the call waits for its admission.
  bool awaits_admission() const noexcept {
    return state == State::AwaitingXid || state == State::AwaitingReplay;
  }
  /// Returns whether the call counts as a call of its client that was never sent.
  bool unsent() const noexcept {
    return awaits_admission() || (state == State::AwaitingSend && sent_ns == 0);
  }
  /// Returns whether at least a part of the call was sent and no reply has been received.
  bool at_upstream() const noexcept {
    return state == State::Sending || state == State::AwaitingReply || state == State::GivenUp;
  }
  /// Returns whether a reply to the call will be delivered.
  bool awaits_reply() const noexcept { return state == State::Sending || state == State::AwaitingReply; }
  /// Returns whether the send queue refers to the call's message.
  bool in_send_queue() const noexcept {
    return state == State::Sending || state == State::Replied || given_up();
  }
  /// Returns whether the call ends when the send queue releases its message.
  bool given_up() const noexcept { return state == State::GivenUp || state == State::Discarded; }
  /// Gives up a call to which the send queue refers.
  void give_up() noexcept { transition(state == State::Replied ? State::Discarded : State::GivenUp); }
  /// Returns whether the call is long or its reply may be long.
  bool has_long_message() const noexcept {
    return need == ReplyNeed::Record || message.size() > tcp::kMaxCopiedBytes;
  }
};

using CallTransitions = TransitionTable<ForwardedCall::State, ForwardedCall::State::Discarded>;
/// Successors of each state of a forwarded call.
inline constexpr CallTransitions kCallTransitions = [] {
  using enum ForwardedCall::State;
  return CallTransitions{
      {AwaitingXid},                                          // None
      {None, AwaitingReplay, AwaitingSend},                   // AwaitingXid
      {None, Held},                                           // AwaitingReplay
      {None, Sending, AwaitingReply},                         // AwaitingSend
      {None, AwaitingSend, AwaitingReply, Replied, GivenUp},  // Sending
      {None, AwaitingXid, AwaitingSend, Held},                // AwaitingReply (AwaitingXid if refused)
      {None, Held, Discarded},                                // Replied
      {None},                                                 // Held
      {None, AwaitingReply},                                  // GivenUp (AwaitingReply for an orphan)
      {None},                                                 // Discarded
  };
}();

inline void ForwardedCall::transition(State to) noexcept {
  gateway::change_state(kCallTransitions, state, to);
}

/// Intrusive list in order of arrival, with O(1) removal.
class ForwardedCallList {
 public:
  bool empty() const noexcept { return first_ == nullptr; }
  ForwardedCall* first() const noexcept { return first_; }
  std::uint32_t size() const noexcept { return size_; }
  /// Appends a call that is in no list.
  void push_back(ForwardedCall& forwarded) noexcept {
    if (!SLUICE_INVARIANT(is_alone(forwarded), list_membership)) return;
    forwarded.next = nullptr;
    forwarded.previous = last_;
    (last_ != nullptr ? last_->next : first_) = &forwarded;
    last_ = &forwarded;
    ++size_;
  }
  /// Prepends a call that is in no list.
  void push_front(ForwardedCall& forwarded) noexcept {
    if (!SLUICE_INVARIANT(is_alone(forwarded), list_membership)) return;
    forwarded.previous = nullptr;
    forwarded.next = first_;
    (first_ != nullptr ? first_->previous : last_) = &forwarded;
    first_ = &forwarded;
    ++size_;
  }
  void remove(ForwardedCall& forwarded) noexcept {
    if (!SLUICE_INVARIANT(contains(forwarded), list_membership)) return;
    (forwarded.previous != nullptr ? forwarded.previous->next : first_) = forwarded.next;
    (forwarded.next != nullptr ? forwarded.next->previous : last_) = forwarded.previous;
    forwarded.next = forwarded.previous = nullptr;
    SLUICE_INVARIANT_DEBUG(size_ > 0, list_membership);
    --size_;
  }
  /// Replaces a call of this list by `other`, which is in no list.
  void replace(ForwardedCall& forwarded, ForwardedCall& other) noexcept {
    if (!SLUICE_INVARIANT(contains(forwarded), list_membership)) return;
    other.next = forwarded.next;
    other.previous = forwarded.previous;
    (other.previous != nullptr ? other.previous->next : first_) = &other;
    (other.next != nullptr ? other.next->previous : last_) = &other;
    forwarded.next = forwarded.previous = nullptr;
  }

 private:
  /// Returns whether the neighbours of the call, or the ends of the list, point to the call.
  bool contains(const ForwardedCall& forwarded) const noexcept {
    const ForwardedCall* const before = forwarded.previous != nullptr ? forwarded.previous->next : first_;
    const ForwardedCall* const after = forwarded.next != nullptr ? forwarded.next->previous : last_;
    return before == &forwarded && after == &forwarded;
  }

  /// Returns whether the call has no neighbours in any list and is not the only call of this list.
  bool is_alone(const ForwardedCall& forwarded) const noexcept {
    return forwarded.next == nullptr && forwarded.previous == nullptr && first_ != &forwarded;
  }

  ForwardedCall* first_ = nullptr;
  ForwardedCall* last_ = nullptr;
  std::uint32_t size_ = 0;
};

}  // namespace sluice::tcp_upstream
