// SPDX-License-Identifier: Apache-2.0
//
// Parameters of RPC-over-RDMA connections, fixed when a connection is established (V1-063).
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

/// Inline threshold that every version 1 peer supports, in bytes (RFC 8166, section 3.3.2; V1-061).
inline constexpr std::uint32_t kDefaultInlineBytes = 1024;
inline constexpr std::uint32_t kMinInlineBytes = 1024;
/// Maximum inline threshold, in bytes. RFC 8797 private data can express up to 256 KiB, but Receives larger
/// than 64 KiB bring no benefit.
inline constexpr std::uint32_t kMaxInlineBytes = 65536;

/// Maximum credits of one direction of one connection, and maximum call slots.
inline constexpr std::uint32_t kMaxCredits = 1024;

/// Receives beyond those for credits and outstanding calls.
inline constexpr std::uint32_t kSpareReceives = pool_size({
    {"an RDMA_DONE of an old peer, which consumes one (V1-058)", 1},
    {"the message that a version 2 peer may send without a credit", 1},
});

/// Call slots of a connection that serves no calls. Version 2 needs them for the errors that answer such
/// calls.
inline constexpr std::uint32_t kLeastSlots = 2;

/// Maximum length of a set of properties, the sum over all its parts (D2-25).
inline constexpr std::uint32_t kMaxPropertyBytes = 64u << 10;
/// Maximum length of a set of properties before the peer has authenticated itself. It is enough for
/// authentication and fits a small buffer, which each connection is guaranteed.
inline constexpr std::uint32_t kMaxStrangersPropertyBytes = 16u << 10;

enum class ReplyChunkPolicy : std::uint8_t {
  Always,    ///< an offered Reply chunk is used for every executed reply that fits it (V1-120, A-02)
  IfNeeded,  ///< a Reply chunk is used only for replies that do not fit inline (RFC 8166, section 4.3.3)
};

/// First message of a version 2 client (D2-03).
enum class Greeting : std::uint8_t {
  Properties,
  Call,  ///< the first call if it is short and has no chunks, followed by properties
};

struct Version2Config {
  /// Properties that we announce. ConnectionConfig::receive_inline_bytes is the size of our Receives.
  v2::Parameters parameters{.max_send_bytes = kMaxInlineBytes, .max_segments = 128};
  bool announce = true;  ///< send the parameters; false: the peer assumes the defaults
  Greeting greeting = Greeting::Properties;
  /// Holds calls until Connection::admit(), because the peer must authenticate itself first (V2-062).
  bool hold_calls = false;
  /// false: replies that fit neither inline nor a Reply chunk are answered with REPLY_RESOURCE (D2-44)
  bool continue_replies = true;
  std::uint32_t max_read_chunks = 8;
  std::uint32_t max_write_chunks = 16;
  std::uint64_t keep_alive_ns = 0;                        ///< idle time after which a grant is sent; 0: never
  std::uint64_t sequence_idle_ns = 5'000'000'000;         ///< maximum wait for the next part (V2-095)
  std::uint64_t first_answer_ns = 5'000'000'000;          ///< maximum wait for the first answer (V2-015)
  std::uint64_t version_1_memory_ns = 3'600'000'000'000;  ///< how long a peer is remembered as version 1 only
};

/// Returns the error for a call with more Write chunks than the responder fills (V2-115). A responder that
/// fills none supports only the Reply chunk (D2-46).
inline v2::Error too_many_write_chunks(const Version2Config& limits) noexcept {
  if (limits.max_write_chunks == 0) return {.code = v2::ErrorCode::ReplyResource};
  return {.code = v2::ErrorCode::WriteChunks,
          .maximum = smaller_of(limits.max_write_chunks, kMaxWriteChunks)};
}

struct ConnectionConfig {
  // The first 32 bytes hold the fields that every message uses; they share a cache line of the link with
  // Receives.
  /// Inline thresholds, in bytes: the size of our Receives, which limits the peer's Sends, and the limit of
  /// our Sends.
  std::uint32_t receive_inline_bytes = 4096;
  std::uint32_t send_inline_bytes = kDefaultInlineBytes;

  /// Credits granted as responder, each backed by one call slot. Zero: the peer's calls are not served.
  std::uint32_t credit_grant = 64;
  /// Credits granted by the first reply. Zero: all of credit_grant.
  std::uint32_t first_grant = 0;
  std::uint32_t client_class = 0;  ///< index of counters and latencies

  /// Maximum outstanding calls as requester. Zero: no calls are made.
  std::uint32_t credits_requested = 0;

  /// Port whose services this connection uses: services added to the engine with this port.
  std::uint16_t services_at = 0;
  /// Serves all calls of this connection, regardless of their program. Null: the services of the engine do.
  service::Service* sole_service = nullptr;
  ReplyChunkPolicy reply_chunks = ReplyChunkPolicy::Always;

  /// True on the side that opened the connection; its calls are the forward direction.
  bool active = false;
  /// Active side: the server's port. Together with the address it identifies the server.
  std::uint16_t server_port = 0;

  /// Timeout of a call that waits for its peer without progress: for RDMA Reads, for credits, or for the
  /// acknowledgement of its reply. It also limits the total duration of a continued message. The connection
  /// is then closed. Zero: no limit.
  std::uint64_t progress_timeout_ns = 0;
  /// Idle time after which the peer is probed. If the peer does not acknowledge the probe, the connection is
  /// closed. Zero: never.
  std::uint64_t probe_after_ns = 0;

  /// Highest version of RPC-over-RDMA: the initial version on the active side, the latest accepted version on
  /// the passive side.
  std::uint32_t max_version = 1;
  Version2Config version2{};
};

}  // namespace sluice::rpcrdma
