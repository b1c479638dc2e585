// SPDX-License-Identifier: Apache-2.0
#include "dataplane/service/forward/upstream.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>

#include "dataplane/service/forward/forward_service.h"

namespace sluice::forward {
namespace {

/// A connection that is ending while its successor is made.
constexpr std::uint32_t kSpareConnections = 16;

rpc::Xid xid_of(std::uint32_t xid) noexcept {
  return static_cast<rpc::Xid>(xid);
}

}  // namespace

Upstream::Upstream(const UpstreamConfig& config, tcp::Uring& uring, ReplyMemory& memory,
                   segment::UpstreamArea& area, std::uint64_t (*clock)() noexcept)
    : config_(config),
      uring_(uring),
      memory_(memory),
      area_(area),
      clock_(clock),
      own_(config.max_clients),
      numbers_(config.max_calls),
      generation_(std::random_device{}()),
      clients_(config.max_clients) {
  const std::uint32_t total = config.shared_connections + config.max_clients + kSpareConnections;
  for (std::uint32_t i = 0; i < total; ++i) {
    connections_.push_back(std::make_unique<UpstreamConnection>(*this, uring_));
    if (i >= config.shared_connections) free_.push_back(connections_.back().get());
  }
  retiring_.reserve(total);
  retrying_.reserve(2 * std::size_t{total});
  dirty_.reserve(total);
  stalled_.reserve(total);
  for (std::uint32_t i = config.max_calls; i-- > 0;) free_numbers_.push_back(i);
  for (CallBack& call_back : call_backs_) {
    call_back.upstream = this;
    free_call_backs_.push_back(&call_back);
  }
}

Upstream::~Upstream() = default;

// --- From the services

void Upstream::know(service::Client& client) noexcept {
  if (clients_[client.number()] == &client) return;
  clients_[client.number()] = &client;
  client.limit_credits(credit_limit_);
}

/// Null: there is none at the moment.
UpstreamConnection* Upstream::connection_for(const ForwardedCall& exchange) noexcept {
  service::Client& client = *exchange.call->client();
  if (!exchange.own_connection) return connections_[client.number() % config_.shared_connections].get();
  UpstreamConnection*& own = own_[client.number()];
  if (own != nullptr) return own;
  if (free_.empty()) return nullptr;
  own = free_.back();
  free_.pop_back();
  own->assign(client);
  return own;
}

void Upstream::submit(ForwardedCall& exchange) noexcept {
  know(*exchange.call->client());
  exchange.state = ForwardedCall::State::Queued;
  queued_.push_back(exchange);
  serve_queued();
  if (exchange.state == ForwardedCall::State::Queued) count(Counter::waits_number);
}

void Upstream::serve_queued() noexcept {
  while (!queued_.empty() && !free_numbers_.empty()) {
    ForwardedCall& exchange = *queued_.first();
    UpstreamConnection* const connection = connection_for(exchange);
    if (connection == nullptr) return;
    queued_.remove(exchange);
    exchange.connection = connection;
    if (!give_xid(exchange)) {
      count(Counter::duplicate_xids);
      end(exchange);
      continue;
    }
    connection->submit(exchange);
  }
}

/// False: the call has to keep its XID, and that is outstanding.
bool Upstream::give_xid(ForwardedCall& exchange) noexcept {
  const std::uint32_t own_xid = xdr::load_u32(exchange.call->message().data());
  if (exchange.keeps_xid && find(*exchange.connection, own_xid) != nullptr) return false;
  exchange.number = free_numbers_.back();
  free_numbers_.pop_back();
  numbers_[exchange.number] = &exchange;
  exchange.wanted = true;
  if (exchange.keeps_xid) {
    exchange.xid = own_xid;
    ++kept_xids_;
    return true;
  }
  const auto next = [&] { return exchange.xid = ++generation_ * config_.max_calls | exchange.number; };
  if (find_kept(*exchange.connection, next()) != nullptr) next();
  return true;
}

ForwardedCall* Upstream::find(UpstreamConnection& connection, std::uint32_t xid) noexcept {
  ForwardedCall* const exchange = numbers_[xid & (config_.max_calls - 1)];
  if (exchange != nullptr && exchange->xid == xid && exchange->connection == &connection) return exchange;
  return find_kept(connection, xid);
}

ForwardedCall* Upstream::find_kept(UpstreamConnection& connection, std::uint32_t xid) noexcept {
  if (kept_xids_ == 0) return nullptr;
  for (ForwardedCall* exchange = connection.calls().first(); exchange != nullptr; exchange = exchange->next)
    if (exchange->keeps_xid && exchange->xid == xid) return exchange;
  return nullptr;
}

/// Nothing finds the call any more.
void Upstream::unlink(ForwardedCall& exchange) noexcept {
  if (exchange.state == ForwardedCall::State::Queued) {
    queued_.remove(exchange);
  } else if (exchange.connection != nullptr) {
    exchange.connection->remove(exchange);
    numbers_[exchange.number] = nullptr;
    free_numbers_.push_back(exchange.number);
    if (exchange.keeps_xid) --kept_xids_;
  }
  exchange.state = ForwardedCall::State::None;
}

/// Ends a call without a reply of the upstream's.
void Upstream::end(ForwardedCall& exchange) noexcept {
  exchange.state = ForwardedCall::State::None;
  exchange.connection = nullptr;
  exchange.call->complete(rpc::AcceptStat::SystemErr);
}

/// Nobody waits for the reply any more, or has to wait.
void Upstream::give_up(ForwardedCall& exchange) noexcept {
  if (exchange.referenced) {  // its memory is the queue's until it is sent, or the connection is lost
    exchange.wanted = false;
    return;
  }
  unlink(exchange);
  end(exchange);
}

void Upstream::give_up_calls_of(ForwardedCallList& calls, const service::Client& client) noexcept {
  for (ForwardedCall* exchange = calls.first(); exchange != nullptr;) {
    ForwardedCall* const next = exchange->next;
    if (exchange->call->client() == &client && exchange->wanted) {
      count(Counter::abandoned);
      give_up(*exchange);
    }
    exchange = next;
  }
}

void Upstream::client_gone(service::Client& client) noexcept {
  const std::uint16_t number = client.number();
  if (clients_[number] != &client) return;  // it has never called
  clients_[number] = nullptr;
  give_up_calls_of(queued_, client);
  for (std::uint32_t i = 0; i < config_.shared_connections; ++i)
    give_up_calls_of(connections_[i]->calls(), client);
  UpstreamConnection* const own = std::exchange(own_[number], nullptr);
  if (own != nullptr) {
    give_up_calls_of(own->calls(), client);
    own->retire();
    retiring_.push_back(own);
  }
  serve_queued();
}

void Upstream::release(ForwardedCall& exchange) noexcept {
  std::byte* const memory = std::exchange(exchange.memory, nullptr);
  if (memory == nullptr) return;
  (exchange.has_record ? memory_.records : memory_.items).release(memory);
}

// --- TX

void Upstream::on_sending(ForwardedCall& exchange) noexcept {
  exchange.sent_ns = clock_();
  area_.gateway_ns.record(exchange.sent_ns - exchange.begun_ns);
  count(Counter::calls);
  if (exchange.resent) count(Counter::resent);
}

void Upstream::on_message_sent(ForwardedCall& exchange) noexcept {
  if (!exchange.wanted) {
    unlink(exchange);
    return end(exchange);
  }
  if (exchange.state == ForwardedCall::State::Held) deliver_or_wait(exchange);
}

void Upstream::to_be_flushed(UpstreamConnection& connection) noexcept {
  connection.dirty = true;
  dirty_.push_back(&connection);
}

/// Once, however often it fails at once: the list has room for each connection before and after a look.
void Upstream::to_be_retried(UpstreamConnection& connection) noexcept {
  if (!std::exchange(connection.listed, true)) retrying_.push_back(&connection);
}

void Upstream::flush() noexcept {
  for (std::size_t i = 0; i < dirty_.size(); ++i) {
    dirty_[i]->dirty = false;
    dirty_[i]->flush();
  }
  dirty_.clear();
}

/// What the calls of a connection become that has ended. They are sent again unless nobody wants them.
void Upstream::on_lost(UpstreamConnection& connection) noexcept {
  for (ForwardedCall* exchange = connection.calls().first(); exchange != nullptr;) {
    ForwardedCall* const next = exchange->next;
    exchange->referenced = false;
    if (!exchange->wanted) {
      unlink(*exchange);
      end(*exchange);
    } else if (exchange->state == ForwardedCall::State::Held) {
      deliver_or_wait(*exchange);
    } else {
      exchange->resent = exchange->state == ForwardedCall::State::Sent || exchange->resent;
      exchange->state = ForwardedCall::State::Numbered;
    }
    exchange = next;
  }
}

// --- RX

bool Upstream::on_record(UpstreamConnection& connection, std::span<std::byte> record) noexcept {
  if (record.size() < rpc::kMinDeniedReplyBytes) {
    count(Counter::bad_records);
    connection.lose();
    return true;
  }
  switch (static_cast<rpc::MessageType>(xdr::load_u32(record.data() + xdr::kUnit))) {
    case rpc::MessageType::Reply:
      return on_reply(connection, record);
    case rpc::MessageType::Call:
      on_call(connection, record);
      return true;
  }
  count(Counter::bad_records);
  return true;
}

/// Whoever asked for so much gets an error, and nobody else notices.
void Upstream::on_long_record(UpstreamConnection& connection, std::span<const std::byte> xid) noexcept {
  count(Counter::long_records);
  ForwardedCall* const exchange = find(connection, xdr::load_u32(xid.data()));
  if (exchange != nullptr && exchange->state == ForwardedCall::State::Sent && exchange->wanted)
    give_up(*exchange);
}

bool Upstream::on_reply(UpstreamConnection& connection, std::span<std::byte> record) noexcept {
  ForwardedCall* const found = find(connection, xdr::load_u32(record.data()));
  if (found == nullptr || found->state != ForwardedCall::State::Sent || !found->wanted) {
    count(Counter::unmatched_replies);
    return true;
  }
  ForwardedCall& exchange = *found;
  const bool registered = connection.stream().in_memory();
  if (exchange.referenced) return hold(exchange, record);  // a reply before the end of the call
  if (registered) {
    exchange.memory = connection.stream().take_memory();
    exchange.has_record = true;
  }
  using Delivery = ForwardService::Delivery;
  Delivery delivery = exchange.service->deliver(exchange, {record, registered});
  if (delivery == Delivery::NeedsItems) {
    exchange.memory = memory_.items.acquire();
    exchange.has_record = false;
    if (exchange.memory == nullptr) return count(Counter::waits_memory), false;
    delivery = exchange.service->deliver(exchange, {record, registered});
  }
  if (delivery == Delivery::Done) return true;
  if (!exchange.has_record) release(exchange);
  if (!hold(exchange, record)) return false;
  wait_for_results(exchange);
  return true;
}

/// Of a held reply: the call is executed again when the transport has memory.
void Upstream::wait_for_results(ForwardedCall& exchange) noexcept {
  answered(exchange);
  exchange.state = ForwardedCall::State::Held;
  exchange.call->await_memory();
}

void Upstream::deliver_or_wait(ForwardedCall& exchange) noexcept {
  if (!deliver_held(exchange)) wait_for_results(exchange);
}

/// Keeps the reply until it can be delivered. False: there is no memory.
bool Upstream::hold(ForwardedCall& exchange, std::span<const std::byte> record) noexcept {
  if (exchange.memory == nullptr) {
    exchange.memory = memory_.records.acquire();
    if (exchange.memory == nullptr) return count(Counter::waits_memory), false;
    std::memcpy(exchange.memory, record.data(), record.size());
  }
  exchange.has_record = true;
  exchange.record_bytes = static_cast<std::uint32_t>(record.size());
  exchange.state = ForwardedCall::State::Held;
  return true;
}

bool Upstream::deliver_held(ForwardedCall& exchange) noexcept {
  return exchange.service->deliver(exchange, {{exchange.memory, exchange.record_bytes}, true}) ==
         ForwardService::Delivery::Done;
}

void Upstream::answered(ForwardedCall& exchange) noexcept {
  if (exchange.connection == nullptr) return;  // it was held
  exchange.connection->note_answer();
  area_.upstream_ns.record(clock_() - exchange.sent_ns);
  count(Counter::replies);
  unlink(exchange);
  serve_queued();
}

void Upstream::stall(UpstreamConnection& connection) noexcept {
  if (std::exchange(connection.stalled, true)) return;
  stalled_.push_back(&connection);
}

/// Those that wait for memory go on in turn; one that still finds none goes to the end.
void Upstream::resume_stalled() noexcept {
  const std::size_t count = stalled_.size();
  if (count == 0 || memory_.records.available() == 0 || memory_.items.available() == 0) return;
  for (std::size_t i = 0; i < count; ++i) {
    UpstreamConnection& connection = *stalled_[i];
    connection.stalled = false;
    connection.resume();
  }
  stalled_.erase(stalled_.begin(), stalled_.begin() + static_cast<std::ptrdiff_t>(count));
}

// --- Calls of the upstream (RFC 8167)

void Upstream::on_call(UpstreamConnection& connection, std::span<const std::byte> record) noexcept {
  xdr::Reader reader(record);
  const rpc::CallDecodeResult call = rpc::decode_call(reader);
  if (call.status != rpc::CallDecode::Ok) return count(Counter::bad_records);
  const auto xid = static_cast<std::uint32_t>(call.header.xid);
  if (connection.client() == nullptr) return refuse_call(connection, xid, rpc::AcceptStat::ProgUnavail);
  if (free_call_backs_.empty()) return refuse_call(connection, xid, rpc::AcceptStat::SystemErr);
  CallBack* const call_back = free_call_backs_.back();
  free_call_backs_.pop_back();
  call_back->connection = &connection;
  call_back->epoch = connection.epoch();
  call_back->xid = xid;
  count(Counter::callbacks);
  if (connection.client()->call_back(record, &on_call_back_done, call_back)) return;
  free_call_backs_.push_back(call_back);
  refuse_call(connection, xid, rpc::AcceptStat::SystemErr);
}

void Upstream::on_call_back_done(void* context, std::span<const std::byte> reply) noexcept {
  CallBack& call_back = *static_cast<CallBack*>(context);
  Upstream& self = *call_back.upstream;
  UpstreamConnection& connection = *call_back.connection;
  self.free_call_backs_.push_back(&call_back);
  if (connection.epoch() != call_back.epoch) return;
  if (reply.empty())
    self.refuse_call(connection, call_back.xid, rpc::AcceptStat::SystemErr);
  else if (!connection.answer(call_back.xid, reply))
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
    connection.listed = false;
    connection.tick(now_ns);
    if (connection.state() == UpstreamConnection::State::Retrying) to_be_retried(connection);
  }
  retrying_.erase(retrying_.begin(), retrying_.begin() + static_cast<std::ptrdiff_t>(retrying));
  std::erase_if(retiring_, [this](UpstreamConnection* connection) {
    if (!connection->retired()) return false;
    connection->reuse();
    free_.push_back(connection);
    return true;
  });
  serve_queued();
  if (now_ns - judged_ns_ < kCreditIntervalNs) return;
  judged_ns_ = now_ns;
  // Calls have begun since the loop last looked at the clock.
  const std::uint64_t clock_ns = clock_();
  expire(clock_ns);
  judge_speed(clock_ns);
  publish();
}

