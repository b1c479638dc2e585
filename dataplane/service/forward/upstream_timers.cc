// SPDX-License-Identifier: Apache-2.0
//
// What an upstream does from time to time: it looks after its connections and addresses, ends what has lasted too
// long, limits the credits of clients whose calls wait, and publishes.
#include <algorithm>
#include <utility>

#include "dataplane/service/forward/upstream.h"

namespace sluice::forward {

void Upstream::background(std::uint64_t now_ns) noexcept {
  if (now_ns - ticked_ns_ < kTickNs) return;
  ticked_ns_ = now_ns;
  const std::size_t retrying = retrying_.size();
  for (std::size_t i = 0; i < retrying; ++i) {
    UpstreamConnection& connection = *retrying_[i];
    connection.in_retry_list = false;
    connection.tick(now_ns);
    if (connection.wants_tick()) schedule_retry(connection);
  }
  retrying_.erase(retrying_.begin(), retrying_.begin() + static_cast<std::ptrdiff_t>(retrying));
  recycle_connections();
  admission_.serve_without_connection();
  admission_.serve_behind_earlier();
  if (now_ns - interval_start_ns_ < kCreditIntervalNs) return;
  interval_start_ns_ = now_ns;
  // Not now_ns: calls may have begun after the loop read its clock, and ages are unsigned.
  const std::uint64_t clock_ns = clock_.now_ns();
  expire(clock_ns);
  if (addresses_.poll(clock_ns)) use_address();
  for (const auto& connection : connections_) {
    connection->follow_address(clock_ns);
    connection->watch(clock_ns);
  }
  watch_orphans(clock_ns);
  update_credit_limits(clock_ns);
  publish();
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

void Upstream::recycle_connections() noexcept {
  std::erase_if(retiring_, [this](UpstreamConnection* connection) {
    connection->retire_if_done();
    if (!connection->retired()) return false;
    connection->reuse();
    free_.push_back(connection);
    return true;
  });
}

/// What the upstream does not answer, though it answers others, holds up its client no longer: a WRITE ends with
/// its connection, and of other calls only the repetitions wait on, for which they are sent again.
void Upstream::watch_orphans(std::uint64_t now_ns) noexcept {
  repeats_.orphans().for_each([&](ForwardedCall& orphan) {
    UpstreamConnection& connection = *orphan.connection;
    const bool answers_others = connection.state() == UpstreamConnection::State::Up &&
                                orphan.state == ForwardedCall::State::AwaitingReply &&
                                connection.heard_ns() > orphan.sent_ns;
    if (!answers_others || now_ns - orphan.sent_ns < kEarlierNs) return;
    if (orphan.message.empty()) return connection.lose();
    repeats_.no_longer_earlier(orphan);
    if (now_ns - orphan.sent_ns < kForgottenNs || !repeats_.take_asked_again(orphan)) return;
    // NFS 4 does not allow it on the same connection (RFC 7530, section 3.1.1): its own is made again.
    if (orphan.own_connection) return connection.lose();
    connection.send_again(orphan);
  });
}

bool Upstream::is_due(const ForwardedCall& forwarded, std::uint64_t age_ns) const noexcept {
  const std::uint64_t limit_ns = config_.call_timeout_ns;
  return (limit_ns > 0 && age_ns >= limit_ns) || (!forwarded.reply_needed && age_ns >= kAbandonedNs);
}

void Upstream::expire(ForwardedCallList& calls, std::uint64_t now_ns) noexcept {
  for (ForwardedCall* forwarded = calls.first(); forwarded != nullptr;) {
    ForwardedCall* const next = forwarded->next;
    if (forwarded->call == nullptr || !is_due(*forwarded, now_ns - forwarded->begun_ns)) {
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

/// What a client has at the upstream does not count, however long that takes: only what waits here. A client
/// that has more calls than its share of the numbers keeps as many credits as it has numbers.
std::uint32_t Upstream::next_credit_limit(std::uint32_t client, std::uint64_t now_ns) const noexcept {
  const ClientEntry& entry = clients_[client];
  const std::uint32_t half = std::min(entry.credit_limit, config_.credits) / 2;
  if (admission_.lacks_numbers(client)) return std::max(half, admission_.numbers_of(client));
  if (entry.unsent > 0 && now_ns > entry.moved_ns && now_ns - entry.moved_ns >= kStuckNs)
    return std::max<std::uint32_t>(half, 1);
  const bool enough = entry.credit_limit == kNoLimit || 2 * entry.credit_limit >= config_.credits;
  return enough ? kNoLimit : 2 * entry.credit_limit;
}

void Upstream::update_credit_limits(std::uint64_t now_ns) noexcept {
  lowest_credit_limit_ = kNoLimit;
  for (std::uint32_t i = 0; i < clients_.size(); ++i) {
    ClientEntry& entry = clients_[i];
    if (entry.client == nullptr) continue;
    const std::uint32_t limit = next_credit_limit(i, now_ns);
    lowest_credit_limit_ = std::min(lowest_credit_limit_, limit);
    const bool changed = std::exchange(entry.credit_limit, limit) != limit;
    if (limit != kNoLimit)
      credits_.set(*entry.client, number_, limit, admission_.calls_of(i));
    else if (changed)
      credits_.set(*entry.client, number_, kNoLimit, 0);
  }
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
  area_.uring_features.store(uring_.features().bits(), std::memory_order_relaxed);
  admission_.publish(area_.pools);
  area_.credit_limit.store(lowest_credit_limit_ == kNoLimit ? 0 : lowest_credit_limit_,
                           std::memory_order_relaxed);
}

}  // namespace sluice::forward
