// SPDX-License-Identifier: Apache-2.0
//
// State shared by the responders of one engine: services, memory for long calls and large replies, and
// measurement. Owned by the engine; confined to one reactor.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>
#include "dataplane/base/invariant.h"

#include "dataplane/base/cache_line.h"
#include "dataplane/base/net_address.h"
#include "dataplane/base/share_ledger.h"
#include "dataplane/rpc/message.h"
#include "dataplane/rpcrdma/link/shared_memory.h"
#include "dataplane/rpcrdma/responder/call_slot.h"
#include "dataplane/rpcrdma/responder/call_times.h"
#include "dataplane/segment/calls.h"
#include "dataplane/service/api/service.h"

namespace sluice::rpcrdma {

/// Limits the error messages that the connections of an engine send per loop iteration. A call that is
/// refused costs its sender almost nothing but costs this end as much time as one that is served, so a sender
/// of many such calls only delays itself. Waiting connections are served round robin. Confined to one
/// reactor.
class RefusalPace {
 public:
  static constexpr std::uint32_t kPerTurn = 2;

  RefusalPace() noexcept { ledger_.provide({.elements = kPerTurn, .most = kPerTurn}); }

  /// Releases the shares of the last iteration.
  void begin_turn() noexcept {
    while (used_ > 0) ledger_.give_back(*users_[--used_]);
    SLUICE_INVARIANT_DEBUG(ledger_.free() == kPerTurn, pool_balance);
  }
  /// Takes a share of this iteration. Returns false if none is left; the account must then call await(). The
  /// account must outlive the iteration.
  bool take(ShareAccount& account) noexcept {
    if ((ledger_.waiters() > 0 && !resuming_) || !ledger_.take(account)) return false;
    SLUICE_INVARIANT_DEBUG(used_ < kPerTurn, pool_balance);
    users_[used_++] = &account;
    return true;
  }
  void await(ShareAccount& account, ShareWaiter& waiter) noexcept { ledger_.await(account, waiter); }
  /// Cancels await(). No effect if `waiter` does not wait.
  void forget(ShareAccount& account, ShareWaiter& waiter) noexcept { ledger_.forget(account, waiter); }
  /// Calls waiters, up to the limit of this iteration.
  void resume_waiters() noexcept {
    if (ledger_.waiters() == 0) return;
    SLUICE_INVARIANT_DEBUG(!resuming_, list_membership);
    resuming_ = true;
    ledger_.resume(kPerTurn);
    resuming_ = false;
  }

 private:
  ShareLedger ledger_;
  std::array<ShareAccount*, kPerTurn> users_{};
  std::uint32_t used_ = 0;
  bool resuming_ = false;  ///< resume_waiters() is on the stack
};

/// Remembers calls whose RDMA Reads or Writes ended a connection with a remote access error, so that their
/// retransmission is answered with ERR_CHUNK instead of ending the next connection as well (RFC 8166, section
/// 4.5.3; V1-039). Only the XID identifies a retransmission, and any process on a host may connect from its
/// address. Entries per host are therefore limited, the oldest is replaced, and all of them expire.
class FailedTransfers {
 public:
  static constexpr std::size_t kEntries = 64;
  /// Maximum entries per host. A connection fails with one call. Linux has one connection per mount, or up to
  /// 16 with nconnect.
  static constexpr std::size_t kEntriesPerHost = 16;
  /// Lifetime of an entry, long enough for a client to reconnect: Linux waits up to 30 s between attempts.
  static constexpr std::uint64_t kLifetimeNs = 120'000'000'000;

  void add(const PeerAddress& peer, rpc::Xid xid, std::uint64_t now_ns) noexcept {
    room_for(peer) = {peer, xid, now_ns + kLifetimeNs};
    newest_until_ns_ = now_ns + kLifetimeNs;
  }
  /// Returns true if the call is remembered, and forgets it, because another call may use its XID later.
  bool take(const PeerAddress& peer, rpc::Xid xid, std::uint64_t now_ns) noexcept {
    if (now_ns >= newest_until_ns_) return false;
    for (Entry& entry : entries_) {
      if (entry.until_ns <= now_ns || entry.xid != xid || entry.peer != peer) continue;
      entry.until_ns = 0;
      return true;
    }
    return false;
  }

 private:
  struct Entry {
    PeerAddress peer;
    rpc::Xid xid{};
    std::uint64_t until_ns = 0;  ///< zero: free
  };

  /// Returns the oldest entry of a host that has reached its limit. Otherwise returns the oldest entry of
  /// all, which is free or expired if any is.
  Entry& room_for(const PeerAddress& peer) noexcept {
    Entry* oldest = &entries_[0];
    Entry* oldest_of_peer = nullptr;
    std::size_t of_peer = 0;
    for (Entry& entry : entries_) {
      if (entry.until_ns < oldest->until_ns) oldest = &entry;
      if (entry.until_ns == 0 || entry.peer != peer) continue;
      ++of_peer;
      if (oldest_of_peer == nullptr || entry.until_ns < oldest_of_peer->until_ns) oldest_of_peer = &entry;
    }
    static_cast<void>(SLUICE_INVARIANT(of_peer <= kEntriesPerHost, pool_balance));
    return of_peer < kEntriesPerHost ? *oldest : *oldest_of_peer;
  }

