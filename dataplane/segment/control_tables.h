// SPDX-License-Identifier: Apache-2.0
//
// Tables that the control plane publishes beside the configuration: the addresses of the upstream servers,
// and the totals of the busiest clients. Plain values, which the control plane writes through a SeqLock; any
// other thread or process reads a copy.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "dataplane/base/net_address.h"
#include "dataplane/base/seqlock.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/segment/config_block.h"
#include "dataplane/segment/gateways.h"

namespace sluice::segment {

/// Maximum of addresses per upstream, for all of its hosts together. Further addresses are ignored.
inline constexpr std::uint32_t kMaxUpstreamAddresses = 16;

/// Interval of the NULL calls with which the control plane probes an address.
inline constexpr std::uint64_t kAddressCheckNs = 5'000'000'000;
/// Probe failures in a row after which an address is avoided while there is another.
inline constexpr std::uint32_t kBadChecks = 2;

/// Address of an upstream. A sole address is not probed, so both of its counts are zero.
struct UpstreamAddress {
  PeerAddress address;
  std::uint32_t answers = 0;   ///< answers to NULL calls since the last failure
  std::uint32_t failures = 0;  ///< failures since the last answer
  /// Index of its host in the configuration. Earlier hosts are preferred; all addresses of one host are
  /// equal.
  std::uint32_t host = 0;
};

struct UpstreamAddressList {
  char name[kMaxNameBytes]{};  ///< name of the upstream
  std::uint32_t port = 0;
  std::uint32_t count = 0;                                       ///< zero: no host has been resolved yet
  std::array<UpstreamAddress, kMaxUpstreamAddresses> addresses;  ///< sorted by host
};

/// Addresses of all upstreams: results of resolving the configured hosts, and which of these addresses
/// answer. Written by the control plane's resolver thread (controlplane/upstreams); the data plane keeps
/// using the last copy that it has read. An upstream is looked up by name, because a data plane may be older
/// than the configuration.
using UpstreamAddressTable = std::array<UpstreamAddressList, kMaxUpstreams>;
using SharedUpstreamAddresses = SeqLock<UpstreamAddressTable>;

/// Returns the addresses of an upstream; null if there is no such upstream.
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

/// Returns the first address of the upstream that answers, or its first address if none answers; nullopt if
/// it has no address yet.
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

/// Returns whether `address` belongs to the upstream.
inline bool has_address(const SharedUpstreamAddresses& shared, std::string_view name,
                        const PeerAddress& address) {
  const auto table = shared.read();
  const UpstreamAddressList* const list = table ? addresses_of(*table, name) : nullptr;
  for (std::uint32_t i = 0; list != nullptr && i < smaller_of(list->count, kMaxUpstreamAddresses); ++i)
    if (list->addresses[i].address == address) return true;
  return false;
}

inline constexpr std::uint32_t kClientsShown = 16;

struct ServedCalls {
  std::uint64_t calls = 0;
  std::uint64_t time_ns = 0;         ///< sum over all calls, each from its arrival to the end of its reply
  std::uint64_t received_bytes = 0;  ///< bytes of messages and RDMA Reads
  std::uint64_t sent_bytes = 0;      ///< bytes of messages and RDMA Writes
};

struct ShownClient {
  PeerAddress peer;
  std::uint32_t in_use = 0;
  std::uint32_t unused = 0;
  ServedCalls served;  ///< totals since the client entered the table
};

/// Totals of the busiest clients, for metrics. Written by the control plane's main thread.
struct ClientTable {
  std::array<ShownClient, kClientsShown> clients;
  ServedCalls others;
};

}  // namespace sluice::segment
