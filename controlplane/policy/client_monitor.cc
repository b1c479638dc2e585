// SPDX-License-Identifier: Apache-2.0
//
// Clients that are shown by name: what they were served, and which of them have an entry in the table.
#include "controlplane/policy/client_monitor.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "dataplane/segment/checked.h"
#include "dataplane/segment/layout.h"

namespace sluice::policy {
namespace {

/// Activity below which a candidate is dropped.
constexpr double kFewCalls = 1;
/// Factor by which a candidate has to be busier than the client that it replaces. It provides hysteresis, so
/// that two clients do not alternate.
constexpr double kMuchBusier = 2;

void add_to(segment::ServedCalls& sum, const segment::ServedCalls& served) {
  sum.calls += served.calls;
  sum.time_ns += served.time_ns;
  sum.received_bytes += served.received_bytes;
  sum.sent_bytes += served.sent_bytes;
}

template <typename Busy>
bool busier(const Busy& one, const Busy& other) {
  return one.calls > other.calls;
}

}  // namespace

void RoundSums::add_busy(const BusyConnection& connection) {
  round_.calls += connection.calls;
  keep(connection);
  auto client = clients_.find(connection.peer);
  if (client == clients_.end()) {
    if (clients_.size() == kMaxClientsOfRound) return;
    client = clients_.emplace(connection.peer, BusyClient{.peer = connection.peer}).first;
  }
  ++client->second.connections;
  client->second.granted += connection.granted;
  client->second.busy += connection.busy;
  client->second.calls += connection.calls;
}

Round RoundSums::end(std::uint64_t interval_ns) {
  round_.interval_ns = interval_ns;
  std::sort_heap(round_.busiest.begin(), round_.busiest.end(), busier<BusyConnection>);
  for (const auto& [peer, client] : clients_) round_.clients.push_back(client);
  const auto kept =
      round_.clients.begin() + static_cast<std::ptrdiff_t>(std::min(round_.clients.size(), kBusiestKept));
  std::partial_sort(round_.clients.begin(), kept, round_.clients.end(), busier<BusyClient>);
  round_.clients.erase(kept, round_.clients.end());
  clients_.clear();
  return std::exchange(round_, {});
}

/// Keeps the busiest connections in a heap whose top is the least busy.
void RoundSums::keep(const BusyConnection& connection) {
  auto& heap = round_.busiest;
  if (heap.size() == kBusiestKept) {
    if (connection.calls <= heap.front().calls) return;
    std::pop_heap(heap.begin(), heap.end(), busier<BusyConnection>);
    heap.pop_back();
  }
  heap.push_back(connection);
  std::push_heap(heap.begin(), heap.end(), busier<BusyConnection>);
}

std::size_t ServedClients::Hash::operator()(const PeerAddress& peer) const noexcept {
  return std::hash<std::string_view>()({reinterpret_cast<const char*>(peer.bytes.data()), peer.bytes.size()});
}

/// Returns the index of the client's entry, or table_.clients.size() if it has none.
std::size_t ServedClients::place_of(const PeerAddress& peer) const {
  const auto at = std::find_if(table_.clients.begin(), table_.clients.end(),
                               [&](const auto& client) { return client.in_use != 0 && client.peer == peer; });
  return static_cast<std::size_t>(at - table_.clients.begin());
}

void ServedClients::add(const PeerAddress& peer, const segment::ServedCalls& served) {
  if (const std::size_t place = place_of(peer); place < table_.clients.size()) {
    add_to(table_.clients[place].served, served);
    recent_[place] += static_cast<double>(served.calls);
    return;
  }
  add_to(table_.others, served);
  if (const auto at = candidates_.find(peer); at != candidates_.end())
    at->second += static_cast<double>(served.calls);
  else if (candidates_.size() < kMaxCandidates)
    candidates_.emplace(peer, static_cast<double>(served.calls));
}

/// Returns the index of the least busy entry. A free entry counts as the least busy.
std::size_t ServedClients::least_busy() const {
  std::size_t least = 0;
  for (std::size_t i = 0; i < table_.clients.size(); ++i) {
    if (table_.clients[i].in_use == 0) return i;
    if (recent_[i] < recent_[least]) least = i;
  }
  return least;
}

/// Assigns one entry to the busiest candidate. Returns true if the entry was free, in which case there may be
/// further free entries.
bool ServedClients::give_place() {
  const auto busiest = std::max_element(candidates_.begin(), candidates_.end(),
                                        [](const auto& a, const auto& b) { return a.second < b.second; });
  if (busiest == candidates_.end()) return false;
  const std::size_t place = least_busy();
  segment::ShownClient& client = table_.clients[place];
  const bool is_free = client.in_use == 0;
  if (!is_free && busiest->second < kMuchBusier * recent_[place] + kFewCalls) return false;
  const auto [peer, recent] = *busiest;
  candidates_.erase(busiest);
  if (!is_free) candidates_.emplace(client.peer, recent_[place]);
  client = {.peer = peer, .in_use = 1, .served = {}};
  recent_[place] = recent;
  return is_free;
}

void ServedClients::end_interval() {
  while (give_place()) {
  }
  for (double& recent : recent_) recent /= 2;
  for (auto& [peer, recent] : candidates_) recent /= 2;
  std::erase_if(candidates_, [](const auto& candidate) { return candidate.second < kFewCalls; });
}

namespace {

constexpr std::uint64_t kRoundIntervalNs = 1'000'000'000;
constexpr std::uint32_t kRoundsPerInterval = 10;

segment::ServedCalls shown_by(const segment::ConnectionUse& use) {
  return {.calls = use.served.load(std::memory_order_relaxed),
          .time_ns = use.served_ns.load(std::memory_order_relaxed),
          .received_bytes = use.received_bytes.load(std::memory_order_relaxed),
          .sent_bytes = use.sent_bytes.load(std::memory_order_relaxed)};
}

/// Returns the difference of two samples. The reactor does not update the counters atomically as a group, so
/// each of them may lag behind.
segment::ServedCalls since(const segment::ServedCalls& before, const segment::ServedCalls& now) {
  const auto more = [](std::uint64_t from, std::uint64_t to) { return to - std::min(from, to); };
  return {.calls = more(before.calls, now.calls),
          .time_ns = more(before.time_ns, now.time_ns),
          .received_bytes = more(before.received_bytes, now.received_bytes),
          .sent_bytes = more(before.sent_bytes, now.sent_bytes)};
}

}  // namespace

ClientMonitor::ClientMonitor(segment::Layout& layout, std::uint32_t reactors, std::uint32_t connections)
    : layout_(layout),
      reactors_(std::min(reactors, segment::kMaxReactors)),
      connections_(std::min(connections, segment::kMaxConnections)),
      seen_(std::size_t{reactors_} * connections_),
      next_(seen_.size()) {
  for (std::uint32_t reactor = 0; reactor < reactors_; ++reactor)
    for (std::uint32_t number = 0; number < connections_; ++number) sample(reactor, number, false);
}

/// Samples one connection. The common case reads only two words, because most connections have not changed.
void ClientMonitor::sample(std::uint32_t reactor, std::uint32_t number, bool counts) {
  const segment::ConnectionUse& use = layout_.reactors[reactor].use[number];
  if (use.open.load(std::memory_order_relaxed) != segment::ConnectionUse::kOfClient) return;
  const std::uint32_t granted = use.granted.load(std::memory_order_relaxed);
  const std::uint32_t busy = use.busy.load(std::memory_order_relaxed);
  if (counts) sums_.add_open(granted, busy);
  const segment::ServedCalls served = shown_by(use);
  Seen& seen = seen_[reactor * connections_ + number];
  if (seen.incarnation != 0 && served.calls == seen.served.calls) return;
  const auto info = segment::checked(layout_.reactors[reactor].connections[number]);
  if (!info || info->incarnation == 0) return;
  const segment::ServedCalls before =
      info->incarnation == seen.incarnation && served.calls >= seen.served.calls ? seen.served
                                                                                 : segment::ServedCalls{};
  seen = {.incarnation = info->incarnation, .served = served};
  if (!counts || served.calls == before.calls) return;
  book_.add(info->peer, since(before, served));
  sums_.add_busy({.reactor = reactor,
                  .number = number,
                  .peer = info->peer,
                  .client_class = info->client_class,
                  .granted = granted,
                  .busy = busy,
                  .calls = served.calls - before.calls});
}

void ClientMonitor::end_round() {
  if (rounds_++ % kRoundsPerInterval == 0) book_.end_interval();
  layout_.clients.write(book_.table());
  last_round_ = sums_.end(round_ns_ - last_round_ns_);
}

void ClientMonitor::poll(std::uint64_t now_ns) {
  looked_ = 0;
  if (next_ == seen_.size()) {
    if (now_ns - round_ns_ < kRoundIntervalNs) return;
    last_round_ns_ = round_ns_ == 0 ? now_ns - std::min(now_ns, kRoundIntervalNs) : round_ns_;
    round_ns_ = now_ns;
    next_ = 0;
  }
  for (; next_ < seen_.size() && looked_ < kLookedPerPoll; ++next_, ++looked_)
    sample(static_cast<std::uint32_t>(next_ / connections_), static_cast<std::uint32_t>(next_ % connections_),
           true);
  if (next_ == seen_.size()) end_round();
}

}  // namespace sluice::policy
