// SPDX-License-Identifier: Apache-2.0
//
// A received message as passed to the two roles. Confined to one reactor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "dataplane/rpcrdma/wire/header.h"
#include "dataplane/rpcrdma/wire/v2.h"

namespace sluice::rpcrdma {

/// Buffer index of a message without a Receive, such as a second ERROR for one message.
inline constexpr std::uint16_t kNoReceive = 0xffff;

/// A message in its Receive buffer. The role that accepts it posts the buffer again and releases `assembly`.
struct ReceivedMessage {
  std::uint16_t buffer = 0;  ///< index of the Receive buffer, or kNoReceive
  bool plain = true;         ///< all fields that begin() clears are clear
  std::span<const std::byte> bytes;
  MessageHeader header{};
  std::byte* assembly = nullptr;      ///< payload of a continued message, in LinkContext::assembly
  std::uint32_t assembled_bytes = 0;  ///< length of `assembly`, in bytes

  /// Initializes a message without chunks; the caller fills in the header. Fields are set one by one because
  /// a copy in larger steps would stall on the stores that filled the source.
  void begin(std::uint16_t index, std::span<const std::byte> message) noexcept {
    buffer = index;
    plain = false;
    bytes = message;
    header.no_msg = false;
    header.chunks.reads = {};
    header.chunks.writes = {};
    header.chunks.reply.reset();
    header.header_bytes = 0;
    header.invalidate = {};
    assembly = nullptr;
    assembled_bytes = 0;
  }

  /// Initializes a message without chunks whose header is `header_bytes` long, in this version and with a
  /// procedure or type of zero. Most messages are plain and follow a plain message, so few fields change.
  [[gnu::always_inline]] void begin_plain(std::uint16_t index, std::span<const std::byte> message,
                                          std::uint32_t version, std::size_t header_bytes) noexcept {
    if (!plain) [[unlikely]]
      begin(index, message);
    plain = true;
    buffer = index;
    bytes = message;
    header.fixed.xid = static_cast<rpc::Xid>(xdr::load_u32(message.data()));
    header.fixed.version = version;
    header.fixed.credits = static_cast<Credits>(xdr::load_u32(message.data() + 2 * xdr::kUnit));
    header.fixed.procedure = 0;
    header.header_bytes = header_bytes;
  }

  std::span<const std::byte> payload() const noexcept {
    if (assembly != nullptr) return {assembly, assembled_bytes};
    return bytes.subspan(header.header_bytes);
  }
};

/// Reason for answering a message with an error message instead of a reply. Version 1 has only ERR_VERS and
/// ERR_CHUNK; every code but Vers is sent as ERR_CHUNK.
using Refusal = std::optional<v2::Error>;
inline constexpr Refusal kNoRefusal;
inline constexpr v2::Error kRefuseVersion{.code = v2::ErrorCode::Vers};
inline constexpr v2::Error kRefuseXdr{.code = v2::ErrorCode::BadXdr};
inline constexpr v2::Error kRefuseFlags{.code = v2::ErrorCode::InvalFlag};
inline constexpr v2::Error kRefuseSystem{.code = v2::ErrorCode::System};

}  // namespace sluice::rpcrdma
