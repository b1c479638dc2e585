// SPDX-License-Identifier: Apache-2.0
//
// Duplicate request cache of one upstream, for calls that must not be executed twice or out of order. The
// retransmission of a call finds the outstanding call or its reply. RPC-over-RDMA never retransmits a call on
// the same connection, so a retransmission arrives on a new connection (RFC 8166, section 3.3.1). Any reactor
// may serve that connection, so all reactors share the cache. Each entry has one word that is claimed and
// pinned by compare-and-swap. No operation blocks: if another reactor interferes, the caller retries later.
// Only the constructor allocates.
//
// Memory is bounded. The oldest replies of clients that exceed their equal share of the entries are evicted
// first.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dataplane/base/fixed_containers.h"
#include "dataplane/base/net_address.h"
#include "dataplane/base/owned.h"
#include "dataplane/base/siphash.h"

namespace sluice::tcp_upstream {

/// Maximum bytes of the message that an entry keeps: the call while it is outstanding, then its reply.
inline constexpr std::size_t kKeptBytes = 2048;
/// Associativity: number of entries in the set where a call is looked up.
inline constexpr std::uint32_t kCacheWays = 16;
/// Number of consecutive hosts where a client is looked up.
inline constexpr std::uint32_t kHostWays = 64;
/// Age in nanoseconds at which a reply expires. A call that matches an expired reply is a new call, because
/// clients reuse XIDs after a restart. A reply that is replaced earlier counts as evicted. knfsd and the
/// memory export expire replies at the same age.
inline constexpr std::uint64_t kKeptNs = 120'000'000'000;

/// Key by which the retransmission of a call is recognised.
struct RequestKey {
  PeerAddress client;
  std::uint32_t xid = 0;
  std::uint32_t program = 0;
  std::uint32_t version = 0;
  std::uint32_t procedure = 0;
  std::uint32_t upstream = 0;  ///< identity of the upstream, because its slot may have had another upstream
  std::uint32_t bytes = 0;     ///< size of the message
  std::uint32_t zero = 0;      ///< explicit padding, because all bytes of the key are hashed
  std::uint64_t checksum = 0;  ///< checksum of the beginning of the message, without the XID
  bool operator==(const RequestKey&) const = default;
};

/// A client of the upstream, identified by its address and independent of its connections.
struct alignas(64) RequestHost {
  std::atomic<std::uint32_t> users{0};    ///< connections and unfinished calls; zero: the host is free
  std::atomic<std::uint32_t> earlier{0};  ///< calls at the upstream whose connections have ended
  std::atomic<std::uint32_t> entries{0};
  PeerAddress address;
};

class DuplicateRequestCache {
 public:
  class Entry;

  /// Setup. `entries` is rounded up to a power of two. `hosts` is the number of connections of all reactors.
  DuplicateRequestCache(std::uint32_t entries, std::uint32_t hosts);
  ~DuplicateRequestCache();
  DuplicateRequestCache(const DuplicateRequestCache&) = delete;
  DuplicateRequestCache& operator=(const DuplicateRequestCache&) = delete;

  // Any reactor may call all other functions for its own calls.

  /// Adds a user to the client's host and returns the host. Returns null if the caller has to retry later.
  RequestHost* enter(const PeerAddress& client) noexcept;
  void release(RequestHost& host) noexcept;

  enum class Seen : std::uint8_t {
    New,          ///< the caller owns the new entry until answer() or drop()
    Outstanding,  ///< the call is outstanding already; the caller retries later
    Answered,     ///< the caller may read reply_of() until release()
    Full,         ///< no entry can be replaced; the caller retries later
  };
  struct Found {
    Seen seen;
    Entry* entry = nullptr;  ///< set if New or Answered
    bool evicted = false;    ///< true if New has replaced a reply that had not expired
  };
  /// Looks up a call of the host, and adds an entry for a new call.
  Found look_up(const RequestKey& key, RequestHost& host, std::uint64_t now_ns) noexcept;

  /// Returns RequestKey::checksum of a complete RPC message.
  std::uint64_t checksum(std::span<const std::byte> message) const noexcept;

  /// Copies the message of the call into a new entry. Returns false if the message is too long to be kept.
  bool keep_call(Entry& entry, std::span<const std::byte> message) noexcept;
  /// Returns the message that keep_call() has stored, or an empty span.
  std::span<const std::byte> call_of(const Entry& entry) const noexcept;
  /// Returns whether the call of a new entry has been retransmitted since the last query. Rarely, the result
  /// is true by mistake for an entry that was reassigned during a concurrent look_up().
  bool take_asked_again(Entry& entry) noexcept;
  /// Stores the reply to the call of a new entry. The reply has at most kKeptBytes. The caller no longer owns
  /// the entry.
  void answer(Entry& entry, std::span<const std::byte> reply, std::uint64_t now_ns) noexcept;
  /// Frees a new entry, so that a retransmission of its call counts as new. The caller no longer owns the
  /// entry.
  void drop(Entry& entry) noexcept;
  /// Returns the reply of an entry that look_up() has returned as Answered.
  std::span<const std::byte> reply_of(const Entry& entry) const noexcept;
  /// Unpins an entry that look_up() has returned as Answered.
  void release(Entry& entry) noexcept;

  std::uint32_t entries() const noexcept { return sets_ * kCacheWays; }

 private:
  enum class Comparison : std::uint8_t { Different, Outstanding, Answered };
  /// Compares an entry with a key. Pins the entry if the result is Answered.
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

  const HashKey key_;  ///< secret, so that clients cannot choose the set of their entries
  const std::uint32_t sets_;
  const std::uint32_t host_places_;
  FixedArray<std::atomic<std::uint64_t>> words_;
  FixedArray<Entry> entries_;
  FixedArray<std::byte> bytes_;  ///< kept messages; not zeroed, so that pages become resident on use
  FixedArray<RequestHost> hosts_;
  std::atomic<std::uint32_t> hosts_in_use_{0};
};

/// Caches of the upstreams, in order. The element of an upstream over RDMA is null.
using DuplicateRequestCaches = std::vector<Owned<DuplicateRequestCache>>;

}  // namespace sluice::tcp_upstream
