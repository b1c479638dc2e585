// SPDX-License-Identifier: Apache-2.0
//
// State shared by the responders of one engine: services, memory for long calls and large replies, and
// measurement. Owned by the engine; confined to one reactor.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "dataplane/base/cache_line.h"
#include "dataplane/rpcrdma/link/shared_memory.h"
#include "dataplane/rpcrdma/responder/call_slot.h"
#include "dataplane/rpcrdma/responder/call_times.h"
#include "dataplane/rpcrdma/responder/failed_transfers.h"
#include "dataplane/rpcrdma/responder/refusal_pace.h"
#include "dataplane/rpcrdma/responder/service_table.h"
#include "dataplane/segment/calls.h"

namespace sluice::rpcrdma {

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
