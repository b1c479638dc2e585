// SPDX-License-Identifier: Apache-2.0
//
// What the connections of one reactor share.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "dataplane/base/intrusive_queue.h"
#include "dataplane/rpcrdma/link/counters.h"
#include "dataplane/rpcrdma/link/send_stage.h"
#include "dataplane/rpcrdma/responder/call_slot.h"
#include "dataplane/rpcrdma/responder/call_times.h"
#include "dataplane/rpcrdma/v2/version_memory.h"
#include "dataplane/segment/trace.h"
#include "dataplane/service/api/service.h"
#include "pmd/buffer_pool.h"

namespace sluice::rpcrdma {

class Connection;
class Requester;

/// Calls whose RDMA Reads or Writes ended a connection with a remote access error. Their retransmission is
/// answered with ERR_CHUNK instead of ending the next connection as well (RFC 8166, section 4.5.3; V1-039).
/// The newest kEntries are remembered.
class FailedTransfers {
 public:
  static constexpr std::size_t kEntries = 64;

  void add(const PeerAddress& peer, rpc::Xid xid) noexcept {
    Entry& entry = entries_[next_++ % kEntries];
    live_ += entry.live ? 0 : 1;
    entry = {peer, xid, true};
  }
  /// Forgets the entry that it finds: the XID may come again for another call.
  bool take(const PeerAddress& peer, rpc::Xid xid) noexcept {
    if (live_ == 0) return false;
    for (Entry& entry : entries_) {
      if (!entry.live || entry.xid != xid || entry.peer != peer) continue;
      entry.live = false;
      --live_;
      return true;
    }
    return false;
  }

 private:
  struct Entry {
    PeerAddress peer;
    rpc::Xid xid{};
    bool live = false;
  };
  std::array<Entry, kEntries> entries_{};
  std::size_t next_ = 0;
  std::size_t live_ = 0;
};

struct ServiceLookup {
  service::Service* service = nullptr;
  std::uint16_t first_procedure = segment::kOtherProcedure;  ///< in the call table
  bool program_known = false;
  rpc::VersionRange supported{};
};

class ServiceTable {
 public:
  void add(service::Service& service) { services_.push_back(&service); }
  /// Setup, when all services are there: gives their procedures places in the call table.
  void describe(segment::CallTable& table);
  ServiceLookup find(std::uint32_t program, std::uint32_t version) const noexcept {
    ServiceLookup result;
    for (std::size_t i = 0; i < services_.size(); ++i) {
      const service::Binding& binding = services_[i]->binding();
      if (binding.program != program) continue;
      if (binding.version == version)
        return {services_[i],
                i < first_procedures_.size() ? first_procedures_[i] : segment::kOtherProcedure,
                true,
                {}};
      result.supported.low =
          result.program_known ? std::min(result.supported.low, binding.version) : binding.version;
      result.supported.high = std::max(result.supported.high, binding.version);
      result.program_known = true;
    }
    return result;
  }
  const std::vector<service::Service*>& all() const noexcept { return services_; }

 private:
  std::vector<service::Service*> services_;
  std::vector<std::uint16_t> first_procedures_;  ///< kOtherProcedure where the table had no room
};

struct Shared {
  std::array<Counters, segment::kMaxClasses> counters;  ///< by class of client
  std::uint32_t classes_seen = 1;
  std::array<std::uint32_t, segment::kSlotStateCount> slots_in_state{};
  CallTimes call_times;
  segment::TraceRing* trace = nullptr;  ///< of connections that are traced
  ServiceTable services;
  rdma::BufferPool call_memory;   ///< assembled calls
  rdma::BufferPool reply_memory;  ///< payload of large replies
  CallSlotQueue waiting_call_memory;
  CallSlotQueue waiting_reply_memory;
  rdma::BufferPool assembly_memory;  ///< version 2: continued calls and properties, while their parts come
  std::vector<Connection*> awaiting_assembly;  ///< in order
  std::size_t awaiting_assembly_count = 0;
  FailedTransfers failed_transfers;
  VersionMemory version_memory;
  std::vector<Requester*> callers;  ///< for calls in the reverse direction, of connections that need one
  // Of the device.
  bool remote_invalidation = false;
  std::uint32_t max_send_bytes = ~std::uint32_t{0};
  rdma::Sge zero_pad;  ///< three zero bytes, for XDR round-up between gathered pieces
  std::uint64_t now_ns = 0;
  /// Pieces of one reply's payload stream while it is staged.
  std::array<rdma::Sge, service::kMaxPieces + 3 * service::kMaxResultItems + 1> sources;

  /// One stage serves all connections of the reactor in turn; `staged_for` is the one whose requests it
  /// holds.
  SendStage stage;
  Connection* staged_for = nullptr;

  /// Connections that have something to flush, wait for, or end at the end of the turn.
  std::vector<Connection*> touched;
  std::size_t touched_count = 0;
};

}  // namespace sluice::rpcrdma
