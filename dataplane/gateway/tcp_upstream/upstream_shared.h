// SPDX-License-Identifier: Apache-2.0
//
// Configuration of one upstream, and the state that its parts share on one reactor: counters, time,
// addresses, XIDs, and the number of each client's calls that were never sent. Only the owning reactor may
// call; only the constructor allocates.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dataplane/base/invariant.h"
#include "dataplane/base/probes.h"
#include "dataplane/base/siphash.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/gateway/slots/upstream_slot.h"
#include "dataplane/gateway/tcp_upstream/forwarded_call.h"
#include "dataplane/gateway/tcp_upstream/upstream_addresses.h"
#include "dataplane/segment/gateways.h"
#include "dataplane/service/api/binding.h"
#include "dataplane/tcp/record_stream.h"
#include "dataplane/tcp/uring.h"
#include "pmd/device.h"
#include "pmd/shared_buffers.h"

namespace sluice::tcp_upstream {

/// Caches the time during a part of a loop iteration. Events that are handled together have the same time,
/// and each read of the clock would add several percent to the cost of a short call. Only the owning reactor
/// may call.
class IterationClock {
 public:
  using Clock = std::uint64_t (*)() noexcept;

  explicit IterationClock(Clock clock) noexcept : clock_(clock) {}

  std::uint64_t now_ns() noexcept {
    if (!known_) now_ns_ = clock_();
    known_ = true;
    return now_ns_;
  }
  /// Discards the cached time, because time has passed in the kernel or in another part of the loop
  /// iteration.
  void pass() noexcept { known_ = false; }

 private:
  const Clock clock_;
  std::uint64_t now_ns_ = 0;
  bool known_ = false;
};

/// The XIDs of the calls that are outstanding at one upstream. XIDs are assigned in order, so that an XID is
/// reused only after all 2^32 values. An upstream may treat a call with a recent XID as a retransmission and
/// answer it with an old reply (RFC 5531, section 9). Only the owning reactor may call; only the constructor
/// allocates.
class XidTable {
 public:
  /// Setup. `calls` is the maximum number of calls in the table, and `first` is an arbitrary XID.
  XidTable(std::uint32_t calls, std::uint32_t first) : slots_(std::bit_ceil(2 * calls)), next_(first) {}

  /// Returns the next XID that no call in the table has. Skips the XIDs of used slots. At most half of the
  /// slots are used, and each is skipped once per pass over the table.
  std::uint32_t next() noexcept {
    while (slot(next_) != nullptr) ++next_;
    SLUICE_INVARIANT_DEBUG(std::has_single_bit(slots_.size()), xid_table);
    return next_++;
  }
  /// Adds a call whose XID is from next(), or replaces the call that has the same XID.
  void add(ForwardedCall& forwarded) noexcept {
    ForwardedCall*& entry = slot(forwarded.xid);
    static_cast<void>(SLUICE_INVARIANT(entry == nullptr || entry->xid == forwarded.xid, xid_table));
    entry = &forwarded;
  }
  /// Removes a call that add() has added. Never removes the entry of another call.
  void remove(const ForwardedCall& forwarded) noexcept {
    ForwardedCall*& entry = slot(forwarded.xid);
    if (SLUICE_INVARIANT(entry == &forwarded, xid_table)) entry = nullptr;
  }
  /// Returns the call with this XID, or null.
  ForwardedCall* find(std::uint32_t xid) noexcept {
    ForwardedCall* const forwarded = slot(xid);
    return forwarded != nullptr && forwarded->xid == xid ? forwarded : nullptr;
  }

 private:
  ForwardedCall*& slot(std::uint32_t xid) noexcept { return slots_[xid & (slots_.size() - 1)]; }

