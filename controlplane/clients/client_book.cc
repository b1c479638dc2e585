// SPDX-License-Identifier: Apache-2.0
#include "controlplane/clients/client_book.h"

#include <algorithm>
#include <functional>
#include <string_view>

namespace sluice::clients {
namespace {

/// Below it a candidate is forgotten.
constexpr double kFewCalls = 1;
/// So much busier has to be who takes the place of another, so that two do not take turns.
constexpr double kMuchBusier = 2;

void add_to(segment::ServedCalls& sum, const segment::ServedCalls& served) {
  sum.calls += served.calls;
  sum.time_ns += served.time_ns;
  sum.received_bytes += served.received_bytes;
  sum.sent_bytes += served.sent_bytes;
}

}  // namespace

std::size_t ClientBook::Hash::operator()(const PeerAddress& peer) const noexcept {
  return std::hash<std::string_view>()({reinterpret_cast<const char*>(peer.bytes.data()), peer.bytes.size()});
}

/// table_.clients.size(): it has none.
std::size_t ClientBook::place_of(const PeerAddress& peer) const {
  const auto at = std::find_if(table_.clients.begin(), table_.clients.end(),
                               [&](const auto& client) { return client.in_use != 0 && client.peer == peer; });
  return static_cast<std::size_t>(at - table_.clients.begin());
}

void ClientBook::add(const PeerAddress& peer, const segment::ServedCalls& served) {
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

/// A place that is free counts as the least busy.
std::size_t ClientBook::least_busy() const {
  std::size_t least = 0;
  for (std::size_t i = 0; i < table_.clients.size(); ++i) {
    if (table_.clients[i].in_use == 0) return i;
    if (recent_[i] < recent_[least]) least = i;
  }
  return least;
}

/// Whether it has given a free one, so that there may be another.
bool ClientBook::give_place() {
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

void ClientBook::end_interval() {
  while (give_place()) {
  }
  for (double& recent : recent_) recent /= 2;
  for (auto& [peer, recent] : candidates_) recent /= 2;
  std::erase_if(candidates_, [](const auto& candidate) { return candidate.second < kFewCalls; });
}

}  // namespace sluice::clients
