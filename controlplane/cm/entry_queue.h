// SPDX-License-Identifier: Apache-2.0
//
// Entries of an agent in the order of their arrival, in total and per source. Single-threaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <unordered_map>

#include "controlplane/cm/keyed_hash.h"

namespace sluice::cm {

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
