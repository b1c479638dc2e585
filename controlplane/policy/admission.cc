// SPDX-License-Identifier: Apache-2.0
#include "controlplane/policy/admission.h"

#include <algorithm>

namespace sluice::policy {
namespace {

constexpr std::uint64_t kSecondNs = 1'000'000'000;

}  // namespace

bool TokenBucket::take(std::uint32_t per_second, std::uint64_t now_ns) {
  const std::uint64_t interval_ns = kSecondNs / std::max(per_second, 1u);
  spent_until_ns_ = std::max(spent_until_ns_, now_ns);
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
  if (clients_.size() >= total_ + kMaxRemembered) forget_quiet(now_ns);
  Client* known = nullptr;
  if (const auto at = clients_.find(client.bytes); at != clients_.end())
    known = &at->second;
  else if (clients_.size() < total_ + kMaxRemembered)
    known = &clients_[client.bytes];
  if (known != nullptr && !known->requests.take(limits_.max_requests_per_second_per_client, now_ns))
    return Verdict::TooFastOfClient;
  if (!requests_.take(limits_.max_requests_per_second, now_ns)) return Verdict::TooFast;
  if (total_ >= limits_.max_connections) return Verdict::TooManyConnections;
  if (known != nullptr && known->connections >= max_of_client) return Verdict::TooManyOfClient;
  return Verdict::Admit;
}

void Admission::forget_quiet(std::uint64_t now_ns) {
  std::erase_if(clients_, [&](const auto& entry) {
    return entry.second.connections == 0 && entry.second.requests.full(now_ns);
  });
}

void Admission::disconnected(const PeerAddress& client) {
  const auto at = clients_.find(client.bytes);
  if (at == clients_.end() || at->second.connections == 0) return;
  --total_;
  --at->second.connections;
}

void Admission::forget_all() {
  for (auto& [address, client] : clients_) client.connections = 0;
  total_ = 0;
}

}  // namespace sluice::policy
