// SPDX-License-Identifier: Apache-2.0
//
// What an upstream does from time to time: it looks after its connections and addresses, ends what has lasted too
// long, limits the credits of clients whose calls wait, and publishes.
#include <utility>

#include <algorithm>

#include "dataplane/base/small_algorithms.h"
#include "dataplane/gateway/tcp_upstream/upstream.h"
namespace sluice::tcp_upstream {

void Upstream::background(std::uint64_t now_ns) noexcept {
  attend_connections(now_ns);
  admission_.serve_behind_earlier(now_ns);
  look_around(now_ns);
  watch_orphans(now_ns);
}

void Upstream::attend_connections(std::uint64_t now_ns) noexcept {
  for (std::uint32_t due = attention_round_.due(now_ns, attended_count_); due > 0; --due) {
    UpstreamConnection& connection = *attended_.pop_front();
    --attended_count_;
    connection.attend(now_ns);
    if (connection.has_left())
      recycle(connection);
    else if (connection.needs_attention())
      schedule_attention(connection);
  }
}

void Upstream::recycle(UpstreamConnection& connection) noexcept {
  connection.reuse();
  free_.push_back(&connection);
  --leaving_count_;
  admission_.serve_without_connection();
}

/// Each connection and each client has its turn once in a round, and so have the calls of a connection, which may
/// take several turns of the loop.
void Upstream::look_around(std::uint64_t now_ns) noexcept {
  const auto count = static_cast<std::uint32_t>(connections_.size());
  std::uint32_t due = round_.due(now_ns, count);
  if (among_calls_) due = larger_of(due, 1u);
  if (due == 0) return;
  // Not now_ns: calls may have begun after the loop read its clock, and ages are unsigned.
  const std::uint64_t clock_ns = clock_.now_ns();
  for (std::uint32_t calls = kCallsInATurn; due > 0; --due) {
    if (next_looked_at_ == 0 && !among_calls_ && addresses_.poll(clock_ns)) use_address();
    among_calls_ = !look_at(*connections_[next_looked_at_], clock_ns, calls);
    if (among_calls_) return;
    if (next_looked_at_ < clients_.size()) look_at_client(next_looked_at_, clock_ns);
    if (++next_looked_at_ < count) continue;
    next_looked_at_ = 0;
    end_round();
  }
}

/// False: it has more calls than `calls`, which are left to look at in this turn.
bool Upstream::look_at(UpstreamConnection& connection, std::uint64_t now_ns, std::uint32_t& calls) noexcept {
  for (ForwardedCall* forwarded = nullptr; (forwarded = connection.next_call()) != nullptr;) {
    end_if_due(*forwarded, now_ns);
    if (forwarded->connection == &connection) retransmit_if_due(*forwarded, now_ns);
    if (--calls == 0) return false;
  }
  connection.follow_address(now_ns);
  connection.watch(now_ns);
  using State = UpstreamConnection::State;
  const State state = connection.state();
  found_.up += state == State::Up;
  found_.connecting += state == State::Connecting || state == State::Retrying;
  (state == State::Up ? found_.outstanding : found_.waiting) += connection.calls().size();
  return true;
}

void Upstream::look_at_client(std::uint32_t client, std::uint64_t now_ns) noexcept {
  if (admission_.waiting() > 0) {
    for (std::size_t need = 0; need < kReplyNeeds; ++need)
      for (ForwardedCall* forwarded = admission_.waiting_of(client, need).first(); forwarded != nullptr;)
        end_if_due(*std::exchange(forwarded, forwarded->next), now_ns);
    admission_.add_waiting(client, found_.waiting_for_pools);
  }
  if (clients_[client].client != nullptr) update_credit_limit(client, now_ns);
}

void Upstream::end_round() noexcept {
  publish();
  found_ = {};
}

void Upstream::publish_address() noexcept {
  if (const PeerAddress* const address = addresses_.current()) area_.address.write(*address);
}

/// Connections follow when they are looked at next.
void Upstream::use_address() noexcept {
  count(Counter::address_changes);
  publish_address();
}

void Upstream::on_address_failed(const PeerAddress& address) noexcept {
  if (addresses_.failed(address, now_ns())) use_address();
}

void Upstream::watch_orphans(std::uint64_t now_ns) noexcept {
  Orphans& orphans = repeats_.orphans();
  const std::uint32_t due = orphans_round_.due(now_ns, orphans.places());
  if (due == 0 || orphans.none()) return;
  const std::uint64_t clock_ns = clock_.now_ns();
  orphans.visit_next(due, [&](ForwardedCall& orphan) { watch(orphan, clock_ns); });
}

namespace {

/// Returns whether the upstream has answered something since the call was sent, but not the call.
bool is_overtaken(const ForwardedCall& forwarded) noexcept {
  const UpstreamConnection& connection = *forwarded.connection;
  return connection.state() == UpstreamConnection::State::Up &&
         forwarded.state == ForwardedCall::State::AwaitingReply && connection.heard_ns() > forwarded.sent_ns;
}

}  // namespace

/// Retransmits the call of a client that waits for it: on its shared connection, or on a new dedicated one.
void Upstream::retransmit_if_due(ForwardedCall& forwarded, std::uint64_t now_ns) noexcept {
  if (forwarded.call == nullptr) return;
  const bool likely = !forwarded.own_connection || forwarded.resent;
  const gateway::Loss loss = likely ? gateway::Loss::Likely : gateway::Loss::Unlikely;
  if (!is_overtaken(forwarded) || !forwarded.retransmission.expired(now_ns - forwarded.sent_ns, loss)) return;
  forwarded.retransmission.back_off();
  count(Counter::retransmissions);
  if (forwarded.own_connection) return forwarded.connection->lose();
  forwarded.connection->send_again(forwarded);
}

/// What the upstream does not answer, though it answers others, holds up its client no longer: a WRITE ends with
/// its connection, and of other calls only the repetitions wait on, for which they are sent again.
void Upstream::watch(ForwardedCall& orphan, std::uint64_t now_ns) noexcept {
  UpstreamConnection& connection = *orphan.connection;
  if (!is_overtaken(orphan) || now_ns - orphan.sent_ns < kEarlierNs) return;
  if (orphan.message.empty()) return connection.lose();
  repeats_.no_longer_earlier(orphan);
  if (now_ns - orphan.sent_ns < gateway::kRetransmitNs || !repeats_.take_asked_again(orphan)) return;
  // NFS 4 does not allow it on the same connection (RFC 7530, section 3.1.1): its own is made again.
  if (orphan.own_connection) return connection.lose();
  connection.send_again(orphan);
}

bool Upstream::is_due(const ForwardedCall& forwarded, std::uint64_t age_ns) const noexcept {
  const std::uint64_t limit_ns = config_.call_timeout_ns;
  return (limit_ns > 0 && age_ns >= limit_ns) || (forwarded.given_up() && age_ns >= kAbandonedNs);
}

void Upstream::end_if_due(ForwardedCall& forwarded, std::uint64_t now_ns) noexcept {
  if (forwarded.call == nullptr || !is_due(forwarded, now_ns - forwarded.begun_ns)) return;
  if (!forwarded.in_send_queue()) {
    count(Counter::timeouts);
    return give_up(forwarded);
  }
  // The upstream does not accept the bytes: the connection is made again, and has the other calls again.
  if (!forwarded.given_up()) {
    count(Counter::timeouts);
    forwarded.give_up();
  }
  forwarded.connection->lose();
}

/// What a client has at the upstream does not count, however long that takes: only what waits here. A client
/// that has more calls than its share of the numbers keeps as many credits as it has numbers.
std::uint32_t Upstream::next_credit_limit(std::uint32_t client, std::uint64_t now_ns) const noexcept {
  const ClientEntry& entry = clients_[client];
  const std::uint32_t half = smaller_of(entry.credit_limit, config_.credits) / 2;
  if (admission_.lacks_numbers(client)) return larger_of(half, admission_.numbers_of(client));
  if (entry.unsent > 0 && now_ns > entry.moved_ns && now_ns - entry.moved_ns >= kStuckNs)
    return larger_of<std::uint32_t>(half, 1);
  const bool enough = entry.credit_limit == kNoLimit || 2 * entry.credit_limit >= config_.credits;
  return enough ? kNoLimit : 2 * entry.credit_limit;
}

void Upstream::update_credit_limit(std::uint32_t client, std::uint64_t now_ns) noexcept {
  ClientEntry& entry = clients_[client];
  const std::uint32_t limit = next_credit_limit(client, now_ns);
  found_.lowest_credit_limit = smaller_of(found_.lowest_credit_limit, limit);
  const bool changed = std::exchange(entry.credit_limit, limit) != limit;
  if (limit != kNoLimit)
    credits_.set(*entry.client, number_, limit, admission_.calls_of(client));
  else if (changed)
    credits_.set(*entry.client, number_, kNoLimit, 0);
}

void Upstream::publish() noexcept {
  const auto store = [](std::atomic<std::uint32_t>& to, std::uint32_t value) {
    to.store(value, std::memory_order_relaxed);
  };
  store(area_.connections, found_.up);
  store(area_.connecting, found_.connecting);
  store(area_.waiting, admission_.waiting() + found_.waiting);
  store(area_.outstanding, found_.outstanding);
  store(area_.uring_features, uring_.features().bits());
  admission_.publish(found_.waiting_for_pools, area_.pools);
  store(area_.credit_limit, found_.lowest_credit_limit == kNoLimit ? 0 : found_.lowest_credit_limit);
}

// How an upstream leaves its place, which another one takes (upstream_place.h).

bool Upstream::has_calls() const noexcept {
  return admission_.waiting() > 0 || admission_.outstanding() > 0 || !repeats_.orphans().none();
}

/// Calls that the send queue refers to end when the connection is closed.
void Upstream::end_calls_of(UpstreamConnection& connection) noexcept {
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

/// Dedicated connections become free when they are closed; those that are free stay as they are.
void Upstream::part_from_clients() noexcept {
  for (std::uint32_t i = 0; i < connections_.size(); ++i)
    if (i < config_.shared_connections || connections_[i]->state() != UpstreamConnection::State::Idle)
      end_calls_of(*connections_[i]);
  for (const ClientEntry& entry : clients_) {
    if (entry.client == nullptr) continue;
    service::Client& client = *entry.client;
    credits_.set(client, number_, kNoLimit, 0);
    for (std::size_t need = 0; need < kReplyNeeds; ++need)
      while (ForwardedCall* const waiting = admission_.waiting_of(client.number(), need).first())
        abandon(*waiting);
    client_gone(client);
  }
}

bool Upstream::leave() noexcept {
  if (leaving_since_ns_ == 0) leaving_since_ns_ = now_ns();
  if (!parted_) {
    if (has_calls() && now_ns() - leaving_since_ns_ < kLeaveNs) return false;
    part_from_clients();
    parted_ = true;
  }
  const auto shared = shared_connections();
  const auto retired = [](const auto& connection) { return connection->retired(); };
  if (leaving_count_ > 0 || !std::all_of(shared.begin(), shared.end(), retired)) return false;
  for (const auto& connection : shared) connection->reuse();
  suspects_ = {};
  parted_ = false;
  leaving_since_ns_ = 0;
  return true;
}

}  // namespace sluice::tcp_upstream
