// SPDX-License-Identifier: Apache-2.0
//
// What clients have asked of one upstream that must not be done twice, or not out of order: a call that comes
// again finds the one that is outstanding, or its reply. RPC over RDMA repeats no call on the same connection,
// so it comes on a new one (RFC 8166, section 3.3.1), which any reactor may serve: all of them share the
// cache. Each entry has one word that is claimed and pinned by compare-and-swap, and nobody ever waits: where
// another reactor is in the way, the caller comes again later. Only the constructor allocates.
//
// Memory is bounded. A client that holds more than its equal share of the entries loses its oldest first.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dataplane/base/fixed_array.h"
#include "dataplane/base/net_address.h"
#include "dataplane/base/owned.h"
#include "dataplane/base/siphash.h"

namespace sluice::tcp_upstream {

/// Longest message that an entry keeps: the call while it is outstanding, then its reply.
inline constexpr std::size_t kKeptBytes = 2048;
/// Entries among which a call is looked for.
inline constexpr std::uint32_t kCacheWays = 16;
/// Hosts among which a client is looked for.
inline constexpr std::uint32_t kHostWays = 64;
/// Age at which a reply expires: a call that matches it is another one, since clients reuse XIDs after a restart. A reply
/// that is replaced earlier counts as evicted. knfsd and the memory export expire replies at the same age.
inline constexpr std::uint64_t kKeptNs = 120'000'000'000;

/// What a call is known by when it comes again.
struct RequestKey {
  PeerAddress client;
  std::uint32_t xid = 0;
  std::uint32_t program = 0;
  std::uint32_t version = 0;
  std::uint32_t procedure = 0;
  std::uint32_t handle_tag = 0;  ///< of the upstream: another one may have had its place
  std::uint32_t bytes = 0;       ///< of the message
  std::uint32_t zero = 0;        ///< instead of padding, because all bytes of the key are hashed
  std::uint64_t checksum = 0;    ///< of its beginning, behind the XID
  bool operator==(const RequestKey&) const = default;
};

/// A client of the upstream, whatever its connections.
struct alignas(64) RequestHost {
  std::atomic<std::uint32_t> users{0};    ///< connections and unfinished calls; zero: the place is free
  std::atomic<std::uint32_t> earlier{0};  ///< calls at the upstream of connections that have ended
  std::atomic<std::uint32_t> entries{0};
  PeerAddress address;
};

class RequestCache {
 public:
  class Entry;

  /// Setup. `entries` is rounded up to a power of two; `hosts` are the connections of all reactors.
  RequestCache(std::uint32_t entries, std::uint32_t hosts);
  ~RequestCache();
  RequestCache(const RequestCache&) = delete;
  RequestCache& operator=(const RequestCache&) = delete;

  // Everything else may be called on any reactor, for its own calls.

  /// One more user. Null: come again.
  RequestHost* enter(const PeerAddress& client) noexcept;
  void leave(RequestHost& host) noexcept;

  enum class Seen : std::uint8_t {
    New,          ///< the entry is the caller's until answer() or drop()
    Outstanding,  ///< somebody waits for its reply already: come again
    Answered,     ///< reply_of() is the caller's to read, until release()
    Full,         ///< there is no place: come again
  };
  struct Found {
    Seen seen;
    Entry* entry = nullptr;  ///< New, Answered
    bool evicted = false;    ///< New: a reply that may still be asked for had to go
  };
  Found look_up(const RequestKey& key, RequestHost& host, std::uint64_t now_ns) noexcept;

  /// For RequestKey, of a whole RPC message.
  std::uint64_t checksum(std::span<const std::byte> message) const noexcept;

  /// Of a new entry. False: the message is too long to be kept.
  bool keep_call(Entry& entry, std::span<const std::byte> message) noexcept;
  /// What keep_call() has kept; empty: nothing.
  std::span<const std::byte> call_of(const Entry& entry) const noexcept;
  /// Of a new entry: whether its call has come again since this was last asked. True by mistake, rarely, for an entry
  /// that was another call's a moment ago.
  bool take_asked_again(Entry& entry) noexcept;
  /// The reply to a new entry's call, of at most kKeptBytes. The caller has the entry no more.
  void answer(Entry& entry, std::span<const std::byte> reply, std::uint64_t now_ns) noexcept;
  /// The call of a new entry may come again as if it had never come. The caller has the entry no more.
  void drop(Entry& entry) noexcept;
  std::span<const std::byte> reply_of(const Entry& entry) const noexcept;
  void release(Entry& entry) noexcept;

  std::uint32_t entries() const noexcept { return sets_ * kCacheWays; }

 private:
  enum class Comparison : std::uint8_t { Different, Outstanding, Answered };
  /// Answered: the entry is pinned.
  Comparison compare(std::uint32_t at, std::uint64_t tag, const RequestKey& key,
                     std::uint64_t now_ns) noexcept;
  std::uint32_t place_for(std::uint32_t set, std::uint32_t host, std::uint64_t& word) const noexcept;
  bool would_hold_too_much(std::uint32_t host, std::uint32_t more) const noexcept;
  std::size_t position_of(const Entry& entry) const noexcept;
  std::byte* bytes_of(const Entry& entry) noexcept;
  std::span<const std::byte> message_of(const Entry& entry) const noexcept;
  std::atomic<std::uint64_t>& word_of(const Entry& entry) noexcept;
  bool is(RequestHost& host, const PeerAddress& client) noexcept;
  RequestHost* find(const PeerAddress& client, std::uint32_t first, const RequestHost* but) noexcept;

  const HashKey key_;  ///< so that clients cannot choose who shares their places
  const std::uint32_t sets_;
  const std::uint32_t host_places_;
  FixedArray<std::atomic<std::uint64_t>> words_;
  FixedArray<Entry> entries_;
  FixedArray<std::byte> bytes_;  ///< not zeroed, so that pages become resident on use
  FixedArray<RequestHost> hosts_;
  std::atomic<std::uint32_t> hosts_in_use_{0};
};

/// This list has the caches of the upstreams, in order; null for one over RDMA.
using RequestCaches = std::vector<Owned<RequestCache>>;

}  // namespace sluice::tcp_upstream
