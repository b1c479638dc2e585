// SPDX-License-Identifier: Apache-2.0
#include "controlplane/events/journal.h"

#include <algorithm>

#include "controlplane/events/kinds.h"

namespace sluice::events {
namespace {

constexpr std::uint64_t kIntervalNs = 1'000'000'000 / kPerSecond;

bool is_before(const Event& event, std::uint64_t sequence) {
  return event.sequence < sequence;
}

}  // namespace

Journal::Journal(Log log, Clock clock) : log_(std::move(log)), clock_(clock), id_(segment::wall_ns()) {}

bool Journal::take(Limit& limit, std::uint64_t now_ns) const {
  limit.spent_until_ns = std::max(limit.spent_until_ns, now_ns);
  if (limit.spent_until_ns + kIntervalNs > now_ns + kBurst * kIntervalNs) return false;
  limit.spent_until_ns += kIntervalNs;
  return true;
}

void Journal::record(const Kind& kind, std::vector<Field> fields) {
  Event event{.wall_ns = segment::wall_ns(), .kind = &kind, .fields = std::move(fields)};
  {
    const std::lock_guard lock(mutex_);
    Limit& limit = limits_[&kind];
    if (!take(limit, clock_())) {
      ++limit.suppressed;
      statistics_.suppressed.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    event.sequence = next_++;
    event.suppressed = std::exchange(limit.suppressed, 0);
    std::deque<Event>& ring = rings_[static_cast<std::size_t>(kind.cause)];
    if (ring.size() == kEventsKept) {
      if (ring.front().sequence >= read_to_) statistics_.unread.fetch_add(1, std::memory_order_relaxed);
      ring.pop_front();
    }
    ring.push_back(event);
    statistics_.recorded.fetch_add(1, std::memory_order_relaxed);
  }
  changed_.notify_all();
  log_(event);
}

void Journal::turn() {
  std::vector<EventsSuppressed> over;
  {
    const std::lock_guard lock(mutex_);
    const std::uint64_t now_ns = clock_();
    for (auto& [kind, limit] : limits_)
      if (limit.suppressed > 0 && limit.spent_until_ns <= now_ns)
        over.push_back({kind->name, std::exchange(limit.suppressed, 0)});
  }
  for (const EventsSuppressed& event : over) add(event);
}

Journal::Part Journal::read(std::uint64_t from, std::size_t most) {
  const std::lock_guard lock(mutex_);
  from = std::clamp<std::uint64_t>(from, 1, next_);
  Part part{.events = {}, .next = next_};
  std::array<std::deque<Event>::const_iterator, kCauses> at;
  for (std::size_t i = 0; i < kCauses; ++i)
    at[i] = std::lower_bound(rings_[i].begin(), rings_[i].end(), from, is_before);
  for (;;) {
    std::size_t first = kCauses;
    for (std::size_t i = 0; i < kCauses; ++i)
      if (at[i] != rings_[i].end() && (first == kCauses || at[i]->sequence < at[first]->sequence)) first = i;
    if (first == kCauses) break;
    if (part.events.size() == most) {
      part.next = most == 0 ? from : part.events.back().sequence + 1;
      break;
    }
    part.events.push_back(*at[first]++);
  }
  part.missed = part.next - from - part.events.size();
  read_to_ = std::max(read_to_, part.next);
  return part;
}

bool Journal::wait(std::uint64_t from) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return stopped_ || next_ > from; });
  return !stopped_;
}

void Journal::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
}

}  // namespace sluice::events
