// SPDX-License-Identifier: Apache-2.0
//
// What a client sends, taken apart by hand: nothing of the transport under test reads it. Pure functions, any thread.
#pragma once

#include "cli/conformance/messages.h"

namespace sluice::conformance {

/// A message as it came. Of another version than it is read by, the four fixed words alone are read.
struct ClientMessage {
  Bytes bytes;
  RawCall header;                ///< as much of it as could be read; `proc` is the type in version 2
  std::uint32_t version = 1;     ///< that it is read by
  std::uint32_t flags = 0;       ///< of version 2, as the next
  std::uint32_t invalidate = 0;  ///< rdma_inv_handle
  std::size_t header_bytes = 0;  ///< where the payload begins, or the body of properties and errors
  std::string defect;            ///< why the header cannot be read to its end; empty: it can
  bool odd_discriminator = false;

  std::span<const std::byte> payload() const { return std::span(bytes).subspan(header_bytes); }
  bool readable() const { return defect.empty(); }
  bool response() const { return (flags & v2::kResponse) != 0; }
  bool more() const { return (flags & v2::kMore) != 0; }
  bool has_chunks() const { return !header.reads.empty() || !header.writes.empty() || header.reply; }
  /// NOMSG without chunks: new credits, and nothing else (V2-040).
  bool is_grant() const { return version == 2 && of_its_version() && header.proc == 1 && !has_chunks(); }
  bool is_rpc() const { return of_its_version() && header.proc <= 1 && !is_grant(); }
  /// In version 1 msg_type of the RPC message tells the direction; an RDMA_NOMSG of a client is a call (V1-157).
  bool is_call() const {
    return is_rpc() && (version == 2 ? !response() : header.proc == 1 || word_at(payload(), 1) == 0);
  }
  bool is_reply() const {
    return is_rpc() && (version == 2 ? response() : header.proc == 0 && word_at(payload(), 1) == 1);
  }

 private:
  bool of_its_version() const { return readable() && header.version == version; }
};
ClientMessage read_client_message(Bytes bytes, std::uint32_t version = 1);

/// The header of an RPC call, wherever the message was.
struct RpcCall {
  Bytes message;  ///< as it would be on any other transport
  bool readable = false;
  std::uint32_t xid = 0, program = 0, version = 0, procedure = 0;
  std::uint32_t flavor = 0;
  std::uint32_t gss_service = 0;  ///< of RPCSEC_GSS: 1 none, 2 integrity, 3 privacy
  std::uint32_t gss_control = 0;  ///< of RPCSEC_GSS: not zero when the message makes or ends a context
  std::size_t arguments = 0;      ///< where they begin

  std::span<const std::byte> argument_bytes() const { return std::span(message).subspan(arguments); }
  bool is(std::uint32_t of_program, std::uint32_t of_version, std::uint32_t of_procedure) const {
    return readable && program == of_program && version == of_version && procedure == of_procedure;
  }
};
RpcCall read_rpc_call(Bytes message);

/// The Read chunks of a call: position, and the bytes of its segments in list order.
struct ReadChunk {
  std::uint32_t position = 0;
  std::vector<rpcrdma::Segment> segments{};
  Bytes bytes{};
  std::uint64_t length() const {
    std::uint64_t sum = 0;
    for (const auto& segment : segments) sum += segment.length;
    return sum;
  }
};
/// In the order in which their positions first occur.
std::vector<ReadChunk> read_chunks(const RawCall& header);
/// Puts the chunks into `stream`, which is the payload or the chunk of position zero. Nothing: a position is beyond the
/// message or inside another chunk.
std::optional<Bytes> assembled(std::span<const std::byte> stream, std::vector<ReadChunk> chunks);

inline std::uint64_t padded(std::uint64_t bytes) {
  return (bytes + 3) & ~std::uint64_t{3};
}

}  // namespace sluice::conformance
