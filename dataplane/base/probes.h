// SPDX-License-Identifier: Apache-2.0
//
// USDT probes where a message enters or leaves a stage of the message path, for bpftrace, SystemTap, perf and
// gdb. A disabled probe is one nop and a note in the ELF file. Its arguments are always evaluated, so pass
// values that are in a register or one load away. Any thread.
//
// A connection number is unique on its reactor, and so on its thread. Usage:
// deploy/docs/internals/debugging.md. A test compares its table of probes with this file.
#pragma once

#include <cstdint>

#if __has_include(<sys/sdt.h>)
#define SDT_USE_VARIADIC
#include <sys/sdt.h>
#define SLUICE_PROBE(name, ...) STAP_PROBEV(sluice, name, __VA_ARGS__)
#else
namespace sluice::probe {
template <typename... Arguments>
void ignore(const Arguments&...) noexcept {}
}  // namespace sluice::probe
#define SLUICE_PROBE(name, ...) ::sluice::probe::ignore(__VA_ARGS__)
#endif

namespace sluice::probe {

// --- Connections

/// Fires when the queue pair can send.
[[gnu::always_inline]] inline void connection_established(std::uint16_t connection) noexcept {
  SLUICE_PROBE(connection_established, connection);
}
/// Fires when a connection is closed. `reason` is a CloseReason. The slots of the connection become free
/// later, as their work requests are flushed.
[[gnu::always_inline]] inline void connection_closed(std::uint16_t connection, std::uint8_t reason) noexcept {
  SLUICE_PROBE(connection_closed, connection, reason);
}

// --- Served calls

/// Fires when a call gets a call slot. `bytes` is the size of its first message, including the transport
/// header.
[[gnu::always_inline]] inline void call_received(std::uint16_t connection, std::uint32_t xid,
                                                 std::uint16_t slot, std::uint64_t bytes) noexcept {
  SLUICE_PROBE(call_received, connection, xid, slot, bytes);
}
/// Fires when the RDMA Reads of a call are staged; `bytes` is their total size.
[[gnu::always_inline]] inline void reads_posted(std::uint16_t connection, std::uint32_t xid,
                                                std::uint16_t slot, std::uint64_t bytes) noexcept {
  SLUICE_PROBE(reads_posted, connection, xid, slot, bytes);
}
/// Fires when the last RDMA Read of a call has completed.
[[gnu::always_inline]] inline void reads_finished(std::uint16_t connection, std::uint32_t xid,
                                                  std::uint16_t slot) noexcept {
  SLUICE_PROBE(reads_finished, connection, xid, slot);
}
/// Fires when the service is called, and again after a wait for memory. `bytes` is the size of the arguments,
/// excluding those in the sink.
[[gnu::always_inline]] inline void call_executing(std::uint16_t connection, std::uint32_t xid,
                                                  std::uint16_t slot, std::uint64_t bytes) noexcept {
  SLUICE_PROBE(call_executing, connection, xid, slot, bytes);
}
/// Fires when the reply is staged, together with the RDMA Writes that precede it. `bytes` is the size of its
/// payload stream, regardless of what carries the stream.
[[gnu::always_inline]] inline void reply_posted(std::uint16_t connection, std::uint32_t xid,
                                                std::uint16_t slot, std::uint64_t bytes) noexcept {
  SLUICE_PROBE(reply_posted, connection, xid, slot, bytes);
}
/// Fires when an error message is staged instead of a reply; `code` is a v2::ErrorCode.
[[gnu::always_inline]] inline void error_sent(std::uint16_t connection, std::uint32_t xid, std::uint16_t slot,
                                              std::uint32_t code) noexcept {
  SLUICE_PROBE(error_sent, connection, xid, slot, code);
}
/// Fires when the slot is free for another call: its reply is complete, or its connection has ended.
[[gnu::always_inline]] inline void slot_released(std::uint16_t connection, std::uint32_t xid,
                                                 std::uint16_t slot) noexcept {
  SLUICE_PROBE(slot_released, connection, xid, slot);
}

// --- Forwarded calls

/// Fires when the call is in the send queue to its upstream, under an XID of that connection. `bytes` is the
/// size of the RPC message.
[[gnu::always_inline]] inline void upstream_call_sent(std::uint32_t xid, std::uint32_t upstream_xid,
                                                      std::uint64_t bytes) noexcept {
  SLUICE_PROBE(upstream_call_sent, xid, upstream_xid, bytes);
}
/// Fires when the upstream's reply is received, and again after a wait for memory. `bytes` is the size of the
/// RPC message.
[[gnu::always_inline]] inline void upstream_reply_received(std::uint32_t xid, std::uint32_t upstream_xid,
                                                           std::uint64_t bytes) noexcept {
  SLUICE_PROBE(upstream_reply_received, xid, upstream_xid, bytes);
}

}  // namespace sluice::probe
