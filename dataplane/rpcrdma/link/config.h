// SPDX-License-Identifier: Apache-2.0
//
// Parameters of RPC-over-RDMA connections. Fixed when a connection is made (V1-063).
#pragma once

#include <cstddef>
#include <cstdint>

#include "dataplane/base/pool_size.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/rpcrdma/wire/v2.h"

namespace sluice::service {
class Service;
}

namespace sluice::rpcrdma {

/// What every version 1 peer can receive (RFC 8166, section 3.3.2; V1-061).
inline constexpr std::uint32_t kDefaultInlineBytes = 1024;
inline constexpr std::uint32_t kMinInlineBytes = 1024;
/// The largest that RFC 8797 private data can express is 256 KiB; a Receive of more than 64 KiB gains
/// nothing.
inline constexpr std::uint32_t kMaxInlineBytes = 65536;

/// Most credits of one direction of one connection, and so call slots.
inline constexpr std::uint32_t kMaxCredits = 1024;

/// Receives beyond credits and outstanding calls.
inline constexpr std::uint32_t kSpareReceives = pool_size({
    {"an RDMA_DONE of an old peer, which consumes one (V1-058)", 1},
    {"the message that a version 2 peer may send without a credit", 1},
});

/// Call slots of a connection that serves no calls: for the errors that version 2 answers them with.
inline constexpr std::uint32_t kLeastSlots = 2;

/// Longest set of properties, all parts of it together (D2-25).
inline constexpr std::uint32_t kMaxPropertyBytes = 64u << 10;
/// The same before the peer has shown who it is: enough for that, and no more than a small buffer that each
/// connection has for itself.
inline constexpr std::uint32_t kMaxStrangersPropertyBytes = 16u << 10;

enum class ReplyChunkPolicy : std::uint8_t {
  Always,    ///< an offered Reply chunk takes every executed reply that fits it (V1-120, A-02)
  IfNeeded,  ///< only replies that do not fit inline (RFC 8166, section 4.3.3)
};

/// What a version 2 client says first (D2-03).
enum class Greeting : std::uint8_t {
  Properties,
  Call,  ///< its first call, where that is short and has no chunks; properties follow
};

struct Version2Config {
  /// What we announce. The size of our Receives is ConnectionConfig::receive_inline_bytes.
  v2::Parameters parameters{.max_send_bytes = kMaxInlineBytes, .max_segments = 128};
  bool announce = true;  ///< send the parameters; false: the peer takes the defaults
  Greeting greeting = Greeting::Properties;
  /// Calls wait until Connection::admit(): the peer has to authenticate itself first (V2-062).
  bool hold_calls = false;
  bool continue_replies = true;  ///< false: replies that fit nowhere else get REPLY_RESOURCE (D2-44)
  std::uint32_t max_read_chunks = 8;
  std::uint32_t max_write_chunks = 16;
  std::uint64_t keep_alive_ns = 0;                        ///< silence after which a grant is sent; 0: never
  std::uint64_t sequence_idle_ns = 5'000'000'000;         ///< longest wait for the next part (V2-095)
  std::uint64_t first_answer_ns = 5'000'000'000;          ///< longest wait for the first answer (V2-015)
  std::uint64_t version_1_memory_ns = 3'600'000'000'000;  ///< how long a peer is taken for version 1 only
};

/// What answers a call with more Write chunks than are filled (V2-115). Who fills none has only the Reply chunk (D2-46).
inline v2::Error too_many_write_chunks(const Version2Config& limits) noexcept {
  if (limits.max_write_chunks == 0) return {.code = v2::ErrorCode::ReplyResource};
  return {.code = v2::ErrorCode::WriteChunks,
          .maximum = smaller_of(limits.max_write_chunks, kMaxWriteChunks)};
}

struct ConnectionConfig {
  // What every message needs is the first 32 bytes, beside the Receives in the same cache line of the link.
  /// The size of our Receives, which is the peer's limit for sending; and the other way round.
  std::uint32_t receive_inline_bytes = 4096;
  std::uint32_t send_inline_bytes = kDefaultInlineBytes;

  /// As responder: calls we grant, each backed by one call slot. Zero: the peer's calls are not served.
  std::uint32_t credit_grant = 64;
  /// The calls that the first reply grants; zero: all of credit_grant.
  std::uint32_t first_grant = 0;
  std::uint32_t client_class = 0;  ///< counters and latencies are kept by it

  /// As requester: calls we may have outstanding at once. Zero: no calls are made.
  std::uint32_t credits_requested = 0;

  /// Which services there are for it: those that were added to the engine with this port.
  std::uint16_t services_at = 0;
  /// Serves all calls that come on this connection, whatever their program; null: those of the engine do.
  service::Service* sole_service = nullptr;
  ReplyChunkPolicy reply_chunks = ReplyChunkPolicy::Always;

  /// True on the side that opened the connection: its calls are the forward direction.
  bool active = false;
  /// Active side: that it connects to. With the address it tells servers apart.
  std::uint16_t server_port = 0;

  /// Longest that a call waits for its peer without any progress: for RDMA Reads, for credits, for the
  /// acknowledgement of its reply. And the longest that a continued message takes in all.
  /// Then the connection ends. Zero: no limit.
  std::uint64_t progress_timeout_ns = 0;
  /// Silence after which the peer is probed: one that does not acknowledge is gone, and the connection ends.
  /// Zero: never.
  std::uint64_t probe_after_ns = 0;

  /// Highest version of RPC-over-RDMA: the one to begin with on the active side, the latest to accept on the
  /// other.
  std::uint32_t max_version = 1;
  Version2Config version2{};
};

}  // namespace sluice::rpcrdma
