// SPDX-License-Identifier: Apache-2.0
//
// How an upstream leaves its place, which another one takes (upstream_place.h).
#include <algorithm>

#include "dataplane/service/forward/upstream.h"

namespace sluice::forward {

bool Upstream::has_calls() const noexcept {
  return admission_.waiting() > 0 || admission_.outstanding() > 0 || !repeats_.orphans().none();
}

/// Calls that the send queue refers to end when the connection is closed.
void Upstream::end_calls_of(UpstreamConnection& connection) noexcept {
  ForwardedCallList& calls = connection.calls();
  for (ForwardedCall* forwarded = calls.first(); forwarded != nullptr; forwarded = forwarded->next)
    forwarded->reply_needed = false;
  connection.retire();
  for (ForwardedCall* forwarded = calls.first(); forwarded != nullptr;) {
    ForwardedCall* const next = forwarded->next;
    if (!forwarded->in_send_queue) end_at_upstream(*forwarded);
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

}  // namespace sluice::forward
