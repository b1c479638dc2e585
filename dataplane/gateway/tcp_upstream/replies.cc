// SPDX-License-Identifier: Apache-2.0
//
// This file receives the records of an upstream. It delivers replies to their calls, and reverse calls to
// clients.
#include <cstring>
#include <utility>

#include "dataplane/base/invariant.h"
#include "dataplane/gateway/tcp_upstream/forward_service.h"
#include "dataplane/gateway/tcp_upstream/reverse_calls.h"
#include "dataplane/gateway/tcp_upstream/upstream_calls.h"

namespace sluice::tcp_upstream {

void UpstreamCalls::take_records(UpstreamConnection& connection) noexcept {
  using Arrival = UpstreamConnection::Arrival;
  for (;;) {
    switch (const Arrival arrival = connection.next_arrival()) {
      case Arrival::Nothing:
        return;
      case Arrival::Record:
        on_record(connection);
        if (connection.record_in_memory()) take_memory_back(connection);
        break;
      case Arrival::Long:
        connection.lend(memory_for(connection));
        break;
      case Arrival::Unwanted:
      case Arrival::TooLong:
        take_memory_back(connection);
        on_skipped(connection, arrival);
        break;
    }
  }
}

/// Returns the memory of the call that the long record answers. Returns null for any other long record, which
/// is then skipped.
std::byte* UpstreamCalls::memory_for(UpstreamConnection& connection) noexcept {
  if (connection.record_type() != rpc::MessageType::Reply) return nullptr;
  ForwardedCall* const forwarded = find_awaited(connection, connection.record_xid());
  if (forwarded == nullptr || forwarded->need != ReplyNeed::Record) return nullptr;
  return std::exchange(forwarded->memory, nullptr);
}

/// Takes back the memory that was lent for a record that will not be completed, or that no call has taken.
void UpstreamCalls::take_memory_back(UpstreamConnection& connection) noexcept {
  std::byte* const memory = connection.take_memory();
  if (memory == nullptr) return;
  ForwardedCall* const forwarded = find_awaited(connection, connection.record_xid());
  if (forwarded != nullptr && forwarded->need == ReplyNeed::Record && forwarded->memory == nullptr)
    forwarded->memory = memory;
  else
    admission_.memory().records().release(memory);
}

/// Fails only the call whose reply was skipped, either for lack of memory or because the record exceeds the
/// maximum length. The stream continues after the skipped record.
void UpstreamCalls::on_skipped(UpstreamConnection& connection, UpstreamConnection::Arrival arrival) noexcept {
  const bool too_long = arrival == UpstreamConnection::Arrival::TooLong;
  if (too_long) shared_.count(Counter::long_records);
  if (!too_long && connection.record_type() == rpc::MessageType::Call)
    return reverse_calls_.refuse(connection, connection.record_xid(), rpc::AcceptStat::SystemErr);
  const std::uint32_t xid = too_long ? xdr::load_u32(connection.record().data()) : connection.record_xid();
  if (ForwardedCall* const forwarded = find_awaited(connection, xid))
    return refuse_reply(*forwarded, (too_long ? shared_.config.replies.record_bytes() : kMostShortReply) + 1);
  if (!too_long) shared_.count(Counter::unmatched_replies);
}

void UpstreamCalls::on_record(UpstreamConnection& connection) noexcept {
  const auto record = connection.record();
  if (record.size() < rpc::kMinDeniedReplyBytes) {
    shared_.count(Counter::bad_records);
    return connection.lose();
  }
  switch (static_cast<rpc::MessageType>(xdr::load_u32(record.data() + xdr::kUnit))) {
    case rpc::MessageType::Reply:
      return on_reply(connection, record);
    case rpc::MessageType::Call:
      return reverse_calls_.on_call(connection, record);
  }
  shared_.count(Counter::bad_records);
}

void UpstreamCalls::on_reply(UpstreamConnection& connection, std::span<std::byte> record) noexcept {
  const std::uint32_t xid = xdr::load_u32(record.data());
  if (connection.take_probe_answer(xid)) return;
  ForwardedCall* const found = find_awaited(connection, xid);
  if (found == nullptr) return shared_.count(Counter::unmatched_replies);
  ForwardedCall& forwarded = *found;
  if (forwarded.in_session && !forwarded.own_connection && !forwarded.in_send_queue() &&
      !connection.record_in_memory() && ForwardService::refuses_connection(record))
    return send_on_own(forwarded);
  if (forwarded.announces_sizes || forwarded.tells_withheld || forwarded.handle_tag != 0)
    forwarded.service->adapt(forwarded, record);
  repeats_.answered(forwarded, record);
  if (forwarded.call == nullptr) {
    connection.note_answer();
    return end_at_upstream(forwarded);
  }
  probe::upstream_reply_received(xdr::load_u32(forwarded.message.data()), forwarded.xid, record.size());
  // The memory belongs to another call if that call had this XID when the record began.
  const bool registered = connection.record_in_memory();
  if (registered && (forwarded.need != ReplyNeed::Record || forwarded.memory != nullptr))
    return refuse_reply(forwarded, record.size());
  if (registered) forwarded.memory = connection.take_memory();
  if (forwarded.in_send_queue()) return hold(forwarded, record);  // the call is not fully sent yet
  if (!complete(forwarded, record, registered)) keep_until_room(forwarded, record);
}

/// Sends the call again on its client's dedicated connection, because the upstream refuses the session on
/// other connections.
void UpstreamCalls::send_on_own(ForwardedCall& forwarded) noexcept {
  SLUICE_INVARIANT_DEBUG(!forwarded.own_connection, gateway_state);
  shared_.count(Counter::unassociated);
  sessions_stay_[forwarded.call->client()->number()] = true;
  answered(forwarded);
  admission_.release(forwarded);
  forwarded.own_connection = true;
  forwarded.resent = false;
  forwarded.probe_batch = 0;
  forwarded.sent_ns = 0;
  submit(forwarded);
}

/// Keeps a reply that complete() could not deliver.
void UpstreamCalls::keep_until_room(ForwardedCall& forwarded, std::span<const std::byte> record) noexcept {
  // A call without memory can only have replies that fit its call slot, so this reply exceeds the client's
  // room.
  if (forwarded.memory == nullptr) return refuse_reply(forwarded, record.size());
  hold(forwarded, record);
  wait_for_results(forwarded);
}

/// Completes the call with the reply. Returns false if the transport lacks memory for the results.
bool UpstreamCalls::complete(ForwardedCall& forwarded, std::span<const std::byte> record,
                             bool registered) noexcept {
  SLUICE_INVARIANT_DEBUG(forwarded.call != nullptr && !forwarded.given_up(), gateway_state);
  const rdma::Lkey lkey =
      forwarded.need != ReplyNeed::None ? admission_.memory().of(forwarded.need).lkey() : rdma::Lkey{};
  const ForwardService::Written written =
      forwarded.service->write_reply(forwarded, {.bytes = record, .registered = registered, .lkey = lkey});
  if (written == ForwardService::Written::Nothing) return false;
  service::Call& call = *forwarded.call;
  answered(forwarded);
  if (written == ForwardService::Written::Copy) admission_.release(forwarded);
  forwarded.transition(ForwardedCall::State::None);
  call.complete(rpc::AcceptStat::Success);
  return true;
}

bool UpstreamCalls::deliver_held(ForwardedCall& forwarded) noexcept {
  SLUICE_INVARIANT_DEBUG(forwarded.memory != nullptr && forwarded.record_bytes > 0, buffer_bounds);
  return complete(forwarded, {forwarded.memory, forwarded.record_bytes}, true);
}

/// Keeps the reply until it can be delivered.
void UpstreamCalls::hold(ForwardedCall& forwarded, std::span<const std::byte> record) noexcept {
  if (forwarded.memory == nullptr) return refuse_reply(forwarded, record.size());
  if (!SLUICE_INVARIANT(record.size() <= admission_.memory().of(forwarded.need).buffer_bytes(), pool_balance))
    return refuse_reply(forwarded, record.size());
  if (record.data() != forwarded.memory) std::memcpy(forwarded.memory, record.data(), record.size());
  forwarded.record_bytes = static_cast<std::uint32_t>(record.size());
  forwarded.transition(forwarded.in_send_queue() ? ForwardedCall::State::Replied
                                                 : ForwardedCall::State::Held);
}

/// Ends the call because its reply of `bytes` is too long. A call to which the send queue refers ends later.
void UpstreamCalls::refuse_reply(ForwardedCall& forwarded, std::uint64_t bytes) noexcept {
  if (forwarded.call == nullptr) return end_at_upstream(forwarded);
  if (forwarded.in_send_queue()) return forwarded.give_up();
  answered(forwarded);
  forwarded.transition(ForwardedCall::State::None);
  forwarded.call->reply_too_long(bytes);
}

/// Holds the reply until the transport has memory and executes the call again.
void UpstreamCalls::wait_for_results(ForwardedCall& forwarded) noexcept {
  SLUICE_INVARIANT_DEBUG(forwarded.memory != nullptr, pool_balance);
  answered(forwarded);
  if (forwarded.state != ForwardedCall::State::Held) forwarded.transition(ForwardedCall::State::Held);
  forwarded.call->await_memory();
}

void UpstreamCalls::answered(ForwardedCall& forwarded) noexcept {
  if (forwarded.connection == nullptr) return;  // the reply was held, and the call is already unlinked
  forwarded.connection->note_answer();
  SLUICE_INVARIANT_DEBUG(forwarded.sent_ns != 0, gateway_state);
  const std::uint64_t took_ns = shared_.now_ns() - forwarded.sent_ns;
  shared_.area.upstream_ns.record(took_ns);
  if (forwarded.call != nullptr) forwarded.call->note_upstream_ns(took_ns);
  shared_.count(Counter::replies);
  unlink(forwarded);
}

// --- Reverse calls: calls of the upstream to a client, and the replies of the client.

using Counter = segment::UpstreamCounter;

ReverseCalls::ReverseCalls(UpstreamShared& shared) : shared_(shared) {
  free_.reserve(calls_.size());
  for (Outstanding& call : calls_) {
    call.calls = this;
    free_.push_back(&call);
  }
}

void ReverseCalls::on_call(UpstreamConnection& connection, std::span<const std::byte> record) noexcept {
  xdr::Reader reader(record);
  rpc::CallHeader header;
  if (rpc::decode_call(reader, header) != rpc::CallDecode::Ok) return shared_.count(Counter::bad_records);
  const auto xid = static_cast<std::uint32_t>(header.xid);
  if (connection.client() == nullptr) return refuse(connection, xid, rpc::AcceptStat::ProgUnavail);
  if (free_.empty()) return refuse(connection, xid, rpc::AcceptStat::SystemErr);
  Outstanding& call = *free_.back();
  static_cast<void>(SLUICE_INVARIANT(call.connection == nullptr, pool_balance));
  free_.pop_back();
  call.connection = &connection;
  call.epoch = connection.epoch();
  call.xid = xid;
  shared_.count(Counter::callbacks);
  if (connection.client()->call_back(record, &on_reply, &call)) return;
  give_back(call);
  refuse(connection, xid, rpc::AcceptStat::SystemErr);
}

void ReverseCalls::on_reply(void* context, std::span<const std::byte> reply) noexcept {
  Outstanding& call = *static_cast<Outstanding*>(context);
  ReverseCalls& self = *call.calls;
  if (!SLUICE_INVARIANT(call.connection != nullptr, pool_balance)) return;
  UpstreamConnection& connection = *call.connection;
  self.give_back(call);
  if (connection.epoch() != call.epoch) return;
  if (reply.empty())
    self.refuse(connection, call.xid, rpc::AcceptStat::SystemErr);
  else if (!connection.answer(call.xid, reply))
    self.shared_.count(Counter::callbacks_refused);
}

void ReverseCalls::give_back(Outstanding& call) noexcept {
  call.connection = nullptr;
  if (SLUICE_INVARIANT(free_.size() < calls_.size(), pool_balance)) free_.push_back(&call);
}

void ReverseCalls::refuse(UpstreamConnection& connection, std::uint32_t xid, rpc::AcceptStat stat) noexcept {
  shared_.count(Counter::callbacks_refused);
  std::array<std::byte, rpc::kMinReplyBytes> bytes;
  xdr::Writer writer(bytes);
  rpc::encode_accepted(writer, static_cast<rpc::Xid>(xid), {}, stat);
  connection.answer(xid, writer.written());
}

}  // namespace sluice::tcp_upstream
