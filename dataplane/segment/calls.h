// SPDX-License-Identifier: Apache-2.0
//
// Calls of a reactor: their counts and latencies, the trace records of traced connections, and the slow ones.
// One writer, the reactor, which counts directly in shared memory on the message path; any thread or process
// reads. Zeroed memory is empty. Times are in ns.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include "dataplane/base/invariant.h"

#include "dataplane/base/net_address.h"
#include "dataplane/base/seqlock.h"
#include "dataplane/segment/histogram.h"
#include "dataplane/segment/tables.h"

namespace sluice::segment {

/// Number of client classes (controlplane/policy). Class 0 holds every client that is in no other class.
inline constexpr std::uint32_t kMaxClasses = 8;
/// Number of procedures of all programs of a reactor together. Calls of further procedures count as
/// kOtherProcedure.
inline constexpr std::uint32_t kMaxProcedures = 64;
/// Index for calls of an unknown procedure and for calls whose RPC header could not be decoded.
inline constexpr std::uint16_t kOtherProcedure = 0;

// X(name): result of a call. The names are metric label values.
#define SLUICE_CALL_STATUSES(X) \
  X(success)                    \
  X(prog_unavail)               \
  X(prog_mismatch)              \
  X(proc_unavail)               \
  X(garbage_args)               \
  X(system_err)                 \
  X(auth_error)                 \
  X(rpc_mismatch)               \
  X(rdma_error)

enum class CallStatus : std::uint8_t {
#define SLUICE_CALL_STATUS(name) name,
  SLUICE_CALL_STATUSES(SLUICE_CALL_STATUS)
#undef SLUICE_CALL_STATUS
};
inline constexpr const char* kCallStatuses[] = {
#define SLUICE_CALL_STATUS(name) #name,
    SLUICE_CALL_STATUSES(SLUICE_CALL_STATUS)
#undef SLUICE_CALL_STATUS
};
inline constexpr std::size_t kCallStatusCount = std::size(kCallStatuses);

struct ProcedureInfo {
  std::uint32_t program = 0;
  std::uint32_t version = 0;
  std::uint32_t procedure = 0;
  char program_name[16]{};
  char procedure_name[20]{};
};

struct ProcedureUse {
  std::array<std::atomic<std::uint64_t>, kCallStatusCount> calls;
  /// Latency in ns, from the loop iteration that received the call to the end of the iteration that posted
  /// its reply.
  Histogram latency;
  /// Reactor time in ns, estimated from samples (rpcrdma::CallTimes). Work that a service does for a call
  /// outside the iterations that handle its completions is not included.
  std::atomic<std::uint64_t> time_ns;

  void count(CallStatus status, std::uint64_t number = 1) noexcept {
    SLUICE_INVARIANT_DEBUG(static_cast<std::size_t>(status) < kCallStatusCount, table_index);
    auto& calls_of = calls[static_cast<std::size_t>(status)];
    calls_of.store(calls_of.load(std::memory_order_relaxed) + number, std::memory_order_relaxed);
  }
  void add_time(std::uint64_t ns) noexcept {
    time_ns.store(time_ns.load(std::memory_order_relaxed) + ns, std::memory_order_relaxed);
  }
};

struct CallTable {
  /// Number of entries used in `info`. `info` is written first and `procedures` last, both before the first
  /// call.
  std::atomic<std::uint32_t> procedures;
  std::array<ProcedureInfo, kMaxProcedures> info;
  std::array<std::array<ProcedureUse, kMaxProcedures>, kMaxClasses> use;
};

/// Names of rpcrdma::CallSlot::State in metrics and in sluicectl.
inline constexpr const char* kSlotStates[] = {
    "free",    "received",  "awaiting_call_memory",  "awaiting_read_room",
    "pulling", "executing", "awaiting_reply_memory", "pushing",
    "replying"};
inline constexpr std::size_t kSlotStateCount = std::size(kSlotStates);

struct TraceRecord {
  std::uint32_t connection = 0;
  std::uint32_t xid = 0;
  std::uint32_t program = 0;
  std::uint32_t version = 0;
  std::uint32_t procedure = 0;
  CallStatus status{};
  std::uint64_t begun_ns = 0;     ///< reactor's clock
  std::uint64_t total_ns = 0;     ///< time until the Send of the reply completed
  std::uint64_t call_bytes = 0;   ///< arguments, including those in Read chunks
  std::uint64_t reply_bytes = 0;  ///< results, including those in Write chunks
  std::array<std::uint64_t, kSlotStateCount> state_ns{};
};

/// The newest records of a reactor. Record n has index n modulo kRecords; a newer record may have overwritten
/// it when it is read.
template <typename Record, std::uint32_t Records>
struct RecordRing {
  static constexpr std::uint32_t kRecords = Records;
  std::atomic<std::uint64_t> written;
  std::array<SeqLock<Record>, kRecords> records;

  void add(const Record& record) noexcept {
    const std::uint64_t at = written.load(std::memory_order_relaxed);
    records[at % kRecords].write(record);
    SLUICE_INVARIANT_DEBUG(records[at % kRecords].sequence() % 2 == 0, sequence_lock);
    SLUICE_INVARIANT_DEBUG(written.load(std::memory_order_relaxed) == at, sequence_lock);
    // Pairs with Reader::read() and read_trace() of the admin methods: the record is complete.
    written.store(at + 1, std::memory_order_release);
  }
};
using TraceRing = RecordRing<TraceRecord, 256>;

/// Call that took longer than [observability] slow_call_ms, recorded by its reactor for tools.
struct SlowCall {
  /// Number of the record in its ring, by which a reader verifies that it found the record that it looked
  /// for.
  std::uint64_t number = 0;
  std::uint64_t ended_ns = 0;  ///< wall clock
  /// Time from the Send to the upstream's reply. Zero: not forwarded, or not answered.
  std::uint64_t upstream_ns = 0;
  PeerAddress peer;
  std::uint32_t client_class = 0;
  std::uint32_t replied = 0;  ///< zero: its connection ended first, and TraceRecord::status is not valid
  /// Record of the call. Its times have the resolution of loop iterations, unless the connection was traced.
  TraceRecord call;
};

/// Ring of slow calls. It continues across restarts of the data plane.
using SlowCallRing = RecordRing<SlowCall, 128>;
using SlowCalls = std::array<SlowCallRing, kMaxReactors>;

}  // namespace sluice::segment
