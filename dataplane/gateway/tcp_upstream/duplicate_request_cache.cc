// SPDX-License-Identifier: Apache-2.0
#include "dataplane/gateway/tcp_upstream/duplicate_request_cache.h"

#include <bit>
#include <cstring>
#include <type_traits>

#include "dataplane/base/invariant.h"
#include "dataplane/base/siphash.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/xdr/cursor.h"

namespace sluice::tcp_upstream {
namespace {

/// Maximum bytes after the XID that a checksum covers. The fields that distinguish calls are at the beginning
/// of a message, and the remainder of a WRITE is data.
constexpr std::size_t kChecksumBytes = 512;

// The word of an entry contains its state, the number of its readers (pins) and a part of the key's hash
// (tag).
enum class State : std::uint64_t {
  Free = 0,
  Claimed = 1,  ///< the key is being written
  Outstanding = 2,
  Answered = 3,
};
constexpr std::uint64_t kStateMask = 3;
constexpr std::uint64_t kPin = 4;
constexpr std::uint64_t kPinsMask = 0xfffc;
constexpr std::uint64_t kTagMask = ~std::uint64_t{0xffff};

constexpr State state_of(std::uint64_t word) noexcept {
  return static_cast<State>(word & kStateMask);
}
constexpr std::uint64_t bits(State state) noexcept {
  return static_cast<std::uint64_t>(state);
}

/// Flag in RequestHost::users that is set while the address is being written.
constexpr std::uint32_t kEntering = 1u << 31;
/// Maximum attempts of a compare-and-swap that fails because of other reactors.
constexpr int kAttempts = 8;
constexpr std::uint32_t kNowhere = ~std::uint32_t{0};

}  // namespace

static_assert(std::has_unique_object_representations_v<RequestKey>, "its bytes are hashed");

class DuplicateRequestCache::Entry {
 public:
  RequestKey key;
  std::uint32_t bytes = 0;  ///< size of the kept message
  std::atomic<std::uint32_t> host{0};
  std::atomic<std::uint64_t> answered_ns{0};
  std::atomic<bool> asked_again{false};
};

std::uint64_t DuplicateRequestCache::checksum(std::span<const std::byte> message) const noexcept {
  const auto behind_xid = message.subspan(smaller_of(message.size(), xdr::kUnit));
  return siphash(key_, behind_xid.first(smaller_of(behind_xid.size(), kChecksumBytes)));
}

DuplicateRequestCache::DuplicateRequestCache(std::uint32_t entries, std::uint32_t hosts)
    : key_(random_value<HashKey>()),
      sets_(std::bit_ceil(larger_of(entries, kCacheWays)) / kCacheWays),
      host_places_(std::bit_ceil(larger_of(4 * hosts, kHostWays))),
      words_(std::size_t{sets_} * kCacheWays),
      entries_(std::size_t{sets_} * kCacheWays),
      bytes_(FixedArray<std::byte>::for_overwrite(std::size_t{sets_} * kCacheWays * kKeptBytes)),
      hosts_(host_places_) {}

DuplicateRequestCache::~DuplicateRequestCache() = default;

// --- Hosts

/// Returns whether the host is `client`, and adds a user if so. A free host never matches. The function is a
/// user of the host during the comparison, so that the address cannot change.
bool DuplicateRequestCache::is(RequestHost& host, const PeerAddress& client) noexcept {
  // Sequentially consistent, as is the store in enter(): of two reactors that enter the same client, at least
  // one finds the host of the other.
  std::uint32_t users = host.users.load();
  for (int i = 0; i < kAttempts; ++i) {
    if (users == 0 || (users & kEntering) != 0) return false;
    if (host.users.compare_exchange_weak(users, users + 1)) {
      if (host.address == client) return true;
      release(host);
      return false;
    }
  }
  return false;
}

/// Returns the client's host after adding a user to it, or null if none is found. Skips `but`.
RequestHost* DuplicateRequestCache::find(const PeerAddress& client, std::uint32_t first,
                                         const RequestHost* but) noexcept {
  for (std::uint32_t i = 0; i < kHostWays; ++i) {
    RequestHost& host = hosts_[(first + i) & (host_places_ - 1)];
    if (&host != but && is(host, client)) return &host;
  }
  return nullptr;
}

/// Returns the client's host after adding a user to it. Two reactors that enter the same client concurrently
/// detect each other in their second search, because each publishes its own host before that search.
RequestHost* DuplicateRequestCache::enter(const PeerAddress& client) noexcept {
  const auto first = static_cast<std::uint32_t>(siphash(key_, std::as_bytes(std::span(client.bytes))));
  if (RequestHost* const known = find(client, first, nullptr)) return known;
  for (std::uint32_t i = 0; i < kHostWays; ++i) {
    RequestHost& host = hosts_[(first + i) & (host_places_ - 1)];
    std::uint32_t nobody = 0;
    if (!host.users.compare_exchange_strong(nobody, kEntering)) continue;
    host.address = client;
    host.users.store(1);
    hosts_in_use_.fetch_add(1, std::memory_order_relaxed);
    RequestHost* const twin = find(client, first, &host);
    if (twin == nullptr) return &host;
    release(*twin);
    release(host);
    return nullptr;
  }
  return nullptr;
}

void DuplicateRequestCache::release(RequestHost& host) noexcept {
  // Pairs with enter(), which reuses the host: the address has been read.
  const std::uint32_t before = host.users.fetch_sub(1, std::memory_order_release);
  static_cast<void>(SLUICE_INVARIANT((before & ~kEntering) != 0, pool_balance));
  if (before != 1) return;
  const std::uint32_t in_use = hosts_in_use_.fetch_sub(1, std::memory_order_relaxed);
  static_cast<void>(SLUICE_INVARIANT(in_use > 0, pool_balance));
}

// --- Entries

std::size_t DuplicateRequestCache::position_of(const Entry& entry) const noexcept {
  SLUICE_INVARIANT_DEBUG(&entry >= entries_.begin() && &entry < entries_.end(), table_index);
  return static_cast<std::size_t>(&entry - entries_.data());
}

std::atomic<std::uint64_t>& DuplicateRequestCache::word_of(const Entry& entry) noexcept {
  return words_[position_of(entry)];
}

std::byte* DuplicateRequestCache::bytes_of(const Entry& entry) noexcept {
  return &bytes_[position_of(entry) * kKeptBytes];
}

std::span<const std::byte> DuplicateRequestCache::message_of(const Entry& entry) const noexcept {
  SLUICE_INVARIANT_DEBUG(entry.bytes <= kKeptBytes, buffer_bounds);
  return {&bytes_[position_of(entry) * kKeptBytes], entry.bytes};
}

DuplicateRequestCache::Comparison DuplicateRequestCache::compare(std::uint32_t at, std::uint64_t tag,
                                                                 const RequestKey& key,
                                                                 std::uint64_t now_ns) noexcept {
  SLUICE_INVARIANT_DEBUG(at < entries(), table_index);
  std::uint64_t word = words_[at].load();
  for (int i = 0; i < kAttempts; ++i) {
    if (state_of(word) == State::Free || (word & kTagMask) != tag) return Comparison::Different;
    // An entry whose key is being written, or whose pin count is at its maximum, cannot be compared and may
    // match.
    if (state_of(word) == State::Claimed || (word & kPinsMask) == kPinsMask) return Comparison::Outstanding;
    if (!words_[at].compare_exchange_weak(word, word + kPin)) continue;
    const bool same = entries_[at].key == key;
    const bool answered = state_of(word) == State::Answered;
    // Another reactor may have stored a reply after `now_ns` was read.
    const std::uint64_t answered_ns = entries_[at].answered_ns.load(std::memory_order_relaxed);
    const bool expired = answered && now_ns > answered_ns && now_ns - answered_ns >= kKeptNs;
    if (same && answered && !expired) return Comparison::Answered;
    release(entries_[at]);
    return same && !expired ? Comparison::Outstanding : Comparison::Different;
  }
  return Comparison::Outstanding;
}

/// Returns whether the host would exceed its equal share of the entries if it had `more` additional ones.
bool DuplicateRequestCache::would_hold_too_much(std::uint32_t host, std::uint32_t more) const noexcept {
  SLUICE_INVARIANT_DEBUG(host < host_places_, table_index);
  return hosts_[host].entries.load(std::memory_order_relaxed) + more >
         entries() / larger_of(hosts_in_use_.load(std::memory_order_relaxed), 1u);
}

/// Returns the position of a free entry of the set or, if there is none, of the oldest reply. Replies of
/// hosts that exceed their share are evicted first, where `host` counts with the new entry. `word` receives
/// the word of the entry. Returns kNowhere if no entry can be replaced.
std::uint32_t DuplicateRequestCache::place_for(std::uint32_t set, std::uint32_t host,
                                               std::uint64_t& word) const noexcept {
  std::uint32_t best = kNowhere;
  std::uint64_t best_age = 0;
  for (std::uint32_t at = set * kCacheWays; at < (set + 1) * kCacheWays; ++at) {
    // Pairs with answer() and look_up(): the host of the entry, and the time of its reply.
    const std::uint64_t seen = words_[at].load(std::memory_order_acquire);
    if ((seen & kPinsMask) != 0) continue;
    if (state_of(seen) == State::Free) {
      word = seen;
      return at;
    }
    if (state_of(seen) != State::Answered) continue;
    const std::uint32_t holder = entries_[at].host.load(std::memory_order_relaxed);
    constexpr std::uint64_t kBeforeAllOthers = std::uint64_t{1} << 63;
    const std::uint64_t age = (would_hold_too_much(holder, holder == host) ? kBeforeAllOthers : 0) |
                              ~entries_[at].answered_ns.load(std::memory_order_relaxed) >> 1;
    if (best != kNowhere && age <= best_age) continue;
    best = at;
    best_age = age;
    word = seen;
  }
  return best;
}

DuplicateRequestCache::Found DuplicateRequestCache::look_up(const RequestKey& key, RequestHost& host,
                                                            std::uint64_t now_ns) noexcept {
  const std::uint64_t hash = siphash(key_, std::as_bytes(std::span(&key, 1)));
  const std::uint64_t tag = hash & kTagMask;
  const auto set = static_cast<std::uint32_t>(hash) & (sets_ - 1);
  const auto among = [&](std::uint32_t but) -> Found {
    for (std::uint32_t at = set * kCacheWays; at < (set + 1) * kCacheWays; ++at) {
      if (at == but) continue;
      const Comparison comparison = compare(at, tag, key, now_ns);
      if (comparison == Comparison::Answered) return {.seen = Seen::Answered, .entry = &entries_[at]};
      if (comparison == Comparison::Outstanding) {
        entries_[at].asked_again.store(true, std::memory_order_relaxed);
        return {.seen = Seen::Outstanding};
      }
    }
    return {.seen = Seen::New};
  };
  if (const Found known = among(kNowhere); known.seen != Seen::New) return known;

  std::uint64_t word = 0;
  const auto number = static_cast<std::uint32_t>(&host - hosts_.data());
  SLUICE_INVARIANT_DEBUG(number < host_places_ && set < sets_, table_index);
  const std::uint32_t at = place_for(set, number, word);
  if (at == kNowhere || !words_[at].compare_exchange_strong(word, tag | bits(State::Claimed)))
    return {.seen = Seen::Full};
  Entry& entry = entries_[at];
  bool evicted = false;
  if (state_of(word) == State::Answered) {
    hosts_[entry.host.load(std::memory_order_relaxed)].entries.fetch_sub(1, std::memory_order_relaxed);
    evicted = now_ns - entry.answered_ns.load(std::memory_order_relaxed) < kKeptNs;
  }
  entry.key = key;
  entry.bytes = 0;
  entry.asked_again.store(false, std::memory_order_relaxed);
  entry.host.store(number, std::memory_order_relaxed);
  host.entries.fetch_add(1, std::memory_order_relaxed);
  words_[at].store(tag | bits(State::Outstanding));
  // Another reactor may insert the same key concurrently. Each reactor publishes its own entry before it
  // searches again, so at least one of them finds the entry of the other.
  const Found twin = among(at);
  if (twin.seen == Seen::New) return {.seen = Seen::New, .entry = &entry, .evicted = evicted};
  drop(entry);
  return twin;
}

bool DuplicateRequestCache::take_asked_again(Entry& entry) noexcept {
  return entry.asked_again.exchange(false, std::memory_order_relaxed);
}

bool DuplicateRequestCache::keep_call(Entry& entry, std::span<const std::byte> message) noexcept {
  if (message.size() > kKeptBytes) return false;
  SLUICE_INVARIANT_DEBUG(state_of(word_of(entry).load(std::memory_order_relaxed)) == State::Outstanding,
                         gateway_state);
  std::memcpy(bytes_of(entry), message.data(), message.size());
  entry.bytes = static_cast<std::uint32_t>(message.size());
  return true;
}

std::span<const std::byte> DuplicateRequestCache::call_of(const Entry& entry) const noexcept {
  return message_of(entry);
}

std::span<const std::byte> DuplicateRequestCache::reply_of(const Entry& entry) const noexcept {
  return message_of(entry);
}

void DuplicateRequestCache::answer(Entry& entry, std::span<const std::byte> reply,
                                   std::uint64_t now_ns) noexcept {
  const bool outstanding = state_of(word_of(entry).load(std::memory_order_relaxed)) == State::Outstanding;
  if (!SLUICE_INVARIANT(outstanding && reply.size() <= kKeptBytes, pool_balance)) return;
  std::memcpy(bytes_of(entry), reply.data(), reply.size());
  entry.bytes = static_cast<std::uint32_t>(reply.size());
  entry.answered_ns.store(now_ns, std::memory_order_relaxed);
  // Pairs with compare() and place_for(): the reply and its time.
  word_of(entry).fetch_add(bits(State::Answered) - bits(State::Outstanding), std::memory_order_release);
}

void DuplicateRequestCache::drop(Entry& entry) noexcept {
  const bool outstanding = state_of(word_of(entry).load(std::memory_order_relaxed)) == State::Outstanding;
  if (!SLUICE_INVARIANT(outstanding, pool_balance)) return;
  hosts_[entry.host.load(std::memory_order_relaxed)].entries.fetch_sub(1, std::memory_order_relaxed);
  // Pairs with look_up(), which reuses the entry: the owner no longer writes it.
  word_of(entry).fetch_sub(bits(State::Outstanding), std::memory_order_release);
}

void DuplicateRequestCache::release(Entry& entry) noexcept {
  // Pairs with look_up(), which reuses the entry: it has been read.
  const std::uint64_t before = word_of(entry).fetch_sub(kPin, std::memory_order_release);
  static_cast<void>(SLUICE_INVARIANT((before & kPinsMask) != 0, pool_balance));
}

}  // namespace sluice::tcp_upstream
