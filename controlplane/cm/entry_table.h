// SPDX-License-Identifier: Apache-2.0
//
// Connections of an agent, indexed by the local identifier, by the peer's identifier, and by the peer's queue
// pair. Each lookup uses its own hash table with reserved size, so its cost does not depend on the number of
// connections. Single-threaded.
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
  std::array<std::byte, kMadBytes> last_sent{};  ///< message to repeat on request, or when no answer arrives
  bool has_sent = false;
  std::uint32_t retries_left = 0;
  std::uint64_t retry_interval_ns = 0;
  Timer timer;
};

class EntryTable {
 public:
  /// `secret` is the key of the hashes.
  EntryTable(std::size_t expected, std::uint64_t secret)
      : entries_(expected, KeyedHash(secret)),
        by_remote_id_(expected, KeyedHash(secret)),
        by_remote_qpn_(expected, KeyedHash(secret)) {}

  std::size_t size() const { return entries_.size(); }
  // Returns null if there is none. The address of an entry is stable until it is erased.
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
  /// Finds a connection by its peer's queue pair. Connections that have ended are not found.
  Entry* find_queue_pair(const PeerAddress& remote, std::uint32_t qpn) {
    return found_by(by_remote_qpn_, {remote, qpn});
  }

  /// Adds an entry. `id` must be unused.
  Entry& add(std::uint32_t id, const Endpoint& endpoint) {
    return entries_.try_emplace(id, id, endpoint).first->second;
  }
  void set_remote(Entry& entry, std::uint32_t remote_id, std::uint32_t remote_qpn);
  /// Removes the index of the queue pair, which the peer may use again.
  void release_queue_pair(const Entry& entry) {
    drop(by_remote_qpn_, {entry.endpoint.remote, entry.remote_qpn}, entry.id);
  }
  void erase(Entry& entry);

  /// Returns the maximum number of entries that a lookup has to compare.
  std::size_t longest_chain() const;

 private:
  using Index = std::unordered_map<RemoteKey, Entry*, KeyedHash>;

  static Entry* found_by(const Index& index, const RemoteKey& key) {
    const auto at = index.find(key);
    return at == index.end() ? nullptr : at->second;
  }
  /// Removes an index entry, unless it belongs to another entry by now.
  static void drop(Index& index, const RemoteKey& key, Id id);

  std::unordered_map<std::uint32_t, Entry, KeyedHash> entries_;
  Index by_remote_id_;
  Index by_remote_qpn_;
};

}  // namespace sluice::cm
