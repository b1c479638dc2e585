// SPDX-License-Identifier: Apache-2.0
//
// Counts entries in total and per network, against both limits. Single-threaded.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>

#include "dataplane/base/net_address.h"

namespace sluice::locks {

class Shares {
 public:
  Shares(std::size_t max, std::size_t max_of_network) : max_(max), max_of_network_(max_of_network) {}

  bool room(const PeerAddress& address) const {
    const auto at = networks_.find(key(address));
    return total_ < max_ && (at == networks_.end() || at->second < max_of_network_);
  }
  void add(const PeerAddress& address, std::size_t count = 1) {
    if (count == 0) return;
    total_ += count;
    networks_[key(address)] += count;
  }
  void remove(const PeerAddress& address, std::size_t count = 1) {
    const auto at = networks_.find(key(address));
    if (at == networks_.end() || count == 0) return;
    total_ -= count;
    at->second -= count;
    if (at->second == 0) networks_.erase(at);
  }
  std::size_t total() const { return total_; }

 private:
  static PeerAddress key(const PeerAddress& address) { return network_of(address); }

  const std::size_t max_;
  const std::size_t max_of_network_;
  std::size_t total_ = 0;
  std::map<PeerAddress, std::size_t> networks_;
};

}  // namespace sluice::locks
