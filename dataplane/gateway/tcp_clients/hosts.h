// SPDX-License-Identifier: Apache-2.0
//
// Counts the places of a reactor that each host holds. The hash table has a secret key, because hosts choose
// their addresses. Only the constructor (setup) allocates. Only the owning reactor may call.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <span>

#include "dataplane/base/fixed_containers.h"
#include "dataplane/base/invariant.h"
#include "dataplane/base/net_address.h"
#include "dataplane/base/siphash.h"

namespace sluice::tcp_clients {

struct Host {
  PeerAddress network;       ///< IPv4 address or IPv6 /64 prefix
  std::uint32_t places = 0;  ///< zero: this entry is free
  Host* next = nullptr;      ///< next host of the same bucket, or next free entry
};

class Hosts {
 public:
  /// Setup. `places` is the maximum number of places that all hosts hold together.
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

  /// Adds a place to the host of `address` and returns the host, which stays valid until release().
  Host& take(const PeerAddress& address) noexcept {
    const PeerAddress network = network_of(address);
    Host*& bucket = buckets_[bucket_of(network)];
    Host* host = bucket;
    while (host != nullptr && host->network != network) host = host->next;
    if (host == nullptr) {
      host = free_;
      static_cast<void>(SLUICE_INVARIANT(host != nullptr && host->places == 0, pool_balance));
      free_ = host->next;
      *host = {.network = network, .places = 0, .next = bucket};
      bucket = host;
    }
    ++host->places;
    return *host;
  }

  /// Removes a place of a host. Frees the host's entry with its last place.
  void release(Host& host) noexcept {
    if (!SLUICE_INVARIANT(host.places > 0, pool_balance)) return;
    if (--host.places > 0) return;
    Host** at = &buckets_[bucket_of(host.network)];
    while (*at != &host) at = &(*at)->next;
    static_cast<void>(SLUICE_INVARIANT(host.places == 0, list_membership));
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
