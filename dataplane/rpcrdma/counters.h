// SPDX-License-Identifier: Apache-2.0
//
// What the transport counts. Plain words of the owning reactor, which copies them to the shared segment
// between turns.
#pragma once

#include <cstdint>

namespace sluice::rpcrdma {

struct Counters {
  // RX
  std::uint64_t messages_received = 0;
  std::uint64_t calls_received = 0;
  std::uint64_t replies_received = 0;
  std::uint64_t errors_received = 0;  ///< RDMA_ERROR that ended one of our calls

  // TX
  std::uint64_t replies_sent = 0;
  std::uint64_t calls_sent = 0;
  std::uint64_t err_vers_sent = 0;
  std::uint64_t err_chunk_sent = 0;

  // RDMA, by who asked for it
  std::uint64_t rdma_reads = 0;  ///< work requests
  std::uint64_t rdma_read_bytes = 0;
  std::uint64_t rdma_writes = 0;  ///< work requests
  std::uint64_t rdma_write_bytes = 0;
  std::uint64_t inline_bytes_received = 0;
  std::uint64_t inline_bytes_sent = 0;

  // Shortages: calls that had to wait, by reason
  std::uint64_t waits_call_slot = 0;
  std::uint64_t waits_send_queue = 0;
  std::uint64_t waits_call_memory = 0;
  std::uint64_t waits_reply_memory = 0;
  std::uint64_t waits_credit = 0;  ///< requester

  // Bad input, by kind
  std::uint64_t bad_fragment = 0;
  std::uint64_t bad_version = 0;
  std::uint64_t bad_procedure = 0;
  std::uint64_t bad_chunk_lists = 0;
  std::uint64_t too_many_segments = 0;
  std::uint64_t xid_mismatch = 0;
  std::uint64_t misaligned_position = 0;
  std::uint64_t position_zero_in_msg = 0;
  std::uint64_t no_position_zero = 0;
  std::uint64_t bad_position = 0;  ///< beyond the message, overlapping, too many
  std::uint64_t call_too_long = 0;
  std::uint64_t no_payload = 0;
  std::uint64_t not_eligible = 0;  ///< chunk for an item that the binding does not name
  std::uint64_t write_chunk_too_small = 0;
  std::uint64_t reply_too_large = 0;
  std::uint64_t reverse_chunks_refused = 0;
  std::uint64_t done_dropped = 0;
  std::uint64_t msgp_refused = 0;
  std::uint64_t credit_overruns = 0;
  std::uint64_t failed_transfer_refused = 0;  ///< V1-039
  std::uint64_t rpc_mismatch = 0;
  std::uint64_t rpc_bad_auth = 0;
  std::uint64_t program_unavailable = 0;
  std::uint64_t unknown_xid = 0;
  std::uint64_t unusable_reply = 0;
  std::uint64_t bad_error_message = 0;
  std::uint64_t direction_not_served = 0;

  // Connections
  std::uint64_t connections_opened = 0;
  std::uint64_t connections_closed = 0;
  std::uint64_t connection_errors = 0;  ///< closed by a work completion with an error
  std::uint64_t invalidation_errors = 0;
};

}  // namespace sluice::rpcrdma
