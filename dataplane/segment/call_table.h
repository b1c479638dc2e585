// SPDX-License-Identifier: Apache-2.0
//
// What became of the calls of each procedure, by class of client, with their latencies. One writer, the
// reactor; the message path writes straight into it. Zeroed memory is an empty table.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "dataplane/segment/histogram.h"

namespace sluice::segment {

/// Classes of clients (controlplane/policy). Class 0 has everybody who is in no other.
inline constexpr std::uint32_t kMaxClasses = 8;
/// Procedures of all programs of a reactor together; the calls of further ones count as kOtherProcedure.
inline constexpr std::uint32_t kMaxProcedures = 64;
/// Calls whose procedure is not known, or of which nobody could tell what they are.
inline constexpr std::uint16_t kOtherProcedure = 0;

// X(name): how a call ends. The words are metric labels.
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
  /// Nanoseconds from the turn that took the call to the end of the turn that handed its reply to the driver.
  Histogram latency;

  void count(CallStatus status) noexcept {
    auto& calls_of = calls[static_cast<std::size_t>(status)];
    calls_of.store(calls_of.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
};

struct CallTable {
  /// Written before the first call; `procedures` last.
  std::atomic<std::uint32_t> procedures;
  std::array<ProcedureInfo, kMaxProcedures> info;
  std::array<std::array<ProcedureUse, kMaxProcedures>, kMaxClasses> use;
};

}  // namespace sluice::segment
