// SPDX-License-Identifier: Apache-2.0
//
// This file has what the reactor's loop runs: the poll of all upstreams, and the work of each. upstreams.cc
// sets them up.
#include "dataplane/gateway/tcp_upstream/upstream.h"

#include <span>
#include <utility>

#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/gateway/tcp_upstream/upstream_addresses.h"
#include "dataplane/gateway/tcp_upstream/upstreams.h"

namespace sluice::tcp_upstream {

Upstream::Upstream(const UpstreamConfig& config, const UpstreamContext& context, std::uint32_t number,
                   segment::UpstreamArea& area)
    : shared_(config, context, number, area),
      credits_(context.credits),
      connections_(shared_),
      calls_(shared_, context.device, connections_),
      clients_(config.max_clients) {}

void Upstream::replace_client(service::Client& client) noexcept {
  clients_[client.number()] = {.client = &client};
  shared_.unsent[client.number()] = {};
}

void Upstream::client_gone(service::Client& client) noexcept {
  const std::uint16_t number = client.number();
  if (clients_[number].client != &client) return;  // it never made a call
  credits_.forget(number, shared_.number);
  calls_.client_gone(number);
  shared_.unsent[number] = {};
  clients_[number] = {};
}

bool Upstreams::poll(std::uint64_t now_ns) noexcept {
  SLUICE_INVARIANT_DEBUG(owner_.is_caller(), object_owner);
  for (const auto& upstream : upstreams_) upstream->flush();
  clock_.pass();
  const std::size_t count =
      uring_.poll([this](void* target, tcp::Uring::Kind kind, const tcp::Uring::Completion& end) {
        auto& connection = *static_cast<UpstreamConnection*>(target);
        SLUICE_INVARIANT_DEBUG(by_number_[connection.upstream_number()] != nullptr, table_index);
        by_number_[connection.upstream_number()]->on_completion(connection, kind, end);
      });
  for (const auto& upstream : upstreams_)
    if (upstream->in_use()) upstream->background(now_ns);
  clock_.pass();
  return count > 0;
}

void Upstream::on_completion(UpstreamConnection& connection, tcp::Uring::Kind kind,
                             const tcp::Uring::Completion& end) noexcept {
  const bool again = kind == tcp::Uring::kReceivedAgain;
  if (kind == tcp::Uring::Kind::Send) {
    connection.on_sent(end.result, [this](ForwardedCall& forwarded) { calls_.on_message_sent(forwarded); });
  } else if (kind == tcp::Uring::Kind::Connect) {
    connection.on_connected(end.result);
    calls_.take_records(connection);
  } else if ((again || kind == tcp::Uring::Kind::Receive) && connection.on_received(end, again)) {
    calls_.take_records(connection);
  }
  calls_.settle_closed();
}

void Upstream::background(std::uint64_t now_ns) noexcept {
  calls_.serve_waiting();
  if (const std::uint32_t due = attention_round_.due(now_ns, connections_.work.attended()); due > 0)
    attend_connections(due, now_ns);
  calls_.serve_behind_earlier(now_ns);
  const std::uint32_t due = round_.due(now_ns, static_cast<std::uint32_t>(connections_.all().size()));
  if (due > 0 || among_calls_) reconcile(larger_of(due, 1u));
  Orphans& orphans = calls_.repeats().orphans();
  if (const std::uint32_t watched = orphans_round_.due(now_ns, orphans.places());
      watched > 0 && !orphans.none())
    watch_orphans(watched);
  calls_.settle_closed();
}

void Upstream::attend_connections(std::uint32_t due, std::uint64_t now_ns) noexcept {
  for (; due > 0; --due) {
    UpstreamConnection& connection = connections_.work.next_attended();
    static_cast<void>(SLUICE_INVARIANT(connection.upstream_number() == shared_.number, list_membership));
    connection.attend(now_ns);
    if (connection.has_left()) {
      connections_.recycle(connection);
      calls_.serve_without_connection();
    } else if (connection.needs_attention()) {
      connections_.work.attend(connection);
    }
  }
}

/// Checks the next `due` connections and clients, so that each of them is checked once per round. The calls
/// of a connection are checked with the connection, which may take several loop iterations.
void Upstream::reconcile(std::uint32_t due) noexcept {
  const auto count = static_cast<std::uint32_t>(connections_.all().size());
  // The clock is read again, because calls may have begun since the iteration began, and ages are unsigned.
  const std::uint64_t clock_ns = shared_.now_ns();
  for (std::uint32_t calls = kCallsInATurn; due > 0; --due) {
    static_cast<void>(SLUICE_INVARIANT(next_looked_at_ < count, table_index));
    if (next_looked_at_ == 0 && !among_calls_ && shared_.addresses.poll(clock_ns)) shared_.address_changed();
    UpstreamConnection& connection = *connections_.all()[next_looked_at_];
    among_calls_ = !look_at(connection, clock_ns, calls);
    if (among_calls_) return;
    if (connections_.is_surplus(next_looked_at_) && connection.calls().empty()) connection.lose();
    if (next_looked_at_ < clients_.size()) look_at_client(next_looked_at_, clock_ns);
    if (++next_looked_at_ < count) continue;
    next_looked_at_ = 0;
    publish();
    found_ = {};
  }
}

/// Checks a connection and its calls, and reduces `calls` by their number. Returns false when `calls` reaches
/// zero; the next loop iteration continues with the remaining calls.
bool Upstream::look_at(UpstreamConnection& connection, std::uint64_t now_ns, std::uint32_t& calls) noexcept {
  static_cast<void>(SLUICE_INVARIANT(calls > 0, credit_balance));
  for (ForwardedCall* forwarded = nullptr; (forwarded = connection.next_call()) != nullptr;) {
    static_cast<void>(SLUICE_INVARIANT(forwarded->connection == &connection, list_membership));
    calls_.end_if_due(*forwarded, now_ns);
    if (forwarded->connection == &connection) calls_.retransmit_if_due(*forwarded, now_ns);
    if (--calls == 0) return false;
  }
  connection.follow_address(now_ns);
  connection.watch(now_ns);
  using State = UpstreamConnection::State;
  const State state = connection.state();
  found_.up += connection.is_up();
  found_.connecting += state == State::Connecting || state == State::Retrying;
  (connection.is_up() ? found_.outstanding : found_.waiting) += connection.calls().size();
  return true;
}

void Upstream::look_at_client(std::uint32_t client, std::uint64_t now_ns) noexcept {
  if (calls_.admission().waiting() > 0) {
    for (std::size_t need = 0; need < kReplyNeeds; ++need)
      for (ForwardedCall* forwarded = calls_.admission().waiting_of(client, need).first();
           forwarded != nullptr;)
        calls_.end_if_due(*std::exchange(forwarded, forwarded->next), now_ns);
    calls_.admission().add_waiting(client, found_.waiting_for_pools);
  }
  if (clients_[client].client != nullptr) update_credit_limit(client, now_ns);
}

void Upstream::watch_orphans(std::uint32_t due) noexcept {
  const std::uint64_t clock_ns = shared_.now_ns();
  calls_.repeats().orphans().visit_next(due, [&](ForwardedCall& orphan) { calls_.watch(orphan, clock_ns); });
}

/// Returns the next credit limit. Only waiting calls lower it, not calls at the upstream, regardless of their
/// duration. A client that has more calls than its share of the numbers keeps at least as many credits as it
/// holds numbers.
std::uint32_t Upstream::next_credit_limit(std::uint32_t client, std::uint64_t now_ns) const noexcept {
  const ClientEntry& entry = clients_[client];
  const UpstreamShared::Unsent& unsent = shared_.unsent[client];
  const std::uint32_t half = smaller_of(entry.credit_limit, shared_.config.credits) / 2;
  if (calls_.admission().lacks_numbers(client)) return larger_of(half, calls_.admission().numbers_of(client));
  if (unsent.calls > 0 && now_ns > unsent.moved_ns && now_ns - unsent.moved_ns >= kStuckNs)
    return larger_of<std::uint32_t>(half, 1);
  const bool enough = entry.credit_limit == kNoLimit || 2 * entry.credit_limit >= shared_.config.credits;
  return enough ? kNoLimit : 2 * entry.credit_limit;
}

void Upstream::update_credit_limit(std::uint32_t client, std::uint64_t now_ns) noexcept {
  ClientEntry& entry = clients_[client];
  if (!SLUICE_INVARIANT(entry.client != nullptr, table_index)) return;
  const std::uint32_t limit = next_credit_limit(client, now_ns);
  found_.lowest_credit_limit = smaller_of(found_.lowest_credit_limit, limit);
  const bool changed = std::exchange(entry.credit_limit, limit) != limit;
  if (limit != kNoLimit)
    credits_.set(*entry.client, shared_.number, limit, calls_.admission().calls_of(client));
  else if (changed)
    credits_.set(*entry.client, shared_.number, kNoLimit, 0);
}

void Upstream::publish() noexcept {
  const auto store = [](std::atomic<std::uint32_t>& to, std::uint32_t value) {
    to.store(value, std::memory_order_relaxed);
  };
  store(shared_.area.connections, found_.up);
  store(shared_.area.connecting, found_.connecting);
  store(shared_.area.waiting, calls_.admission().waiting() + found_.waiting);
  store(shared_.area.outstanding, found_.outstanding);
  store(shared_.area.uring_features, shared_.uring.features().bits());
  calls_.admission().publish(found_.waiting_for_pools, shared_.area.pools);
  store(shared_.area.credit_limit, found_.lowest_credit_limit == kNoLimit ? 0 : found_.lowest_credit_limit);
}

// The remainder of this file changes the settings and the upstream itself (upstream_slot.h).

void Upstream::apply(const UpstreamSettings& settings) noexcept {
  const auto room = static_cast<std::uint32_t>(connections_.shared_ones().size());
  static_cast<void>(SLUICE_INVARIANT(settings.name.size() <= shared_.config.name.capacity(), buffer_bounds));
  static_cast<UpstreamSettings&>(shared_.config) = settings;
  shared_.config.connections = smaller_of(larger_of(settings.connections, 1u), room);
}

void Upstream::begin(const UpstreamSettings& settings) noexcept {
  static_cast<void>(SLUICE_INVARIANT(draining_since_ns_ == 0 && !parted_ && !in_use_, gateway_state));
  in_use_ = true;
  apply(settings);
  constexpr HashKey kKey{};
  shared_.identity = static_cast<std::uint32_t>(siphash(kKey, std::as_bytes(std::span(settings.name))));
  credits_.use(shared_.number);
  shared_.addresses.select(settings.name, settings.port);
  shared_.publish_address();
}

/// Ends all calls and detaches the clients. Dedicated connections become free when they are closed, and free
/// connections do not change.
void Upstream::detach_clients() noexcept {
  for (std::uint32_t i = 0; i < connections_.all().size(); ++i) {
    UpstreamConnection& connection = *connections_.all()[i];
    if (i < connections_.shared_ones().size() || connection.state() != UpstreamConnection::State::Idle)
      calls_.end_calls_of(connection);
  }
  for (const ClientEntry& entry : clients_) {
    if (entry.client == nullptr) continue;
    service::Client& client = *entry.client;
    credits_.set(client, shared_.number, kNoLimit, 0);
    for (std::size_t need = 0; need < kReplyNeeds; ++need)
      while (ForwardedCall* const waiting = calls_.admission().waiting_of(client.number(), need).first())
        calls_.abandon(*waiting);
    static_cast<void>(SLUICE_INVARIANT(client.number() < clients_.size(), table_index));
    client_gone(client);
  }
}

bool Upstream::drain() noexcept {
  const std::uint64_t now_ns = shared_.now_ns();
  if (draining_since_ns_ == 0) draining_since_ns_ = now_ns;
  if (!parted_) {
    if (calls_.any() && now_ns - draining_since_ns_ < gateway::kLeaveNs) return false;
    detach_clients();
    static_cast<void>(SLUICE_INVARIANT(calls_.admission().waiting() == 0, pool_balance));
    parted_ = true;
  }
  if (!connections_.retired()) return false;
  for (const auto& connection : connections_.shared_ones()) connection->reuse();
  calls_.forget_suspects();
  shared_.area.clear_gauges();
  parted_ = in_use_ = false;
  draining_since_ns_ = 0;
  return true;
}

}  // namespace sluice::tcp_upstream
