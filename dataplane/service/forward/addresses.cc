// SPDX-License-Identifier: Apache-2.0
#include "dataplane/service/forward/addresses.h"

#include <utility>

#include "dataplane/base/small_algorithms.h"

namespace sluice::forward {

Addresses::Addresses(const segment::SharedUpstreamAddresses& shared, std::string upstream, std::uint16_t port)
    : shared_(shared), upstream_(std::move(upstream)), port_(port) {
  upstream_.reserve(segment::kMaxNameBytes);
  poll(0);
}

void Addresses::look_for(std::string_view upstream, std::uint16_t port) noexcept {
  port_ = port;
  upstream_ = upstream.substr(0, segment::kMaxNameBytes);
  sequence_ = count_ = current_ = 0;
  poll(0);
}

Addresses::Entry* Addresses::find(const PeerAddress& address) noexcept {
  for (std::uint32_t i = 0; i < count_; ++i)
    if (entries_[i].address == address) return &entries_[i];
  return nullptr;
}

/// What is known of an address that stays is kept.
void Addresses::take(const segment::UpstreamAddressList& list) noexcept {
  std::array<Entry, segment::kMaxUpstreamAddresses> entries{};
  const std::uint32_t count = smaller_of(list.count, segment::kMaxUpstreamAddresses);
  for (std::uint32_t i = 0; i < count; ++i) {
    const segment::UpstreamAddress& from = list.addresses[i];
    if (const Entry* const known = find(from.address)) entries[i] = *known;
    entries[i].address = from.address;
    if (from.answers < entries[i].answers) entries[i].answers_when_failed = 0;  // they are counted anew
    entries[i].answers = from.answers;
    entries[i].failures = from.failures;
  }
  entries_ = entries;
  count_ = count;
  if (list.port != 0) port_ = static_cast<std::uint16_t>(list.port);
}

bool Addresses::poll(std::uint64_t now_ns) noexcept {
  const PeerAddress before = count_ > 0 ? entries_[current_].address : PeerAddress{};
  const std::uint16_t port_before = port_;
  const std::uint32_t sequence = shared_.sequence();
  if (sequence != sequence_ && sequence % 2 == 0) {
    const auto table = shared_.read();
    const segment::UpstreamAddressList* const list =
        table ? segment::addresses_of(*table, upstream_) : nullptr;
    if (table) sequence_ = sequence;
    // A control plane that has just begun knows of none yet.
    if (list != nullptr && list->count > 0) take(*list);
    const Entry* const still = find(before);
    current_ = still != nullptr ? static_cast<std::uint32_t>(still - entries_.data()) : best(now_ns);
  }
  if (count_ == 0) return false;
  current_ = preferred();
  return entries_[current_].address != before || port_ != port_before;
}

/// A preferred one that has been well for a while; or another, if the current one answers nobody.
std::uint32_t Addresses::preferred() const noexcept {
  for (std::uint32_t i = 0; i < current_; ++i)
    if (entries_[i].answers_since() >= kGraceAnswers) return i;
  if (!entries_[current_].bad()) return current_;
  for (std::uint32_t i = 0; i < count_; ++i)
    if (entries_[i].answers_since() > 0) return i;
  return current_;
}

/// To be used instead of one that has failed: if all have, the one that may be tried first.
std::uint32_t Addresses::best(std::uint64_t now_ns) const noexcept {
  std::uint32_t earliest = 0;
  std::uint32_t suspect = count_;
  for (std::uint32_t i = 0; i < count_; ++i) {
    const Entry& entry = entries_[i];
    if (entry.retry_ns < entries_[earliest].retry_ns) earliest = i;
    if (now_ns < entry.retry_ns) continue;
    if (!entry.bad()) return i;
    suspect = smaller_of(suspect, i);
  }
  return suspect < count_ ? suspect : earliest;
}

/// Connections that fail together are one failure.
bool Addresses::failed(const PeerAddress& address, std::uint64_t now_ns) noexcept {
  Entry* const entry = find(address);
  if (entry == nullptr || now_ns < entry->retry_ns) return false;
  entry->answers_when_failed = entry->answers;
  entry->retry_ns = now_ns + kAwayNs;
  if (entry != &entries_[current_]) return false;
  return std::exchange(current_, best(now_ns)) != current_;
}

}  // namespace sluice::forward
