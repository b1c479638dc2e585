// SPDX-License-Identifier: Apache-2.0
//
// Number of a reactor's places that each host holds: a hash table with a secret key, because hosts choose their
// addresses. Memory is taken by the constructor (setup). Only the owning reactor may call.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <span>

#include "dataplane/base/fixed_array.h"
#include "dataplane/base/network.h"
#include "dataplane/base/random_value.h"
#include "dataplane/base/siphash.h"

namespace sluice::tcp_clients {

struct Host {
  PeerAddress network;       ///< an IPv4 address, or a /64 of IPv6
  std::uint32_t places = 0;  ///< zero: this entry is free
  Host* next = nullptr;      ///< in the same bucket, or the next free one
};

class Hosts {
 public:
  /// Setup. `places` is the most that all hosts hold together.
  explicit Hosts(std::uint32_t places)
      : key_(random_value<HashKey>()), hosts_(places), buckets_(std::bit_ceil(places)) {
    for (Host& host : hosts_) {
      host.next = free_;
      free_ = &host;
    }
  }

  /// Returns how many places the host of `address` holds.
  std::uint32_t places_of(const PeerAddress& address) const noexcept {
    const PeerAddress network = network_of(address);
    for (const Host* host = buckets_[bucket_of(network)]; host != nullptr; host = host->next)
      if (host->network == network) return host->places;
    return 0;
  }

  /// Adds a place to the host of `address`. The entry stays valid until release().
  Host& take(const PeerAddress& address) noexcept {
    const PeerAddress network = network_of(address);
    Host*& bucket = buckets_[bucket_of(network)];
    Host* host = bucket;
    while (host != nullptr && host->network != network) host = host->next;
    if (host == nullptr) {
      host = free_;
      free_ = host->next;
      *host = {.network = network, .places = 0, .next = bucket};
      bucket = host;
    }
    ++host->places;
    return *host;
  }

  /// Removes a place of a host.
  void release(Host& host) noexcept {
    if (--host.places > 0) return;
    Host** at = &buckets_[bucket_of(host.network)];
    while (*at != &host) at = &(*at)->next;
    *at = host.next;
    host.next = free_;
    free_ = &host;
  }

 private:
  std::size_t bucket_of(const PeerAddress& network) const noexcept {
    return siphash(key_, std::as_bytes(std::span(network.bytes))) & (buckets_.size() - 1);
  }

  const HashKey key_;
  FixedArray<Host> hosts_;
  FixedArray<Host*> buckets_;
  Host* free_ = nullptr;
};

}  // namespace sluice::tcp_clients
