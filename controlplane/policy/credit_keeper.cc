// SPDX-License-Identifier: Apache-2.0
#include "controlplane/policy/credit_keeper.h"

#include <algorithm>
#include <utility>

namespace sluice::policy {

CreditKeeper::CreditKeeper(segment::Layout& layout, CreditSettings settings)
    : layout_(layout), settings_(std::move(settings)) {
  for (std::uint32_t i = 0; i < settings_.reactors; ++i)
    reactors_.emplace_back(settings_.limits, settings_.connections);
}

void CreditKeeper::reconfigure(CreditSettings settings) {
  settings_ = std::move(settings);
  for (OfReactor& reactor : reactors_) reactor.policy.set_limits(settings_.limits);
  reclassify_ = true;
  recomputed_ns_ = 0;
}

CreditKeeper::Start CreditKeeper::start_of(std::uint32_t reactor, const PeerAddress& client) const {
  const std::uint32_t client_class = class_of(settings_.classes, client);
  return {client_class, reactors_[reactor].policy.first_grant(client_class)};
}

/// Joins and leaves, as far as the entry has changed. False when it is being written: the next pass reads it.
bool CreditKeeper::read_entry(std::uint32_t reactor, std::uint32_t number, std::uint64_t now_ns) {
  OfReactor& of = reactors_[reactor];
  Seen& seen = of.seen[number];
  const segment::ReactorArea& area = layout_.reactors[reactor];
  const std::uint32_t sequence = area.connections[number].sequence();
  if (sequence == seen.sequence) return true;
  const auto info = area.connections[number].read();
  if (!info) return false;
  // The budget is for calls that we serve. Connections that the data plane opened to a server are no part of it.
  const bool open = info->outgoing == 0 && (info->state == segment::ConnectionState::Open ||
                                            info->state == segment::ConnectionState::Opening);
  const bool is_new = open && (!seen.open || info->cm_id != seen.cm_id);
  if (is_new) {
    const std::uint32_t granted = area.use[number].granted.load(std::memory_order_relaxed);
    of.policy.joined(number, info->client_class, granted, now_ns);
    seen.client_class = info->client_class;
  } else if (!open) {
    of.policy.left(number);
  }
  seen.sequence = sequence;
  seen.open = open;
  seen.cm_id = info->cm_id;
  seen.peer = info->peer;
  if (open && seen.host != info->host.view()) {
    seen.host = info->host.view();
    reclassify(of, number, now_ns);
  }
  return true;
}

std::uint32_t CreditKeeper::class_of_connection(const Seen& seen) const {
  const auto host = settings_.host_classes.find(seen.host);
  return host != settings_.host_classes.end() ? host->second : class_of(settings_.classes, seen.peer);
}

void CreditKeeper::reclassify(OfReactor& of, std::uint32_t number, std::uint64_t now_ns) {
  Seen& seen = of.seen[number];
  const std::uint32_t wanted = class_of_connection(seen);
  if (wanted == seen.client_class) return;
  seen.client_class = wanted;
  // With zero as its grant the recomputation always finds a change, and the command for that has the new class.
  of.policy.joined(number, wanted, 0, now_ns);
}

void CreditKeeper::observe(std::uint32_t reactor, std::uint64_t now_ns) {
  OfReactor& of = reactors_[reactor];
  for (std::uint32_t number = 0; number < of.seen.size(); ++number) {
    if (!read_entry(reactor, number, now_ns)) continue;
    Seen& seen = of.seen[number];
    if (!seen.open) continue;
    if (reclassify_) reclassify(of, number, now_ns);
    const segment::ConnectionUse& use = layout_.reactors[reactor].use[number];
    of.policy.observed(number, use.calls.load(std::memory_order_relaxed),
                       use.peak_busy.load(std::memory_order_relaxed), now_ns);
  }
}

/// `changes` are in order of connections. A change that was not sent stays, unless there is a newer one for its
/// connection: the policy counts it as granted and would not report it again.
void CreditKeeper::replace_pending(OfReactor& of, std::span<const GrantChange> changes) {
  of.pending.erase(of.pending.begin(), of.pending.begin() + static_cast<std::ptrdiff_t>(of.sent));
  of.sent = 0;
  std::erase_if(of.pending, [&](const GrantChange& old) {
    return std::binary_search(
        changes.begin(), changes.end(), old,
        [](const GrantChange& a, const GrantChange& b) { return a.connection < b.connection; });
  });
  of.pending.insert(of.pending.end(), changes.begin(), changes.end());
}

void CreditKeeper::recompute(std::uint64_t now_ns) {
  const std::uint64_t started_ns = segment::monotonic_ns();
  for (std::uint32_t reactor = 0; reactor < reactors_.size(); ++reactor) {
    observe(reactor, now_ns);
    replace_pending(reactors_[reactor], reactors_[reactor].policy.recompute(now_ns));
  }
  reclassify_ = false;
  recomputed_ns_ = now_ns;
  ++statistics_.recomputations;
  statistics_.last_recomputation_ns = segment::monotonic_ns() - started_ns;
}

void CreditKeeper::send_grants(std::uint32_t reactor) {
  OfReactor& of = reactors_[reactor];
  while (of.sent < of.pending.size()) {
    const GrantChange& change = of.pending[of.sent];
    const Seen& seen = of.seen[change.connection];
    if (!layout_.reactors[reactor].commands.push({.type = segment::CommandType::SetCredits,
                                                  .cm_id = seen.cm_id,
                                                  .connection = change.connection,
                                                  .first_grant = change.credits,
                                                  .client_class = seen.client_class}))
      return;
    ++of.sent;
    ++statistics_.changes;
  }
}

void CreditKeeper::poll(std::uint64_t now_ns) {
  const std::uint64_t interval_ns = std::uint64_t{settings_.interval_ms} * 1'000'000;
  if (recomputed_ns_ == 0 || now_ns - recomputed_ns_ >= interval_ns) recompute(now_ns);
  for (std::uint32_t reactor = 0; reactor < reactors_.size(); ++reactor) send_grants(reactor);
}

}  // namespace sluice::policy
