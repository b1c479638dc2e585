// SPDX-License-Identifier: Apache-2.0
//
// Parameters of RPC-over-RDMA connections, fixed when a connection is established (V1-063), their form in the
// private data of connection management (RFC 8797), and the reasons for closing a connection. Plain values
// and pure functions; any thread of either plane.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "dataplane/base/pool_size.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/rpcrdma/wire/v2.h"
#include "dataplane/xdr/cursor.h"

namespace sluice::service {
class Service;
}  // namespace sluice::service

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
  /// Lets plain messages bypass the general path. False only in the test that compares the two paths.
  bool shortcuts = true;
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

  /// Returns the versions that this end serves. Version 1 cannot authenticate a host, so version 2 is
  /// required if hold_calls is set.
  rpc::VersionRange supported_versions() const noexcept {
    return {max_version >= v2::kVersion && version2.hold_calls ? v2::kVersion : 1, max_version};
  }
};

inline constexpr std::uint32_t kPrivateDataId = 0xf6ab0e18;
inline constexpr std::uint8_t kPrivateDataVersion = 1;
inline constexpr std::size_t kPrivateDataBytes = 8;
inline constexpr std::uint32_t kInlineUnitBytes = 1024;

struct PrivateData {
  bool remote_invalidation = false;
  std::uint32_t send_bytes = kDefaultInlineBytes;     ///< largest Send that the sender of this data makes
  std::uint32_t receive_bytes = kDefaultInlineBytes;  ///< size of the Receives of the sender of this data
};

/// Encodes the private data. Sizes are rounded down to whole units and clamped to the range of one byte.
inline std::array<std::byte, kPrivateDataBytes> encode_private_data(const PrivateData& data) noexcept {
  const auto size_code = [](std::uint32_t bytes) {
    return static_cast<std::byte>(bounded<std::uint32_t>(bytes / kInlineUnitBytes, 1, 256) - 1);
  };
  std::array<std::byte, kPrivateDataBytes> out;
  xdr::store_u32(out.data(), kPrivateDataId);
  out[4] = static_cast<std::byte>(kPrivateDataVersion);
  out[5] = static_cast<std::byte>(data.remote_invalidation ? 1 : 0);
  out[6] = size_code(data.send_bytes);
  out[7] = size_code(data.receive_bytes);
  return out;
}

/// Decodes private data. Returns nothing if the peer sent none that is understood; the defaults then apply
/// (RFC 8797, section 4).
inline std::optional<PrivateData> decode_private_data(std::span<const std::byte> bytes) noexcept {
  if (bytes.size() < kPrivateDataBytes || xdr::load_u32(bytes.data()) != kPrivateDataId ||
      bytes[4] != static_cast<std::byte>(kPrivateDataVersion))
    return std::nullopt;
  const auto size_of = [](std::byte code) {
    return (static_cast<std::uint32_t>(code) + 1) * kInlineUnitBytes;
  };
  return PrivateData{(bytes[5] & std::byte{1}) != std::byte{0}, size_of(bytes[6]), size_of(bytes[7])};
}

/// Returns the inline threshold for sending: the size of the peer's Receives if announced, but never more
/// than `own_limit_bytes`.
inline std::uint32_t send_inline_bytes(const std::optional<PrivateData>& peer,
                                       std::uint32_t own_limit_bytes) noexcept {
  return smaller_of(peer ? peer->receive_bytes : kDefaultInlineBytes,
                    larger_of(own_limit_bytes, kDefaultInlineBytes));
}

/// Reasons for closing a connection. The numbers are exported through the shared segment.
enum class CloseReason : std::uint8_t {
  None,
  PeerClosed,         ///< reported by connection management
  LocalClose,         ///< requested by the control plane or the application
  TransportError,     ///< a work completion with an error, or the device ended the queue pair
  RemoteAccess,       ///< the peer's memory refused an RDMA Read or Write
  InvalidationError,  ///< memory could not be fenced (RFC 8166, section 4.5.4; V1-143)
  CreditOverrun,      ///< version 2: the peer sent more than it was granted (V2-043)
  NoAnswer,           ///< version 2: the first message was never answered (V2-015)
  SequenceTimeout,    ///< version 2: a continued message made no progress (V2-095)
  NotAuthenticated,   ///< version 2: the peer did not authenticate itself in time (V2-062)
  NoCommonVersion,    ///< version 2: the server speaks none of our versions (V2-014)
  InternalError,      ///< an internal invariant was violated
  NoProgress,         ///< a call or its reply waited too long for the peer
  Unanswerable,       ///< a call can no longer be answered; the client must retransmit it
  Silent,             ///< calls were outstanding and nothing was answered, not even a NULL call
};

/// Clause that completes "closed because ..." in logs. Static, never null.
const char* to_string(CloseReason reason) noexcept;

/// Returns true for reasons that count as an error: neither side requested the close.
constexpr bool is_failure(CloseReason reason) noexcept {
  return reason != CloseReason::None && reason != CloseReason::PeerClosed &&
         reason != CloseReason::LocalClose;
}

}  // namespace sluice::rpcrdma