void Upstream::expire(ForwardedCallList& calls, std::uint64_t now_ns) noexcept {
  for (ForwardedCall* exchange = calls.first(); exchange != nullptr;) {
    ForwardedCall* const next = exchange->next;
    if (now_ns - exchange->begun_ns < config_.call_timeout_ns) {
      exchange = next;
      continue;
    }
    UpstreamConnection* const connection = exchange->connection;
    if (exchange->referenced) {
      // The upstream takes no bytes: the others of the connection are sent again.
      if (exchange->wanted) count(Counter::timeouts);
      exchange->wanted = false;
      return connection->lose();
    }
    count(Counter::timeouts);
    give_up(*exchange);
    exchange = next;
  }
}

void Upstream::expire(std::uint64_t now_ns) noexcept {
  if (config_.call_timeout_ns == 0) return;
  expire(queued_, now_ns);
  for (const auto& connection : connections_) expire(connection->calls(), now_ns);
}

/// Credits that a slow upstream cannot use would only fill queues here (RFC 8166, section 3.3.1 leaves the
/// grant to the responder's resources).
void Upstream::judge_speed(std::uint64_t now_ns) noexcept {
  bool slow = !queued_.empty();
  for (const auto& connection : connections_) {
    const ForwardedCall* const oldest = connection->calls().first();
    slow = slow || (oldest != nullptr && now_ns - oldest->begun_ns > kSlowNs);
  }
  const std::uint32_t before = credit_limit_;
  if (slow)
    credit_limit_ = std::max<std::uint32_t>(std::min(credit_limit_, config_.credits) / 2, 1);
  else if (credit_limit_ != ~std::uint32_t{0})
    credit_limit_ = credit_limit_ * 2 >= config_.credits ? ~std::uint32_t{0} : credit_limit_ * 2;
  if (credit_limit_ == before) return;
  for (service::Client* client : clients_)
    if (client != nullptr) client->limit_credits(credit_limit_);
}

void Upstream::publish() noexcept {
  std::uint32_t up = 0;
  std::uint32_t connecting = 0;
  std::uint32_t waiting = queued_.size();
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
  area_.credit_limit.store(credit_limit_ == ~std::uint32_t{0} ? 0 : credit_limit_, std::memory_order_relaxed);
}

}  // namespace sluice::forward
