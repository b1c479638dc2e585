// SPDX-License-Identifier: Apache-2.0
//
// Duplicate request cache (Juszczak: "Improving the performance and correctness of an NFS server", 1989): a
// retransmitted call of a non-idempotent procedure, as after a reconnect, is answered from here instead of
// being executed twice (RFC 8166, section 4.2.1; V1-152).
//
// Calls are equal if client, XID, procedure and arguments are; what an export has answered to a host by its name is for
// that host alone. Fixed size, set-associative; the oldest entry
// of a set is replaced. Only the owning reactor may call; the constructor is setup. Results are copied in;
// find() returns a view that is valid until the next keep(). Times in ns, of the file system's clock.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>

#include "dataplane/base/fixed_array.h"
#include "dataplane/base/host_name.h"
#include "dataplane/base/siphash.h"
#include "dataplane/service/api/service.h"

namespace sluice::service::memory {

/// Longest results that are cached: CREATE's handle, attributes and directory wcc_data.
inline constexpr std::size_t kMaxKeptReplyBytes = 320;
inline constexpr std::size_t kReplySets = 512;
inline constexpr std::size_t kReplyWays = 8;
/// A client gives up a call, or reuses its XID, only long after this.
inline constexpr std::uint64_t kKeepReplyNs = 120'000'000'000;

class ReplyCache {
 public:
  struct Key {
    PeerAddress peer;
    rpc::Xid xid{};
    std::uint32_t procedure = 0;
    std::uint64_t arguments = 0;  ///< keyed hash
    bool operator==(const Key&) const = default;
  };

  explicit ReplyCache(const HashKey& key) : hash_key_(key), entries_(kReplySets * kReplyWays) {}

  Key key_of(const Call& call) const noexcept {
    return {call.peer(), call.header().xid, call.header().procedure, siphash(hash_key_, call.arguments())};
  }

  /// For whom an entry is.
  enum class Reader : std::uint64_t { Anyone = 0 };
  Reader only(const HostName& host) const noexcept {
    return static_cast<Reader>(siphash(hash_key_, std::as_bytes(std::span(host.view()))) | 1);
  }

  /// The cached results, or an empty span. `host` is the caller's.
  std::span<const std::byte> find(const Key& key, const HostName& host, std::uint64_t now_ns) noexcept {
    for (Entry& entry : set_of(key))
      if (entry.bytes > 0 && entry.key == key && now_ns - entry.made_ns < kKeepReplyNs &&
          (entry.reader == Reader::Anyone || entry.reader == only(host)))
        return {entry.results.data(), entry.bytes};
    return {};
  }

  void keep(const Key& key, Reader reader, std::span<const std::byte> results,
            std::uint64_t now_ns) noexcept {
    if (results.empty() || results.size() > kMaxKeptReplyBytes) return;
    const auto set = set_of(key);
    Entry* oldest = &set.front();
    for (Entry& entry : set)
      if (entry.bytes == 0 || (oldest->bytes != 0 && entry.made_ns < oldest->made_ns)) oldest = &entry;
    oldest->key = key;
    oldest->reader = reader;
    oldest->made_ns = now_ns;
    oldest->bytes = static_cast<std::uint32_t>(results.size());
    std::memcpy(oldest->results.data(), results.data(), results.size());
  }

 private:
  struct Entry {
    Key key;
    Reader reader = Reader::Anyone;
    std::uint64_t made_ns = 0;
    std::uint32_t bytes = 0;  ///< zero: empty
    std::array<std::byte, kMaxKeptReplyBytes> results;
  };
  std::span<Entry> set_of(const Key& key) noexcept {
    const std::uint64_t hash = key.arguments ^ (static_cast<std::uint64_t>(key.xid) * 0x9E3779B97F4A7C15u);
    return {&entries_[(hash >> 32) % kReplySets * kReplyWays], kReplyWays};
  }

  const HashKey hash_key_;
  FixedArray<Entry> entries_;
};

}  // namespace sluice::service::memory
