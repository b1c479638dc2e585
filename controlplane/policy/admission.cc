// SPDX-License-Identifier: Apache-2.0
#include "controlplane/policy/admission.h"

namespace sluice::policy {

const char* to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::Admit:
      return "admitted";
    case Verdict::TooManyConnections:
      return "too many connections";
    case Verdict::TooManyOfClient:
      return "too many connections of this client";
    case Verdict::TooFast:
      return "too many connection requests";
  }
  return "?";
}

Verdict Admission::judge(const rdma::PeerAddress& client, std::uint64_t now_ns) {
  constexpr std::uint64_t kWindowNs = 1'000'000'000;
  if (now_ns - window_start_ns_ >= kWindowNs) {
    window_start_ns_ = now_ns;
    in_window_ = 0;
  }
  if (++in_window_ > limits_.max_requests_per_second) return Verdict::TooFast;
  if (total_ >= limits_.max_connections) return Verdict::TooManyConnections;
  const auto of_client = per_client_.find(client.bytes);
  if (of_client != per_client_.end() && of_client->second >= limits_.max_connections_per_client)
    return Verdict::TooManyOfClient;
  connected(client);
  return Verdict::Admit;
}

void Admission::disconnected(const rdma::PeerAddress& client) {
  const auto of_client = per_client_.find(client.bytes);
  if (of_client == per_client_.end()) return;
  --total_;
  if (--of_client->second == 0) per_client_.erase(of_client);
}

}  // namespace sluice::policy
