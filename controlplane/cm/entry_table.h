// SPDX-License-Identifier: Apache-2.0
//
// The connections of an agent, found by our identifier, by the peer's, and by the peer's queue pair. Each is
// a look into a hash table of its own, whose size is reserved: the cost does not depend on how many there
// are. One thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "controlplane/cm/connection_state.h"
#include "controlplane/cm/keyed_hash.h"
#include "controlplane/cm/mad.h"
#include "controlplane/cm/timer_heap.h"

namespace sluice::cm {

struct Entry {
  Entry(std::uint32_t number, const Endpoint& where) : id(Id{number}), endpoint(where), timer(number) {}

  const Id id;
  State state = State::RequestReceived;
  Endpoint endpoint;
  std::uint32_t remote_id = 0;
  std::uint64_t transaction_id = 0;
  std::uint32_t local_qpn = 0;
  std::uint32_t remote_qpn = 0;
  std::uint16_t path_mtu = 0;
  OwnParameters own;
  std::array<std::byte, kMadBytes> last_sent{};  ///< repeated when asked for again, or not answered
  bool has_sent = false;
  std::uint32_t retries_left = 0;
  std::uint64_t retry_interval_ns = 0;
  Timer timer;
};

class EntryTable {
 public:
  /// `secret` is that of the hashes.
  EntryTable(std::size_t expected, std::uint64_t secret)
      : entries_(expected, KeyedHash(secret)),
        by_remote_id_(expected, KeyedHash(secret)),
        by_remote_qpn_(expected, KeyedHash(secret)) {}

  std::size_t size() const { return entries_.size(); }
  // Null when there is none. An entry stays at its address until it is erased.
  Entry* find(std::uint32_t id) {
    const auto at = entries_.find(id);
    return at == entries_.end() ? nullptr : &at->second;
  }
  const Entry* find(std::uint32_t id) const {
    const auto at = entries_.find(id);
    return at == entries_.end() ? nullptr : &at->second;
  }
  Entry* find_remote(const PeerAddress& remote, std::uint32_t remote_id) {
    return found_by(by_remote_id_, {remote, remote_id});
  }
  /// Of connections that are not at their end.
  Entry* find_queue_pair(const PeerAddress& remote, std::uint32_t qpn) {
    return found_by(by_remote_qpn_, {remote, qpn});
  }

  /// `id` is not taken.
  Entry& add(std::uint32_t id, const Endpoint& endpoint) {
    return entries_.try_emplace(id, id, endpoint).first->second;
  }
  void set_remote(Entry& entry, std::uint32_t remote_id, std::uint32_t remote_qpn);
  /// Its peer may use the queue pair again.
  void release_queue_pair(const Entry& entry) {
    drop(by_remote_qpn_, {entry.endpoint.remote, entry.remote_qpn}, entry.id);
  }
  void erase(Entry& entry);

  /// The most entries that one look may have to compare.
  std::size_t longest_chain() const;

 private:
  using Index = std::unordered_map<RemoteKey, Entry*, KeyedHash>;

  static Entry* found_by(const Index& index, const RemoteKey& key) {
    const auto at = index.find(key);
    return at == index.end() ? nullptr : at->second;
  }
  /// Unless another entry has the key by now.
  static void drop(Index& index, const RemoteKey& key, Id id);

  std::unordered_map<std::uint32_t, Entry, KeyedHash> entries_;
  Index by_remote_id_;
  Index by_remote_qpn_;
};

}  // namespace sluice::cm
