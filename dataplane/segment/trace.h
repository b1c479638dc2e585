// SPDX-License-Identifier: Apache-2.0
//
// Names of call slot states, and the trace records of calls on a traced connection. One writer, the reactor;
// any thread or process reads. Times are in ns.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "dataplane/base/seqlock.h"
#include "dataplane/segment/call_table.h"

namespace sluice::segment {

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
    written.store(at + 1, std::memory_order_release);
  }
};
using TraceRing = RecordRing<TraceRecord, 256>;

}  // namespace sluice::segment
