// SPDX-License-Identifier: Apache-2.0
#include "controlplane/policy/credit_keeper.h"

#include <algorithm>

namespace sluice::policy {

CreditKeeper::CreditKeeper(segment::Layout& layout, const config::Config& config)
    : layout_(layout), config_(config) {
  for (std::uint32_t i = 0; i < config.block.reactors; ++i)
    reactors_.emplace_back(config.credit_limits(), config.block.all_connections());
}

void CreditKeeper::reconfigure() {
  for (OfReactor& reactor : reactors_) reactor.policy.set_limits(config_.credit_limits());
  reclassify_ = true;
  recomputed_ns_ = 0;
}

CreditKeeper::Start CreditKeeper::start_of(std::uint32_t reactor, const PeerAddress& client) const {
  const std::uint32_t client_class = class_of(config_.classes, client);
  return {client_class, reactors_[reactor].policy.first_grant(client_class)};
}

void CreditKeeper::look(std::uint32_t reactor, std::uint64_t now_ns) {
  OfReactor& of = reactors_[reactor];
  const segment::ReactorArea& area = layout_.reactors[reactor];
  for (std::uint32_t number = 0; number < of.seen.size(); ++number) {
    Seen& seen = of.seen[number];
    const segment::ConnectionUse& use = area.use[number];
    const std::uint32_t sequence = area.connections[number].sequence();
    if (sequence != seen.sequence) {
      const auto info = area.connections[number].read();
      if (!info) continue;
      // What a server may call us is no part of what is shared out.
      const bool open = info->outgoing == 0 && (info->state == segment::ConnectionState::Open ||
                                                info->state == segment::ConnectionState::Opening);
      const bool another = open && (!seen.open || info->cm_id != seen.cm_id);
      if (another) {
        of.policy.joined(number, info->client_class, use.granted.load(std::memory_order_relaxed), now_ns);
        seen.client_class = info->client_class;
      } else if (!open) {
        of.policy.left(number);
      }
      seen.sequence = sequence;
      seen.open = open;
      seen.cm_id = info->cm_id;
      seen.peer = info->peer;
    }
    if (!seen.open) continue;
    if (reclassify_ && class_of(config_.classes, seen.peer) != seen.client_class) {
      seen.client_class = class_of(config_.classes, seen.peer);
      // A grant of zero is none: the recomputation gives one, and tells the reactor the class with it.
      of.policy.joined(number, seen.client_class, 0, now_ns);
    }
    of.policy.observed(number, use.calls.load(std::memory_order_relaxed),
                       use.peak_busy.load(std::memory_order_relaxed), now_ns);
  }
}

void CreditKeeper::tell(std::uint32_t reactor) {
  OfReactor& of = reactors_[reactor];
  while (of.told < of.untold.size()) {
    const GrantChange& change = of.untold[of.told];
    const Seen& seen = of.seen[change.connection];
    if (!layout_.reactors[reactor].commands.push({.type = segment::CommandType::SetCredits,
                                                  .cm_id = seen.cm_id,
                                                  .connection = change.connection,
                                                  .first_grant = change.credits,
                                                  .client_class = seen.client_class}))
      return;
    ++of.told;
    ++statistics_.changes;
  }
}

void CreditKeeper::poll(std::uint64_t now_ns) {
  const bool due =
      now_ns - recomputed_ns_ >= std::uint64_t{config_.policy_interval_ms} * 1'000'000 || recomputed_ns_ == 0;
  if (due) {
    const std::uint64_t started_ns = segment::monotonic_ns();
    for (std::uint32_t reactor = 0; reactor < reactors_.size(); ++reactor) {
      OfReactor& of = reactors_[reactor];
      look(reactor, now_ns);
      // What is not told yet is superseded, but not forgotten: the policy takes it for granted.
      of.untold.erase(of.untold.begin(), of.untold.begin() + static_cast<std::ptrdiff_t>(of.told));
      of.told = 0;
      const auto changes = of.policy.recompute(now_ns);
      std::erase_if(of.untold, [&](const GrantChange& old) {
        return std::binary_search(
            changes.begin(), changes.end(), old,
            [](const GrantChange& a, const GrantChange& b) { return a.connection < b.connection; });
      });
      of.untold.insert(of.untold.end(), changes.begin(), changes.end());
    }
    reclassify_ = false;
    recomputed_ns_ = now_ns;
    ++statistics_.recomputations;
    statistics_.last_recomputation_ns = segment::monotonic_ns() - started_ns;
  }
  for (std::uint32_t reactor = 0; reactor < reactors_.size(); ++reactor) tell(reactor);
}

}  // namespace sluice::policy
