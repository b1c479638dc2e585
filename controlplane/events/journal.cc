// SPDX-License-Identifier: Apache-2.0
#include "controlplane/events/journal.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <string_view>

#include "controlplane/events/kinds.h"

namespace sluice::events {
namespace {

constexpr std::uint64_t kSecondNs = 1'000'000'000;

/// A rate: so many at once, and then one in each interval.
struct Rate {
  std::uint64_t burst;
  std::uint64_t interval_ns;
};
constexpr Rate kOfKind{kBurst, kSecondNs / kPerSecond};
constexpr Rate kOfPeer{kBurstOfPeer, kSecondNs / kPerSecondOfPeer};
/// After which nothing of a burst counts any more.
constexpr std::uint64_t kRestNs = kOfKind.burst * kOfKind.interval_ns;
static_assert(kRestNs >= kOfPeer.burst * kOfPeer.interval_ns);

bool may_take(std::uint64_t spent_until_ns, Rate rate, std::uint64_t now_ns) {
  return std::max(spent_until_ns, now_ns) + rate.interval_ns <= now_ns + rate.burst * rate.interval_ns;
}
void take_one(std::uint64_t& spent_until_ns, Rate rate, std::uint64_t now_ns) {
  spent_until_ns = std::max(spent_until_ns, now_ns) + rate.interval_ns;
}

const std::string* peer_of(const std::vector<Field>& fields) {
  for (const Field& field : fields)
    if (std::string_view(field.name) == kPeerField) return std::get_if<std::string>(&field.value);
  return nullptr;
}

bool is_before(const Event& event, std::uint64_t sequence) {
  return event.sequence < sequence;
}

}  // namespace

struct Journal::State {
  struct Limit {
    std::uint64_t spent_until_ns = 0;
    std::uint64_t suppressed = 0;
    std::uint64_t suppressed_ns = 0;  ///< the last time
  };
  using PeerOfKind = std::pair<const Kind*, std::string>;

  std::mutex mutex{};
  std::condition_variable changed{};
  // Under mutex.
  std::array<std::deque<Event>, kCauses> rings{};
  std::map<const Kind*, Limit> limits{};
  std::map<PeerOfKind, std::uint64_t> peers{};  ///< up to when each has spent what it has
  std::uint64_t next = 1;
  std::uint64_t read_to = 1;  ///< the farthest that any reader has come
  bool stopped = false;

  /// Only an event that finds room in both rates takes from them. The kind's is asked first: a flood from many addresses
  /// makes no work here.
  bool take(const Kind& kind, const std::vector<Field>& fields, Limit& limit, std::uint64_t now_ns) {
    if (!may_take(limit.spent_until_ns, kOfKind, now_ns)) return false;
    const std::string* const peer = kind.cause == Cause::Peers ? peer_of(fields) : nullptr;
    if (peer != nullptr) {
      std::uint64_t& spent_until_ns = spent_by(kind, *peer, now_ns);
      if (!may_take(spent_until_ns, kOfPeer, now_ns)) return false;
      take_one(spent_until_ns, kOfPeer, now_ns);
    }
    take_one(limit.spent_until_ns, kOfKind, now_ns);
    return true;
  }

  std::uint64_t& spent_by(const Kind& kind, const std::string& peer, std::uint64_t now_ns) {
    const PeerOfKind key{&kind, peer};
    if (const auto at = peers.find(key); at != peers.end()) return at->second;
    if (peers.size() >= kPeersKnown)
      std::erase_if(peers, [now_ns](const auto& known) { return known.second <= now_ns; });
    return peers[key];
  }
};

Journal::Journal(Log log, Clock clock)
    : log_(std::move(log)), clock_(clock), id_(segment::wall_ns()), state_(std::make_unique<State>()) {}

Journal::~Journal() = default;

std::size_t Journal::peers_known() {
  const std::lock_guard lock(state_->mutex);
  return state_->peers.size();
}

void Journal::record(const Kind& kind, std::vector<Field> fields) {
  Event event{.wall_ns = segment::wall_ns(), .kind = &kind, .fields = std::move(fields)};
  {
    const std::lock_guard lock(state_->mutex);
    State::Limit& limit = state_->limits[&kind];
    const std::uint64_t now_ns = clock_();
    if (!state_->take(kind, event.fields, limit, now_ns)) {
      ++limit.suppressed;
      limit.suppressed_ns = now_ns;
      statistics_.suppressed.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    event.sequence = state_->next++;
    event.suppressed = std::exchange(limit.suppressed, 0);
    std::deque<Event>& ring = state_->rings[static_cast<std::size_t>(kind.cause)];
    if (ring.size() == kEventsKept) {
      if (ring.front().sequence >= state_->read_to)
        statistics_.unread.fetch_add(1, std::memory_order_relaxed);
      ring.pop_front();
    }
    ring.push_back(event);
    statistics_.recorded.fetch_add(1, std::memory_order_relaxed);
  }
  state_->changed.notify_all();
  log_(event);
}

void Journal::turn() {
  std::vector<EventsSuppressed> over;
  {
    const std::lock_guard lock(state_->mutex);
    const std::uint64_t now_ns = clock_();
    for (auto& [kind, limit] : state_->limits)
      if (limit.suppressed > 0 && limit.suppressed_ns + kRestNs <= now_ns)
        over.push_back({kind->name, std::exchange(limit.suppressed, 0)});
  }
  for (const EventsSuppressed& event : over) add(event);
}

Journal::Part Journal::read(std::uint64_t from, std::size_t most) {
  const std::lock_guard lock(state_->mutex);
  from = std::clamp<std::uint64_t>(from, 1, state_->next);
  Part part{.events = {}, .next = state_->next};
  std::array<std::deque<Event>::const_iterator, kCauses> at;
  for (std::size_t i = 0; i < kCauses; ++i)
    at[i] = std::lower_bound(state_->rings[i].begin(), state_->rings[i].end(), from, is_before);
  for (;;) {
    std::size_t first = kCauses;
    for (std::size_t i = 0; i < kCauses; ++i)
      if (at[i] != state_->rings[i].end() && (first == kCauses || at[i]->sequence < at[first]->sequence))
        first = i;
    if (first == kCauses) break;
    if (part.events.size() == most) {
      part.next = most == 0 ? from : part.events.back().sequence + 1;
      break;
    }
    part.events.push_back(*at[first]++);
  }
  part.missed = part.next - from - part.events.size();
  state_->read_to = std::max(state_->read_to, part.next);
  return part;
}

bool Journal::wait(std::uint64_t from) {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return state_->stopped || state_->next > from; });
  return !state_->stopped;
}

void Journal::stop() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopped = true;
  }
  state_->changed.notify_all();
}

}  // namespace sluice::events
