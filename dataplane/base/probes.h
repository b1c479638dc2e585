// SPDX-License-Identifier: Apache-2.0
//
// USDT probes where a message enters or leaves a stage of the message path, for bpftrace, SystemTap, perf and
// gdb. A probe that nobody has enabled is one nop and a note in the ELF file. Its arguments are evaluated all
// the same, so pass what is in a register or one load away. Any thread.
//
// A connection number is unique on its reactor, so on its thread. How to use them:
// deploy/docs/internals/debugging.md, whose table of probes a test compares with this file.
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

/// The queue pair can send.
[[gnu::always_inline]] inline void connection_established(std::uint16_t connection) noexcept {
  SLUICE_PROBE(connection_established, connection);
}
/// `reason` is a CloseReason. Its slots become free later, as their work requests are flushed.
[[gnu::always_inline]] inline void connection_closed(std::uint16_t connection, std::uint8_t reason) noexcept {
  SLUICE_PROBE(connection_closed, connection, reason);
}

// --- Calls that are served

/// A call has got a call slot. `bytes` of its first message, transport header included.
[[gnu::always_inline]] inline void call_received(std::uint16_t connection, std::uint32_t xid,
                                                 std::uint16_t slot, std::uint64_t bytes) noexcept {
  SLUICE_PROBE(call_received, connection, xid, slot, bytes);
}
/// Its RDMA Reads are staged; `bytes` of all of them.
[[gnu::always_inline]] inline void reads_posted(std::uint16_t connection, std::uint32_t xid,
                                                std::uint16_t slot, std::uint64_t bytes) noexcept {
  SLUICE_PROBE(reads_posted, connection, xid, slot, bytes);
}
/// The last of them has completed.
[[gnu::always_inline]] inline void reads_finished(std::uint16_t connection, std::uint32_t xid,
                                                  std::uint16_t slot) noexcept {
  SLUICE_PROBE(reads_finished, connection, xid, slot);
}
/// The service is called; again after a wait for memory. `bytes` of arguments, those in its sink not counted.
[[gnu::always_inline]] inline void call_executing(std::uint16_t connection, std::uint32_t xid,
                                                  std::uint16_t slot, std::uint64_t bytes) noexcept {
  SLUICE_PROBE(call_executing, connection, xid, slot, bytes);
}
/// The reply is staged, with the RDMA Writes in front of it.
/// `bytes` of its payload stream, whatever carries it.
[[gnu::always_inline]] inline void reply_posted(std::uint16_t connection, std::uint32_t xid,
                                                std::uint16_t slot, std::uint64_t bytes) noexcept {
  SLUICE_PROBE(reply_posted, connection, xid, slot, bytes);
}
/// An error message is staged instead of a reply; `code` is a v2::ErrorCode.
[[gnu::always_inline]] inline void error_sent(std::uint16_t connection, std::uint32_t xid, std::uint16_t slot,
                                              std::uint32_t code) noexcept {
  SLUICE_PROBE(error_sent, connection, xid, slot, code);
}
/// The slot is free for another call: its reply is complete, or its connection has ended.
[[gnu::always_inline]] inline void slot_released(std::uint16_t connection, std::uint32_t xid,
                                                 std::uint16_t slot) noexcept {
  SLUICE_PROBE(slot_released, connection, xid, slot);
}

// --- Calls that are forwarded

/// The call is in the send queue to its upstream, under an XID of that connection.
/// `bytes` of the RPC message.
[[gnu::always_inline]] inline void upstream_call_sent(std::uint32_t xid, std::uint32_t upstream_xid,
                                                      std::uint64_t bytes) noexcept {
  SLUICE_PROBE(upstream_call_sent, xid, upstream_xid, bytes);
}
/// The upstream's reply; again after a wait for memory. `bytes` of the RPC message.
[[gnu::always_inline]] inline void upstream_reply_received(std::uint32_t xid, std::uint32_t upstream_xid,
                                                           std::uint64_t bytes) noexcept {
  SLUICE_PROBE(upstream_reply_received, xid, upstream_xid, bytes);
}

}  // namespace sluice::probe
