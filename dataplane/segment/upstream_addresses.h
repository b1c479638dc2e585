// SPDX-License-Identifier: Apache-2.0
//
// Where upstream servers are: what the hosts of the configuration resolve to, and which of these addresses answer.
//
// Plain values. The control plane's thread for it (controlplane/upstreams) is the only writer, through the SeqLock in
// Layout; any other thread or process reads a copy. The data plane goes on with what it has read last.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "dataplane/base/net_address.h"
#include "dataplane/base/seqlock.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/segment/config_block.h"
#include "dataplane/segment/upstreams.h"

namespace sluice::segment {

/// Of all hosts of an upstream together; more are not used.
inline constexpr std::uint32_t kMaxUpstreamAddresses = 16;

/// Period of the NULL calls by which the control plane looks whether an address answers.
inline constexpr std::uint64_t kAddressCheckNs = 5'000'000'000;
/// An address that has left so many of them unanswered, one after the other, is not chosen while there is another.
inline constexpr std::uint32_t kBadChecks = 2;

/// An only address is not asked: both counts are zero.
struct UpstreamAddress {
  PeerAddress address;
  std::uint32_t answers = 0;   ///< to NULL, since the last that was missing
  std::uint32_t failures = 0;  ///< since the last answer
  /// Place of its host in the configuration. Earlier hosts are preferred; the addresses of one host are equal.
  std::uint32_t host = 0;
};

struct UpstreamAddressList {
  char name[kMaxNameBytes]{};  ///< of the upstream
  std::uint32_t port = 0;
  std::uint32_t count = 0;  ///< zero: none of its hosts has been resolved yet
  std::array<UpstreamAddress, kMaxUpstreamAddresses> addresses;  ///< in order of their hosts
};

/// An upstream is found by its name: a data plane may be older than the configuration.
using UpstreamAddressTable = std::array<UpstreamAddressList, kMaxUpstreams>;
using SharedUpstreamAddresses = SeqLock<UpstreamAddressTable>;

/// Null: there is no such upstream.
inline const UpstreamAddressList* addresses_of(const UpstreamAddressTable& table, std::string_view name) {
  for (const UpstreamAddressList& list : table)
    if (!name.empty() && name == list.name) return &list;
  return nullptr;
}

/// Address and port for calls to an upstream.
struct UpstreamEndpoint {
  PeerAddress address;
  std::uint32_t port = 0;
};

/// Of the upstream, the first address that answers; if none does, the first. None: it has none yet.
inline std::optional<UpstreamEndpoint> answering_endpoint(const SharedUpstreamAddresses& shared,
                                                          std::string_view name) {
  const auto table = shared.read();
  const UpstreamAddressList* const list = table ? addresses_of(*table, name) : nullptr;
  if (list == nullptr || list->count == 0) return std::nullopt;
  for (std::uint32_t i = 0; i < smaller_of(list->count, kMaxUpstreamAddresses); ++i)
    if (list->addresses[i].answers > 0) return UpstreamEndpoint{list->addresses[i].address, list->port};
  return UpstreamEndpoint{list->addresses[0].address, list->port};
}

/// Returns the address of answering_endpoint().
inline std::optional<PeerAddress> answering_address(const SharedUpstreamAddresses& shared,
                                                    std::string_view name) {
  const auto endpoint = answering_endpoint(shared, name);
  return endpoint ? std::optional(endpoint->address) : std::nullopt;
}

/// Whether it is one of the upstream's.
inline bool has_address(const SharedUpstreamAddresses& shared, std::string_view name,
                        const PeerAddress& address) {
  const auto table = shared.read();
  const UpstreamAddressList* const list = table ? addresses_of(*table, name) : nullptr;
  for (std::uint32_t i = 0; list != nullptr && i < smaller_of(list->count, kMaxUpstreamAddresses); ++i)
    if (list->addresses[i].address == address) return true;
  return false;
}

}  // namespace sluice::segment
