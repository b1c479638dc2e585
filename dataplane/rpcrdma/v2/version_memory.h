// SPDX-License-Identifier: Apache-2.0
//
// Cache of servers that speak only version 1, so that the next connection to them starts with version 1
// (draft, section 4.3.3.2; V2-015). Confined to one reactor.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "dataplane/base/net_address.h"

namespace sluice::rpcrdma {

/// Server address with port, since one host may run several servers.
struct ServerAddress {
  PeerAddress host;
  std::uint16_t port = 0;
  bool operator==(const ServerAddress&) const = default;
};

/// Remembers the newest kEntries servers.
class VersionMemory {
 public:
  static constexpr std::size_t kEntries = 64;

  void add(const ServerAddress& server, std::uint64_t until_ns) noexcept {
    for (Entry& entry : entries_)
      if (entry.until_ns > 0 && entry.server == server) return void(entry.until_ns = until_ns);
    entries_[next_++ % kEntries] = {server, until_ns};
  }
  bool version_1_only(const ServerAddress& server, std::uint64_t now_ns) const noexcept {
    for (const Entry& entry : entries_)
      if (entry.until_ns > now_ns && entry.server == server) return true;
    return false;
  }

 private:
  struct Entry {
    ServerAddress server;
    std::uint64_t until_ns = 0;
  };
  std::array<Entry, kEntries> entries_{};
  std::size_t next_ = 0;
};

}  // namespace sluice::rpcrdma