  std::vector<ForwardedCall*> slots_;  ///< indexed by the low bits of the XID
  std::uint32_t next_;
};

/// Size in bytes of a short buffer. Each record that was received in a stream's buffer fits in it.
inline constexpr std::uint32_t kItemBytes = tcp::kStreamBytes;
/// Maximum bytes of a record that is received without reply memory, regardless of its number of fragments.
/// The mark of a further fragment still fits in the stream's buffer behind such a record.
inline constexpr std::uint64_t kMostShortReply = tcp::kStreamBytes - xdr::kUnit;

struct ReplyBuffers {
  std::uint32_t records = 128;                      ///< number of long buffers, of record_bytes() each
  std::uint32_t items = 512;                        ///< number of short buffers, of kItemBytes each
  std::uint32_t max_io_bytes = tcp::kMaxDataBytes;  ///< maximum data bytes of one READ or WRITE

  /// Returns the size in bytes of a long buffer, which holds the longest call or reply.
  std::uint32_t record_bytes() const noexcept { return tcp::record_bytes(max_io_bytes); }
  /// Returns the maximum sizes of data and messages that the gateway carries to the upstream.
  service::CarriedSizes carried() const noexcept {
    return {.data_bytes = max_io_bytes, .message_bytes = record_bytes()};
  }

  /// Returns the number of short buffers, which guarantees each client one. Each client is also guaranteed a
  /// long buffer if there are at least least_for_equal_shares() of them.
  std::uint32_t items_for(std::uint32_t clients) const noexcept {
    return larger_of(items, least_for_equal_shares(clients));
  }
};

/// Registered memory for the replies of one upstream. Each client of the reactor has a share. Upstreams do
/// not share this memory, so an upstream that does not answer cannot exhaust the memory of others. Only the
/// owning reactor may call; the constructor is setup.
class ReplyMemory {
 public:
  /// Setup. Throws SetupError.
  ReplyMemory(rdma::Device& device, const ReplyBuffers& buffers, std::uint32_t clients) {
    const std::uint32_t items = buffers.items_for(clients);
    items_.provide({device, items, kItemBytes}, equal_shares(items, clients));
    records_.provide({device, buffers.records, buffers.record_bytes()},
                     equal_shares(buffers.records, clients));
  }

  /// Returns the buffers for `need`, which must not be ReplyNeed::None.
  rdma::SharedBuffers& of(ReplyNeed need) noexcept { return need == ReplyNeed::Record ? records_ : items_; }
  const rdma::SharedBuffers& of(ReplyNeed need) const noexcept {
    return need == ReplyNeed::Record ? records_ : items_;
  }
  rdma::SharedBuffers& items() noexcept { return items_; }
  rdma::SharedBuffers& records() noexcept { return records_; }

 private:
  rdma::SharedBuffers items_;
  rdma::SharedBuffers records_;
};

using gateway::UpstreamSettings;

/// Number of dedicated connections that may still be closing while their successors are open.
inline constexpr std::uint32_t kSpareConnections = 16;

/// The settings of an upstream, and what its slot allocates at setup, which no reload changes.
struct UpstreamConfig : UpstreamSettings {
  const segment::SharedUpstreamAddresses* addresses = nullptr;  ///< outlives the upstream
  /// Maximum of `connections` after a reload. Zero: a reload cannot raise their number.
  std::uint32_t most_connections = 0;
  std::uint32_t max_calls = 1024;  ///< configured limit of outstanding calls; numbers() may be higher
  std::uint32_t max_clients = 64;  ///< number of client connections of the reactor
  std::uint32_t credits = 64;      ///< maximum credits per client
  ReplyBuffers replies;
  DuplicateRequestCache* cache = nullptr;  ///< shared by all reactors; outlives the upstream

