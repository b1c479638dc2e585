// SPDX-License-Identifier: Apache-2.0
#include "controlplane/policy/admission.h"

namespace sluice::policy {
namespace {

constexpr std::uint64_t kSecondNs = 1'000'000'000;

}  // namespace

bool TokenBucket::take(std::uint32_t per_second, std::uint64_t now_ns) {
  const std::uint64_t interval_ns = kSecondNs / (per_second != 0 ? per_second : 1);
  if (spent_until_ns_ < now_ns) spent_until_ns_ = now_ns;
  if (spent_until_ns_ + interval_ns > now_ns + kSecondNs) return false;
  spent_until_ns_ += interval_ns;
  return true;
}

Verdict Admission::judge(const PeerAddress& client, std::uint32_t max_of_client, std::uint64_t now_ns) {
  const Verdict verdict = decide(client, max_of_client, now_ns);
  ++counts_[static_cast<std::size_t>(verdict)];
  if (verdict == Verdict::Admit) connected(client);
  return verdict;
}

Verdict Admission::decide(const PeerAddress& client, std::uint32_t max_of_client, std::uint64_t now_ns) {
  if (draining_) return Verdict::Draining;
  // The client's own rate first: a request that this refuses takes nothing from the rate of all clients.
  if (quiet_.size() >= kMaxRemembered) forget_quiet(now_ns);
  Client* known = nullptr;
  if (const auto at = clients_.find(client.bytes); at != clients_.end())
    known = &at->second;
  else if (quiet_.size() < kMaxRemembered)
    known = &entry_of(client.bytes);
  if (known != nullptr && known->connections == 0) quiet_.splice(quiet_.end(), quiet_, known->quiet);
  if (known != nullptr && !known->requests.take(limits_.max_requests_per_second_per_client, now_ns))
    return Verdict::TooFastOfClient;
  if (!requests_.take(limits_.max_requests_per_second, now_ns)) return Verdict::TooFast;
  if (total_ >= limits_.max_connections) return Verdict::TooManyConnections;
  if (known != nullptr && known->connections >= max_of_client) return Verdict::TooManyOfClient;
  return Verdict::Admit;
}

Admission::Client& Admission::entry_of(const Key& key) {
  const auto [at, is_new] = clients_.try_emplace(key);
  if (is_new) at->second.quiet = quiet_.insert(quiet_.end(), key);
  return at->second;
}

/// The first in the order is the first whose requests count no longer: nobody behind one that still counts is
/// looked at.
void Admission::forget_quiet(std::uint64_t now_ns) {
  for (std::size_t i = 0; i < kForgottenAtATime && !quiet_.empty(); ++i) {
    ++looked_at_;
    const auto at = clients_.find(quiet_.front());
    if (!at->second.requests.full(now_ns)) return;
    clients_.erase(at);
    quiet_.pop_front();
  }
}

void Admission::connected(const PeerAddress& client) {
  Client& entry = entry_of(client.bytes);
  if (entry.connections++ == 0) quiet_.erase(entry.quiet);
  ++total_;
}

void Admission::disconnected(const PeerAddress& client) {
  const auto at = clients_.find(client.bytes);
  if (at == clients_.end() || at->second.connections == 0) return;
  --total_;
  if (--at->second.connections == 0) at->second.quiet = quiet_.insert(quiet_.end(), client.bytes);
}

void Admission::forget_all() {
  for (auto& [address, client] : clients_) {
    if (client.connections == 0) continue;
    client.connections = 0;
    client.quiet = quiet_.insert(quiet_.end(), address);
  }
  total_ = 0;
}

}  // namespace sluice::policy
