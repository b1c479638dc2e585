// SPDX-License-Identifier: Apache-2.0
//
// Connections that a peer has asked for and not confirmed yet, in the order of their requests, in all and of
// each source. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <unordered_map>

#include "controlplane/cm/keyed_hash.h"

namespace sluice::cm {

class HalfOpen {
 public:
  struct Request {
    std::uint32_t id;
    std::uint64_t since_ns;
  };

  /// `secret` is that of the hashes.
  explicit HalfOpen(std::uint64_t secret) : sources_(0, KeyedHash(secret)) {}

  std::size_t size() const { return places_.size(); }
  std::size_t size_of(const PeerAddress& source) const {
    const auto at = sources_.find(source);
    return at == sources_.end() ? 0 : at->second.size();
  }
  /// There is one.
  const Request& oldest() const { return requests_.front(); }
  const Request& oldest_of(const PeerAddress& source) const { return *sources_.at(source).front(); }

  void add(std::uint32_t id, const PeerAddress& source, std::uint64_t now_ns) {
    const auto request = requests_.insert(requests_.end(), {id, now_ns});
    OfSource& of = sources_[source];
    places_[id] = {request, of.insert(of.end(), request), source};
  }
  /// No effect on one that is not among them.
  void remove(std::uint32_t id) {
    const auto at = places_.find(id);
    if (at == places_.end()) return;
    const Place& place = at->second;
    const auto source = sources_.find(place.source);
    source->second.erase(place.in_source);
    if (source->second.empty()) sources_.erase(source);
    requests_.erase(place.request);
    places_.erase(at);
  }

 private:
  using Requests = std::list<Request>;
  using OfSource = std::list<Requests::iterator>;
  struct Place {
    Requests::iterator request;
    OfSource::iterator in_source;
    PeerAddress source;
  };

  Requests requests_;
  std::unordered_map<PeerAddress, OfSource, KeyedHash> sources_;
  std::unordered_map<std::uint32_t, Place> places_;  ///< by our identifiers, which are random
};

}  // namespace sluice::cm