  /// Returns the number of shared connections to allocate at setup.
  std::uint32_t shared_room() const noexcept { return larger_of(connections, most_connections); }
  /// Returns the number of the reactor's connections to allocate at setup, shared and dedicated.
  std::uint32_t all_connections() const noexcept { return shared_room() + max_clients + kSpareConnections; }
  /// Returns the maximum number of outstanding calls: max_calls, or the higher number that guarantees each
  /// client one.
  std::uint32_t numbers() const noexcept {
    return larger_of(max_calls, std::bit_ceil(least_for_equal_shares(max_clients)));
  }
};

/// References that all upstreams of a reactor share.
struct UpstreamContext {
  tcp::Uring& uring;
  rdma::Device& device;
  CreditLimits& credits;
  IterationClock& clock;
};

class UpstreamShared {
 public:
  using Counter = segment::UpstreamCounter;

  UpstreamShared(const UpstreamConfig& configuration, const UpstreamContext& context, std::uint32_t of_number,
                 segment::UpstreamArea& of_area)
      : config(configuration),
        number(of_number),
        uring(context.uring),
        clock(context.clock),
        area(of_area),
        addresses(*config.addresses, config.name, config.port),
        xids(2 * config.numbers(), random_value<std::uint32_t>()),
        unsent(config.max_clients) {
    config.name.reserve(segment::kMaxNameBytes);  // no later name allocates
    publish_address();
  }

  std::uint64_t now_ns() const noexcept { return clock.now_ns(); }
  void count(Counter counter, std::uint64_t amount = 1) noexcept {
    auto& value = area.counters[static_cast<std::size_t>(counter)];
    value.store(value.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
  }
  void publish_address() noexcept {
    if (const PeerAddress* const address = addresses.current()) area.address.write(*address);
  }
  /// Counts and publishes a new address. Each connection moves to it in its next follow_address().
  void address_changed() noexcept {
    count(Counter::address_changes);
    publish_address();
  }
  void address_failed(const PeerAddress& address) noexcept {
    if (addresses.failed(address, now_ns())) address_changed();
  }

  void note_unsent(const ForwardedCall& forwarded) noexcept {
    SLUICE_INVARIANT_DEBUG(forwarded.unsent(), gateway_state);
    Unsent& of_client = unsent[forwarded.call->client()->number()];
    if (of_client.calls++ == 0) of_client.moved_ns = forwarded.begun_ns;
  }
  /// Removes a call from the unsent calls of its client. Call before changing the state in which the call is
  /// unsent().
  void no_longer_unsent(const ForwardedCall& forwarded) noexcept {
    if (!forwarded.unsent()) return;
    Unsent& of_client = unsent[forwarded.call->client()->number()];
    if (SLUICE_INVARIANT(of_client.calls > 0, pool_balance)) --of_client.calls;
    of_client.moved_ns = now_ns();
  }
  void note_sending(ForwardedCall& forwarded) noexcept {
    SLUICE_INVARIANT_DEBUG(forwarded.message.size() >= xdr::kUnit, buffer_bounds);
    no_longer_unsent(forwarded);
    forwarded.sent_ns = now_ns();
    probe::upstream_call_sent(xdr::load_u32(forwarded.message.data()), forwarded.xid,
                              forwarded.message.size());
    area.gateway_ns.record(forwarded.sent_ns - forwarded.begun_ns);
    count(Counter::calls);
    if (forwarded.resent) count(Counter::resent);
  }

  UpstreamConfig config;  ///< the settings change by Upstream::apply()
  /// Identity of the upstream in the keys of its calls, which is the same on all reactors.
  std::uint32_t identity = 0;
  const std::uint32_t number;  ///< number of the upstream in the configuration
  tcp::Uring& uring;
  IterationClock& clock;
  segment::UpstreamArea& area;
  Addresses addresses;
  XidTable xids;  ///< XIDs of outstanding calls, except under RPCSEC_GSS
  struct Unsent {
    std::uint32_t calls = 0;
    std::uint64_t moved_ns = 0;  ///< time at which a call was last sent or the first of them arrived
  };
  std::vector<Unsent> unsent;  ///< indexed by client number
};

}  // namespace sluice::tcp_upstream