  std::array<Entry, kEntries> entries_{};
  std::uint64_t newest_until_ns_ = 0;
};

/// Services of one engine, by program, version and, where there are several, the port that clients connect
/// to. Confined to one reactor.
class ServiceTable final : public service::ServiceRegistry {
 public:
  /// Maximum number of services; larger than the routes of all upstreams of a data plane.
  static constexpr std::uint32_t kMaxServices = 160;

  /// Entry of a service, found by program, version and port.
  struct Entry {
    std::uint32_t program = 0;
    std::uint32_t version = 0;
    std::uint32_t port = 0;
    std::uint16_t first_procedure = segment::kOtherProcedure;  ///< index in the call table
    std::uint32_t procedures = 0;                              ///< number of procedures in the call table
    const service::Binding* binding = nullptr;
    service::Service* service = nullptr;

    /// Returns the index of a procedure in the call table.
    std::uint16_t place_of(std::uint32_t procedure) const noexcept {
      return procedure < procedures ? static_cast<std::uint16_t>(first_procedure + procedure)
                                    : segment::kOtherProcedure;
    }
  };

  /// Adds a service at setup and makes it available at `port`. Throws SetupError if there are already
  /// kMaxServices.
  void add(service::Service& service, std::uint32_t port);
  void add_unoffered(service::Service& service) override;
  // The next two functions are linear in the number of services.
  bool offer(service::Service& service, std::uint32_t port) noexcept override;
  void withdraw(const service::Service& service) noexcept override;
  /// Adds a static binding under which a service may become available later, so that its calls are counted by
  /// procedure. Called at setup.
  void add_later(const service::Binding& binding) { later_.push_back(&binding); }
  /// Assigns the procedures of all available services to entries of the call table, and then those of
  /// add_later(). Other procedures count as "other". Called at setup.
  void describe(segment::CallTable& table);
  /// Returns the entry for a program and version at a port, or null if there is none.
  const Entry* find(std::uint32_t program, std::uint32_t version, std::uint16_t port) const noexcept {
    SLUICE_INVARIANT_DEBUG(count_ <= kMaxServices, table_index);
    for (const Entry& entry : entries())
      if (entry.program == program && entry.version == version && entry.port == port) return &entry;
    return nullptr;
  }
  /// Returns the supported versions of a program at a port, or nothing if it is not served there.
  std::optional<rpc::VersionRange> versions_of(std::uint32_t program, std::uint16_t port) const noexcept;
  const std::vector<service::Service*>& all() const noexcept { return services_; }

 private:
  /// Entries of the call table for one program and version, at any port.
  struct Described {
    std::uint32_t program = 0;
    std::uint32_t version = 0;
    std::uint16_t first_procedure = segment::kOtherProcedure;
    std::uint32_t procedures = 0;
  };
  /// Maximum number of programs and versions with entries of their own in the call table.
  static constexpr std::size_t kMaxDescribed = 16;

  std::span<const Entry> entries() const noexcept { return std::span(entries_).first(count_); }
  const Described* described(const service::Binding& binding) const noexcept;
  void set_procedures(Entry& entry) const noexcept;

  std::uint32_t count_ = 0;
  /// Stored next to the count because most calls find their entry in that cache line.
  std::array<Entry, kMaxServices> entries_;
  std::vector<service::Service*> services_;
  std::vector<const service::Binding*> later_;
  std::array<Described, kMaxDescribed> described_;
  std::size_t described_count_ = 0;
};

/// Memory for calls and replies that exceed a slot's own buffers.
struct CallMemory {
  SharedMemory calls;    ///< assembled calls
  SharedMemory replies;  ///< payload of large replies
};

struct CallMeasurement {
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};

  // Every call uses this cache line and the first one of `times`.
  alignas(kCacheLine) std::array<std::uint32_t, segment::kSlotStateCount> slots_in_state{};
  /// Duration from which calls are slow and recorded; any thread.
  std::atomic<std::uint64_t> slow_ns{kNever};
  segment::SlowCallRing* slow_calls = nullptr;  ///< not null unless `slow_ns` is kNever
  segment::TraceRing* trace = nullptr;          ///< records calls of traced connections
  alignas(kCacheLine) CallTimes times;
  Clock wall_clock = nullptr;  ///< not null if slow_calls is not null
};

struct ResponderContext {
  ServiceTable services;
  CallMemory memory;
  CallMeasurement measurement;
  FailedTransfers failed_transfers;
  RefusalPace refusals;
  ReceivedMessage message;  ///< being decoded while its connection has no free slot
  rdma::Sge zero_pad;       ///< three zero bytes, for XDR round-up between gathered pieces
  /// Pieces of one reply's payload stream while it is staged.
  std::array<rdma::Sge, service::kMaxPieces + 3 * service::kMaxResultItems + 1> sources;
};

}  // namespace sluice::rpcrdma
