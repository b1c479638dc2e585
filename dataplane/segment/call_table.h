// SPDX-License-Identifier: Apache-2.0
//
// Call counts by client class, procedure and result, with latencies. The reactor is the only writer: the
// message path counts directly in shared memory. Any thread or process may read. Zeroed memory is an empty
// table.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "dataplane/segment/histogram.h"

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

}  // namespace sluice::segment
