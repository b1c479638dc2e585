// SPDX-License-Identifier: Apache-2.0
//
// Tables of an agent: its connections with their timers, and the order in which they have arrived. The cost
// of a lookup, and of setting a timer, does not grow with the number of connections as a search would.
// Single-threaded.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <unordered_map>
#include <vector>

#include "controlplane/cm/connection_state.h"
#include "controlplane/cm/mad.h"
#include "controlplane/cm/random_numbers.h"
#include "dataplane/base/invariant.h"

namespace sluice::cm {

class TimerHeap;

/// A timer. It must outlive its time in the heap and must not move.
class Timer {
 public:
  explicit Timer(std::uint32_t id) : id_(id) {}
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  std::uint32_t id() const { return id_; }
  /// Returns zero if the timer is not set.
  std::uint64_t deadline_ns() const { return deadline_ns_; }

 private:
  friend TimerHeap;
  const std::uint32_t id_;
  std::uint64_t deadline_ns_ = 0;
  std::size_t place_ = 0;
};

/// Timers in a binary heap. A timer stores its position, so that it is set and stopped in logarithmic time.
class TimerHeap {
 public:
  /// Returns the number of timers that are set.
  std::size_t size() const { return heap_.size(); }
  /// Returns the timer with the earliest deadline, or null if none is set.
  Timer* first() const { return heap_.empty() ? nullptr : heap_.front(); }
  /// Sets the timer; zero stops it.
  void set(Timer& timer, std::uint64_t deadline_ns);

 private:
  void put(std::size_t place, Timer* timer);
  void move_up(std::size_t place);
  void move_down(std::size_t place);

  std::vector<Timer*> heap_;
};

/// State of one connection.
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

/// Connections, indexed by the local identifier, by the peer's identifier, and by the peer's queue pair.
/// Each lookup uses its own hash table with reserved size.
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
    static_cast<void>(SLUICE_INVARIANT(id != 0 && !entries_.contains(id), table_index));
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

/// Entries in the order of their arrival, in total and per source.
class EntryQueue {
 public:
  struct Item {
    std::uint32_t id;
    std::uint64_t since_ns;
  };

  /// `secret` is the key of the hashes.
  explicit EntryQueue(std::uint64_t secret) : sources_(0, KeyedHash(secret)) {}

  std::size_t size() const { return places_.size(); }
  std::size_t size_of(const PeerAddress& source) const {
    const auto at = sources_.find(source);
    return at == sources_.end() ? 0 : at->second.size();
  }
  /// Returns the oldest entry. The queue must not be empty, or must have an entry of the source,
  /// respectively.
  const Item& oldest() const { return items_.front(); }
  const Item& oldest_of(const PeerAddress& source) const { return *sources_.at(source).front(); }

  void add(std::uint32_t id, const PeerAddress& source, std::uint64_t now_ns) {
    if (!SLUICE_INVARIANT(!places_.contains(id), list_membership)) return;
    const auto item = items_.insert(items_.end(), {id, now_ns});
    OfSource& of = sources_[source];
    places_[id] = {item, of.insert(of.end(), item), source};
  }
  /// Removes an entry. Has no effect if it is not in the queue.
  void remove(std::uint32_t id) {
    const auto at = places_.find(id);
    if (at == places_.end()) return;
    const Place& place = at->second;
    const auto source = sources_.find(place.source);
    source->second.erase(place.in_source);
    if (source->second.empty()) sources_.erase(source);
    items_.erase(place.item);
    places_.erase(at);
    static_cast<void>(SLUICE_INVARIANT(items_.size() == places_.size(), list_membership));
  }

 private:
  using Items = std::list<Item>;
  using OfSource = std::list<Items::iterator>;
  struct Place {
    Items::iterator item;
    OfSource::iterator in_source;
    PeerAddress source;
  };

  Items items_;
  std::unordered_map<PeerAddress, OfSource, KeyedHash> sources_;
  std::unordered_map<std::uint32_t, Place> places_;  ///< by local identifiers, which are random
};

}  // namespace sluice::cm
