// SPDX-License-Identifier: Apache-2.0
//
// State shared by the links of one engine: the transmit stage, which one link uses at a time, memory for
// continued messages, counters, and properties of the device and of peers. Owned by the engine; confined to
// one reactor.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "dataplane/base/cache_line.h"
#include "dataplane/base/intrusive_lists.h"
#include "dataplane/base/invariant.h"
#include "dataplane/base/net_address.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/rpcrdma/link/receives.h"
#include "dataplane/rpcrdma/link/send_stage.h"
#include "dataplane/rpcrdma/link/shared_memory.h"
#include "dataplane/segment/calls.h"
#include "dataplane/segment/counters.h"

namespace sluice::rpcrdma {

/// Counters of one client class. Plain words of the owning reactor, which copies them to the shared segment
/// between loop iterations. The counters that nearly every call increments are in the first cache line.
struct alignas(kCacheLine) Counters {
#define SLUICE_COUNTER_FIELD(name, group, help) std::uint64_t name = 0;
  SLUICE_TRANSPORT_COUNTERS(SLUICE_COUNTER_FIELD)
#undef SLUICE_COUNTER_FIELD
};

/// Server address with port, since one host may run several servers.
struct ServerAddress {
  PeerAddress host;
  std::uint16_t port = 0;
  bool operator==(const ServerAddress&) const = default;
};

/// Cache of the newest kEntries servers that speak only version 1, so that the next connection to them starts
/// with version 1 (draft, section 4.3.3.2; V2-015).
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

class Link;

/// Queue entry of a link that has work at the end of the loop iteration: requests to hand to the driver,
/// senders to retry, or a connection to reap.
struct FlushEntry {
  explicit FlushEntry(std::uint16_t number) noexcept : connection(number) {}
  const std::uint16_t connection;
  QueueLink<FlushEntry> link;
};
using FlushQueue = IntrusiveQueue<FlushEntry, &FlushEntry::link>;

/// Transmit stages of the reactor. Each stage holds the work requests of one link at a time.
struct alignas(kCacheLine) Transmit {
  // The fill levels, the owners and the time share one cache line between the large arrays because every
  // message uses them.
  static_assert(sizeof(ReceiveStage::wrs) % kCacheLine == 0);
  ReceiveStage receives;
  Link* receives_for = nullptr;
  Link* staged_for = nullptr;
  FlushQueue iteration_end;
  std::uint64_t now_ns = 0;  ///< time of the loop iteration; monotonic
  SendStage stage;
};

/// Counters by client class.
class ClassCounters {
 public:
  Counters& of(std::uint32_t client_class) noexcept {
    SLUICE_INVARIANT_DEBUG(client_class < counters_.size(), table_index);
    return counters_[client_class];
  }
  /// Returns one more than the highest client class that has had a connection.
  std::uint32_t seen() const noexcept { return seen_; }
  void see(std::uint32_t client_class) noexcept { seen_ = larger_of(seen_, client_class + 1); }

 private:
  std::array<Counters, segment::kMaxClasses> counters_;
  std::uint32_t seen_ = 1;
};

struct LinkContext {
  /// Returns the time of the loop iteration; monotonic.
  std::uint64_t now_ns() const noexcept { return transmit.now_ns; }

  Transmit transmit;
  ClassCounters counters;
  SharedMemory assembly;  ///< continued messages
  VersionMemory version_memory;

  // Limits of the device.
  bool remote_invalidation = false;
  std::uint32_t max_send_bytes = ~std::uint32_t{0};
};

}  // namespace sluice::rpcrdma
