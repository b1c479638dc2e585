// SPDX-License-Identifier: Apache-2.0
//
// Fair shares, the credit policy of one reactor, the controller that applies it to the connections of all
// reactors, and the admission of connections.
#include "controlplane/policy/credit_controller.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "controlplane/policy/admission.h"
#include "controlplane/policy/credit_policy.h"
#include "dataplane/base/invariant.h"
#include "dataplane/segment/layout.h"

namespace sluice::policy {
namespace {

constexpr int kBisections = 48;

double share_at(const Claim& claim, double level) {
  return std::clamp(level * claim.weight, static_cast<double>(claim.least), static_cast<double>(claim.most));
}

double total_at(std::span<const Claim> claims, double level) {
  double total = 0;
  for (const Claim& claim : claims) total += share_at(claim, level);
  return total;
}

}  // namespace

FairShares fair_shares(std::span<const Claim> claims, std::uint64_t budget, std::size_t first,
                       std::span<std::uint32_t> shares) {
  double high = 0;
  for (const Claim& claim : claims) high = std::max(high, claim.most / claim.weight);
  const auto wanted = static_cast<double>(budget);
  double low = high;
  if (total_at(claims, high) > wanted) {
    low = 0;
    for (int i = 0; i < kBisections; ++i) {
      const double middle = (low + high) / 2;
      (total_at(claims, middle) > wanted ? high : low) = middle;
    }
  }
  FairShares result{.level = low, .total = 0};
  // The tolerance prevents rounding errors from turning a whole number into the next lower one.
  constexpr double kRounding = 1e-6;
  for (std::size_t i = 0; i < claims.size(); ++i) {
    shares[i] = static_cast<std::uint32_t>(std::floor(share_at(claims[i], low) + kRounding));
    result.total += shares[i];
  }
  for (std::size_t i = 0; i < claims.size() && result.total < budget; ++i) {
    const std::size_t at = (first + i) % claims.size();
    // Only claims whose share was rounded down get one more.
    if (shares[at] >= claims[at].most || low * claims[at].weight < shares[at] + kRounding) continue;
    ++shares[at];
    ++result.total;
  }
  return result;
}

namespace {

/// Grants up to this limit are set exactly. Above it, an increase by a single credit is not worth a command.
/// A decrease by one is applied, because another connection needs that credit.
constexpr std::uint32_t kFineGrants = 8;
/// Recomputations after which the credits left over from rounding are given to other connections.
constexpr std::uint32_t kRecomputationsPerTurn = 4;

}  // namespace

CreditPolicy::CreditPolicy(const CreditLimits& limits, std::uint32_t max_connections)
    : limits_(limits), members_(max_connections) {
  for (auto* room : {&numbers_, &wanted_, &most_}) room->reserve(max_connections);
  claims_.reserve(max_connections);
  changes_.reserve(max_connections);
}

const ClassLimits& CreditPolicy::class_of(std::uint32_t client_class) const {
  return limits_.classes[client_class < limits_.classes.size() ? client_class : 0];
}

std::uint32_t CreditPolicy::first_grant(std::uint32_t client_class) const {
  const ClassLimits& limits = class_of(client_class);
  const double fair = std::min<double>(level_ * limits.weight, limits.max_credits);
  constexpr double kRounding = 1e-6;  // see fair_shares()
  const auto spare = static_cast<std::uint32_t>(std::min<std::uint64_t>(spare_, limits.max_credits));
  return std::max({static_cast<std::uint32_t>(fair + kRounding), spare, limits.min_credits});
}

void CreditPolicy::joined(std::uint32_t connection, std::uint32_t client_class, std::uint32_t granted,
                          std::uint64_t now_ns) {
  static_cast<void>(SLUICE_INVARIANT(connection < members_.size(), table_index));
  Member& member = members_[connection];
  if (!member.present) {
    ++present_;
    spare_ -= std::min<std::uint64_t>(spare_, granted);
  }
  member = {.present = true,
            .client_class = client_class,
            .granted = granted,
            .demand = class_of(client_class).max_credits,
            .calls = 0,
            .active_ns = now_ns};
}

void CreditPolicy::left(std::uint32_t connection) {
  if (!members_[connection].present) return;
  members_[connection] = {};
  static_cast<void>(SLUICE_INVARIANT(present_ > 0, pool_balance));
  --present_;
}

void CreditPolicy::observed(std::uint32_t connection, std::uint64_t calls, std::uint32_t peak_busy,
                            std::uint64_t now_ns) {
  Member& member = members_[connection];
  if (calls != member.calls || peak_busy > 0) member.active_ns = now_ns;
  member.calls = calls;
  const std::uint32_t most = class_of(member.client_class).max_credits;
  // A connection that uses its entire grant may need any number of credits. Otherwise its demand decays
  // slowly to one and a half times its peak.
  const std::uint32_t used = peak_busy >= member.granted ? most : peak_busy + peak_busy / 2 + 1;
  const std::uint32_t decayed = member.demand - std::max(member.demand / 4, 1u);
  member.demand = std::min(std::max(used, decayed), most);
}

bool CreditPolicy::idle(std::uint32_t connection, std::uint64_t now_ns) const {
  return now_ns - members_[connection].active_ns >= limits_.idle_ns;
}

std::span<const GrantChange> CreditPolicy::recompute(std::uint64_t now_ns) {
  numbers_.clear();
  claims_.clear();
  most_.clear();
  changes_.clear();
  for (std::uint32_t number = 0; number < members_.size(); ++number) {
    const Member& member = members_[number];
    if (!member.present) continue;
    const ClassLimits& limits = class_of(member.client_class);
    const std::uint32_t needed = idle(number, now_ns) ? limits.min_credits : member.demand;
    numbers_.push_back(number);
    most_.push_back(limits.max_credits);
    claims_.push_back({.weight = limits.weight,
                       .least = limits.min_credits,
                       .most = std::clamp(needed, limits.min_credits, limits.max_credits)});
  }
  static_cast<void>(SLUICE_INVARIANT(claims_.size() == present_, pool_balance));
  wanted_.resize(claims_.size());
  if (++recomputed_ % kRecomputationsPerTurn == 0) first_ += 1 + claims_.size() / 3;
  const std::size_t first = claims_.empty() ? 0 : first_ % claims_.size();
  const FairShares needed = fair_shares(claims_, limits_.slots, first, wanted_);
  level_ = needed.level;
  spare_ = limits_.slots - std::min(limits_.slots, needed.total);
  static_cast<void>(SLUICE_INVARIANT(within_budget(needed.total), credit_balance));
  total_ = spare_ > 0 ? divide_rest(needed.total, first) : needed.total;
  static_cast<void>(SLUICE_INVARIANT(within_budget(total_), credit_balance));
  for (std::size_t i = 0; i < numbers_.size(); ++i) {
    Member& member = members_[numbers_[i]];
    const bool one_more =
        wanted_[i] == member.granted + 1 && wanted_[i] > kFineGrants && wanted_[i] < most_[i];
    if (wanted_[i] == member.granted || one_more) continue;
    member.granted = wanted_[i];
    changes_.push_back({numbers_[i], wanted_[i]});
  }
  return changes_;
}

/// Returns true if `total` fits the slots. Only the least grants of all connections may exceed them.
bool CreditPolicy::within_budget(std::uint64_t total) const {
  std::uint64_t least = 0;
  for (const Claim& claim : claims_) least += claim.least;
  return total <= std::max(limits_.slots, least);
}

/// Divides the slots that remain after every connection has what it needs, `needed` in total. Connections
/// keep more than they need if the budget allows that for all of them; otherwise those with the largest
/// excess give it back. Slots without an owner are divided. Returns the sum of the grants.
std::uint64_t CreditPolicy::divide_rest(std::uint64_t needed, std::size_t first) {
  const auto kept_of = [&](std::size_t i) {
    return std::clamp(members_[numbers_[i]].granted, wanted_[i], most_[i]);
  };
  std::uint64_t kept = needed;
  for (std::size_t i = 0; i < claims_.size(); ++i) kept += kept_of(i) - wanted_[i];
  const bool all_keep = kept <= limits_.slots;
  for (std::size_t i = 0; i < claims_.size(); ++i) {
    claims_[i].least = all_keep ? kept_of(i) : wanted_[i];
    claims_[i].most = all_keep ? most_[i] : kept_of(i);
  }
  return fair_shares(claims_, limits_.slots, first, wanted_).total;
}

CreditController::CreditController(segment::Layout& layout, CreditSettings settings)
    : layout_(layout), settings_(std::move(settings)) {
  for (std::uint32_t i = 0; i < settings_.reactors; ++i)
    reactors_.emplace_back(settings_.limits, settings_.connections);
}

void CreditController::reconfigure(CreditSettings settings) {
  settings_ = std::move(settings);
  for (OfReactor& reactor : reactors_) reactor.policy.set_limits(settings_.limits);
  reclassify_ = true;
  round_ns_ = 0;
}

CreditController::Start CreditController::start_of(std::uint32_t reactor, const PeerAddress& client) const {
  const std::uint32_t client_class = class_of(settings_.classes, client);
  return {client_class, reactors_[reactor].policy.first_grant(client_class)};
}

/// Records that a connection joined or left if its entry has changed. Returns false if the entry is being
/// written, in which case the next round reads it.
bool CreditController::read_entry(std::uint32_t reactor, std::uint32_t number, std::uint64_t now_ns) {
  OfReactor& of = reactors_[reactor];
  Seen& seen = of.seen[number];
  const segment::ReactorArea& area = layout_.reactors[reactor];
  const std::uint32_t sequence = area.connections[number].sequence();
  if (sequence == seen.sequence) return true;
  const auto info = area.connections[number].read();
  if (!info) return false;
  // The budget covers calls that this gateway serves. Connections that the data plane has opened to a server
  // are not part of it.
  const bool open = info->outgoing == 0 && (info->state == segment::ConnectionState::Open ||
                                            info->state == segment::ConnectionState::Opening);
  const bool is_new = open && (!seen.open || info->incarnation != seen.incarnation);
  if (is_new) {
    // The grant of the previous control plane stays valid, even if the reactor has not applied it yet.
    const segment::Grant wanted =
        segment::DesiredStateWriter(layout_.reactors[reactor].wanted).grant(number, info->incarnation);
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

std::uint32_t CreditController::class_of_connection(const Seen& seen) const {
  const auto& classes = settings_.host_classes;
  const auto host =
      std::lower_bound(classes.begin(), classes.end(), seen.host,
                       [](const HostClass& each, const auto& name) { return each.host < name; });
  const bool has_class = host != classes.end() && host->host == seen.host;
  return has_class ? host->client_class : class_of(settings_.classes, seen.peer);
}

void CreditController::reclassify(OfReactor& of, std::uint32_t number, std::uint64_t now_ns) {
  Seen& seen = of.seen[number];
  const std::uint32_t wanted = class_of_connection(seen);
  if (wanted == seen.client_class) return;
  seen.client_class = wanted;
  // The grant of zero makes the next recomputation find a change, which carries the new class.
  of.policy.joined(number, wanted, 0, now_ns);
}

void CreditController::observe(std::uint32_t reactor, std::uint64_t now_ns) {
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
  // Calls between the sampling above and this reset are missing in the next peaks. This affects a few
  // milliseconds of an interval.
  layout_.reactors[reactor].peaks_read.fetch_add(1, std::memory_order_relaxed);
}

void CreditController::recompute(std::uint32_t reactor, std::uint64_t now_ns) {
  observe(reactor, now_ns);
  for (const GrantChange& change : reactors_[reactor].policy.recompute(now_ns)) want(reactor, change);
}

void CreditController::want(std::uint32_t reactor, const GrantChange& change) {
  const Seen& seen = reactors_[reactor].seen[change.connection];
  segment::DesiredStateWriter wanted(layout_.reactors[reactor].wanted);
  segment::Grant grant{.credits = change.credits, .client_class = seen.client_class};
  // Keeps the class that an authenticated host was admitted to until the table shows the host.
  const segment::Grant before = wanted.grant(change.connection, seen.incarnation);
  if (seen.host.empty() && before.client_class != segment::kKeepClass &&
      wanted.course(change.connection, seen.incarnation).admitted)
    grant.client_class = before.client_class;
  if (wanted.grant(change.connection, seen.incarnation, grant)) ++statistics_.changes;
}

void CreditController::poll(std::uint64_t now_ns) {
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
  // The client's own rate is checked first, so that a request refused by it consumes nothing of the rate for
  // all clients.
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

/// Removes clients whose requests no longer count. The list is ordered by the last request, so the scan ends
/// at the first client whose requests still count.
void Admission::forget_quiet(std::uint64_t now_ns) {
  for (std::size_t i = 0; i < kForgottenAtATime && !quiet_.empty(); ++i) {
    ++looked_at_;
    const auto at = clients_.find(quiet_.front());
    static_cast<void>(SLUICE_INVARIANT(at != clients_.end() && at->second.connections == 0, list_membership));
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
  static_cast<void>(SLUICE_INVARIANT(total_ > 0, pool_balance));
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
