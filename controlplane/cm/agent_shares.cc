// SPDX-License-Identifier: Apache-2.0
//
// The agent's shares: which entries are evicted when the table, or the share of a source, is full.
#include "controlplane/cm/agent.h"

namespace sluice::cm {

/// Evicts the oldest entry in TimeWait if the table is full, or else the oldest in DisconnectSent: they hold nothing but an
/// identifier. Returns false if neither exists.
bool Agent::make_place(std::uint64_t now_ns) {
  if (entries_.size() < config_.max_connections) return true;
  const EntryQueue& queue = time_wait_.size() > 0 ? time_wait_ : disconnecting_;
  if (queue.size() == 0) return false;
  evict(queue.oldest().id, now_ns);
  return true;
}

void Agent::evict(std::uint32_t id, std::uint64_t now_ns) {
  ++statistics_.evicted;
  dispatch(static_cast<Id>(id), Event::Evicted, {nullptr, now_ns, 0});
}

/// Evicts the oldest half-open entry, of the source if its share is full. Returns why no place can be made: requests that
/// may still be confirmed hold all of them.
std::optional<Refusal> Agent::make_half_open_place(const PeerAddress& source, std::uint64_t now_ns) {
  if (half_open_.size_of(source) >= config_.max_half_open_per_source) {
    if (give_way(half_open_.oldest_of(source), now_ns)) return std::nullopt;
    return Refusal::HalfOpenOfClient;
  }
  if (half_open_.size() < config_.max_half_open || give_way(half_open_.oldest(), now_ns)) return std::nullopt;
  return Refusal::HalfOpen;
}

bool Agent::give_way(const EntryQueue::Item& oldest, std::uint64_t now_ns) {
  if (now_ns - oldest.since_ns < config_.half_open_grace_ns) return false;
  const std::uint32_t id = oldest.id;
  entries_.find(id)->retries_left = 0;
  dispatch(static_cast<Id>(id), Event::Timer, {nullptr, now_ns, 0});
  return true;
}

/// Changes to `state`, DisconnectSent or TimeWait, within the share of the source.
void Agent::enter_ended(Entry& entry, State state, std::uint64_t now_ns) {
  const auto id = static_cast<std::uint32_t>(entry.id);
  const PeerAddress& source = entry.endpoint.remote;
  change_state(entry, state);
  disconnecting_.remove(id);
  if (disconnecting_.size_of(source) + time_wait_.size_of(source) >= config_.max_ended_per_source) {
    const EntryQueue& queue = time_wait_.size_of(source) > 0 ? time_wait_ : disconnecting_;
    if (queue.size_of(source) > 0) evict(queue.oldest_of(source).id, now_ns);
  }
  (state == State::TimeWait ? time_wait_ : disconnecting_).add(id, source, now_ns);
}

}  // namespace sluice::cm
