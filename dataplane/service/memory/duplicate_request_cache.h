// SPDX-License-Identifier: Apache-2.0
//
// Duplicate request cache (Juszczak: "Improving the performance and correctness of an NFS server", 1989). A
// retransmitted call of a non-idempotent procedure, for example after a reconnect, is answered from the cache
// instead of being executed twice (RFC 8166, section 4.2.1; V1-152).
//
// Calls are equal if client, XID, procedure and arguments are equal. A reply of an export that admits hosts
// by name is returned only to the host that it was sent to. The size is fixed and the cache is
// set-associative. In a full set, a reply to a call that changed nothing is replaced first, then the oldest
// reply to the client that has the most changes in the whole cache. Therefore a client that has fewer changes
// than an equal share keeps them, regardless of the load of other clients. A reply to a call that changed
// nothing never replaces a reply to a call that changed something.
//
// Only the owning reactor may call; the constructor is used at setup. Results are copied into the cache;
// find() returns a view that is valid until the next keep(). Times in ns, of the file system's clock.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>

#include "dataplane/base/fixed_containers.h"
#include "dataplane/base/host_name.h"
#include "dataplane/base/invariant.h"
#include "dataplane/base/siphash.h"
#include "dataplane/service/api/service.h"

namespace sluice::service::memory {

/// Maximum size of cached results in bytes, enough for CREATE's handle, attributes and directory wcc_data.
inline constexpr std::size_t kMaxKeptReplyBytes = 320;
inline constexpr std::size_t kReplySets = 512;
inline constexpr std::size_t kReplyWays = 8;
/// Number of counters of changes. A keyed hash of the client's address selects the counter. Clients with the
/// same counter also have a common share of the cache.
inline constexpr std::size_t kReplyHosts = 4096;
/// Lifetime of a reply, in ns. Clients give up a call, or reuse its XID, only much later.
inline constexpr std::uint64_t kKeepReplyNs = 120'000'000'000;

class DuplicateRequestCache {
 public:
  struct Key {
    PeerAddress peer;
    rpc::Xid xid{};
    std::uint32_t procedure = 0;
    std::uint64_t arguments = 0;  ///< keyed hash
    bool operator==(const Key&) const = default;
  };

  /// Tells if executing the call a second time could have another result.
  enum class Effect : std::uint8_t { None, Changed };

  explicit DuplicateRequestCache(const HashKey& key)
      : hash_key_(key), entries_(kReplySets * kReplyWays), changes_(kReplyHosts) {}

  Key key_of(const Call& call) const noexcept {
    return {call.peer(), call.header().xid, call.header().procedure, siphash(hash_key_, call.arguments())};
  }

  /// Client that may read an entry.
  enum class Reader : std::uint64_t { Anyone = 0 };
  Reader only(const HostName& host) const noexcept {
    return static_cast<Reader>(siphash(hash_key_, std::as_bytes(std::span(host.view()))) | 1);
  }

  /// Returns the cached results, or an empty span. `host` is the caller's.
  std::span<const std::byte> find(const Key& key, const HostName& host, std::uint64_t now_ns) noexcept {
    for (Entry& entry : set_of(key))
      if (entry.bytes > 0 && entry.key == key && now_ns - entry.made_ns < kKeepReplyNs &&
          (entry.reader == Reader::Anyone || entry.reader == only(host)))
        return {entry.results.data(), entry.bytes};
    return {};
  }

  void keep(const Key& key, Reader reader, Effect effect, std::span<const std::byte> results,
            std::uint64_t now_ns) noexcept {
    if (results.empty() || results.size() > kMaxKeptReplyBytes) return;
    const auto host = static_cast<std::uint32_t>(
        siphash(hash_key_, std::as_bytes(std::span(key.peer.bytes))) % kReplyHosts);
    Entry* const entry = place_for(set_of(key), host, effect, now_ns);
    if (entry == nullptr) return;
    SLUICE_INVARIANT_DEBUG(host < changes_.size(), table_index);
    forget(*entry);
    entry->key = key;
    entry->reader = reader;
    entry->effect = effect;
    entry->host = host;
    entry->made_ns = now_ns;
    entry->bytes = static_cast<std::uint32_t>(results.size());
    std::memcpy(entry->results.data(), results.data(), results.size());
    if (effect == Effect::Changed) ++changes_[host];
  }

 private:
  struct Entry {
    Key key;
    Reader reader = Reader::Anyone;
    std::uint64_t made_ns = 0;
    std::uint32_t bytes = 0;  ///< size of the results; zero if the entry is empty
    std::uint32_t host = 0;   ///< index in changes_
    Effect effect = Effect::None;
    std::array<std::byte, kMaxKeptReplyBytes> results;
  };

  void forget(Entry& entry) noexcept {
    SLUICE_INVARIANT_DEBUG(entry.bytes <= kMaxKeptReplyBytes && entry.host < kReplyHosts, buffer_bounds);
    SLUICE_INVARIANT_DEBUG(entry.bytes == 0 || entry.effect != Effect::Changed || changes_[entry.host] > 0,
                           pool_balance);
    if (entry.bytes > 0 && entry.effect == Effect::Changed) --changes_[entry.host];
    entry.bytes = 0;
  }
  void forget_if_old(Entry& entry, std::uint64_t now_ns) noexcept {
    if (now_ns - entry.made_ns >= kKeepReplyNs) forget(entry);
  }

  /// Returns the entry to be replaced, or null if each one is worth more than the new one. Forgets old
  /// entries first because they do not count in their client's share.
  Entry* place_for(std::span<Entry> set, std::uint32_t host, Effect effect, std::uint64_t now_ns) noexcept {
    Entry* first = &set.front();
    for (Entry& entry : set) {
      forget_if_old(entry, now_ns);
      if (goes_before(entry, *first, host)) first = &entry;
    }
    const bool worth_more = first->bytes > 0 && first->effect == Effect::Changed && effect == Effect::None;
    return worth_more ? nullptr : first;
  }

  /// Returns true if `one` is replaced before `other` by an entry of `host`, which would have one change
  /// more.
  bool goes_before(const Entry& one, const Entry& other, std::uint32_t host) const noexcept {
    if (one.bytes == 0 || other.bytes == 0) return other.bytes != 0;
    if (one.effect != other.effect) return one.effect == Effect::None;
    const auto changes = [&](const Entry& entry) {
      return changes_[entry.host] + (entry.host == host ? 1u : 0u);
    };
    if (one.effect == Effect::Changed && changes(one) != changes(other)) return changes(one) > changes(other);
    return one.made_ns < other.made_ns;
  }

  std::span<Entry> set_of(const Key& key) noexcept {
    const std::uint64_t hash = key.arguments ^ (static_cast<std::uint64_t>(key.xid) * 0x9E3779B97F4A7C15u);
    return {&entries_[(hash >> 32) % kReplySets * kReplyWays], kReplyWays};
  }

  const HashKey hash_key_;
  FixedArray<Entry> entries_;
  FixedArray<std::uint32_t> changes_;  ///< kept replies with Effect::Changed, by hash of the client's address
};

}  // namespace sluice::service::memory
