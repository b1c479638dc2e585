// SPDX-License-Identifier: Apache-2.0
#include "controlplane/policy/credit_keeper.h"

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
  round_ns_ = 0;
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
  const bool is_new = open && (!seen.open || info->incarnation != seen.incarnation);
  if (is_new) {
    // What a control plane before this one wanted stands, also where the reactor has still to follow it.
    const segment::Grant wanted =
        segment::WantedWriter(layout_.reactors[reactor].wanted).grant(number, info->incarnation);
    const std::uint32_t granted =
        wanted.credits != 0 ? wanted.credits : area.use[number].granted.load(std::memory_order_relaxed);
    seen.client_class = wanted.client_class != segment::kKeepClass ? wanted.client_class : info->client_class;
    seen.host.clear();
    of.policy.joined(number, seen.client_class, granted, now_ns);
  } else if (!open) {
    of.policy.left(number);
  }
  seen.sequence = sequence;
  seen.open = open;
  seen.incarnation = info->incarnation;
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
  // With zero as its grant the recomputation always finds a change, and what is wanted then has the new class.
  of.policy.joined(number, wanted, 0, now_ns);
}

void CreditKeeper::observe(std::uint32_t reactor, std::uint64_t now_ns) {
  OfReactor& of = reactors_[reactor];
  for (std::uint32_t number = 0; number < of.seen.size(); ++number) {
    if (!read_entry(reactor, number, now_ns)) continue;
    Seen& seen = of.seen[number];
    if (!seen.open) continue;
    if (reclassifying_) reclassify(of, number, now_ns);
    const segment::ConnectionUse& use = layout_.reactors[reactor].use[number];
    of.policy.observed(number, use.calls.load(std::memory_order_relaxed),
                       use.peak_busy.load(std::memory_order_relaxed), now_ns);
  }
  // What was busy between the reading and this is not in the next peaks: some milliseconds of an interval.
  layout_.reactors[reactor].peaks_read.fetch_add(1, std::memory_order_relaxed);
}

void CreditKeeper::recompute(std::uint32_t reactor, std::uint64_t now_ns) {
  observe(reactor, now_ns);
  for (const GrantChange& change : reactors_[reactor].policy.recompute(now_ns)) want(reactor, change);
}

void CreditKeeper::want(std::uint32_t reactor, const GrantChange& change) {
  const Seen& seen = reactors_[reactor].seen[change.connection];
  segment::WantedWriter wanted(layout_.reactors[reactor].wanted);
  segment::Grant grant{.credits = change.credits, .client_class = seen.client_class};
  // The class that an authenticated host was admitted to, as long as the table does not show the host.
  const segment::Grant before = wanted.grant(change.connection, seen.incarnation);
  if (seen.host.empty() && before.client_class != segment::kKeepClass &&
      wanted.course(change.connection, seen.incarnation).admitted)
    grant.client_class = before.client_class;
  if (wanted.grant(change.connection, seen.incarnation, grant)) ++statistics_.changes;
}

void CreditKeeper::poll(std::uint64_t now_ns) {
  const std::uint64_t interval_ns = std::uint64_t{settings_.interval_ms} * 1'000'000;
  if (round_ns_ == 0 || (next_ == reactors_.size() && now_ns - round_ns_ >= interval_ns)) {
    next_ = 0;
    round_ns_ = now_ns;
    round_took_ns_ = 0;
    reclassifying_ = std::exchange(reclassify_, false);
  }
  if (next_ == reactors_.size()) return;
  const std::uint64_t started_ns = segment::monotonic_ns();
  recompute(next_++, now_ns);
  round_took_ns_ += segment::monotonic_ns() - started_ns;
  if (next_ < reactors_.size()) return;
  ++statistics_.recomputations;
  statistics_.last_recomputation_ns = round_took_ns_;
}

}  // namespace sluice::policy
