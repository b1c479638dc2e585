// SPDX-License-Identifier: Apache-2.0
#include "dataplane/service/forward/upstream.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>

#include "dataplane/base/probes.h"
#include "dataplane/service/forward/forward_service.h"

namespace sluice::forward {
namespace {

/// Dedicated connections that may still be closing while their successors are open.
constexpr std::uint32_t kSpareConnections = 16;

rpc::Xid xid_of(std::uint32_t xid) noexcept {
  return static_cast<rpc::Xid>(xid);
}

}  // namespace

Upstream::Upstream(const UpstreamConfig& config, tcp::Uring& uring, rdma::Device& device,
                   segment::UpstreamArea& area, std::uint64_t (*clock)() noexcept)
    : config_(config),
      uring_(uring),
      area_(area),
      clock_(clock),
      own_(config.max_clients),
      numbers_(config.numbers()),
      generation_(std::random_device{}()),
      admission_(*this, device, config.numbers(), config.replies, config.max_clients),
      clients_(config.max_clients) {
  const std::uint32_t total = config.shared_connections + config.max_clients + kSpareConnections;
  for (std::uint32_t i = 0; i < total; ++i) {
    connections_.push_back(std::make_unique<UpstreamConnection>(*this, uring_));
    if (i >= config.shared_connections) free_.push_back(connections_.back().get());
  }
  retiring_.reserve(total);
  retrying_.reserve(2 * std::size_t{total});
  dirty_.reserve(total);
  for (std::uint32_t i = config.numbers(); i-- > 0;) free_numbers_.push_back(i);
  for (ReverseCall& reverse_call : reverse_calls_) {
    reverse_call.upstream = this;
    free_reverse_calls_.push_back(&reverse_call);
  }
}

Upstream::~Upstream() = default;

// --- From the services

void Upstream::register_client(service::Client& client) noexcept {
  ClientEntry& entry = clients_[client.number()];
  if (entry.client == &client) return;
  entry = {.client = &client, .credit_limit = kNoLimit, .limit_sent = credit_limit_};
  client.limit_credits(credit_limit_);
}

UpstreamConnection* Upstream::connection_for(const ForwardedCall& forwarded) noexcept {
  service::Client& client = *forwarded.call->client();
  if (!forwarded.own_connection) return connections_[client.number() % config_.shared_connections].get();
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
  forwarded.state = ForwardedCall::State::AwaitingXid;
  forwarded.reply_needed = true;
  const Admission::Lack lack = admission_.enter(forwarded);
  if (lack == Admission::Lack::Nothing) return;
  count(lack == Admission::Lack::Memory ? Counter::waits_memory : Counter::waits_number);
}

void Upstream::start(ForwardedCall& forwarded, UpstreamConnection& connection) noexcept {
  forwarded.connection = &connection;
  if (assign_xid(forwarded)) return connection.submit(forwarded);
  count(Counter::duplicate_xids);
  admission_.finished(forwarded);
  end(forwarded);
}

/// False: the call must keep its XID, which is already outstanding on the connection.
bool Upstream::assign_xid(ForwardedCall& forwarded) noexcept {
  const std::uint32_t own_xid = xdr::load_u32(forwarded.call->message().data());
  if (forwarded.keeps_xid && find(*forwarded.connection, own_xid) != nullptr) return false;
  forwarded.number = free_numbers_.back();
  free_numbers_.pop_back();
  numbers_[forwarded.number] = &forwarded;
  if (forwarded.keeps_xid) {
    forwarded.xid = own_xid;
    ++kept_xids_;
    return true;
  }
  const auto next = [&] {
    return forwarded.xid = ++generation_ * static_cast<std::uint32_t>(numbers_.size()) | forwarded.number;
  };
  if (find_kept(*forwarded.connection, next()) != nullptr) next();
  return true;
}

ForwardedCall* Upstream::find(UpstreamConnection& connection, std::uint32_t xid) noexcept {
  ForwardedCall* const forwarded = numbers_[xid & (numbers_.size() - 1)];
  if (forwarded != nullptr && forwarded->xid == xid && forwarded->connection == &connection) return forwarded;
  return find_kept(connection, xid);
}

ForwardedCall* Upstream::find_kept(UpstreamConnection& connection, std::uint32_t xid) noexcept {
  if (kept_xids_ == 0) return nullptr;
  for (ForwardedCall* forwarded = connection.calls().first(); forwarded != nullptr;
       forwarded = forwarded->next)
    if (forwarded->keeps_xid && forwarded->xid == xid) return forwarded;
  return nullptr;
}

/// Removes the call from its queue or connection and frees its number: no reply can find it any more.
void Upstream::unlink(ForwardedCall& forwarded) noexcept {
  if (forwarded.state == ForwardedCall::State::AwaitingXid) {
    admission_.leave(forwarded);
  } else if (forwarded.connection != nullptr) {
    forwarded.connection->remove(forwarded);
    numbers_[forwarded.number] = nullptr;
    free_numbers_.push_back(forwarded.number);
    if (forwarded.keeps_xid) --kept_xids_;
    admission_.finished(forwarded);
  }
  forwarded.state = ForwardedCall::State::None;
}

/// Completes a call with SYSTEM_ERR, without a reply of the upstream.
void Upstream::end(ForwardedCall& forwarded) noexcept {
  forwarded.state = ForwardedCall::State::None;
  forwarded.connection = nullptr;
  forwarded.call->complete(rpc::AcceptStat::SystemErr);
}

/// Ends a call that expired, failed or lost its client: now, or when the send queue releases its memory.
void Upstream::give_up(ForwardedCall& forwarded) noexcept {
  if (forwarded.in_send_queue) {  // until it is sent or the connection is lost
    forwarded.reply_needed = false;
    return;
  }
  unlink(forwarded);
  end(forwarded);
}

void Upstream::give_up_calls_of(ForwardedCallList& calls, const service::Client& client) noexcept {
  for (ForwardedCall* forwarded = calls.first(); forwarded != nullptr;) {
    ForwardedCall* const next = forwarded->next;
    if (forwarded->call->client() == &client && forwarded->reply_needed) {
      count(Counter::abandoned);
      give_up(*forwarded);
    }
    forwarded = next;
  }
}

void Upstream::client_gone(service::Client& client) noexcept {
  const std::uint16_t number = client.number();
  if (clients_[number].client != &client) return;  // it never made a call
  clients_[number] = {};
  for (std::size_t need = 0; need < kReplyNeeds; ++need)
    give_up_calls_of(admission_.waiting_of(number, need), client);
  for (std::uint32_t i = 0; i < config_.shared_connections; ++i)
    give_up_calls_of(connections_[i]->calls(), client);
  UpstreamConnection* const own = std::exchange(own_[number], nullptr);
  if (own != nullptr) {
    give_up_calls_of(own->calls(), client);
    own->retire();
    retiring_.push_back(own);
  }
}

// --- TX

void Upstream::on_sending(ForwardedCall& forwarded) noexcept {
  forwarded.sent_ns = clock_();
  probe::upstream_call_sent(static_cast<std::uint32_t>(forwarded.call->header().xid), forwarded.xid,
                            forwarded.call->message().size());
  area_.gateway_ns.record(forwarded.sent_ns - forwarded.begun_ns);
  count(Counter::calls);
  if (forwarded.resent) count(Counter::resent);
}

void Upstream::on_message_sent(ForwardedCall& forwarded) noexcept {
  if (!forwarded.reply_needed) {
    unlink(forwarded);
    return end(forwarded);
  }
  if (forwarded.state == ForwardedCall::State::Held) deliver_or_wait(forwarded);
}

void Upstream::schedule_flush(UpstreamConnection& connection) noexcept {
  connection.dirty = true;
  dirty_.push_back(&connection);
}

/// Adds the connection once, even if it fails again while background() walks the list: the list has room for
/// each connection twice.
void Upstream::schedule_retry(UpstreamConnection& connection) noexcept {
  if (!std::exchange(connection.in_retry_list, true)) retrying_.push_back(&connection);
}

void Upstream::flush() noexcept {
  for (std::size_t i = 0; i < dirty_.size(); ++i) {
    dirty_[i]->dirty = false;
    dirty_[i]->flush();
  }
  dirty_.clear();
}

/// Requeues the calls of a connection that has ended; those without a need for a reply end here.
void Upstream::on_lost(UpstreamConnection& connection) noexcept {
  for (ForwardedCall* forwarded = connection.calls().first(); forwarded != nullptr;) {
    ForwardedCall* const next = forwarded->next;
    forwarded->in_send_queue = false;
    if (!forwarded->reply_needed) {
      unlink(*forwarded);
      end(*forwarded);
    } else if (forwarded->state == ForwardedCall::State::Held) {
      deliver_or_wait(*forwarded);
    } else {
      forwarded->resent = forwarded->state == ForwardedCall::State::AwaitingReply || forwarded->resent;
      forwarded->state = ForwardedCall::State::AwaitingSend;
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
      return on_call(connection, record);
  }
  count(Counter::bad_records);
}

/// Fails only the call whose reply was too long; the stream continues behind it.
void Upstream::on_long_record(UpstreamConnection& connection, std::span<const std::byte> xid) noexcept {
  count(Counter::long_records);
  if (ForwardedCall* const forwarded = find_awaited(connection, xdr::load_u32(xid.data())))
    give_up(*forwarded);
}

ForwardedCall* Upstream::find_awaited(UpstreamConnection& connection, std::uint32_t xid) noexcept {
  ForwardedCall* const found = find(connection, xid);
  const bool awaited =
      found != nullptr && found->state == ForwardedCall::State::AwaitingReply && found->reply_needed;
  return awaited ? found : nullptr;
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
  if (type == rpc::MessageType::Call) return refuse_call(connection, xid, rpc::AcceptStat::SystemErr);
  ForwardedCall* const forwarded = find_awaited(connection, xid);
  if (forwarded == nullptr) return count(Counter::unmatched_replies);
  refuse_reply(*forwarded, kMostShortReply + 1);
}

void Upstream::on_reply(UpstreamConnection& connection, std::span<std::byte> record) noexcept {
  ForwardedCall* const found = find_awaited(connection, xdr::load_u32(record.data()));
  if (found == nullptr) return count(Counter::unmatched_replies);
  ForwardedCall& forwarded = *found;
  probe::upstream_reply_received(static_cast<std::uint32_t>(forwarded.call->header().xid), forwarded.xid,
                                 record.size());
  // Where the memory is not the call's own, another call had this XID when the record began.
  const bool registered = connection.stream().in_memory();
  if (registered && (forwarded.need != ReplyNeed::Record || forwarded.memory != nullptr))
    return refuse_reply(forwarded, record.size());
  if (registered) forwarded.memory = connection.stream().take_memory();
  if (forwarded.in_send_queue) return hold(forwarded, record);  // replied before the call was fully sent
  if (forwarded.service->deliver(forwarded, {record, registered})) return;
  // Without memory for it the client cannot have room for a reply that needs more than a call slot has.
  if (forwarded.memory == nullptr) return refuse_reply(forwarded, record.size());
  hold(forwarded, record);
  wait_for_results(forwarded);
}

/// Ends the call, but not while the send queue refers to it.
void Upstream::refuse_reply(ForwardedCall& forwarded, std::uint64_t bytes) noexcept {
  if (forwarded.in_send_queue) {
    forwarded.reply_needed = false;
    return;
  }
  answered(forwarded);
  forwarded.call->reply_too_long(bytes);
}

/// Holds the reply until the transport has memory and executes the call again.
void Upstream::wait_for_results(ForwardedCall& forwarded) noexcept {
  answered(forwarded);
  forwarded.state = ForwardedCall::State::Held;
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
  forwarded.state = ForwardedCall::State::Held;
}

bool Upstream::deliver_held(ForwardedCall& forwarded) noexcept {
  return forwarded.service->deliver(forwarded, {{forwarded.memory, forwarded.record_bytes}, true});
}

void Upstream::answered(ForwardedCall& forwarded) noexcept {
  if (forwarded.connection == nullptr) return;  // it was held
  forwarded.connection->note_answer();
  area_.upstream_ns.record(clock_() - forwarded.sent_ns);
  count(Counter::replies);
  unlink(forwarded);
}

// --- Calls of the upstream (RFC 8167)

void Upstream::on_call(UpstreamConnection& connection, std::span<const std::byte> record) noexcept {
  xdr::Reader reader(record);
  rpc::CallHeader call;
  if (rpc::decode_call(reader, call) != rpc::CallDecode::Ok) return count(Counter::bad_records);
  const auto xid = static_cast<std::uint32_t>(call.xid);
  if (connection.client() == nullptr) return refuse_call(connection, xid, rpc::AcceptStat::ProgUnavail);
  if (free_reverse_calls_.empty()) return refuse_call(connection, xid, rpc::AcceptStat::SystemErr);
  ReverseCall* const reverse_call = free_reverse_calls_.back();
  free_reverse_calls_.pop_back();
  reverse_call->connection = &connection;
  reverse_call->epoch = connection.epoch();
  reverse_call->xid = xid;
  count(Counter::callbacks);
  if (connection.client()->call_back(record, &on_reverse_reply, reverse_call)) return;
  free_reverse_calls_.push_back(reverse_call);
  refuse_call(connection, xid, rpc::AcceptStat::SystemErr);
}

void Upstream::on_reverse_reply(void* context, std::span<const std::byte> reply) noexcept {
  ReverseCall& reverse_call = *static_cast<ReverseCall*>(context);
  Upstream& self = *reverse_call.upstream;
  UpstreamConnection& connection = *reverse_call.connection;
  self.free_reverse_calls_.push_back(&reverse_call);
  if (connection.epoch() != reverse_call.epoch) return;
  if (reply.empty())
    self.refuse_call(connection, reverse_call.xid, rpc::AcceptStat::SystemErr);
  else if (!connection.answer(reverse_call.xid, reply))
    self.count(Counter::callbacks_refused);
}

void Upstream::refuse_call(UpstreamConnection& connection, std::uint32_t xid, rpc::AcceptStat stat) noexcept {
  count(Counter::callbacks_refused);
  std::array<std::byte, rpc::kMinReplyBytes> bytes;
  xdr::Writer writer(bytes);
  rpc::encode_accepted(writer, xid_of(xid), {}, stat);
  connection.answer(xid, writer.written());
}

// --- Timers

void Upstream::background(std::uint64_t now_ns) noexcept {
  if (now_ns - ticked_ns_ < kTickNs) return;
  ticked_ns_ = now_ns;
  const std::size_t retrying = retrying_.size();
  for (std::size_t i = 0; i < retrying; ++i) {
    UpstreamConnection& connection = *retrying_[i];
    connection.in_retry_list = false;
    connection.tick(now_ns);
    if (connection.state() == UpstreamConnection::State::Retrying) schedule_retry(connection);
  }
  retrying_.erase(retrying_.begin(), retrying_.begin() + static_cast<std::ptrdiff_t>(retrying));
  std::erase_if(retiring_, [this](UpstreamConnection* connection) {
    if (!connection->retired()) return false;
    connection->reuse();
    free_.push_back(connection);
    return true;
  });
  admission_.serve_without_connection();
  if (now_ns - interval_start_ns_ < kCreditIntervalNs) return;
  interval_start_ns_ = now_ns;
  // Not now_ns: calls may have begun after the loop read its clock, and ages are unsigned.
  const std::uint64_t clock_ns = clock_();
  expire(clock_ns);
  update_credit_limits(clock_ns);
  publish();
}

bool Upstream::is_due(const ForwardedCall& forwarded, std::uint64_t age_ns) const noexcept {
  const std::uint64_t limit_ns = config_.call_timeout_ns;
  return (limit_ns > 0 && age_ns >= limit_ns) || (!forwarded.reply_needed && age_ns >= kAbandonedNs);
}

void Upstream::expire(ForwardedCallList& calls, std::uint64_t now_ns) noexcept {
  for (ForwardedCall* forwarded = calls.first(); forwarded != nullptr;) {
    ForwardedCall* const next = forwarded->next;
    if (!is_due(*forwarded, now_ns - forwarded->begun_ns)) {
      forwarded = next;
      continue;
    }
    UpstreamConnection* const connection = forwarded->connection;
    if (forwarded->in_send_queue) {
      // The upstream does not accept the bytes: reset the connection and resend the other calls.
      if (forwarded->reply_needed) count(Counter::timeouts);
      forwarded->reply_needed = false;
      return connection->lose();
    }
    count(Counter::timeouts);
    give_up(*forwarded);
    forwarded = next;
  }
}

void Upstream::expire(std::uint64_t now_ns) noexcept {
  if (admission_.waiting() > 0)
    for (std::uint32_t i = 0; i < admission_.clients(); ++i)
      for (std::size_t need = 0; need < kReplyNeeds; ++need) expire(admission_.waiting_of(i, need), now_ns);
  for (const auto& connection : connections_) expire(connection->calls(), now_ns);
}

bool Upstream::is_slow(std::uint64_t now_ns) noexcept {
  for (const auto& connection : connections_) {
    const ForwardedCall* const oldest = connection->calls().first();
    if (oldest != nullptr && now_ns - oldest->begun_ns > kSlowNs) return true;
  }
  return false;
}

std::uint32_t Upstream::next_credit_limit(std::uint32_t limit, bool slow) const noexcept {
  if (slow) return std::max<std::uint32_t>(std::min(limit, config_.credits) / 2, 1);
  return limit == kNoLimit || limit * 2 >= config_.credits ? kNoLimit : limit * 2;
}

/// Credits beyond what a slow upstream can use would only fill queues here. RFC 8166, section 3.3.1 lets the
/// responder grant what its resources allow. A client that has more calls than its share of the numbers is
/// alone with that.
void Upstream::update_credit_limits(std::uint64_t now_ns) noexcept {
  credit_limit_ = next_credit_limit(credit_limit_, is_slow(now_ns));
  for (std::uint32_t i = 0; i < clients_.size(); ++i) {
    ClientEntry& entry = clients_[i];
    if (entry.client == nullptr) continue;
    entry.credit_limit = next_credit_limit(entry.credit_limit, admission_.lacks_numbers(i));
    tell_credit_limit(entry);
  }
}

void Upstream::tell_credit_limit(ClientEntry& entry) noexcept {
  const std::uint32_t limit = std::min(credit_limit_, entry.credit_limit);
  if (std::exchange(entry.limit_sent, limit) != limit) entry.client->limit_credits(limit);
}

void Upstream::publish() noexcept {
  std::uint32_t up = 0;
  std::uint32_t connecting = 0;
  std::uint32_t waiting = admission_.waiting();
  std::uint32_t outstanding = 0;
  for (const auto& connection : connections_) {
    up += connection->state() == UpstreamConnection::State::Up;
    connecting += connection->state() == UpstreamConnection::State::Connecting ||
                  connection->state() == UpstreamConnection::State::Retrying;
    (connection->state() == UpstreamConnection::State::Up ? outstanding : waiting) +=
        connection->calls().size();
  }
  area_.connections.store(up, std::memory_order_relaxed);
  area_.connecting.store(connecting, std::memory_order_relaxed);
  area_.waiting.store(waiting, std::memory_order_relaxed);
  area_.outstanding.store(outstanding, std::memory_order_relaxed);
  admission_.publish(area_.pools);
  area_.credit_limit.store(credit_limit_ == kNoLimit ? 0 : credit_limit_, std::memory_order_relaxed);
}

}  // namespace sluice::forward
