// SPDX-License-Identifier: Apache-2.0
//
// Parameters of RPC-over-RDMA connections. Fixed when a connection is made (V1-063).
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::rpcrdma {

/// What every version 1 peer can receive (RFC 8166, section 3.3.2; V1-061).
inline constexpr std::uint32_t kDefaultInlineBytes = 1024;
inline constexpr std::uint32_t kMinInlineBytes = 1024;
/// The largest that RFC 8797 private data can express is 256 KiB; a Receive of more than 64 KiB gains
/// nothing.
inline constexpr std::uint32_t kMaxInlineBytes = 65536;

/// Most credits of one direction of one connection, and so call slots.
inline constexpr std::uint32_t kMaxCredits = 1024;

/// Receives beyond credits and outstanding calls: for an RDMA_DONE of an old peer, which consumes one
/// (V1-058), and for the extra message a version 2 peer may send.
inline constexpr std::uint32_t kSpareReceives = 2;

enum class ReplyChunkPolicy : std::uint8_t {
  Always,    ///< an offered Reply chunk takes every executed reply that fits it (V1-120, A-02)
  IfNeeded,  ///< only replies that do not fit inline (RFC 8166, section 4.3.3)
};

struct ConnectionConfig {
  /// The size of our Receives, which is the peer's limit for sending; and the other way round.
  std::uint32_t receive_inline_bytes = 4096;
  std::uint32_t send_inline_bytes = kDefaultInlineBytes;

  /// As responder: calls we grant, each backed by one call slot. Zero: the peer's calls are not served.
  std::uint32_t credit_grant = 64;
  ReplyChunkPolicy reply_chunks = ReplyChunkPolicy::Always;

  /// As requester: calls we may have outstanding at once. Zero: no calls are made.
  std::uint32_t credits_requested = 0;

  /// True on the side that opened the connection: its calls are the forward direction.
  bool active = false;
};

}  // namespace sluice::rpcrdma
