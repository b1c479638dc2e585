// SPDX-License-Identifier: Apache-2.0
//
// Connections that a peer has asked for and not confirmed yet, in the order of their requests. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <unordered_map>

namespace sluice::cm {

class HalfOpen {
 public:
  struct Request {
    std::uint32_t id;
    std::uint64_t since_ns;
  };

  std::size_t size() const { return places_.size(); }
  /// There is one.
  const Request& oldest() const { return requests_.front(); }
  void add(std::uint32_t id, std::uint64_t now_ns) {
    requests_.push_back({id, now_ns});
    places_[id] = std::prev(requests_.end());
  }
  /// No effect on one that is not among them.
  void remove(std::uint32_t id) {
    const auto at = places_.find(id);
    if (at == places_.end()) return;
    requests_.erase(at->second);
    places_.erase(at);
  }

 private:
  std::list<Request> requests_;
  std::unordered_map<std::uint32_t, std::list<Request>::iterator> places_;
};

}  // namespace sluice::cm
