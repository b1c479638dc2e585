// SPDX-License-Identifier: Apache-2.0
//
// This file admits, starts, retransmits and ends the calls to an upstream; replies.cc handles the replies.
#include "dataplane/gateway/tcp_upstream/upstream_calls.h"

#include <utility>

#include "dataplane/base/invariant.h"
#include "dataplane/gateway/tcp_upstream/forward_service.h"

namespace sluice::tcp_upstream {

UpstreamCalls::UpstreamCalls(UpstreamShared& shared, rdma::Device& device, UpstreamConnections& connections)
    : shared_(shared),
      connections_(connections),
      admission_(device, shared.config.numbers(), shared.config.replies, shared.config.max_clients),
      repeats_(shared),
      reverse_calls_(shared),
      sessions_stay_(shared.config.max_clients) {}

void UpstreamCalls::submit(ForwardedCall& forwarded) noexcept {
  forwarded.transition(ForwardedCall::State::AwaitingXid);
  if (forwarded.in_session && forwarded.has_long_message() &&
      !sessions_stay_[forwarded.call->client()->number()])
    forwarded.own_connection = false;
  if (!suspects_.none() && suspects_.contains(repeats_.checksum(forwarded.message)))
    forwarded.own_connection = true;
  shared_.note_unsent(forwarded);
  Admission::Queue& queue = admission_.enter(forwarded);
  const Admission::Lack lack = queue.calls.first() == &forwarded ? admit(queue) : queue.lack;
  if (lack == Admission::Lack::Nothing) return;
  shared_.count(lack == Admission::Lack::EarlierCall ? Counter::waits_earlier
                : lack == Admission::Lack::Memory    ? Counter::waits_memory
                                                     : Counter::waits_number);
}

/// Admits and starts the first call of the queue, or makes it wait for what it lacks.
Admission::Lack UpstreamCalls::admit(Admission::Queue& queue) noexcept {
  ForwardedCall& first = *queue.calls.first();
  SLUICE_INVARIANT_DEBUG(first.awaits_admission() && first.connection == nullptr, gateway_state);
  const DuplicateRequests::Decision turn = repeats_.decide(first);
  if (turn == DuplicateRequests::Decision::Replay) first.transition(ForwardedCall::State::AwaitingReplay);
  if (turn == DuplicateRequests::Decision::Later)
    return admission_.await(queue, Admission::Lack::EarlierCall);
  UpstreamConnection* const connection = connections_.connection_for(first);
  if (connection == nullptr) return admission_.await(queue, Admission::Lack::Connection);
  const Admission::Lack lack = admission_.let_in(queue);
  if (lack == Admission::Lack::Nothing) start(first, *connection);
  return lack;
}

void UpstreamCalls::start(ForwardedCall& forwarded, UpstreamConnection& connection) noexcept {
  SLUICE_INVARIANT_DEBUG(forwarded.awaits_admission() && forwarded.connection == nullptr, gateway_state);
  if (forwarded.state == ForwardedCall::State::AwaitingReplay) return replay(forwarded);
  connections_.note_started(forwarded);
  if (forwarded.keeps_xid) {
    forwarded.xid = xdr::load_u32(forwarded.message.data());
    if (find(connection, forwarded.xid) == nullptr) return connection.submit(forwarded);
    shared_.count(Counter::duplicate_xids);
    shared_.no_longer_unsent(forwarded);
    admission_.finished(forwarded);
    return end(forwarded);
  }
  forwarded.xid = connection.new_xid();
  shared_.xids.add(forwarded);
  connection.submit(forwarded);
}

/// Completes the calls that end without a reply. They are not completed where their end is detected, because
/// a disconnect also ends the client's other calls.
void UpstreamCalls::complete_unanswerable() noexcept {
  while (ForwardedCall* const forwarded = unanswerable_.first()) {
    unanswerable_.remove(*forwarded);
    static_cast<void>(SLUICE_INVARIANT(
        forwarded->state == ForwardedCall::State::None && forwarded->connection == nullptr, gateway_state));
    forwarded->call->client()->disconnect();
    forwarded->call->complete(rpc::AcceptStat::SystemErr);  // not sent: the client is disconnected
  }
}

void UpstreamCalls::admit_waiting() noexcept {
  for (const ReplyNeed pool : {ReplyNeed::None, ReplyNeed::Item, ReplyNeed::Record})
    for (std::uint32_t most = kAdmittedInOneTurn; most > 0; --most) {
      Admission::Queue* const queue = admission_.next_with_share(pool);
      if (queue == nullptr) break;
      admit(*queue);
    }
}

void UpstreamCalls::serve_without_connection() noexcept {
  while (connections_.any_free()) {
    Admission::Queue* const queue = admission_.next_without_connection();
    if (queue == nullptr) return;
    admit(*queue);
  }
}

void UpstreamCalls::client_gone(std::uint16_t client) noexcept {
  if (!SLUICE_INVARIANT(client < sessions_stay_.size(), table_index)) return;
  connections_.client_gone(client);
  repeats_.client_gone(client);
  sessions_stay_[client] = false;
}

/// Answers a call with the kept reply of its first transmission.
void UpstreamCalls::replay(ForwardedCall& forwarded) noexcept {
  SLUICE_INVARIANT_DEBUG(forwarded.entry != nullptr, pool_balance);
  shared_.no_longer_unsent(forwarded);
  admission_.finished(forwarded);
  const auto reply = repeats_.reply_to(forwarded);
  DuplicateRequestCache::Entry* const entry = DuplicateRequests::take_reply(forwarded);
  // After complete() has returned true, `forwarded` may belong to another call.
  if (!complete(forwarded, reply, false)) keep_until_room(forwarded, reply);
  repeats_.let_go(entry);
}

// --- Ends of calls

/// Removes the call from its queue or connection and frees its XID, so that a later reply does not match it.
/// The caller changes the state of the call.
void UpstreamCalls::unlink(ForwardedCall& forwarded) noexcept {
  shared_.no_longer_unsent(forwarded);
  if (forwarded.awaits_admission()) {
    admission_.remove(forwarded);
  } else if (forwarded.connection != nullptr) {
    forwarded.connection->remove(forwarded);
    if (!forwarded.keeps_xid) shared_.xids.remove(forwarded);
    if (forwarded.call != nullptr) admission_.finished(forwarded);
  }
  repeats_.finished(forwarded);
}

/// Ends a call without a reply. Its client is disconnected and retransmits the call. An error reply would
/// look like one of the upstream and could lose data.
void UpstreamCalls::end(ForwardedCall& forwarded) noexcept {
  static_cast<void>(
      SLUICE_INVARIANT(forwarded.call != nullptr && forwarded.connection == nullptr, gateway_state));
  forwarded.transition(ForwardedCall::State::None);
  unanswerable_.push_back(forwarded);
}

/// Ends a call that is or was at the upstream, because its connection is lost or its reply is not needed.
void UpstreamCalls::end_at_upstream(ForwardedCall& forwarded) noexcept {
  unlink(forwarded);
  if (forwarded.call != nullptr) return end(forwarded);
  forwarded.transition(ForwardedCall::State::None);
  repeats_.give_back(forwarded);
}

/// Replaces a call that the upstream may execute by an orphan until the upstream answers. A call that may be
/// executed twice ends without an orphan.
void UpstreamCalls::orphan(ForwardedCall& forwarded) noexcept {
  static_cast<void>(SLUICE_INVARIANT(forwarded.connection != nullptr && !forwarded.keeps_xid, gateway_state));
  if (forwarded.repetition == service::Repetition::Harmless) return end_at_upstream(forwarded);
  shared_.count(Counter::orphans);
  ForwardedCall* const orphan = repeats_.adopt(forwarded);
  if (orphan == nullptr) return end_at_upstream(forwarded);
  forwarded.connection->replace(forwarded, *orphan);
  shared_.xids.add(*orphan);
  admission_.finished(forwarded);
  forwarded.connection = nullptr;
  end(forwarded);
}

/// Ends a call that has expired or whose client is disconnected, either now or when the send queue releases
/// its memory.
void UpstreamCalls::give_up(ForwardedCall& forwarded) noexcept {
  const bool at_upstream = forwarded.at_upstream() && !forwarded.keeps_xid;
  if (forwarded.in_send_queue()) {  // the call ends when it is sent or the connection is lost
    forwarded.give_up();
    if (at_upstream) repeats_.note_earlier(forwarded);
    return;
  }
  if (at_upstream) return orphan(forwarded);
  end_at_upstream(forwarded);
}

/// Abandons a call, unless it has ended already and is about to be completed.
void UpstreamCalls::abandon(ForwardedCall& forwarded) noexcept {
  const bool here = forwarded.awaits_admission() || forwarded.connection != nullptr;
  if (!here || forwarded.given_up()) return;
  shared_.count(Counter::abandoned);
  give_up(forwarded);
}

void UpstreamCalls::on_message_sent(ForwardedCall& forwarded) noexcept {
  SLUICE_INVARIANT_DEBUG(forwarded.in_send_queue() && forwarded.connection != nullptr, gateway_state);
  using enum ForwardedCall::State;
  if (forwarded.state == Sending) return forwarded.transition(AwaitingReply);
  if (forwarded.state == Replied) {
    if (!deliver_held(forwarded)) wait_for_results(forwarded);
    return;
  }
  if (forwarded.state == Discarded || forwarded.keeps_xid) return end_at_upstream(forwarded);
  forwarded.transition(AwaitingReply);
  orphan(forwarded);
}

/// Returns whether the call may be sent on the next connection. A signed call may not if it was sent before,
/// because a server drops a signature that it has seen (RFC 2203, section 5.3.3.1). An orphan may only if its
/// message was kept.
bool UpstreamCalls::may_go_again(const ForwardedCall& forwarded) noexcept {
  const bool sent = forwarded.at_upstream();
  if (forwarded.given_up() || forwarded.message.empty()) return false;
  if (sent && forwarded.keeps_xid) shared_.count(Counter::unrepeatable);
  return !sent || !forwarded.keeps_xid;
}

/// Requeues the calls of a closed connection for the next one. Ends `guilty` and the calls that must not be
/// sent again.
void UpstreamCalls::requeue(UpstreamConnection& connection, const ForwardedCall* guilty) noexcept {
  for (ForwardedCall* forwarded = connection.calls().first(); forwarded != nullptr;) {
    ForwardedCall* const next = forwarded->next;
    static_cast<void>(SLUICE_INVARIANT(forwarded->connection == &connection, list_membership));
    if (connection.retiring() || forwarded == guilty || !may_go_again(*forwarded)) {
      end_at_upstream(*forwarded);
    } else if (forwarded->state == ForwardedCall::State::Replied) {
      if (!deliver_held(*forwarded)) wait_for_results(*forwarded);
    } else if (forwarded->state != ForwardedCall::State::AwaitingSend) {
      forwarded->resent = true;
      forwarded->transition(ForwardedCall::State::AwaitingSend);
    }
    forwarded = next;
  }
}

/// Ends or requeues the calls of a closed connection.
void UpstreamCalls::settle(UpstreamConnection& connection) noexcept {
  take_memory_back(connection);
  const ForwardedCall* const guilty = connection.end_stream();
  if (guilty != nullptr) {
    shared_.count(Counter::given_up);
    if (!guilty->message.empty()) suspects_.add(repeats_.checksum(guilty->message));
  }
  requeue(connection, guilty);
  connection.settle();
}

void UpstreamCalls::end_calls_of(UpstreamConnection& connection) noexcept {
  connection.retire();
  for (ForwardedCall* forwarded = connection.calls().first(); forwarded != nullptr;) {
    ForwardedCall* const next = forwarded->next;
    if (!forwarded->in_send_queue())
      end_at_upstream(*forwarded);
    else if (!forwarded->given_up())
      forwarded->give_up();
    forwarded = next;
  }
}

namespace {

/// Returns whether the upstream has sent data since the call was sent, but no reply to the call.
bool is_overtaken(const ForwardedCall& forwarded) noexcept {
  const UpstreamConnection& connection = *forwarded.connection;
  return connection.is_up() && forwarded.state == ForwardedCall::State::AwaitingReply &&
         connection.heard_ns() > forwarded.sent_ns;
}

}  // namespace

void UpstreamCalls::retransmit_if_due(ForwardedCall& forwarded, std::uint64_t now_ns) noexcept {
  if (forwarded.call == nullptr) return;
  const bool likely = !forwarded.own_connection || forwarded.resent;
  const gateway::Loss loss = likely ? gateway::Loss::Likely : gateway::Loss::Unlikely;
  if (!is_overtaken(forwarded) || !forwarded.retransmission.expired(now_ns - forwarded.sent_ns, loss)) return;
  forwarded.retransmission.back_off();
  shared_.count(Counter::retransmissions);
  if (forwarded.own_connection) return forwarded.connection->lose();
  forwarded.connection->send_again(forwarded);
}

/// Lets the client's calls proceed if the upstream has not answered an orphan but has answered other calls.
/// An orphan without a kept message, such as a WRITE, ends with its connection. Any other orphan is
/// retransmitted after its client has retransmitted the call.
void UpstreamCalls::watch(ForwardedCall& orphan, std::uint64_t now_ns) noexcept {
  static_cast<void>(SLUICE_INVARIANT(orphan.call == nullptr && orphan.connection != nullptr, gateway_state));
  UpstreamConnection& connection = *orphan.connection;
  if (!is_overtaken(orphan) || now_ns - orphan.sent_ns < kEarlierNs) return;
  if (orphan.message.empty()) return connection.lose();
  repeats_.no_longer_earlier(orphan);
  if (now_ns - orphan.sent_ns < gateway::kRetransmitNs || !repeats_.take_asked_again(orphan)) return;
  // NFS 4 forbids a retransmission on the same connection (RFC 7530, section 3.1.1).
  if (orphan.own_connection) return connection.lose();
  connection.send_again(orphan);
}

void UpstreamCalls::end_if_due(ForwardedCall& forwarded, std::uint64_t now_ns) noexcept {
  const std::uint64_t age_ns = now_ns - forwarded.begun_ns;
  const std::uint64_t limit_ns = shared_.config.call_timeout_ns;
  const bool due = (limit_ns > 0 && age_ns >= limit_ns) || (forwarded.given_up() && age_ns >= kAbandonedNs);
  if (forwarded.call == nullptr || !due) return;
  if (!forwarded.in_send_queue()) {
    shared_.count(Counter::timeouts);
    return give_up(forwarded);
  }
  // The upstream does not accept the bytes. The next connection retransmits the other calls.
  if (!forwarded.given_up()) {
    shared_.count(Counter::timeouts);
    forwarded.give_up();
  }
  forwarded.connection->lose();
}

}  // namespace sluice::tcp_upstream
