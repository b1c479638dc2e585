// SPDX-License-Identifier: Apache-2.0
#include "dataplane/gateway/tcp_upstream/upstream.h"

#include <cstring>
#include <utility>

#include "dataplane/base/probes.h"
#include "dataplane/base/random_value.h"
#include "dataplane/gateway/tcp_upstream/forward_service.h"

namespace sluice::tcp_upstream {

Upstream::Upstream(const UpstreamConfig& config, const Context& context, std::uint32_t number,
                   segment::UpstreamArea& area)
    : config_(config),
      number_(number),
      uring_(context.uring),
      credits_(context.credits),
      area_(area),
      clock_(context.clock),
      addresses_(*config.addresses, config.name, config.port),
      own_(config.max_clients),
      xids_(2 * config.numbers(), random_value<std::uint32_t>()),
      admission_(*this, context.device, config.numbers(), config.replies, config.max_clients),
      repeats_(*this, config.cache, config.max_clients, config.numbers()),
      reverse_calls_(*this),
      clients_(config.max_clients) {
  const std::uint32_t total = config.connections();
  for (std::uint32_t i = 0; i < total; ++i) {
    connections_.push_back(std::make_unique<UpstreamConnection>(*this, uring_));
    if (i >= config.shared_connections) free_.push_back(connections_.back().get());
  }
  dirty_.reserve(total);
  if (!config.spare) credits_.use(number_);
  publish_address();
}

Upstream::~Upstream() = default;

void Upstream::become(std::string_view name, std::uint16_t port) noexcept {
  area_.clear();
  credits_.use(number_);
  addresses_.look_for(name, port);
  publish_address();
}

// --- From the services

void Upstream::register_client(service::Client& client) noexcept {
  ClientEntry& entry = clients_[client.number()];
  if (entry.client == &client) return;
  entry = {.client = &client};
}

UpstreamConnection* Upstream::shared_connection_for(const ForwardedCall& forwarded) noexcept {
  const std::uint32_t client = forwarded.call->client()->number();
  const std::uint32_t turn = forwarded.has_long_message() ? clients_[client].long_messages : 0;
  return connections_[(client + turn) % config_.shared_connections].get();
}

UpstreamConnection* Upstream::connection_for(const ForwardedCall& forwarded) noexcept {
  service::Client& client = *forwarded.call->client();
  if (!forwarded.own_connection) return shared_connection_for(forwarded);
  UpstreamConnection*& own = own_[client.number()];
  if (own != nullptr) return own;
  if (free_.empty()) return nullptr;
  own = free_.back();
  free_.pop_back();
  own->assign(client);
  return own;
}

void Upstream::submit(ForwardedCall& forwarded) noexcept {
  register_client(*forwarded.call->client());
  forwarded.transition(ForwardedCall::State::AwaitingXid);
  ClientEntry& entry = clients_[forwarded.call->client()->number()];
  if (forwarded.in_session && forwarded.has_long_message() && !entry.sessions_stay)
    forwarded.own_connection = false;
  if (!suspects_.none() && suspects_.contains(repeats_.checksum(forwarded.message)))
    forwarded.own_connection = true;
  if (entry.unsent++ == 0) entry.moved_ns = forwarded.begun_ns;
  const Admission::Lack lack = admission_.enter(forwarded);
  if (lack == Admission::Lack::Nothing) return;
  count(lack == Admission::Lack::Turn     ? Counter::waits_earlier
        : lack == Admission::Lack::Memory ? Counter::waits_memory
                                          : Counter::waits_number);
}

void Upstream::no_longer_unsent(ForwardedCall& forwarded) noexcept {
  if (!forwarded.unsent()) return;
  ClientEntry& entry = clients_[forwarded.call->client()->number()];
  --entry.unsent;
  entry.moved_ns = now_ns();
}

bool Upstream::must_wait(ForwardedCall& forwarded) noexcept {
  const Repeats::Turn turn = repeats_.turn_of(forwarded);
  if (turn == Repeats::Turn::Replay) forwarded.transition(ForwardedCall::State::AwaitingReplay);
  return turn == Repeats::Turn::Later;
}

void Upstream::start(ForwardedCall& forwarded, UpstreamConnection& connection) noexcept {
  if (forwarded.state == ForwardedCall::State::AwaitingReplay) return replay(forwarded);
  if (!forwarded.own_connection && forwarded.has_long_message())
    ++clients_[forwarded.call->client()->number()].long_messages;
  if (assign_xid(forwarded, connection)) return connection.submit(forwarded);
  count(Counter::duplicate_xids);
  no_longer_unsent(forwarded);
  admission_.finished(forwarded);
  end(forwarded);
}

/// With the reply that its first coming has got.
void Upstream::replay(ForwardedCall& forwarded) noexcept {
  no_longer_unsent(forwarded);
  admission_.finished(forwarded);
  const auto reply = repeats_.reply_to(forwarded);
  RequestCache::Entry* const entry = Repeats::take_reply(forwarded);
  deliver(forwarded, reply, false);  // the call may be another one now
  repeats_.let_go(entry);
}

/// False: the call must keep its XID, which is already outstanding on the connection.
bool Upstream::assign_xid(ForwardedCall& forwarded, UpstreamConnection& connection) noexcept {
  if (forwarded.keeps_xid) {
    forwarded.xid = xdr::load_u32(forwarded.message.data());
    return find(connection, forwarded.xid) == nullptr;
  }
  forwarded.xid = new_xid(connection);
  xids_.add(forwarded);
  return true;
}

std::uint32_t Upstream::new_xid(UpstreamConnection& connection) noexcept {
  std::uint32_t xid = xids_.next();
  while (connection.find_kept(xid) != nullptr) xid = xids_.next();
  return xid;
}

ForwardedCall* Upstream::find(UpstreamConnection& connection, std::uint32_t xid) noexcept {
  ForwardedCall* const forwarded = xids_.find(xid);
  if (forwarded != nullptr && forwarded->connection == &connection) return forwarded;
  return connection.find_kept(xid);
}

/// Removes the call from its queue or connection and frees its XID, so that later replies do not match it. The caller
/// changes its state.
void Upstream::unlink(ForwardedCall& forwarded) noexcept {
  no_longer_unsent(forwarded);
  if (forwarded.awaits_admission()) {
    admission_.leave(forwarded);
  } else if (forwarded.connection != nullptr) {
    forwarded.connection->remove(forwarded);
    if (!forwarded.keeps_xid) xids_.remove(forwarded);
    if (forwarded.call != nullptr) admission_.finished(forwarded);
  }
  repeats_.finished(forwarded);
}

/// The call has no reply, and will have none. Clients take an error that nobody has said for the upstream's,
/// and give up what a user has written; so the connection ends instead, for its client to repeat the call.
void Upstream::end(ForwardedCall& forwarded) noexcept {
  forwarded.transition(ForwardedCall::State::None);
  unanswerable_.push_back(forwarded);
}

/// Not where calls end: a client that is disconnected takes its other calls with it.
void Upstream::end_unanswerable() noexcept {
  while (ForwardedCall* const forwarded = unanswerable_.first()) {
    unanswerable_.remove(*forwarded);
    forwarded->call->client()->disconnect();
    forwarded->call->complete(rpc::AcceptStat::SystemErr);  // to nobody
  }
}

/// Ends a call that is at the upstream, or was: its connection is lost, or nobody waits for it.
void Upstream::end_at_upstream(ForwardedCall& forwarded) noexcept {
  unlink(forwarded);
  if (forwarded.call != nullptr) return end(forwarded);
  forwarded.transition(ForwardedCall::State::None);
  repeats_.give_back(forwarded);
}

/// The upstream may execute the call, which its client will make again: something stands for it until it is
/// answered, unless it does no harm.
void Upstream::orphan(ForwardedCall& forwarded) noexcept {
  if (forwarded.repetition == service::Repetition::Harmless) return end_at_upstream(forwarded);
  count(Counter::orphans);
  ForwardedCall* const orphan = repeats_.adopt(forwarded);
  if (orphan == nullptr) return end_at_upstream(forwarded);
  forwarded.connection->replace(forwarded, *orphan);
  xids_.add(*orphan);
  admission_.finished(forwarded);
  forwarded.connection = nullptr;
  end(forwarded);
}

/// Ends a call that expired or lost its client: now, or when the send queue releases its memory.
void Upstream::give_up(ForwardedCall& forwarded) noexcept {
  const bool at_upstream = forwarded.at_upstream() && !forwarded.keeps_xid;
  if (forwarded.in_send_queue()) {  // until it is sent or the connection is lost
    forwarded.give_up();
    if (at_upstream) repeats_.note_earlier(forwarded);
    return;
  }
  if (at_upstream) return orphan(forwarded);
  end_at_upstream(forwarded);
}

/// One that is neither waiting nor on a connection has ended, and is about to be completed.
void Upstream::abandon(ForwardedCall& forwarded) noexcept {
  const bool here = forwarded.awaits_admission() || forwarded.connection != nullptr;
  if (!here || forwarded.given_up()) return;
  count(Counter::abandoned);
  give_up(forwarded);
}

void Upstream::client_gone(service::Client& client) noexcept {
  const std::uint16_t number = client.number();
  if (clients_[number].client != &client) return;  // it never made a call
  credits_.forget(number, number_);
  if (UpstreamConnection* const own = std::exchange(own_[number], nullptr)) {
    ++leaving_count_;
    own->leave();
  }
  repeats_.client_gone(number);
  clients_[number] = {};
}

// --- TX

void Upstream::on_sending(ForwardedCall& forwarded) noexcept {
  no_longer_unsent(forwarded);
  forwarded.sent_ns = now_ns();
  probe::upstream_call_sent(xdr::load_u32(forwarded.message.data()), forwarded.xid, forwarded.message.size());
  area_.gateway_ns.record(forwarded.sent_ns - forwarded.begun_ns);
  count(Counter::calls);
  if (forwarded.resent) count(Counter::resent);
}

void Upstream::on_message_sent(ForwardedCall& forwarded) noexcept {
  using enum ForwardedCall::State;
  if (forwarded.state == Sending) return forwarded.transition(AwaitingReply);
  if (forwarded.state == Replied) return deliver_or_wait(forwarded);
  if (forwarded.state == Discarded || forwarded.keeps_xid) return end_at_upstream(forwarded);
  forwarded.transition(AwaitingReply);
  orphan(forwarded);
}

void Upstream::suspect(const ForwardedCall& forwarded) noexcept {
  count(Counter::given_up);
  if (!forwarded.message.empty()) suspects_.add(repeats_.checksum(forwarded.message));
}

void Upstream::schedule_flush(UpstreamConnection& connection) noexcept {
  connection.dirty = true;
  dirty_.push_back(&connection);
}

void Upstream::schedule_attention(UpstreamConnection& connection) noexcept {
  if (connection.attended_link.linked()) return;
  attended_.push_back(connection);
  ++attended_count_;
}

void Upstream::flush() noexcept {
  for (std::size_t i = 0; i < dirty_.size(); ++i) {
    dirty_[i]->dirty = false;
    dirty_[i]->flush();
  }
  dirty_.clear();
}

/// A server drops a signature that it has seen (RFC 2203, section 5.3.3.1); a call without a client goes again
/// only if it was kept.
bool Upstream::may_go_again(const ForwardedCall& forwarded) noexcept {
  const bool sent = forwarded.at_upstream();
  if (forwarded.given_up() || forwarded.message.empty()) return false;
  if (sent && forwarded.keeps_xid) count(Counter::unrepeatable);
  return !sent || !forwarded.keeps_xid;
}

/// Requeues the calls of a closed connection, except for `guilty`.
void Upstream::on_lost(UpstreamConnection& connection, const ForwardedCall* guilty) noexcept {
  for (ForwardedCall* forwarded = connection.calls().first(); forwarded != nullptr;) {
    ForwardedCall* const next = forwarded->next;
    if (connection.retiring() || forwarded == guilty || !may_go_again(*forwarded)) {
      end_at_upstream(*forwarded);
    } else if (forwarded->state == ForwardedCall::State::Replied) {
      deliver_or_wait(*forwarded);
    } else if (forwarded->state != ForwardedCall::State::AwaitingSend) {
      forwarded->resent = true;
      forwarded->transition(ForwardedCall::State::AwaitingSend);
    }
    forwarded = next;
  }
}

// --- RX

void Upstream::on_record(UpstreamConnection& connection, std::span<std::byte> record) noexcept {
  if (record.size() < rpc::kMinDeniedReplyBytes) {
    count(Counter::bad_records);
    return connection.lose();
  }
  switch (static_cast<rpc::MessageType>(xdr::load_u32(record.data() + xdr::kUnit))) {
    case rpc::MessageType::Reply:
      return on_reply(connection, record);
    case rpc::MessageType::Call:
      return reverse_calls_.on_call(connection, record);
  }
  count(Counter::bad_records);
}

/// Fails only the call whose reply was too long; the stream continues behind it.
void Upstream::on_long_record(UpstreamConnection& connection, std::span<const std::byte> xid) noexcept {
  count(Counter::long_records);
  if (ForwardedCall* const forwarded = find_awaited(connection, xdr::load_u32(xid.data())))
    refuse_reply(*forwarded, tcp::kMaxRecordBytes + 1);
}

ForwardedCall* Upstream::find_awaited(UpstreamConnection& connection, std::uint32_t xid) noexcept {
  ForwardedCall* const found = find(connection, xid);
  return found != nullptr && found->awaits_reply() ? found : nullptr;
}

std::byte* Upstream::lend_memory(UpstreamConnection& connection, std::uint32_t xid) noexcept {
  ForwardedCall* const forwarded = find_awaited(connection, xid);
  if (forwarded == nullptr || forwarded->need != ReplyNeed::Record) return nullptr;
  return std::exchange(forwarded->memory, nullptr);
}

void Upstream::take_back(UpstreamConnection& connection, std::uint32_t xid, std::byte* memory) noexcept {
  ForwardedCall* const forwarded = find_awaited(connection, xid);
  if (forwarded != nullptr && forwarded->need == ReplyNeed::Record && forwarded->memory == nullptr)
    forwarded->memory = memory;
  else
    this->memory().records().release(memory);
}

void Upstream::on_unwanted_record(UpstreamConnection& connection, std::uint32_t xid,
                                  rpc::MessageType type) noexcept {
  if (type == rpc::MessageType::Call)
    return reverse_calls_.refuse(connection, xid, rpc::AcceptStat::SystemErr);
  ForwardedCall* const forwarded = find_awaited(connection, xid);
  if (forwarded == nullptr) return count(Counter::unmatched_replies);
  refuse_reply(*forwarded, kMostShortReply + 1);
}

void Upstream::on_reply(UpstreamConnection& connection, std::span<std::byte> record) noexcept {
  const std::uint32_t xid = xdr::load_u32(record.data());
  if (connection.take_probe_answer(xid)) return;
  ForwardedCall* const found = find_awaited(connection, xid);
  if (found == nullptr) return count(Counter::unmatched_replies);
  ForwardedCall& forwarded = *found;
  if (!forwarded.own_connection && forwarded.service->refuses_connection(forwarded, record) &&
      !forwarded.in_send_queue() && !connection.stream().in_memory())
    return send_on_own(forwarded);
  forwarded.service->adapt(forwarded, record);
  repeats_.answered(forwarded, record);
  if (forwarded.call == nullptr) {
    connection.note_answer();
    return end_at_upstream(forwarded);
  }
  probe::upstream_reply_received(xdr::load_u32(forwarded.message.data()), forwarded.xid, record.size());
  // Where the memory is not the call's own, another call had this XID when the record began.
  const bool registered = connection.stream().in_memory();
  if (registered && (forwarded.need != ReplyNeed::Record || forwarded.memory != nullptr))
    return refuse_reply(forwarded, record.size());
  if (registered) forwarded.memory = connection.stream().take_memory();
  if (forwarded.in_send_queue()) return hold(forwarded, record);  // replied before the call was fully sent
  deliver(forwarded, record, registered);
}

/// The upstream takes sessions on no connection but those that clients have bound to them.
void Upstream::send_on_own(ForwardedCall& forwarded) noexcept {
  count(Counter::unassociated);
  clients_[forwarded.call->client()->number()].sessions_stay = true;
  answered(forwarded);
  release(forwarded);
  forwarded.own_connection = true;
  forwarded.resent = false;
  forwarded.trial = 0;
  forwarded.sent_ns = 0;
  submit(forwarded);
}

void Upstream::deliver(ForwardedCall& forwarded, std::span<const std::byte> record,
                       bool registered) noexcept {
  if (forwarded.service->deliver(forwarded, {record, registered})) return;
  // Without memory for it the client cannot have room for a reply that needs more than a call slot has.
  if (forwarded.memory == nullptr) return refuse_reply(forwarded, record.size());
  hold(forwarded, record);
  wait_for_results(forwarded);
}

/// Ends the call, but not while the send queue refers to it.
void Upstream::refuse_reply(ForwardedCall& forwarded, std::uint64_t bytes) noexcept {
  if (forwarded.call == nullptr) return end_at_upstream(forwarded);
  if (forwarded.in_send_queue()) return forwarded.give_up();
  answered(forwarded);
  forwarded.transition(ForwardedCall::State::None);
  forwarded.call->reply_too_long(bytes);
}

/// Holds the reply until the transport has memory and executes the call again.
void Upstream::wait_for_results(ForwardedCall& forwarded) noexcept {
  answered(forwarded);
  if (forwarded.state != ForwardedCall::State::Held) forwarded.transition(ForwardedCall::State::Held);
  forwarded.call->await_memory();
}

void Upstream::deliver_or_wait(ForwardedCall& forwarded) noexcept {
  if (!deliver_held(forwarded)) wait_for_results(forwarded);
}

/// Keeps the reply until it can be delivered.
void Upstream::hold(ForwardedCall& forwarded, std::span<const std::byte> record) noexcept {
  if (forwarded.memory == nullptr) return refuse_reply(forwarded, record.size());
  if (record.data() != forwarded.memory) std::memcpy(forwarded.memory, record.data(), record.size());
  forwarded.record_bytes = static_cast<std::uint32_t>(record.size());
  forwarded.transition(forwarded.in_send_queue() ? ForwardedCall::State::Replied
                                                 : ForwardedCall::State::Held);
}

bool Upstream::deliver_held(ForwardedCall& forwarded) noexcept {
  return forwarded.service->deliver(forwarded, {{forwarded.memory, forwarded.record_bytes}, true});
}

void Upstream::answered(ForwardedCall& forwarded) noexcept {
  if (forwarded.connection == nullptr) return;  // it was held
  forwarded.connection->note_answer();
  const std::uint64_t took_ns = now_ns() - forwarded.sent_ns;
  area_.upstream_ns.record(took_ns);
  if (forwarded.call != nullptr) forwarded.call->note_upstream_ns(took_ns);
  count(Counter::replies);
  unlink(forwarded);
}

}  // namespace sluice::tcp_upstream
